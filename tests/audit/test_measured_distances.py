"""Distances between outputs, measured exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from opendp_sim.audit import NoiseLaw, Subject
from opendp_sim.audit.checks import accountants
from opendp_sim.audit.checks.accountants import attained_delta, quadrature_delta
from opendp_sim.audit.checks.compare_outputs import distance_of_outputs
from opendp_sim.audit.claims.curves import gaussian_delta
from opendp_sim.audit.claims.output_distance import measure_distance
from opendp_sim.core.bridge import to_dp_metric
from opendp_sim.domains.metrics import VectorNorm


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


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_weighted_norms_add_each_gap_up_once_and_exactly(norm):
    """Against the sum over cells in fractions; the largest integers too."""
    rng = np.random.default_rng(5)
    measure = distance_of_outputs(
        Subject(run=len, output_metric=to_dp_metric(VectorNorm(norm, ((30, 7), (50, 1))))), None
    )
    left, right = rng.integers(-3, 4, size=(2, 80))
    left[[0, 40]], right[[0, 40]] = 2**62, -(2**62) - 5
    parts = [
        Fraction(abs(int(a) - int(b)), 7 if i < 30 else 1)
        for i, (a, b) in enumerate(zip(left, right, strict=True))
    ]
    expected = {"l1": sum(parts), "l2": sum(p * p for p in parts), "linf": max(parts)}[norm]
    assert measure(left, right) == expected
    assert measure(left, left) == 0
    assert measure(left, left[:-1]) == math.inf
    half = left[40:].astype(float) + 0.5
    assert measure(np.r_[left[:40], left[40:]] * 1.0, np.r_[left[:40] * 1.0, half]) > 0


def test_many_kinds_of_cells_are_a_lower_bound_that_takes_no_time(monkeypatch):
    """Steps rounded down and cells left out never attain more than the continuous closed form."""
    rng = np.random.default_rng(1)
    epsilons = np.array([0.0, 0.2, 0.5, 1.0])
    sizes: list[int] = []

    def counted(total, offset):
        sizes.append(total.size)
        return trim(total, offset)

    trim = accountants._trim
    monkeypatch.setattr(accountants, "_trim", counted)
    for cells, scale in ((300, 500.0), (30, 40.0), (200, 5000.0)):
        shift = rng.integers(1, 200, cells).astype(float)
        law = NoiseLaw("discrete_gaussian", scale)
        closed = [gaussian_delta(math.sqrt(2 * law.loss(shift)), float(e)) for e in epsilons]
        sizes.clear()
        found, how = attained_delta(law, shift, epsilons)
        assert sum(sizes) < 2e7  # 7 million cells of losses, in less than a second
        assert (found <= np.array(closed) + 1e-6).all()
        assert (how == "the closed form") == (scale > 4096)
    single = NoiseLaw("discrete_gaussian", 4100.0), np.array([8200.0])
    exact = quadrature_delta(*single, epsilons)
    assert np.abs(attained_delta(*single, epsilons)[0] - exact).max() < 2e-3


@pytest.mark.parametrize("metric", ["L1Distance", "L2Distance", "LInfDistance"])
def test_long_lists_of_integers_are_measured_as_short_ones_are(metric):
    """A list that numpy would change (a float, a huge integer among them) is left as it is."""
    for odd in (0, -(2**62), 2**63 + 1, 0.5, math.inf):
        left, right = [1, 5, odd] + [0] * 600, [2, -5, 0] + [0] * 600
        short = measure_distance(metric, left[:3], right[:3])
        assert measure_distance(metric, left, right) == short
    assert measure_distance(metric, [1] * 600, [1] * 601) == math.inf
