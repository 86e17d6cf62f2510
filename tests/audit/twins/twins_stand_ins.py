"""Broken twins of the stand-ins: at least six a family, each broken in exactly one way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.audit.twins import stand_ins as s
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import named

_FIXED: dict[tuple[str, int], np.ndarray] = {}


def _twin(label: str, made: Any, d_in: int = 1, **options: Any) -> Twin:
    obj, own = made if isinstance(made, tuple) else (made, {})
    return Twin(**named(label), make=lambda: obj, d_in=d_in, options={**own, **options})


def _control(name: str, made: Any, d_in: int = 1, **options: Any) -> Control:
    obj, own = made if isinstance(made, tuple) else (made, {})
    return Control(name=name, make=lambda: obj, d_in=d_in, options={**own, **options})


def _without(made: tuple[Any, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
    """The same release without its declared parts: a black box."""
    return made[0], {"sample": made[1]["sample"]}


# --- dishonest noise: (core, count, declared scale) -> releases ------------------------------


def times(factor: float, draw: Callable[..., np.ndarray] = s.laplace) -> Any:
    return lambda core, count, scale: core + draw((count, core.size), scale * factor)


def some_cells(cells: slice) -> Any:
    """Some cells stay exact."""

    def add(core: np.ndarray, count: int, scale: float) -> np.ndarray:
        noise = s.laplace((count, core.size), scale)
        noise[:, cells] = 0
        return core + noise

    return add


def one_for_all(width: int) -> Any:
    """One draw is used for ``width`` cells."""

    def add(core: np.ndarray, count: int, scale: float) -> np.ndarray:
        return core + np.repeat(s.laplace((count, core.size // width), scale), width, axis=1)

    return add


def drawn_once(key: str) -> Any:
    """The noise is drawn at construction and kept."""

    def add(core: np.ndarray, count: int, scale: float) -> np.ndarray:
        noise = _FIXED.setdefault((key, core.size), s.laplace((1, core.size), scale))
        return core + np.repeat(noise, count, axis=0)

    return add


def floored(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    """Continuous noise, rounded down."""
    return np.floor(core + s.laplace((count, core.size), scale, s.FINE))


def one_sided(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    return core + np.abs(s.laplace((count, core.size), scale))


def truncated(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    """Noise is clipped at three scales, to look nicer."""
    return core + np.clip(s.laplace((count, core.size), scale), -3 * scale, 3 * scale)


def by_size(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    """Less noise where there is less data."""
    return core + s.laplace((count, core.size), scale * (0.4 if core.sum() < 3 else 1.0))


def fractional(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    """Noise in double precision on an integer sum."""
    return core + s.laplace((count, core.size), scale, 61)


R, F, T = "race", "fourier", "tree"

TWINS = [
    # RACE
    _twin("race/half_scale: half of the declared noise", s.race(add=times(0.5))),
    _twin("race/forgot_the_rows: scale 1 / epsilon: the rows were forgotten", s.race(1.0)),
    _twin(
        "race/one_row_exact: the last row is released without noise",
        s.race(add=some_cells(slice(-s.BUCKETS, None))),
    ),
    _twin(
        "race/noise_shared_in_a_row: one draw for all cells of a row",
        s.race(add=one_for_all(s.BUCKETS)),
    ),
    _twin("race/noise_drawn_once: noise drawn at construction", s.race(add=drawn_once("race"))),
    _twin(
        "race/claims_replacement: the add/remove price, stated for replacement",
        s.race(metric=s.CHANGE_ONE),
    ),
    _twin(
        "race/hash_from_data: the hash is seeded with the number of rows", s.race(replace_seed=True)
    ),
    _twin(
        "race/prefix_sum_in_row_map: single precision prefix sums inside a row map",
        s.race(running=True),
    ),
    _twin(
        "race/shape_tells_size: the number of cells depends on the number of rows",
        s.race(shape=True),
    ),
    _twin("race/floor_for_discrete: floor(sum + continuous noise)", s.race(add=floored)),
    _twin(
        "race/black_box_quarter: a quarter of the noise, nothing declared",
        _without(s.race(s.ROWS / 4)),
    ),
    # Fourier features
    # tree
    # the individual filter
    _twin(
        "knn/charged_after_answering: a record may overspend by one answer",
        s.knn(late=True),
        composed=True,
    ),
    _twin("knn/charges_half: half the price of an answer", s.knn(charge=0.5), composed=True),
    _twin("knn/filter_ignored: nobody ever drops out", s.knn(spend=False), composed=True),
    _twin(
        "knn/purse_refilled: the budget is reset after each answer",
        s.knn(refill=True),
        composed=True,
    ),
    _twin(
        "knn/silent_when_empty: without neighbours it answers 0 without noise",
        s.knn(silent_when_empty=True),
        composed=True,
    ),
    _twin(
        "knn/black_box_no_filter: nobody drops out, seen from the outside only",
        s.knn_without_filter(0.45),
    ),
    # stable top-one
    # noise
    _twin(
        "noise/ten_percent_low: nine tenths of the declared scale",
        s.counts(5.0, add=times(0.9), claim=lambda d: d / 5),
    ),
    _twin("noise/rounded_down: floor(sum + continuous noise)", s.counts(add=floored)),
    _twin("noise/one_sided: only ever adds", s.counts(add=one_sided)),
    _twin(
        "noise/clipped: noise clipped at three scales",
        s.counts(3.0, add=truncated, claim=lambda d: d / 3),
    ),
    _twin(
        "noise/less_when_small: less noise for small data",
        s.counts(2.0, add=by_size, claim=lambda d: d / 2),
    ),
    _twin("noise/drawn_once: noise drawn at construction", s.counts(add=drawn_once("noise"))),
    _twin("noise/pairs_share: one draw for two cells", s.counts(add=one_for_all(2))),
    _twin("noise/double_precision: fractional noise on an integer sum", s.counts(add=fractional)),
    _twin(
        "noise/sigma_for_variance: the variance is passed as the scale",
        s.counts(math.sqrt(0.5) ** 2, family="discrete_gaussian"),
    ),
    _twin("noise/black_box_half: half of the scale, nothing declared", _without(s.counts(0.5))),
    # composition
    _twin(
        "composition/noise_reused: the second answer reuses the first one's noise",
        s.two_counts(shared=True),
    ),
    _twin(
        "composition/overlap_as_parallel: overlapping parts charged as disjoint ones",
        s.two_counts(first=1.0, second=1.0, overlap=True),
    ),
    _twin(
        "composition/second_skipped: the second answer is 0 where the first count is 0",
        s.two_counts(skip=True),
        composed=True,
    ),
    _twin("composition/empty_raises: an empty dataset raises", s.two_counts(raises=True)),
    _twin(
        "composition/asked_again: the second question is answered twice for one price",
        s.two_counts(twice=True),
        composed=True,
    ),
]

CONTROLS = [
    _control("race/sound", s.race()),
    _control("race/sound_black_box", _without(s.race())),
    _control("race/sound_replacement", s.race(metric=s.CHANGE_ONE, claim=lambda d: 2.0 * d)),
    _control("knn/sound", s.knn(), composed=True),
    _control("knn/sound_black_box", s.knn()),
    _control("noise/sound", s.counts()),
    _control("noise/sound_gaussian", s.counts(math.sqrt(0.5), family="discrete_gaussian")),
    _control("composition/sound", s.two_counts(), composed=True),
]
