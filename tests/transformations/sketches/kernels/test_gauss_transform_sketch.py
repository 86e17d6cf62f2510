"""What is true of the Gauss transform alone: exact moments, error bound, noise."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.domains.rows import GridRows, Rows, take
from tests.transformations.sketches.kernels._kernel_data import (
    bound,
    built,
    distances,
    grid,
    kernel_values,
    points,
)

UNIT = 1 / 2048


def toward_zero(value: Fraction) -> int:
    return math.trunc(value)


def test_moments_are_the_integers_of_the_proof() -> None:
    """Against a naive twin in rationals, corners of cells and of the box included."""
    domain = GridRows(width=2, unit=0.5, lower=(-7, 0), upper=(9, 40))
    claim = bound("gauss_transform_sketch", domain, bandwidth=4.0, order=5)
    reader = claim.capabilities["kernel_sums"]
    rows = Rows(np.array([[-7, 0], [9, 40], [0, 6], [-1, 5], [3, 17]], dtype=float))
    expected = np.zeros(reader.shape, dtype=np.int64)
    one, cell = 2**16, reader.cell
    assert cell == 6
    for row in rows.values.astype(int):
        place, powers = [], []
        for x, low in zip(row.tolist(), (-7, 0), strict=True):
            p = (x - low) // cell
            u = toward_zero(Fraction(one * (2 * (x - low - p * cell) - (cell - 1)), 2 * cell))
            power = [one]
            for _ in range(4):
                power.append(toward_zero(Fraction(power[-1] * u, one)))
            place.append(p)
            powers.append(power)
        for i, j in itertools.product(range(5), repeat=2):
            feature = toward_zero(Fraction(powers[0][i] * powers[1][j], one))
            assert abs(feature) <= one >> (i + j)
            expected[0, place[0], place[1], i, j] += feature
    assert np.array_equal(built(claim, rows)["moments"], expected)


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("order", [3, 6, 9])
def test_error_is_below_its_bound(columns: int, order: int) -> None:
    claim = bound("gauss_transform_sketch", grid(columns), bandwidth=0.7, order=order)
    rows, queries = points(500, columns, seed=1), points(60, columns, seed=2, reach=4000)
    exact = kernel_values(claim, rows, queries, UNIT)
    reader = claim.capabilities["kernel_sums"]
    found = reader.estimate(built(claim, rows), queries).groups[0, 0]
    error = np.abs(found - exact.sum(axis=0))
    assert (error <= reader.sketch_deviation(distances(claim, rows, queries, UNIT))).all()
    # Each column's tail falls by B_6 / B_3 = 1/70 and B_9 / B_6 = 1/150, down to the rounding of
    # residuals to 2**-16, at most 2.25 steps a column.
    assert error.max() <= 500 * columns * ({3: 2e-2, 6: 3e-4, 9: 2e-6}[order] + 2.25 * 2**-16)


def test_one_record_s_error_is_below_the_bound_everywhere() -> None:
    """Dense in records and queries: the worst place of a cell is among them."""
    claim = bound("gauss_transform_sketch", grid(1), bandwidth=0.3, order=4)
    reader = claim.capabilities["kernel_sums"]
    queries = Rows(np.arange(-2048, 2048, 7, dtype=float)[:, None])
    worst = 0.0
    for x in range(-400, 400, 29):
        rows = Rows(np.array([[float(x)]]))
        exact = kernel_values(claim, rows, queries, UNIT)[0]
        found = reader.estimate(built(claim, rows), queries).groups[0, 0]
        worst = max(worst, float(np.abs(found - exact).max()))
    assert worst <= reader.truncation()
    assert worst >= reader.truncation() / 50


def test_builds_in_any_pieces_are_the_same_bits() -> None:
    domain = grid(2, labels=("a", "b"))
    claim = bound("gauss_transform_sketch", domain, bandwidth=0.2, order=4, per_label=True)
    rows = Rows(points(4000, 2, seed=3).values, np.arange(4000) % 2)
    whole = np.zeros(claim.output.size, np.int64)  # type: ignore[attr-defined]
    claim.accumulate(rows, whole)  # type: ignore[misc]
    parts = np.zeros_like(whole)
    mixed = take(rows, np.random.default_rng(0).permutation(4000))
    for start, stop in ((0, 13), (13, 3000), (3000, 4000)):
        claim.accumulate(take(mixed, slice(start, stop)), parts)  # type: ignore[misc]
    assert np.array_equal(whole, parts)
    totals = claim.capabilities["kernel_sums"].totals(claim.output.split(whole))[0]  # type: ignore[attr-defined]
    assert totals.tolist() == [2000.0, 2000.0]


def test_refusals() -> None:
    with pytest.raises(SpaceError, match="OS201") as error:
        bound("gauss_transform_sketch", grid(4), bandwidth=1.0)
    assert "fourier_sketch" in error.value.hint
    for width, params in ((1, {"bandwidth": 1e-3}), (3, {"bandwidth": 0.01, "order": 8})):
        with pytest.raises(ParameterError, match="OS102"):
            bound("gauss_transform_sketch", grid(width), **params)
    with pytest.raises(SpaceError, match="OS204"):
        bound("gauss_transform_sketch", grid(1), bandwidth=1.0, per_label=True)
