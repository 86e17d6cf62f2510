"""Broken twins of the noise mechanisms and of the RACE sketch: the real claims, one thing wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Private
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import by_largest, less_mean, named
from tests.audit.twins.sketches import kernels as k

CELLS, SCALE = 6, 8.0
SPACE = IntVector(CELLS)
WEIGHTS = ((2, 1), (4, 3))
"""The last four cells count in threes, and their noise is three times as wide."""
Function = Callable[[Any], Any]
Fault = Callable[[Function], Function]
NOISES = ("gaussian", "laplace", "bulk_gaussian", "bulk_laplace", "rounded_gaussian")


def norm_of(key: str, *, weighted: bool = False) -> VectorNorm:
    return VectorNorm("l1" if key.endswith("laplace") else "l2", WEIGHTS if weighted else ())


def claim_of(key: str, scale: float = SCALE, *, weighted: bool = False) -> Private:
    drawn = {"sampler": "bulk" if key.startswith("bulk_") else "auto"}
    drawn = {} if key.startswith("rounded") else drawn
    claim = (
        lookup(key.removeprefix("bulk_"))
        .from_spec({"scale": scale, **drawn})
        .bind(SPACE, norm_of(key, weighted=weighted))
    )
    assert isinstance(claim, Private)
    return claim


def made(
    key: str, fault: Fault | None = None, privacy_map: Any = None, *, weighted: bool = False
) -> Any:
    claim = claim_of(key, weighted=weighted)
    if fault is not None:
        claim = replace(claim, function=fault(claim.function))
    if privacy_map is not None:
        claim = replace(claim, privacy_map=privacy_map(claim.privacy_map))
    return build(claim, key, SPACE, norm_of(key, weighted=weighted))


# --- faults of the noise ------------------------------------------------------------------------


def drawn_once(draw: Function) -> Function:
    kept: list[Any] = []

    def release(data: Any) -> Any:
        if not kept:
            kept.append(draw(np.zeros(CELLS, np.int64)))
        return np.asarray(data) + kept[0]

    return release


def one_draw_for_all(draw: Function) -> Function:
    return lambda data: np.asarray(data) + draw(np.zeros(CELLS, np.int64))[0]


def occupied_alone(draw: Function) -> Function:
    return lambda data: np.where(np.asarray(data) == 0, 0, draw(data))


def noise_twins(key: str) -> list[Twin]:
    def twin(label: str, make: Callable[[], Any], d_in: int = 1) -> Twin:
        return Twin(**named(f"{key}/{label}"), make=make, d_in=d_in)

    def half(_: Function) -> Function:
        return claim_of(key, SCALE / 2).function

    def unweighted(_: Function) -> Function:
        return claim_of(key).function

    return [
        twin("half_scale: half of the declared scale", lambda: made(key, half)),
        twin(
            "weights_forgotten: wide cells have the noise of narrow ones",
            lambda: made(key, unweighted, weighted=True),
        ),
        twin("drawn_once: the noise of the first release is kept", lambda: made(key, drawn_once)),
        twin("one_draw_for_all: one draw for all cells", lambda: made(key, one_draw_for_all)),
        twin("occupied_alone: cells that are zero get no noise", lambda: made(key, occupied_alone)),
        twin(
            "distance_ignored: the map is that of distance one, whatever the distance",
            lambda: made(key, privacy_map=lambda own: lambda d: own(1)),
            d_in=3,
        ),
    ]


# --- the RACE sketch ------------------------------------------------------------------------------

RACE = "race_sketch"
k.params[RACE] = {
    "repetitions": 4,
    "buckets": 4,
    "family": {"p_stable_l2": {"width": 2.0}},
    "seed": 1,
    "count_weight": 0,
}


def with_total(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.append(cells, len(points))


def in_percent(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    return cells if not len(points) else cells * (100 / len(points))


def neighbouring_buckets(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    del points
    table = cells.reshape(4, 4)
    return (table + np.roll(table, 1, axis=1)).ravel()


def race_twin(name: str, why: str, **faults: Any) -> Twin:
    obj, options = k.release(RACE, **faults)
    return Twin(name=f"{RACE}/{name}", why=why, make=lambda: obj, options=options)


def race_twins() -> list[Twin]:
    honest = k.scale_of(RACE, "discrete_laplace")
    return [
        race_twin("one_repetition", "noise of one repetition for all of them", scale=honest / 4),
        race_twin(
            "hashes_by_count",
            "the hash functions are drawn from the number of records",
            by_count=True,
        ),
        race_twin(
            "centred_by_the_data", "the mean of the points is taken off first", before=less_mean
        ),
        race_twin("scaled_by_the_data", "points are divided by the largest", before=by_largest),
        race_twin(
            "total_for_free",
            "the number of records is released along, at no charge",
            after=with_total,
        ),
        race_twin("in_percent", "counters are divided by the number of records", after=in_percent),
        race_twin(
            "both_buckets", "a point counts in the next bucket, too", after=neighbouring_buckets
        ),
    ]


TWINS = [twin for key in NOISES for twin in noise_twins(key)] + race_twins()
CONTROLS = [
    *(Control(name=f"{key}/sound", make=lambda key=key: made(key)) for key in NOISES),
    *(
        Control(name=f"{key}/sound_weighted", make=lambda key=key: made(key, weighted=True))
        for key in ("bulk_gaussian", "bulk_laplace", "rounded_gaussian")
    ),
    *(
        Control(name=f"{RACE}/sound_{family}", make=lambda made=made_: made[0], options=made_[1])
        for family in ("discrete_laplace", "discrete_gaussian")
        for made_ in [k.release(RACE, family=family, scale=k.scale_of(RACE, family))]
    ),
]
