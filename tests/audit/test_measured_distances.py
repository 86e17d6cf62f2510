"""Distances between outputs, measured exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from opendp_sim.audit.distances import measure_distance


def counts(**votes):
    items = sorted(votes)
    return {"item": np.array(items, dtype=object), "votes": np.array([votes[i] for i in items])}


def test_open_counts_are_compared_item_by_item():
    left, right = counts(a=3, b=1), counts(a=1, c=1)
    assert measure_distance("LInfDistance", left, right) == 2
    assert measure_distance("L1Distance", left, right) == 4
    assert measure_distance("L2Distance", left, right) == Fraction(6)
    assert measure_distance("L1Distance", left, left) == 0
    assert measure_distance("LInfDistance", counts(), counts(z=5)) == 5
