"""Rows of the table for kernel sums, regression and what is asked of them."""

from __future__ import annotations

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.mechanism import lookup
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.rows import GridRows, Rows
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import grid_pairs

LABELLED = GridRows(width=3, labels=("a", "b"), unit=2 / 64, lower=(-32,), upper=(32,))
UNEVEN = GridRows(width=2, unit=0.25, lower=(-10, 0), upper=(10, 300))
FOURIER = lookup("fourier_sketch")(
    frequencies=5,
    kernel={"rational": {"bandwidth": 0.5, "distance": "l1"}},
    seed=3,
    phases=16,
    per_label=True,
    count_weight=9,
)
GAUSS = lookup("gauss_transform_sketch")(bandwidth=9.0, order=3)
MOMENTS = lookup("second_moments")()
PAIRED = lookup("paired_projections")(repetitions=4, bits=3, seed=5)


def uneven(*rows: tuple[float, float]) -> Rows:
    return Rows(np.array(rows, dtype=np.float64).reshape(-1, 2))


CASES = {
    "fourier_sketch": Case(
        mechanism=FOURIER, domain=LABELLED, metric=Symmetric(), pairs=grid_pairs(LABELLED)
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
}
