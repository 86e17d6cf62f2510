"""The rounded Gaussian: its sampler byte by byte, its law, its twins, its map, its factor.

Every statistical test here has a false-alarm rate of at most 1e-6 (Bonferroni over its p-values).
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.core.bridge import noise_parts
from opendp_sim.core.errors import SimError
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.noise._impl import samplers as plans, samplers as sampler
from opendp_sim.measurements.noise._impl.exact_coins import Bytes
from opendp_sim.measurements.noise._impl.samplers import (
    OPEN,
    rounded_magnitudes,
    rounded_plan,
    strip_ends,
)
from opendp_sim.measurements.noise.rounded_gaussian import RoundedGaussian, make_rounded_gaussian
from tests._tiers import some
from tests.measurements.noise._bulk_shared import FALSE_ALARM, PUSH, Script, drawer
from tests.measurements.noise._noise_tester import Law, tallied

dp.enable_features("contrib")
VECTOR = dp.vector_domain(dp.atom_domain(T="i64"))
L2 = dp.l2_distance(T=float)
SCRIPTED = [
    *(Fraction(1, 5), Fraction(1, 2), Fraction(27, 10), Fraction(10), Fraction(1000, 3)),
    *(Fraction(10**4), Fraction(10**9), Fraction(2**59)),
]


# --- the definition, byte by byte -------------------------------------------------------------


class Definition:
    """Lemma R1 in 60 digits, from the same bytes in the same order; None where 48 bits leave it open."""

    def __init__(self, scale):
        plan = rounded_plan(scale)
        self.shift, self.size = plan.shift, 0 if plan.digits is None else plan.digits().itemsize
        self.a = mpmath.mpf(plan.rate.numerator) / plan.rate.denominator
        self.theta = (1 + mpmath.jtheta(3, 0, mpmath.exp(-self.a))) / 2
        self.width = mpmath.mpf(2) ** plan.shift

    def strip(self, prefix, bits):
        """The strip that holds all of [prefix, prefix + 1) / 2**bits, or None."""
        low, high, below, c = mpmath.ldexp(prefix, -bits), mpmath.ldexp(prefix + 1, -bits), 0, 0
        while True:
            below += mpmath.exp(-self.a * c * c) / self.theta
            if high <= below:
                return c
            if low < below:
                return None
            c += 1

    def coin(self, uniform, y, c):
        """Whether 48 bits of the uniform accept every, no or some continuation of 48 bits of y."""
        ends = [mpmath.ldexp(y + i, -48) for i in (1, 0)]
        least, most = (mpmath.exp(-self.a * end * (2 * c + end)) for end in ends)
        if mpmath.ldexp(uniform + 1, -48) <= least:
            return True
        return False if mpmath.ldexp(uniform, -48) >= most else None

    def draw(self, script):
        while True:
            prefix, coin = int.from_bytes(script(2), "little"), script(1)[0]
            digits = int.from_bytes(script(self.size), "little")
            c = self.strip(prefix, 16)
            opened = c is None or c >= OPEN
            if opened:
                further = int.from_bytes(script(8), "little") >> 16
                c = self.strip(prefix << 48 | further, 64)
                if c is None or c >= OPEN:
                    return None
            sure = 0 if opened else min(255, int(256 * mpmath.exp(-self.a * (2 * c + 1))))
            kept = coin < sure
            if not kept:
                uniform, y = int.from_bytes(bytes([coin, *script(5)]), "big"), digits
                y = y >> 16 if self.size == 8 else y
                for byte in script(max(0, 6 - self.size)):
                    y = y << 8 | byte
                kept = self.coin(uniform, y, c)
            if kept is None:
                return None
            if kept:
                places = mpmath.mpf(2) ** (8 * self.size)
                ends = [self.width * (c + (digits + i) / places) for i in (0, 1)]
                low = int(mpmath.floor(ends[0] + 0.5))
                assert low == int(mpmath.ceil(ends[1] + 0.5)) - 1  # never undecided (Lemma R3)
                return low


def scripts(plan, rng, count):
    """Byte strings: any; with a doubtful coin; with an open or a far strip; on a strip's end."""
    for i in range(count):
        data = bytearray(rng.randbytes(300))
        if i % 4 == 1:
            data[2] = 255 - i % 8
        if i % 4 == 2:
            data[0] = data[1] = 255
        if i % 4 == 3:
            end = int(plan.low[min(rng.randrange(120), len(plan.low) - 1)])
            data[:2] = (end >> 48).to_bytes(2, "little")
            if i % 8 == 7:  # agrees with the end of a strip in its first four bytes
                at = 3 + (0 if plan.digits is None else plan.digits().itemsize)
                data[at : at + 8] = (((end >> 32) & 0xFFFF) << 48).to_bytes(8, "little")
        yield bytes(data)


