"""Selection at the ends of its parameters: an honest number or a coded refusal, never NaN or a zero."""

from __future__ import annotations

import math

import numpy as np
import opendp.prelude as dp
import pytest

import opendp_sim.prelude as sim
from opendp_sim.core.errors import ParameterError
from opendp_sim.domains.counts import USERS
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.gate_tail import gate_tail
from opendp_sim.measurements.selection._impl.peeling_profile import Profile, peeling_profile
from opendp_sim.measurements.selection._impl.stability import gated_delta

dp.enable_features("contrib")

SPACE = (IntVector(6), USERS)


@pytest.mark.parametrize("range_", [1.0, 50.0, 900.0, 3e4, 1e6, 1e12])
def test_a_profile_is_a_number_that_falls(range_):
    profile = peeling_profile(2, range_)
    found = profile.at(np.linspace(0, 3 * range_, 997))
    assert not np.isnan(found).any()
    assert (np.diff(found) <= 1e-12).all()
    assert found[0] >= math.tanh(range_ / 4) * (1 - 1e-12)  # one draw alone


@pytest.mark.parametrize("step", [29.0, 31.0, 200.0])
def test_wide_chords_lie_above_the_exact_ones(step):
    mpmath = pytest.importorskip("mpmath")
    profile = Profile(step, np.array([0.9, 1e-20]))
    for part in (0.001, 0.3, 0.9, 0.999):
        x = part * step
        with mpmath.workdps(60):
            share = mpmath.expm1(mpmath.mpf(x)) / mpmath.expm1(mpmath.mpf(step))
            exact = mpmath.mpf(0.9) * (1 - share) + mpmath.mpf(1e-20) * share
            found = mpmath.mpf(profile.delta(x))
            assert found >= exact
            assert found <= exact * (1 + mpmath.mpf(10) ** -10)


@pytest.mark.parametrize(
    ("make", "d_in"),
    [
        (lambda: sim.make_peel(*SPACE, k=2, scale=1.0, accounting="curve"), 30_000),
        (lambda: sim.make_peel(*SPACE, k=2, scale=1.0, accounting="curve"), 10**9),
        (lambda: sim.make_peel(*SPACE, k=2, scale=1e-6, accounting="curve"), 1),
        (
            lambda: sim.make_stable_top_k(
                *SPACE, k_max=3, scale=0.001, delta=1e-6, distance=900, accounting="curve"
            ),
            100,
        ),
    ],
)
def test_huge_losses_have_a_curve(make, d_in):
    curve = make().map(d_in)
    assert curve.epsilon(1e-6) >= 10_000
    assert curve.delta(1.0) > 0.99


def test_a_gate_keeps_a_bound_at_every_loss_up_to_infinity():
    gate, rest = gate_tail(2.0, 3.0), peeling_profile(2, 0.3)
    found = [gated_delta(x, gate, 20, 1, rest) for x in (0.1, 1.0, 30.0, 1e3, 1e120, math.inf)]
    assert found == sorted(found, reverse=True)
    assert found[-1] >= float(gate.lower(19)) > 0


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"epsilon": 1.0, "delta": 1e-19}, "delta"),
        ({"epsilon": 1e-7, "delta": 1e-6}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1e-6, "share": 1 - 2.0**-50}, "share"),
    ],
)
def test_top_stable_refuses_what_its_table_cannot_hold(params, field):
    with pytest.raises(ParameterError, match="OS102") as caught:
        sim.make_top_stable(*SPACE, k=2, k_max=4, **params)
    assert f"top_stable.{field}" in str(caught.value)


def test_a_delta_below_every_tail_is_refused_by_its_own_name():
    with pytest.raises(ParameterError, match=r"OS101 stable_set\.delta"):
        sim.make_stable_set(*SPACE, k=2, scale=1.0, delta=1e-305)


def test_a_delta_is_never_rounded_down_to_zero():
    for distance in (1, 100, 1000):
        limited = sim.make_limited_domain(
            *SPACE, k=2, k_max=4, scale=1.0, delta=1e-6, distance=distance
        )
        stable = sim.make_stable_set(*SPACE, k=2, scale=1.0, delta=1e-6, distance=distance)
        for release in (limited, stable):
            assert 0 < release.map(1)[1] <= 1.01e-6
            assert release.map(0)[1] == 0
