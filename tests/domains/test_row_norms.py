"""A row is longer than its bound exactly when it is, however large the integers are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.domains.row_norms import any_longer, norm_slack, row_norms


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=6), st.integers(-1, 1))
def test_no_integer_row_is_misjudged(row, off):
    square = sum(v * v for v in row)
    bound = max(0, math.isqrt(square) + off)
    assert any_longer(np.array([row], dtype=np.float64), bound) == (square > bound**2)


def test_squares_beyond_floats_are_decided_exactly():
    long, bound = 2**52 - 1, 2**52 - 1
    assert not any_longer(np.array([[long, 0.0]]), bound)
    assert any_longer(np.array([[long, 1.0]]), bound)
    assert not any_longer(np.empty((0, 2)), 0)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_norms_of_huge_rows_do_not_overflow_on_the_way(norm):
    row = np.array([[3e307, 4e307], [0.0, 0.0], [3.0, -4.0]])
    expected = {"l1": [7e307, 0.0, 7.0], "l2": [5e307, 0.0, 5.0], "linf": [4e307, 0.0, 4.0]}
    assert np.allclose(row_norms(row, norm), expected[norm], rtol=norm_slack(2) - 1, atol=0.0)
