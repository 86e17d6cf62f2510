"""How protection wears off: composition and group privacy, against the formulas written out once more."""

from __future__ import annotations

import math

import pytest
from scipy.special import ndtr

from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.accounting.measures.group_and_repeat import after_runs, of_units


@pytest.mark.parametrize("runs", [1, 2, 3, 10, 100])
def test_runs_add_up_in_every_measure(runs):
    for measure, loss in (
        ("gdp", (0.028,)),
        ("zcdp", (0.1,)),
        ("pure", (0.5,)),
        ("approx", (0.5, 1e-6)),
        ("approx_zcdp", (0.1, 1e-6)),
    ):
        grown = after_runs(attacker_of(measure, loss), runs)
        assert grown.loss == pytest.approx([runs * part for part in loss])
        assert all(
            new >= runs * old * (1 - 1e-15) for new, old in zip(grown.loss, loss, strict=True)
        )
    mu = math.sqrt(2 * 0.028)
    several = after_runs(attacker_of("gdp", (0.028,)), runs)
    assert (1 + several.advantage) / 2 == pytest.approx(ndtr(math.sqrt(runs) * mu / 2), rel=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_several_units_cost_more_than_as_many_runs(count):
    """A group of k loses k times as much, which under GDP and zCDP is the square in what adds up."""
    mu, epsilon, delta = 0.24, 0.5, 1e-6
    group = of_units(attacker_of("gdp", (mu * mu / 2,)), count)
    assert (1 + group.advantage) / 2 == pytest.approx(ndtr(count * mu / 2), rel=1e-9)
    assert of_units(attacker_of("zcdp", (0.1,)), count).loss[0] == pytest.approx(0.1 * count**2)
    assert of_units(attacker_of("pure", (epsilon,)), count).loss[0] == pytest.approx(
        count * epsilon
    )
    grown = of_units(attacker_of("approx", (epsilon, delta)), count)
    once = delta
    for _ in range(count - 1):  # P_k(S) <= e**epsilon P_(k-1)(S) + delta, applied to its own bound
        once = math.exp(epsilon) * once + delta
    assert grown.loss == pytest.approx((count * epsilon, once))
    assert of_units(attacker_of("approx_zcdp", (0.1, 1e-6)), count) is None


def test_a_pair_that_reaches_the_group_s_bound_exists():
    """Randomised response on the number of records present: k records move it by exactly k epsilon."""
    epsilon, count = 0.3, 4
    weights = [
        [math.exp(-epsilon * abs(out - true)) for out in range(-60, 65)] for true in (0, count)
    ]
    near, far = ([w / sum(row) for w in row] for row in weights)
    advantage = sum(max(b - a, 0.0) for a, b in zip(near, far, strict=True))
    bound = of_units(attacker_of("pure", (epsilon,)), count).advantage
    assert 0.5 * bound < advantage <= bound


def test_huge_losses_stay_bounds():
    for measure, loss in (("approx", (600.0, 0.9)), ("approx", (1.0, 0.9)), ("gdp", (math.inf,))):
        for found in (
            after_runs(attacker_of(measure, loss), 10),
            of_units(attacker_of(measure, loss), 10),
        ):
            assert found is None or 0 <= found.advantage <= 1
            assert found is None or found.right
