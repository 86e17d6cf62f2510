"""Rows of the table for kernel sums, regression and what is asked of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import Mechanism, lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import grid_pairs

LABELLED = GridRows(width=3, labels=("a", "b"), unit=2 / 64, lower=(-32,), upper=(32,))
FIVE = GridRows(width=5, unit=0.25, lower=(0,), upper=(16,))
UNEVEN = GridRows(width=2, unit=0.25, lower=(-10, 0), upper=(10, 300))
FOURIER = lookup("fourier_sketch")(
    frequencies=5,
    kernel={"rational": {"bandwidth": 0.5, "distance": "l1"}},
    seed=3,
    phases=16,
    per_label=True,
    count_weight=9,
)
LATTICE = lookup("fourier_sketch")(
    frequencies=200, kernel={"gaussian": {"bandwidth": 20.0}}, seed=3, features="deterministic"
)
TAIL = lookup("fourier_sketch")(frequencies=90, kernel={"gaussian": {"bandwidth": 9.0}}, seed=3)
BESIDE = lookup("fourier_sketch")(
    frequencies=200,
    kernel={"gaussian": {"bandwidth": 0.5}},
    seed=3,
    per_label=True,
    moments=True,
    features="random",
)
LATTICE_BESIDE = lookup("fourier_sketch")(
    frequencies=700, kernel={"gaussian": {"bandwidth": 2.0}}, seed=3, moments=True
)
ORTHOGONAL = lookup("fourier_sketch")(
    frequencies=5, kernel={"gaussian": {"bandwidth": 9.0}}, seed=3, features="orthogonal"
)
GAUSS = lookup("gauss_transform_sketch")(bandwidth=9.0, order=3)
SUM = lookup("exponential_sum")(
    bandwidth=9.0, accuracy=0.3, structure={"fourier": {"frequencies": 3}}, seed=4
)
MOMENTS = lookup("second_moments")(radius=None)
PAIRED = lookup("paired_projections")(repetitions=4, bits=3, seed=5)

REAL = RealRows(width=2, labels=("a", "b"), lower=(-1.0,), upper=(1.0,))
FOUR = Rows(np.array([[0.1, 0.2], [0.1, 0.25], [-0.8, 0.5], [0.4, -0.4]]), np.array([0, 0, 1, 1]))


def release(sketch: Mechanism) -> Release:
    """A release of four labelled points in the box [-1, 1]^2."""
    stages = bind_steps(REAL, Symmetric(), [lookup("quantize")(bits=10), sketch])
    rows = resolve(stages, list)(FOUR)
    flat = whole_function(stages[-1].claim)(rows)  # type: ignore[arg-type]
    return Release.of_sketch(stages, flat, Noise("discrete_gaussian", 3.0), {"rho": 0.5})


def asked(query: str, of: Release, points: Any, **params: Any) -> Case:
    return Case(
        mechanism=lookup(query)(**params),
        domain=of.released,
        metric=Symmetric(),
        released=lambda: (of.arrays, None if points is None else of.queries(points)),
    )


def uneven(*rows: tuple[float, float]) -> Rows:
    return Rows(np.array(rows, dtype=np.float64).reshape(-1, 2))


CASES = {
    "fourier_sketch": Case(
        mechanism=FOURIER, domain=LABELLED, metric=Symmetric(), pairs=grid_pairs(LABELLED)
    ),
    "fourier_sketch/lattice": Case(
        mechanism=LATTICE, domain=UNEVEN, metric=Symmetric(), pairs=grid_pairs(UNEVEN)
    ),
    "fourier_sketch/tail": Case(
        mechanism=TAIL, domain=UNEVEN, metric=Symmetric(), pairs=grid_pairs(UNEVEN)
    ),
    "fourier_sketch/orthogonal": Case(
        mechanism=ORTHOGONAL, domain=UNEVEN, metric=Symmetric(), pairs=grid_pairs(UNEVEN)
    ),
    "fourier_sketch/moments": Case(
        mechanism=BESIDE, domain=LABELLED, metric=Symmetric(), pairs=grid_pairs(LABELLED)
    ),
    "fourier_sketch/lattice moments": Case(
        mechanism=LATTICE_BESIDE, domain=FIVE, metric=Symmetric(), pairs=grid_pairs(FIVE)
    ),
    "gauss_transform_sketch": Case(
        mechanism=GAUSS, domain=UNEVEN, metric=Symmetric(), pairs=grid_pairs(UNEVEN)
    ),
    "second_moments": Case(
        mechanism=MOMENTS,
        domain=UNEVEN,
        metric=Symmetric(),
        pairs=grid_pairs(UNEVEN),
        attains=(uneven((10, 300)), uneven((10, 300), (10, 300), (10, 300)), 2),
    ),
    "paired_projections": Case(
        mechanism=PAIRED,
        domain=UNEVEN,
        metric=Symmetric(),
        pairs=grid_pairs(UNEVEN),
        attains=(uneven(), uneven((1, 2), (1, 2)), 2),
    ),
    "exponential_sum": Case(
        mechanism=SUM, domain=UNEVEN, metric=Symmetric(), pairs=grid_pairs(UNEVEN)
    ),
    "regress": asked("regress", release(MOMENTS), FOUR, target=1),
    "modes": asked("modes", release(FOURIER), None, seed=2, starts=3, rounds=12),
    "outliers": asked("outliers", release(FOURIER), FOUR, threshold=0.2),
    "sample": asked("sample", release(FOURIER), FOUR, size=20, seed=5),
}
