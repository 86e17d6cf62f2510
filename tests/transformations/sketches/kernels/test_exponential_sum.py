"""What is true of the exponential sum alone: its error, its weights, its agreement with the mixture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from opendp_sim.core.errors import ParameterError
from opendp_sim.transformations.sketches.kernels.exponential_sum import SumReader, rates_and_weights
from tests.transformations.sketches.kernels._kernel_data import (
    bound,
    built,
    distances,
    grid,
    kernel_values,
    points,
)

UNIT = 1 / 2048
Z = np.concatenate([[0.0], np.logspace(-5, 9, 6000)])


@pytest.mark.parametrize("accuracy", [0.5, 0.1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8])
def test_error_is_below_the_stated_one_everywhere(accuracy: float) -> None:
    rates, weights = rates_and_weights(accuracy)
    found = (weights[:, None] * np.exp(-rates[:, None] * Z)).sum(axis=0)
    assert np.abs(found - 1 / (1 + Z)).max() <= accuracy
    assert len(rates) <= 6 + 5 * math.log10(1 / accuracy) ** 1.3


@pytest.mark.few(1)
@pytest.mark.parametrize("distance", ["l2", "l2_squared", "l1"])
def test_fourier_terms_estimate_the_rational_kernel(distance: str) -> None:
    """Fixed seeds: within 4 standard errors and the stated accuracy."""
    claim = bound(
        "exponential_sum",
        grid(3),
        bandwidth=0.5,
        distance=distance,
        accuracy=0.01,
        seed=4,
        structure={"fourier": {"frequencies": 800}},
    )
    rows, queries = points(200, 3, seed=1), points(15, 3, seed=2)
    exact = kernel_values(claim, rows, queries, UNIT)
    reader = claim.capabilities["kernel_sums"]
    found = reader.estimate(built(claim, rows), queries)
    deviation = np.sqrt(found.variance[0] / found.repetitions)
    error = np.abs(found.groups[0, 0] - exact.sum(axis=0))
    assert (error <= 4 * deviation + 200 * 0.01).all()
    assert (deviation <= reader.sketch_deviation(distances(claim, rows, queries, UNIT))).all()
    assert reader.totals(built(claim, rows))[0] == pytest.approx([200.0])
    assert isinstance(reader, SumReader)
    moved = np.linspace(0, 1, 200)
    change = [reader.change(step) for step in moved]
    assert (np.abs(reader.kernel(moved) - reader.kernel(np.zeros(1))) <= change).all()


def test_gauss_terms_estimate_the_rational_kernel() -> None:
    claim = bound(
        "exponential_sum",
        grid(2),
        bandwidth=0.5,
        accuracy=1e-3,
        seed=4,
        structure={"gauss_transform": {"order": 8}},
    )
    rows, queries = points(200, 2, seed=1), points(15, 2, seed=2)
    exact = kernel_values(claim, rows, queries, UNIT)
    found = claim.capabilities["kernel_sums"].estimate(built(claim, rows), queries)
    assert np.abs(found.groups[0, 0] - exact.sum(axis=0)).max() <= 200 * 1.2e-3


def test_weighted_split_costs_no_noise_under_zcdp() -> None:
    """Weighted: (sum w) / sqrt(2 rho) within 5 %; equal: sqrt(M sum w^2) times as much."""
    factors = {}
    for split in ("weighted", "equal"):
        claim = bound(
            "exponential_sum",
            grid(2),
            bandwidth=0.5,
            accuracy=1e-3,
            seed=4,
            split=split,
            structure={"fourier": {"frequencies": 300}},
        )
        reader = claim.capabilities["kernel_sums"]
        factors[split] = math.sqrt(float(claim.sensitivity.l2_squared)) * reader.noise_factor()  # type: ignore[union-attr]
    _, weights = rates_and_weights(1e-3)
    assert factors["weighted"] == pytest.approx(weights.sum(), rel=0.05)
    equal = math.sqrt(len(weights) * np.square(weights).sum())
    assert factors["equal"] == pytest.approx(equal, rel=0.05)
    assert factors["equal"] > 1.7 * factors["weighted"]


def test_refusals() -> None:
    good: dict[str, Any] = {"bandwidth": 0.5, "seed": 0, "structure": {"gauss_transform": {}}}
    with pytest.raises(ParameterError, match="OS102"):
        bound("exponential_sum", grid(2), **good, distance="l1")
    with pytest.raises(ParameterError, match=r"exponential_sum\.accuracy"):
        bound("exponential_sum", grid(2), **good, accuracy=0.6)
