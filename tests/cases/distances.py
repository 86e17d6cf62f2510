"""Rows of the table for sums of distances and what is asked of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.claims import Noise, Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import grid_pairs

LABELLED = GridRows(width=2, labels=("a", "b"), unit=0.5, lower=(-7, 0), upper=(24, 15))
EVEN = GridRows(width=2, labels=("a", "b"), unit=0.5, lower=(-4,), upper=(11,))
UNEVEN = GridRows(width=3, unit=0.25, lower=(-10, 0, 3), upper=(10, 37, 3))
BALL = GridRows(width=3, labels=("a", "b"), unit=2 / 64, lower=(-32,), upper=(32,), l2=40)
THRESHOLDS = lookup("threshold_sketch")(thresholds=13, per_label=True, count_weight=3)
TREE = lookup("moment_tree")(levels=3, p=2, per_label=True)
COUNTS = lookup("distance_tree")(levels=3)
MOMENTS = lookup("moments_sketch")(per_label=True)
SLICES = lookup("slice_sketch")(directions=7, thresholds=10, seed=2, per_label=True)


def rows(values: list[list[float]], labels: list[int] | None = None) -> Rows:
    own = None if labels is None else np.array(labels, dtype=np.int64)
    return Rows(np.array(values, dtype=np.float64), own)


def no_rows(width: int, *, labels: bool) -> Rows:
    return Rows(np.zeros((0, width)), np.zeros(0, dtype=np.int64) if labels else None)


def released(mechanism: Any, domain: GridRows, data: Rows) -> tuple[Released, dict[str, Any]]:
    claim = mechanism.bind(domain, Symmetric())
    assert isinstance(claim, Stable)
    assert claim.accumulate is not None
    flat = np.zeros(claim.output.size, dtype=np.int64)  # type: ignore[attr-defined]
    claim.accumulate(data, flat)
    noise = Noise("discrete_laplace", 3.0)
    about = Released(claim.output, claim.capabilities, noise, domain)
    return about, claim.output.split(flat)  # type: ignore[attr-defined]


THREE = rows([[0, 1, 2], [3, 4, 5], [-9, 0, 0]], [0, 1, 1])
MEANS, MEAN_ARRAYS = released(MOMENTS, BALL, THREE)
LEVELS, LEVEL_ARRAYS = released(THRESHOLDS, LABELLED, rows([[0, 1], [24, 5]], [0, 1]))

CASES = {
    "threshold_sketch": Case(
        mechanism=THRESHOLDS,
        domain=LABELLED,
        metric=Symmetric(),
        pairs=grid_pairs(LABELLED),
        attains=(no_rows(2, labels=True), rows([[24, 3], [24, 3]], [1, 1]), 2),
    ),
    "moment_tree": Case(
        mechanism=TREE,
        domain=EVEN,
        metric=Symmetric(),
        pairs=grid_pairs(EVEN),
        attains=(no_rows(2, labels=True), rows([[-4, 11], [-4, 11]], [1, 1]), 2),
    ),
    "distance_tree": Case(
        mechanism=COUNTS,
        domain=UNEVEN,
        metric=Symmetric(),
        pairs=grid_pairs(UNEVEN),
        attains=(no_rows(3, labels=False), rows([[-10, 5, 3], [-10, 5, 3]]), 2),
    ),
    "moments_sketch": Case(
        mechanism=MOMENTS,
        domain=LABELLED,  # norms from the middle of the box; from zero: tests of the sketch
        metric=Symmetric(),
        pairs=grid_pairs(LABELLED),
        attains=(no_rows(2, labels=True), rows([[24, 15], [24, 15]], [1, 1]), 2),
    ),
    "slice_sketch": Case(mechanism=SLICES, domain=BALL, metric=Symmetric(), pairs=grid_pairs(BALL)),
    "l1_embedding": Case(
        mechanism=lookup("l1_embedding")(directions=5, seed=2, bits=6, clip=0.75),
        domain=BALL,
        metric=Symmetric(),
        pairs=grid_pairs(BALL),
    ),
    "distance": Case(
        mechanism=lookup("distance")(p=2.0, mean=True),
        domain=MEANS,
        metric=Symmetric(),
        released=lambda: (MEAN_ARRAYS, THREE),
    ),
    "interval_count": Case(
        mechanism=lookup("interval_count")(radius=1.5, column=1),
        domain=LEVELS,
        metric=Symmetric(),
        released=lambda: (LEVEL_ARRAYS, rows([[0, 0], [3, 12]], [0, 0])),
    ),
    "quantiles": Case(
        mechanism=lookup("quantiles")(shares=(0.1, 0.5)),
        domain=LEVELS,
        metric=Symmetric(),
        released=lambda: (LEVEL_ARRAYS, None),
    ),
    "totals": Case(
        mechanism=lookup("totals")(),
        domain=MEANS,
        metric=Symmetric(),
        released=lambda: (MEAN_ARRAYS, None),
    ),
    "nearest_class": Case(
        mechanism=lookup("nearest_class")(),
        domain=MEANS,
        metric=Symmetric(),
        released=lambda: (MEAN_ARRAYS, THREE),
    ),
}
