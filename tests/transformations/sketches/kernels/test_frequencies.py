"""Frequencies are drawn from the public seed alone, and folded without a change of any phase."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opendp_sim.core.errors import SpaceError
from opendp_sim.core.randomness import public_generator
from opendp_sim.domains.rows import GridRows
from opendp_sim.transformations.sketches.kernels._impl.fourier import drawn_phases
from opendp_sim.transformations.sketches.kernels._impl.kernels import GaussianKernel
from opendp_sim.transformations.sketches.kernels.fourier_sketch import FourierSketch

GRID = GridRows(width=3, unit=0.5, lower=(-20,), upper=(20,))


def sketch_of(seed=5, bandwidth=2.0):
    return FourierSketch(frequencies=8, seed=seed, kernel=GaussianKernel(bandwidth=bandwidth))


def phases(sketch, grid=GRID, *, orthogonal=False):
    terms = sketch.kernel.split(sketch.frequencies, "here")
    return drawn_phases(sketch, grid, terms, orthogonal=orthogonal)


@pytest.mark.parametrize("bandwidth", [2.0, 1e-3])
def test_phases_are_those_of_the_seed_s_frequencies(bandwidth):
    sketch = sketch_of(bandwidth=bandwidth)
    rows = np.random.default_rng(1).integers(-20, 21, (30, 3)).astype(np.float64)
    generator = public_generator(5, "fourier_sketch", "frequencies")
    drawn = sketch.kernel.frequencies(generator, 3, 8)
    offsets = public_generator(5, "fourier_sketch", "offsets").random(8)
    turns = (rows * GRID.unit) @ drawn / (2 * math.pi) + offsets
    found = phases(sketch).phases(rows).T / sketch.phases
    apart = (found - turns + 0.5) % 1.0 - 0.5
    assert np.abs(apart).max() < 1e-3


def test_a_seed_draws_the_same_and_another_seed_draws_others():
    one, again = phases(sketch_of()).folded, phases(sketch_of()).folded
    assert np.array_equal(one, again)
    assert not np.array_equal(one, phases(sketch_of(seed=6)).folded)
    assert not np.array_equal(one, phases(sketch_of(), orthogonal=True).folded)


def test_a_bandwidth_far_below_the_grid_is_refused():
    with pytest.raises(SpaceError, match="OS203"):
        phases(sketch_of(bandwidth=1e-12))
