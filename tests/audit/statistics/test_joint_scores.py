"""Answers that share a noisy threshold: those that a record moves, less the others, tell the sides apart."""

from __future__ import annotations

import numpy as np
import pytest

from opendp_sim.audit.claims.curves import claimed_curve
from opendp_sim.audit.statistics.scores import Joint, Rows, surplus_of_shift, surplus_together
from opendp_sim.core import dp

CLAIM = claimed_curve(dp.max_divergence(), 1.0)


def _answers(moved: float, count: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    queries = np.tile([moved, 0.0], 6) + rng.laplace(0.0, 1.0, (count, 12))
    return np.asarray(queries >= 1 + rng.laplace(0.0, 1.0, (count, 1)), dtype=float)


def test_a_shared_threshold_is_seen_through() -> None:
    left, right = _answers(1.0, 3000, 1), _answers(0.0, 3000, 2)
    weights = Joint.of(left, right).weights
    assert (weights[::2] > 0.2).all()
    assert (weights[1::2] < -0.2).all()
    assert surplus_together(CLAIM, left, right) > 3
    assert surplus_of_shift(CLAIM, left, right) < 1
    assert surplus_together(CLAIM, right, left) > 3


def test_equal_sides_and_odd_rows_tell_nothing() -> None:
    left, right = _answers(0.0, 2000, 3), _answers(0.0, 2000, 4)
    assert surplus_together(CLAIM, left, right) < 2
    still = np.full((300, 3), -1e300)
    assert surplus_together(CLAIM, still, still) == pytest.approx(0.0)
    assert surplus_together(CLAIM, left[:50], right[:50]) == 0.0
    assert surplus_together(CLAIM, left[:, :1], right[:, :1]) == 0.0
