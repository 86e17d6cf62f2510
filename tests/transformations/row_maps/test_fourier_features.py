"""Fourier features as rows: row-local integers, bounds, the kernel they stand for, and what they are for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.errors import SimError
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.transformations.row_maps.fourier_features import (
    PHASE_RADIUS,
    FourierFeatures,
    wave_table,
)
from tests.transformations.row_maps.test_rows import assert_local

GRID = GridRows(width=5, unit=0.01, lower=(-300,), upper=(300,), labels=(0, 1))


def waves(**given: Any) -> FourierFeatures:
    return FourierFeatures(**{"frequencies": 40, "bandwidth": 2.0, "seed": 3} | given)


def points(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-300, 301, (count, 5)).astype(np.float64)


def test_rows_are_local_whole_and_no_longer_than_stated() -> None:
    claim = waves().bind(GRID, Symmetric())
    values = points(3000)
    values[0], values[1] = 300, -300
    out = claim.function(Rows(values)).values
    claim.output.check(Rows(out, np.zeros(len(out), dtype=np.int64)))
    assert claim.output.l2 is not None
    assert np.square(out).sum(axis=1).max() <= claim.output.l2**2
    assert np.square(out).sum(axis=1).max() >= 0.99 * claim.output.l2**2
    assert_local(claim.function, values[:60])
    assert claim.function(Rows(values[:0])).values.shape == (0, 80)
    found = claim.on_queries(Rows(values)).values
    assert found.tobytes() == out.tobytes()


def test_no_pair_of_the_table_is_too_long_and_it_is_a_circle() -> None:
    assert int(np.square(wave_table()).sum(axis=1).max()) <= PHASE_RADIUS**2
    angles = (np.arange(4096) + 0.5) * 2 * np.pi / 4096
    assert (
        np.abs(
            wave_table() / PHASE_RADIUS - np.stack([np.cos(angles), np.sin(angles)], axis=1)
        ).max()
        < 1e-3
    )


def test_products_are_the_kernel() -> None:
    """10,000 frequencies: a product is a mean of as many cosines; 6 deviations of 1/sqrt(2 D) and .005."""
    claim = waves(frequencies=10_000).bind(GRID, Symmetric())
    values = np.concatenate([points(6) / 4, points(6)]).round()
    real = claim.function(Rows(values)).values * claim.output.unit
    apart = np.linalg.norm(values[:, None] - values[None], axis=2) * GRID.unit
    kernel = np.exp(-np.square(apart / 2.0))
    assert np.abs(real @ real.T - kernel).max() < 6 / np.sqrt(20_000) + 0.005
    far = np.array([[40_000.0, 0, 0, 0, 0]])
    assert np.abs(claim.on_queries(Rows(far)).values @ real.T * claim.output.unit).max() < 0.05


def test_labels_and_persons_are_kept() -> None:
    grid = GridRows(width=5, lower=(-300,), upper=(300,), labels=(0, 1), ids=True)
    claim = waves().bind(grid, Symmetric())
    data = Rows(points(3), np.array([0, 1, 1]), np.array([4, 5, 4]))
    found = claim.function(data)
    assert found.labels.tolist() == [0, 1, 1]
    assert found.ids.tolist() == [4, 5, 4]
    assert claim.output.labels == (0, 1)
    assert claim.output.ids


@pytest.mark.parametrize("grid", [GridRows(width=5, lower=(-(2**50),), upper=(2**50,)), GRID])
def test_what_cannot_be_exact_is_refused(grid: GridRows) -> None:
    bandwidth = 2.0 if grid is not GRID else 1e-14
    with pytest.raises(SimError, match="OS203"):
        waves(bandwidth=bandwidth).bind(grid, Symmetric())
