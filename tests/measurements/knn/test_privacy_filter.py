from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from opendp_sim.core.errors import BudgetError, InternalError
from opendp_sim.measurements.knn._impl.privacy_filter import UNITS, IndividualFilter

dp.enable_features("contrib")
SPACE = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)


@settings(max_examples=300, deadline=None)
@given(rho=st.floats(1e-6, 1e3), scale=st.floats(1e-3, 1e9), distance=st.integers(0, 2**20))
def test_a_charge_is_what_opendp_says_of_that_distance(rho, scale, distance):
    purses = IndividualFilter(rho, 1)
    price = purses.price(scale)
    said = Fraction(dp.m.make_gaussian(*SPACE, scale).map(float(distance)))
    unit = Fraction(rho) / UNITS
    if price > UNITS:
        assert Fraction(1) / (2 * Fraction(scale) ** 2) > Fraction(rho) * (1 - Fraction(1, 2**39))
        return
    charged = distance**2 * price * unit
    assert charged >= said
    assert charged <= said * (1 + Fraction(1, 2**39)) + distance**2 * unit


@settings(max_examples=100, deadline=None)
@given(
    rho=st.floats(1e-5, 10.0),
    scales=st.lists(st.floats(0.05, 1e6), min_size=1, max_size=60),
    wanted=st.integers(1, 2**20),
)
def test_nobody_exceeds_the_purse_and_the_last_unit_can_be_used(rho, scales, wanted):
    purses = IndividualFilter(rho, 3)
    who = np.arange(3)
    spent = Fraction(0)
    for scale in scales:
        price = purses.price(scale)
        most = purses.affordable(who, price)
        left = int(purses.snapshot()[1])
        assert price > UNITS or int(most[1]) ** 2 * price <= left < (int(most[1]) + 1) ** 2 * price
        distance = np.minimum(most, [0, wanted, wanted])
        purses.charge(who, distance, price)
        spent += Fraction(int(distance[1]) ** 2) / (2 * Fraction(scale) ** 2)
    assert spent <= Fraction(rho)
    assert purses.snapshot()[0] == UNITS
    assert (purses.snapshot() >= 0).all()


def test_one_step_too_far_is_refused_and_charges_nobody():
    purses = IndividualFilter(0.5, 2)
    price = purses.price(3.0)
    most = purses.affordable(np.arange(2), price)
    with pytest.raises(InternalError, match="OS903"):
        purses.charge(np.arange(2), most + np.arange(2), price)
    assert (purses.snapshot() == UNITS).all()


def test_an_unpayable_step_is_worth_nothing():
    purses = IndividualFilter(1e-6, 1)
    price = purses.price(0.01)
    assert purses.affordable(np.array([0]), price).tolist() == [0]
    purses.charge(np.array([0]), np.array([0]), price)
    assert purses.snapshot().tolist() == [UNITS]


def test_retired_stay_retired_and_restore_never_refills():
    purses = IndividualFilter(1.0, 2)
    purses.retire(np.array([1]))
    with pytest.raises(BudgetError, match="OS407"):
        purses.restore(np.full(2, UNITS))
    assert purses.open(1).tolist() == [2]
    assert purses.snapshot().tolist() == [UNITS, 0, UNITS]


def test_nothing_is_shown():
    assert repr(IndividualFilter(1.0, 7)) == repr(IndividualFilter(2.0, 9))


# --- Gaussian DP (Lemma 6) ------------------------------------------------------------------------


@pytest.mark.audit
@pytest.mark.parametrize("rule", ["greedy when ahead", "stops when ahead"])
def test_padded_log_ratios_of_adaptive_steps_are_normal_and_unpadded_ones_are_not(rule):
    """Lemma 6: squared losses chosen from the past, filled up to mu**2, give N(mu**2 / 2, mu**2).

    False alarm 1e-6 a rule; the unpadded sum of the same runs, an odometer's reading, is refuted.
    """
    rng, runs, mu = np.random.default_rng(11), 200_000, 1.5
    left, ratio = np.full(runs, mu**2), np.zeros(runs)
    for _ in range(30):
        if rule == "greedy when ahead":
            square = np.minimum(left, np.where(ratio > 0, 0.5, 0.02))
        else:
            square = np.where(ratio > 0.3, 0.0, np.minimum(left, 0.2))
        ratio += np.sqrt(square) * rng.standard_normal(runs) + square / 2
        left -= square
    odometer = (ratio - (mu**2 - left) / 2) / mu
    padded = ratio + np.sqrt(left) * rng.standard_normal(runs) + left / 2
    assert stats.kstest((padded - mu**2 / 2) / mu, "norm").pvalue > 1e-6
    assert stats.kstest(odometer, "norm").pvalue < 1e-6


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 10.0), st.lists(st.floats(0.5, 1e3), min_size=1, max_size=30))
def test_squared_losses_never_pass_mu_squared(rho, scales):
    """Whatever is asked at whatever scale: the exact sum of (distance / scale)**2 is at most 2 rho."""
    purses = IndividualFilter(rho, 1)
    who, total = np.zeros(1, np.int64), Fraction(0)
    for scale in scales:
        price = purses.price(scale)
        distance = purses.affordable(who, price)
        purses.charge(who, distance, price)
        total += Fraction(int(distance[0])) ** 2 / Fraction(scale) ** 2
    assert total <= 2 * Fraction(rho)