@pytest.mark.few(3)
@pytest.mark.parametrize("scale", SCRIPTED, ids=str)
def test_every_draw_is_the_definition_s_and_takes_the_same_bytes(scale):
    plan, rng = rounded_plan(scale), random.Random(5)  # noqa: S311 - test bytes
    compared = 0
    with mpmath.workdps(60):
        definition = Definition(scale)
        for data in scripts(plan, rng, 60):
            at = [0]

            def take(count, data=data, at=at):
                at[0] += count
                return data[at[0] - count : at[0]]

            wanted = definition.draw(take)
            if wanted is None:
                continue
            script = Script(data)
            assert int(rounded_magnitudes(plan, 1, script)[0]) == wanted
            assert len(data) - len(script.left) == at[0]
            compared += 1
    assert compared >= 55


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(10**4), Fraction(2**59)])
def test_integers_alone_decide_the_same(monkeypatch, scale):
    """Every doubtful coin sent to rationals instead of floats: not one draw changes."""
    data = np.random.default_rng(3).integers(0, 256, 60_000, dtype=np.uint8)
    plan = rounded_plan(scale)
    by_floats = rounded_magnitudes(plan, 2000, Script(data))
    monkeypatch.setattr(sampler, "DOUBT", 2.0)
    assert np.array_equal(rounded_magnitudes(plan, 2000, Script(data)), by_floats)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(10**9)])
def test_strips_are_settled_in_integers_as_by_the_tables(scale):
    plan = rounded_plan(scale)
    for prefix in (0, 2**40, int(plan.low[3]) - 2, int(plan.high[3]) + 2, int(plan.low[60]) - 9):
        by_tables = int(np.searchsorted(plan.low, np.uint64(prefix), side="right"))
        assert sampler._strip_of(plan.rate, prefix, Bytes()) == by_tables
    far = sampler._strip_of(plan.rate, 2**64 - 1, Script([255] * 40 + [0] * 8))
    assert far > by_tables  # beyond 2**-300 of the tail
    low, high = strip_ends(plan.rate, 64)
    assert all(a <= b for a, b in zip(low, high, strict=True))
    assert max(b - a for a, b in zip(low, high, strict=True)) <= 2


@pytest.mark.parametrize("scale", SCRIPTED, ids=str)
def test_tables_bracket_the_true_ends(scale):
    plan = rounded_plan(scale)
    with mpmath.workdps(60):
        definition, below = Definition(scale), mpmath.mpf(0)
        for c, (low, high) in enumerate(zip(plan.low.tolist(), plan.high.tolist(), strict=True)):
            below += mpmath.exp(-definition.a * c * c) / definition.theta
            assert low <= mpmath.ldexp(below, 64)
            assert high >= mpmath.ldexp(below, 64) or high == 2**64 - 1
            if c < OPEN:
                assert plan.sure[c] <= 256 * mpmath.exp(-definition.a * (2 * c + 1))
    assert plan.sure[OPEN] == 0
    assert Fraction(1, 2048) <= plan.rate <= Fraction(1, 512)


def test_magnitudes_saturate_instead_of_wrapping():
    """Strip 300 of the largest scale is above 2**63, strip 600 above a word."""
    plan = rounded_plan(Fraction(2**59))
    assert sampler._magnitude(plan, 300, 0) == 300 << plan.shift
    assert sampler._magnitude(plan, 600, 2**64 - 1) == 2**64 - 1


def test_the_plans_kept_are_few():
    assert plans.rounded_plan.cache_info().maxsize <= 128


