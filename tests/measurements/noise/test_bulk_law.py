"""The exact law of bulk noise: multiplied out from its coins, and measured whole.

Every statistical test here has a false-alarm rate of at most 1e-6 (Bonferroni over its p-values).
Power is stated where a broken twin must be refuted.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st

from opendp_sim.measurements.noise._impl import samplers as _sampling_noise
from opendp_sim.measurements.noise._impl.exact_coins import CELLS, Bytes, Threshold, logistic_bounds
from opendp_sim.measurements.noise._impl.samplers import (
    LARGEST_UINT64,
    gaussian_plan,
    laplace_digits,
)
from tests._tiers import several, some
from tests.measurements.noise._bulk_shared import (
    DEEP,
    FALSE_ALARM,
    LONE_SCALES,
    PUSH,
    SCALES,
    drawer,
)
from tests.measurements.noise._noise_tester import Law, tallied

dp.enable_features("contrib")


# --- the law, by algebra ----------------------------------------------------------------------


def chance(threshold, places=120):
    """A threshold's probability from its own bytes, to 960 bits."""
    return (
        mpmath.mpf(int.from_bytes(bytes(map(threshold.byte, range(places))), "big"))
        / mpmath.mpf(256) ** places
    )


def proposal_mass(plan, k):
    """P[magnitude = k] of the sampler's plan: non-zero coin, digits, then units beyond them."""
    nonzero = chance(plan.nonzero)
    if k == 0:
        return 1 - nonzero
    beyond, digits = divmod(k - 1, 2 ** len(plan.digits))
    mass = nonzero * chance(plan.beyond) ** beyond * (1 - chance(plan.beyond))
    for place, threshold in enumerate(plan.digits):
        mass *= chance(threshold) if digits >> place & 1 else 1 - chance(threshold)
    return mass


@pytest.mark.parametrize("scale", [*SCALES, Fraction(1, 100), Fraction(2**59)])
def test_laplace_plan_multiplies_out_to_the_discrete_laplace(scale):
    plan = laplace_digits(1 / scale)
    with mpmath.workprec(1200):
        q = mpmath.exp(-1 / mpmath.mpf(scale.numerator) * scale.denominator)
        for k in [0, 1, 2, 3, 17, 255, 256, *(math.floor(scale * f) for f in range(1, 30, 3))]:
            target = (1 - q) / (1 + q) * q**k * (2 if k else 1)
            assert abs(proposal_mass(plan, k) / target - 1) < mpmath.mpf(2) ** -150


@pytest.mark.parametrize("scale", [*SCALES, Fraction(1, 20), Fraction(1, 10), Fraction(2**59)])
def test_gaussian_plan_multiplies_out_to_the_discrete_gaussian(scale):
    plan = gaussian_plan(scale)
    ratios = []
    with mpmath.workprec(1200):
        for k in [0, 1, 2, 3, *(math.floor(scale * f) for f in range(12))]:
            x = plan.exponent(k)
            assert x >= 0
            accepted = proposal_mass(plan.proposal, k) * mpmath.exp(
                -mpmath.mpf(x.numerator) / x.denominator
            )
            square = Fraction(k * k) / (2 * scale * scale)
            target = mpmath.exp(-mpmath.mpf(square.numerator) / square.denominator) * (
                2 if k else 1
            )
            ratios.append(accepted / target)
        assert all(abs(ratio / ratios[0] - 1) < mpmath.mpf(2) ** -150 for ratio in ratios)


@settings(max_examples=200, deadline=None)
@given(st.fractions(min_value=Fraction(1, 1000), max_value=2**59), st.data())
def test_float_exponents_keep_their_promise(scale, data):
    """Lemma G3's premise: within 2**-50 below the float's end, and past the end where the truth is."""
    plan = gaussian_plan(scale)
    far = data.draw(st.sampled_from([1, 8, 200, 2**20]))
    k = data.draw(st.integers(0, math.ceil(far * (scale + 1))))
    candidates = _sampling_noise.magnitudes(plan.proposal, 1, Bytes())
    candidates.words[0] = min(k, LARGEST_UINT64)
    seen = []

    def spy(exponents, exact, _):
        seen.extend([float(exponents[0]), exact(0)])
        return np.zeros(1, bool)

    exact = {0: k} if k > LARGEST_UINT64 else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opendp_sim.measurements.noise._impl.samplers.exp_coins", spy)
        from opendp_sim.measurements.noise._impl import samplers as module

        module._accepted(plan, replace(candidates, exact=exact), Bytes())
    given_float, real = seen[0], plan.exponent(k)
    assert seen[1] == real
    if given_float < 32 * CELLS:
        assert abs(Fraction(given_float) - CELLS * real) <= CELLS * real / 2**50


