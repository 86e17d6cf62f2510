"""Intervals of kernel sums under discrete Laplace noise of which one cell has the most: the noise alone, drawn here."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows, Rows

GRID = GridRows(width=1, unit=1 / 64, lower=(-64,), upper=(64,))
DRAWS = 40_000
SCALE = 50.0
SKETCHES = {
    "lattice": (
        "fourier_sketch",
        {
            "frequencies": 100,
            "seed": 1,
            "features": "deterministic",
            "kernel": {"gaussian": {"bandwidth": 1.0}},
        },
    ),
    "race": (
        "race_sketch",
        {
            "repetitions": 60,
            "buckets": 4,
            "seed": 1,
            "count_weight": 1,
            "family": {"p_stable_l2": {"width": 1.0}},
        },
    ),
}


@cache
def released(name: str) -> tuple[Released, np.ndarray]:
    """A release of no records, and what each of its cells adds to the sum at one query."""
    key, params = SKETCHES[name]
    claim = lookup(key)(**params).bind(GRID, Symmetric())
    noise = Noise("discrete_laplace", SCALE)
    of = Released(claim.output, claim.capabilities, noise, GRID)
    reader, query = claim.capabilities["kernel_sums"], Rows(np.zeros((1, 1)))
    one = np.eye(claim.output.size, dtype=np.int64)
    split = claim.output.split
    shares = [reader.estimate(split(cells), query).groups[0, 0, 0] for cells in one]
    return of, np.array(shares)


@cache
def errors_of(name: str) -> np.ndarray:
    """Draws of the sum's noise, each cell's the difference of two geometric variables."""
    generator, shares = np.random.default_rng(7), released(name)[1]
    errors = np.zeros(DRAWS)
    for share in shares[shares != 0.0]:
        geometric = generator.geometric(-np.expm1(-1 / SCALE), (2, DRAWS))
        errors += share * (geometric[0] - geometric[1])
    return errors


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SKETCHES)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99, 0.999])
def test_intervals_cover_where_one_cell_has_most_of_the_noise(name: str, confidence: float) -> None:
    """Student's quantile covered .94, .98 and .995 of .95, .99 and .999."""
    of, shares = released(name)
    empty = of.sketch.split(np.zeros(of.sketch.size, dtype=np.int64))
    bound = lookup("density")(confidence=confidence).bind(of, Symmetric())
    found = bound.function(empty, Rows(np.zeros((1, 1))))
    reach = float(found["upper"][0, 0] - found["density"][0, 0])
    assert np.square(shares).max() > 0.4 * np.square(shares).sum()
    covered = float((np.abs(errors_of(name)) <= reach).mean())
    assert covered >= confidence - 3 * (confidence * (1 - confidence) / DRAWS) ** 0.5
    if name == "race" and confidence > 0.9:  # nearly all in one cell: hardly wider than it must be
        assert covered <= confidence + 0.5 * (1 - confidence)