def test_scales_that_differ_by_a_power_of_two_share_their_tables():
    """A session's scales are roots of 32 counts, times powers of two: 64 tables for all of them."""
    one, other = rounded_plan(Fraction(27, 10)), rounded_plan(Fraction(27, 10) * 2**7)
    assert other.shift == one.shift + 7
    assert other.rate == one.rate
    assert all(getattr(one, n) is getattr(other, n) for n in ("strips", "sure", "low", "high"))


# --- the law, measured ------------------------------------------------------------------------

MEASURED = [
    *(Fraction(1, 5), Fraction(1, 2), Fraction(27, 10), Fraction(10), Fraction(20)),
    *(Fraction(319, 10), Fraction(33), Fraction(10**4), Fraction(10**9)),
]


@pytest.mark.few(2)
@pytest.mark.audit
@pytest.mark.parametrize("scale", some(MEASURED, 2), ids=str)
def test_draws_fit_the_law(scale):
    name, p = tallied(drawer("rounded", scale), Law("rounded", float(scale)), PUSH).worst()
    assert p > FALSE_ALARM, name


def _width_doubled(plan):
    return plans.RoundedPlan(
        plan.shift + 1, plan.rate, plan.strips, plan.sure, plan.low, plan.high, plan.digits
    )


@pytest.mark.few(4)
@pytest.mark.audit
@pytest.mark.parametrize(
    ("twin", "scale"),
    [
        ("scale 3 % off", Fraction(10)),
        ("every doubtful coin accepted", Fraction(10)),
        ("every doubtful coin accepted", Fraction(10**4)),
        ("first place of y off", Fraction(20)),
        ("place after the point ignored", Fraction(20)),
        ("place after the point ignored", Fraction(50)),
        ("one sign for two cells", Fraction(10)),
        ("strips twice as wide", Fraction(20)),
        ("discrete Gaussian", Fraction(1)),
        ("discrete Gaussian", Fraction(1, 2)),
    ],
)
def test_the_tester_refutes_broken_twins(monkeypatch, twin, scale):
    draw, law, draws = drawer("rounded", scale), Law("rounded", float(scale)), PUSH
    if twin == "scale 3 % off":
        law = Law("rounded", float(scale) * 1.03)
    if twin == "every doubtful coin accepted":
        everything = lambda plan, c, *_: np.ones(len(c), bool)  # noqa: E731
        monkeypatch.setattr(sampler, "_accepted_sampling_rounded", everything)
        draws = 3 * PUSH
    if twin == "first place of y off":
        right = sampler._digits
        spoilt = lambda *args: right(*args) | np.uint8(128)  # noqa: E731
        monkeypatch.setattr(sampler, "_digits", spoilt)
    if twin == "place after the point ignored":
        right = sampler._digits
        size = rounded_plan(scale)
        drop = 8 * size.digits().itemsize - size.shift
        cut = lambda *args: right(*args) >> size.digits(drop) << size.digits(drop)  # noqa: E731
        monkeypatch.setattr(sampler, "_digits", cut)
    if twin == "one sign for two cells":
        signs = drawer("rounded", Fraction(10**9))

        def draw(count):
            return np.abs(drawer("rounded", scale)(count)) * np.repeat(
                np.sign(signs(count // 2)), 2
            )

    if twin == "strips twice as wide":
        wide = _width_doubled(rounded_plan(scale))
        monkeypatch.setattr(
            "opendp_sim.measurements.noise._impl.samplers.rounded_plan", lambda _: wide
        )
    if twin == "discrete Gaussian":
        draw = drawer("gaussian", scale)
    assert tallied(draw, law, draws).worst()[1] < FALSE_ALARM


# --- the mechanism ----------------------------------------------------------------------------


def test_maps_are_opendp_s_and_the_exact_curve():
    for scale in (0.3, 2.0, 17.0, 1e9):
        plain = make_rounded_gaussian(VECTOR, L2, scale=scale)
        native = dp.m.make_gaussian(VECTOR, L2, scale)
        assert [plain.map(d) for d in (0.0, 1.0, 3.5)] == [native.map(d) for d in (0.0, 1.0, 3.5)]
    curve = make_rounded_gaussian(VECTOR, L2, scale=2.0, accounting="curve")
    profile = curve.map(1.0)
    assert profile.delta(1.0) == pytest.approx(0.00682959, rel=1e-5)
    fixed = dp.c.make_fix_delta(curve, 1e-6)
    epsilon, delta = fixed.map(1.0)
    assert (delta, epsilon) == (1e-6, pytest.approx(2.2540, abs=1e-4))
    assert epsilon < dp.c.make_zCDP_to_approxDP(make_rounded_gaussian(VECTOR, L2, scale=2.0)).map(
        1.0
    ).epsilon(1e-6)
    assert dp.c.make_composition([fixed, fixed]).map(1.0)[1] == pytest.approx(2e-6)


@pytest.mark.parametrize(
    ("scale", "factor"), [(0.3, 10), (1.02, 3), (2.89, 2), (2.9, 1), (50.0, 1)]
)
def test_small_scales_are_drawn_on_a_finer_grid(scale, factor):
    claim = RoundedGaussian(scale=scale).bind(IntVector(3), VectorNorm("l2"))
    assert claim.noise.step == Fraction(1, factor)
    assert bool(claim.reason) == (factor > 1)
    assert claim.mu_squared == 1 / Fraction(scale) ** 2
    out = claim.function([5, -7, 2**62])
    assert out.dtype == (np.int64 if factor == 1 else np.float64)
    assert np.allclose(out[:2] * factor, np.rint(out[:2] * factor), atol=1e-9)


def test_a_factor_keeps_whole_numbers_when_asked_and_never_passes_the_largest_scale():
    whole = RoundedGaussian(scale=0.3, factor=1).bind(IntVector(3), VectorNorm("l2"))
    assert whole.function([1, 2, 3]).dtype == np.int64
    weighted = VectorNorm("l2", weights=((1, 4), (2, 8)))
    assert RoundedGaussian(scale=1.0).bind(IntVector(3), weighted).noise.step == 1
    for scale in (5e-324, 1e-200, 1e-4):
        claim = RoundedGaussian(scale=scale).bind(IntVector(3), VectorNorm("l2"))
        assert claim.function([1, 2, 3]).tolist() == [1, 2, 3]
    with pytest.raises(SimError, match=r"OS102 rounded_gaussian.scale"):
        RoundedGaussian(scale=2.0**58, factor=4).bind(IntVector(3), VectorNorm("l2"))
    with pytest.raises(SimError, match=r"OS101 rounded_gaussian.factor"):
        RoundedGaussian(scale=1.0, factor=2000)


def test_a_factor_never_overflows():
    """Cells beyond 2**62 / k are clipped before they are multiplied: nothing wraps."""
    claim = RoundedGaussian(scale=1.0, factor=1000).bind(IntVector(2), VectorNorm("l2"))
    out = claim.function([2**63 - 1, -(2**63)])
    assert out[0] == pytest.approx(2**62 / 1000, rel=1e-9)
    assert out[1] == pytest.approx(-(2**62) / 1000, rel=1e-9)


@pytest.mark.parametrize("scale", [0.2, 0.5, 0.9, 1.0, 3.0, 40.0])
def test_the_declared_deviation_is_the_law_s(scale):
    made = make_rounded_gaussian(VECTOR, L2, scale=scale, factor=1)
    k = np.arange(1, int(12 * scale) + 14)
    tails = np.array([math.erfc((i - 0.5) / (scale * math.sqrt(2))) for i in k])
    variance = float(((2 * k - 1) * tails).sum())
    assert noise_parts(made).noise.deviation == pytest.approx(math.sqrt(variance), rel=1e-7)
    finer = make_rounded_gaussian(VECTOR, L2, scale=scale, factor=12)
    assert noise_parts(finer).noise.deviation == pytest.approx(
        math.sqrt(scale**2 + 1 / (12 * 144)), rel=1e-6
    )


@pytest.mark.audit
def test_a_factor_draws_the_declared_law():
    """Chi-square of 12 times the released values, at scale 0.5 with k = 12: round(6 Z)."""
    claim = RoundedGaussian(scale=0.5, factor=12).bind(IntVector(PUSH), VectorNorm("l2"))
    out = np.rint(claim.function(np.zeros(PUSH, np.int64)) * 12).astype(np.int64)
    assert tallied(lambda _: out, Law("rounded", 6.0), PUSH).worst()[1] > FALSE_ALARM