# --- the law, measured ------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.audit
@pytest.mark.parametrize("family", ["laplace", "gaussian", "rounded"])
@pytest.mark.parametrize("scale", some([*SCALES, *LONE_SCALES], 3), ids=str)
def test_draws_fit_the_law(family, scale):
    name, p = tallied(drawer(family, scale), Law(family, float(scale)), PUSH).worst()
    assert p > FALSE_ALARM, name


@pytest.mark.audit
@pytest.mark.deep
@pytest.mark.parametrize("family", ["laplace", "gaussian", "rounded"])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_many_draws_fit_the_law(family, scale):
    name, p = tallied(drawer(family, scale), Law(family, float(scale)), DEEP).worst()
    assert p > FALSE_ALARM, name


@pytest.mark.few(2)
@pytest.mark.audit
@pytest.mark.parametrize("family", ["laplace", "gaussian", "rounded"])
@pytest.mark.parametrize("scale", some(SCALES, 3), ids=str)
@pytest.mark.parametrize("wrong", some([0.97, 1.03], 2))
def test_the_tester_refutes_three_percent_of_scale(family, scale, wrong):
    """10**6 draws; the body's non-centrality is 840 at least, so a miss is below 1e-60."""
    tally = tallied(drawer(family, scale), Law(family, float(scale) * wrong), PUSH)
    assert tally.worst()[1] < FALSE_ALARM


@pytest.mark.audit
@pytest.mark.parametrize("sign", some([1, 0], 2))
@pytest.mark.parametrize(
    ("thousandths", "draws"), [(4, 2**21), pytest.param(1, 2**25, marks=pytest.mark.deep)]
)
def test_the_tester_refutes_one_digit_off_by_a_thousandth(monkeypatch, sign, thousandths, draws):
    """One binary digit's probability off by 1e-3 needs about 2 * 10**7 draws; made with 2**25.

    At 2**25 draws the digit's count is 11 deviations off (threshold about 6), so a miss is below
    1e-6; four thousandths are as far at 2**21. With ``sign`` 0 the twin is the right sampler, and the
    same tester is content with it.
    """
    scale, digit = Fraction(20), 1
    right = laplace_digits(1 / scale)

    def off(bits):
        low, high = logistic_bounds(2**digit / scale, bits)
        shift = sign * thousandths * Fraction(1 << bits, 1000)
        return low + math.floor(shift), high + math.ceil(shift)

    digits = list(right.digits)
    digits[digit] = Threshold(off)
    broken = replace(right, digits=tuple(digits))
    monkeypatch.setattr(_sampling_noise, "laplace_digits", lambda _: broken)
    name, p = tallied(drawer("laplace", scale), Law("laplace", float(scale)), draws).worst()
    assert (p < FALSE_ALARM) == bool(sign), name
    assert not sign or name == f"digit {digit}"


@pytest.mark.few(1)
@pytest.mark.audit
@pytest.mark.parametrize("twin", ["every candidate", "peak forgotten", "bytes reused"])
def test_the_tester_refutes_broken_twins(monkeypatch, twin):
    module = "opendp_sim.measurements.noise._impl.samplers"
    if twin == "every candidate":
        monkeypatch.setattr(f"{module}.exp_coins", lambda x, *_: np.ones(x.size, bool))
    if twin == "peak forgotten":
        wrong = replace(gaussian_plan(Fraction(10)), peak=9)
        monkeypatch.setattr(_sampling_noise, "gaussian_plan", lambda _: wrong)
    if twin == "bytes reused":
        fresh = Bytes.take
        monkeypatch.setattr(Bytes, "take", lambda self, n: np.resize(fresh(self, 64), n))
    family = "laplace" if twin == "bytes reused" else "gaussian"
    tally = tallied(drawer(family, Fraction(10)), Law(family, 10.0), PUSH)
    assert tally.worst()[1] < FALSE_ALARM


@pytest.mark.audit
@pytest.mark.parametrize(
    ("family", "make", "metric"),
    several(
        [
            ("laplace", dp.m.make_laplace, dp.l1_distance(T="i64")),
            ("gaussian", dp.m.make_gaussian, dp.l2_distance(T=float)),
        ],
        2,
    ),
)
def test_bulk_and_opendp_draw_from_one_law(family, make, metric):
    """OpenDP's own draws pass the same tester: 10**5 of them, each family."""
    native = make(dp.vector_domain(dp.atom_domain(T="i64")), metric, 10.0)
    zeros = [0] * 10**5
    tally = tallied(lambda n: np.array(native(zeros[:n])), Law(family, 10.0), 10**5)
    assert tally.worst()[1] > FALSE_ALARM
