from __future__ import annotations

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Noise, Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric, VectorNorm
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.domains.sketch import IntVector
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import grid_pairs, integer_vectors, real_pairs

REAL = RealRows(width=3, labels=("a", "b"), lower=(-1.0,), upper=(1.0,))
GRID = GridRows(width=3, labels=("a", "b"), unit=2 / 64, lower=(-32,), upper=(32,))
QUANTIZE = lookup("quantize")(bits=6)
RACE = lookup("race_sketch")(
    repetitions=5,
    buckets=8,
    family={"p_stable_l2": {"width": 0.5}},
    seed=11,
    per_label=True,
    count_weight=2,
)


def grid(values: list[list[float]], labels: list[int]) -> Rows:
    return Rows(np.array(values, dtype=np.float64).reshape(-1, 3), np.array(labels, dtype=np.int64))


def release() -> Release:
    stages = bind_steps(REAL, Symmetric(), [QUANTIZE, RACE])
    claim = stages[-1].claim
    assert isinstance(claim, Stable)
    assert claim.accumulate is not None
    flat = np.zeros(claim.output.size, dtype=np.int64)  # type: ignore[attr-defined]
    claim.accumulate(grid([[0, 1, 2], [3, 4, 5], [-9, 0, 0]], [0, 1, 1]), flat)
    return Release.of_sketch(stages, flat, Noise("discrete_gaussian", 3.0), {"rho": 0.5})


RELEASED: Released = release().released
QUERIES = grid([[0, 1, 2], [1, 1, 1]], [0, 0])
EMPTY = grid([], [])

CASES = {
    "quantize": Case(
        mechanism=QUANTIZE,
        domain=REAL,
        metric=Symmetric(),
        pairs=real_pairs(REAL),
        attains=(
            Rows(np.zeros((0, 3)), np.zeros(0, np.int64)),
            Rows(np.full((1, 3), 0.3), np.zeros(1, np.int64)),
            1,
        ),
    ),
    "race_sketch": Case(
        mechanism=RACE,
        domain=GRID,
        metric=Symmetric(),
        pairs=grid_pairs(GRID),
        attains=(EMPTY, grid([[1, 2, 3], [1, 2, 3]], [1, 1]), 2),
    ),
    "laplace": Case(
        mechanism=lookup("laplace")(scale=4.0),
        domain=IntVector(16),
        metric=VectorNorm("l1"),
        pairs=integer_vectors(16),
    ),
    "gaussian": Case(
        mechanism=lookup("gaussian")(scale=4.0),
        domain=IntVector(16),
        metric=VectorNorm("l2"),
        pairs=integer_vectors(16),
    ),
    "density": Case(
        mechanism=lookup("density")(estimator="median_of_means", groups=3),
        domain=RELEASED,
        metric=Symmetric(),
        released=lambda: (release().arrays, QUERIES),
    ),
    "classify": Case(
        mechanism=lookup("classify")(),
        domain=RELEASED,
        metric=Symmetric(),
        released=lambda: (release().arrays, QUERIES),
    ),
}
