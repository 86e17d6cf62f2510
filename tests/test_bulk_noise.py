"""Bulk noise: the exact law, proved in pieces and measured whole; the map; the edges.

Every statistical test here has a false-alarm rate of at most 1e-6 (Bonferroni over its p-values).
Power is stated where a broken twin must be refuted.
"""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st

from opendp_sim.core.bridge import parts_of
from opendp_sim.core.errors import SimError
from opendp_sim.core.space import Domain
from opendp_sim.measurements import _sampling_accept, _sampling_exp, _sampling_noise
from opendp_sim.measurements._bulk import AUTO_CELLS, sampler_for
from opendp_sim.measurements._sampling_accept import CELLS, exp_coins
from opendp_sim.measurements._sampling_bytes import Bytes, bernoulli, fair_bits
from opendp_sim.measurements._sampling_exp import (
    Threshold,
    exp_neg_bounds,
    exp_threshold,
    logistic_bounds,
    logistic_threshold,
    nonzero_threshold,
)
from opendp_sim.measurements._sampling_gaussian import (
    GaussianPlan,
    gaussian_magnitudes,
    gaussian_plan,
)
from opendp_sim.measurements._sampling_laplace import LARGEST, laplace_digits, magnitudes
from opendp_sim.measurements._sampling_noise import add_gaussian, add_laplace, saturating_add
from opendp_sim.measurements.bulk_gaussian import BulkGaussian, make_bulk_gaussian
from opendp_sim.measurements.bulk_laplace import BulkLaplace, laplace_map, make_bulk_laplace
from opendp_sim.spaces.metrics import VectorNorm
from opendp_sim.spaces.sketch import IntVector
from tests._noise_tester import Law, binomial, tallied

dp.enable_features("contrib")

FALSE_ALARM = 1e-6
PUSH, DEEP = 10**6, 10**8
SCALES = [Fraction(1, 2), Fraction(7, 10), Fraction(10, 3), Fraction(10), Fraction(10**4)]
LONE_SCALES = [Fraction(1, 10), Fraction(99, 100), Fraction(10**9), Fraction(2**40, 3)]
ADD = {"laplace": add_laplace, "gaussian": add_gaussian}
I64 = np.iinfo(np.int64)
RATIONALS = st.fractions(min_value=Fraction(1, 10**12), max_value=10**9)


def drawer(family, scale):
    return lambda count: ADD[family](np.zeros(count, np.int64), [(count, scale)])


class Script:
    """A byte source that hands out a fixed list and then refuses, or goes on with zeros."""

    def __init__(self, scripted, *, endless=False):
        self.left, self.endless = list(scripted), endless

    def take(self, count):
        if len(self.left) < count:
            if not self.endless:
                raise EOFError
            self.left += [0] * count
        out, self.left = self.left[:count], self.left[count:]
        return np.array(out, np.uint8)


# --- certified numbers ------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(RATIONALS, st.integers(1, 300))
def test_bounds_bracket_the_exponential_and_the_logistic(x, bits):
    with mpmath.workprec(1000):
        real = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
        for (low, high), value in (
            (exp_neg_bounds(x, bits), real),
            (logistic_bounds(x, bits), real / (1 + real)),
        ):
            assert low <= value * mpmath.mpf(2) ** bits <= high
            assert high - low <= 2


@settings(max_examples=300, deadline=None)
@given(st.fractions(min_value=Fraction(1, 100), max_value=40), st.integers(1, 40))
def test_brackets_hold_without_guard_bits(x, bits):
    """Guard bits only make brackets narrow: each rounding is outward by itself."""
    with pytest.MonkeyPatch.context() as patch, mpmath.workprec(400):
        patch.setattr(_sampling_exp, "_GUARD_BITS", 0)
        low, high = exp_neg_bounds(x, bits)
        small = _sampling_exp._exp_of_small(x / 80, bits)
        real, other = (mpmath.exp(mpmath.mpf(y.numerator) / y.denominator) for y in (-x, x / 80))
    assert low <= real * mpmath.mpf(2) ** bits <= high
    assert small[0] <= other * mpmath.mpf(2) ** bits <= small[1]


@settings(max_examples=100, deadline=None)
@given(RATIONALS)
def test_threshold_bytes_are_the_binary_places(x):
    with mpmath.workprec(2000):
        q = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
        expected = {
            exp_threshold: q,
            logistic_threshold: q / (1 + q),
            nonzero_threshold: 2 * q / (1 + q),
        }
        for make, value in expected.items():
            places = int(mpmath.floor(mpmath.ldexp(value, 8 * 40))).to_bytes(40, "big")
            threshold = make(x)
            assert bytes(threshold.byte(i) for i in range(40)) == places


def test_a_place_is_not_given_before_it_is_certain():
    asked = []

    def loose_then_tight(bits):
        asked.append(bits)
        value = (1 << bits) // 3
        slack = 1 << bits - 8 if len(asked) == 1 else 0
        return value - slack, value + 1 + slack

    assert Threshold(loose_then_tight).byte(0) == 0x55
    assert len(asked) == 2


# --- coins ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x", [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(5), Fraction(40)]
)
def test_a_coin_counts_exactly_the_byte_strings_below_its_probability(x):
    """All strings of one byte, and all of two: floor(p * 256**n) heads, one string left open."""
    threshold = exp_threshold(x)
    with mpmath.workprec(200):
        p = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
        prefixes = {n: int(mpmath.floor(p * 256**n)) for n in (1, 2)}
    for length, expected in prefixes.items():
        heads = undecided = 0
        for string in np.ndindex(*(256,) * length):
            try:
                heads += bool(bernoulli(threshold, 1, Script(string))[0])
            except EOFError:
                undecided += 1
        assert (heads, undecided) == (expected, 1)


@settings(max_examples=200, deadline=None)
@given(
    st.fractions(min_value=Fraction(1, 10**6), max_value=60),
    st.integers(0, 12),
    st.integers(-1, 1),
    st.lists(st.integers(0, 255), min_size=13, max_size=13),
)
def test_a_coin_is_exact_however_close_the_uniform_comes(x, agree, off, noise):
    """The uniform agrees with the threshold in its first ``agree`` bytes, up to ``off`` units there."""
    threshold = exp_threshold(x)
    head = int.from_bytes(bytes(map(threshold.byte, range(agree))), "big") + off
    head = min(max(head, 0), 256**agree - 1)
    scripted = [*head.to_bytes(agree, "big"), *noise][:13]
    assert bool(bernoulli(threshold, 1, Script(scripted, endless=True))[0]) == exact_coin(
        x, scripted
    )


def test_a_vector_of_coins_is_its_single_coins():
    threshold = logistic_threshold(Fraction(1, 7))
    first = list(range(256))
    tie = threshold.byte(0)
    for second in (threshold.byte(1) - 1, threshold.byte(1) + 1):
        coins = bernoulli(threshold, 256, Script([*first, second]))
        assert coins.tolist() == [
            u < tie or (u == tie and second < threshold.byte(1)) for u in first
        ]


def exact_coin(x, scripted):
    """U < e**-x for U = 0.b1 b2 ... with the scripted bytes and zeros after them."""
    with mpmath.workprec(8 * len(scripted) + 200):
        uniform = mpmath.mpf(int.from_bytes(bytes(scripted), "big")) / mpmath.mpf(256) ** len(
            scripted
        )
        return bool(uniform < mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator))


def float_exponent(x):
    return np.array([min(float(CELLS * x), 2.0**40)])


@settings(max_examples=400, deadline=None)
@given(
    st.fractions(min_value=0, max_value=60, max_denominator=10**9),
    st.integers(0, 12),
    st.integers(-2, 2),
    st.lists(st.integers(0, 255), min_size=12, max_size=12),
)
def test_exponential_coins_are_exact_however_close_the_uniform_comes(x, agree, off, noise):
    """The uniform agrees with e**-x in its first ``agree`` bytes, up to ``off`` units there."""
    with mpmath.workprec(400):
        p = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
        head = int(mpmath.floor(p * mpmath.mpf(256) ** agree)) + off
    head = min(max(head, 0), 256**agree - 1)
    scripted = [*head.to_bytes(agree, "big"), *noise][:12]
    coin = exp_coins(float_exponent(x), lambda _: x, Script(scripted, endless=True))
    assert bool(coin[0]) == exact_coin(x, scripted)


@pytest.mark.parametrize("direction", [-1, 1])
def test_coins_stay_exact_with_the_worst_float_exponent_allowed(direction):
    """Exponents on both sides of every table cell, wrong by the 2**-50 that the lemma allows."""
    for k in range(0, 7 * CELLS, 37):
        x = Fraction(k, CELLS) or Fraction(1, 10**6)
        wrong = np.array([float(CELLS * x) * (1 + direction * 2.0**-50)])
        with mpmath.workprec(400):
            p = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
            for size in (1, 2, 6):
                for off in (-1, 0, 1):
                    head = min(max(int(mpmath.floor(p * 256**size)) + off, 0), 256**size - 1)
                    scripted = [*head.to_bytes(size, "big"), *[137] * (12 - size)]
                    coin = exp_coins(wrong.copy(), lambda _, x=x: x, Script(scripted, endless=True))
                    assert bool(coin[0]) == exact_coin(x, scripted)


@pytest.mark.parametrize("sliver", [Fraction(1, 1000), Fraction(999, 1000)])
@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_the_float_stage_leaves_open_what_it_cannot_know(sliver, direction):
    """e**-x a sliver above or below a 48-bit prefix, and a float exponent as wrong as allowed."""
    for prefix in range(2**43, 2**48, 2**41 + 12345):
        with mpmath.workprec(400):
            p = (prefix + mpmath.mpf(sliver.numerator) / sliver.denominator) / mpmath.mpf(2) ** 48
            x = Fraction(int(mpmath.floor(-mpmath.log(p) * mpmath.mpf(2) ** 300)), 2**300)
        wrong = np.array([float(CELLS * x) * (1 + direction * 2.0**-51)])
        for last in (0, 255):
            scripted = [*prefix.to_bytes(6, "big"), *[last] * 4]
            coin = exp_coins(wrong.copy(), lambda _, x=x: x, Script(scripted, endless=True))
            assert bool(coin[0]) == exact_coin(x, scripted) == (last == 0)


def test_the_float_path_is_within_its_proved_error():
    at = np.concatenate([np.linspace(0, 32 * CELLS, 4001), np.arange(0, 32 * CELLS, 7) - 2.0**-30])
    at = at[at >= 0]
    values = _sampling_accept._exp_neg(at.copy())
    with mpmath.workprec(120):
        worst = max(
            abs(mpmath.mpf(float(v)) / mpmath.exp(-mpmath.mpf(float(a)) / CELLS) - 1)
            for a, v in zip(at, values, strict=True)
        )
    assert worst < 2**-46  # the lemma's share for everything but the exponent's own error


def test_byte_tables_never_decide_against_the_exponential():
    below, above, _ = _sampling_accept._tables()
    with mpmath.workprec(120):
        for k in range(below.size - 1):
            slack = mpmath.mpf(2) ** -41
            assert int(below[k]) <= 256 * mpmath.exp(-mpmath.mpf(k + 1) / CELLS) * (1 - slack)
            top = 256 * mpmath.exp(-mpmath.mpf(k) / CELLS) * (1 + slack)
            assert int(above[k]) + 1 >= min(256, top)
        assert below[-1] == 0
        assert above[-1] + 1 >= 256 * mpmath.exp(-6)
    assert (above.astype(int) - below)[:-1].max() <= 2  # and they leave little open


def test_bytes_are_handed_out_once_and_in_order():
    served = []

    def source(count):
        start = sum(map(len, served))
        served.append(np.arange(start, start + count) % 251)
        return served[-1].astype(np.uint8)

    pool = Bytes(source)
    small = np.concatenate([pool.take(n).copy() for n in (3, 0, 10, 5, 7, 1)])
    assert np.array_equal(small, served[0][:26])
    large = [pool.take(n) for n in (2**18, 5, 2**18 + 1, 7, 2**17, 2**17)]
    assert sum(part.size for part in large) + 26 <= sum(map(len, served))
    assert not any(np.shares_memory(x, y) for x in large for y in large if x is not y)
    assert np.array_equal(np.concatenate([large[1], large[3]]), served[2][:12])


def test_fair_bits_are_the_bits_of_the_bytes():
    assert fair_bits(11, Script([0b10110000, 0b01011111])).tolist() == [
        1,
        0,
        1,
        1,
        0,
        0,
        0,
        0,
        0,
        1,
        0,
    ]


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
    candidates.words[0] = min(k, LARGEST)
    seen = []

    def spy(exponents, exact, _):
        seen.extend([float(exponents[0]), exact(0)])
        return np.zeros(1, bool)

    exact = {0: k} if k > LARGEST else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opendp_sim.measurements._sampling_gaussian.exp_coins", spy)
        from opendp_sim.measurements import _sampling_gaussian as module

        module._accepted(plan, replace(candidates, exact=exact), Bytes())
    given_float, real = seen[0], plan.exponent(k)
    assert seen[1] == real
    if given_float < 32 * CELLS:
        assert abs(Fraction(given_float) - CELLS * real) <= CELLS * real / 2**50


# --- the law, measured ------------------------------------------------------------------------


@pytest.mark.audit
@pytest.mark.parametrize("family", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [*SCALES, *LONE_SCALES], ids=str)
def test_draws_fit_the_law(family, scale):
    name, p = tallied(drawer(family, scale), Law(family, float(scale)), PUSH).worst()
    assert p > FALSE_ALARM, name


@pytest.mark.audit
@pytest.mark.deep
@pytest.mark.parametrize("family", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_many_draws_fit_the_law(family, scale):
    name, p = tallied(drawer(family, scale), Law(family, float(scale)), DEEP).worst()
    assert p > FALSE_ALARM, name


@pytest.mark.audit
@pytest.mark.parametrize("family", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("wrong", [0.97, 1.03])
def test_the_tester_refutes_three_percent_of_scale(family, scale, wrong):
    """10**6 draws; the body's non-centrality is 840 at least, so a miss is below 1e-60."""
    tally = tallied(drawer(family, scale), Law(family, float(scale) * wrong), PUSH)
    assert tally.worst()[1] < FALSE_ALARM


@pytest.mark.audit
@pytest.mark.parametrize("sign", [0, 1])
def test_the_tester_refutes_one_digit_off_by_a_thousandth(monkeypatch, sign):
    """One binary digit's probability off by 1e-3 needs about 2 * 10**7 draws; made with 2**25.

    At 2**25 draws the digit's count is 11 deviations off (threshold about 6), so a miss is below
    1e-6. With ``sign`` 0 the twin is the right sampler, and the same tester is content with it.
    """
    scale, digit = Fraction(20), 1
    right = laplace_digits(1 / scale)

    def off(bits):
        low, high = logistic_bounds(2**digit / scale, bits)
        shift = sign * Fraction(1 << bits, 1000)
        return low + math.floor(shift), high + math.ceil(shift)

    digits = list(right.digits)
    digits[digit] = Threshold(off)
    broken = replace(right, digits=tuple(digits))
    monkeypatch.setattr(_sampling_noise, "laplace_digits", lambda _: broken)
    name, p = tallied(drawer("laplace", scale), Law("laplace", float(scale)), 2**25).worst()
    assert (p < FALSE_ALARM) == bool(sign), name
    assert not sign or name == f"digit {digit}"


@pytest.mark.audit
@pytest.mark.parametrize("twin", ["every candidate", "peak forgotten", "bytes reused"])
def test_the_tester_refutes_broken_twins(monkeypatch, twin):
    module = "opendp_sim.measurements._sampling_gaussian"
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
def test_bulk_and_opendp_draw_from_one_law():
    """OpenDP's own draws pass the same tester: 10**5 of them, each family."""
    atom = dp.vector_domain(dp.atom_domain(T="i64"))
    zeros = [0] * 10**5
    for family, make, metric in (
        ("laplace", dp.m.make_laplace, dp.l1_distance(T="i64")),
        ("gaussian", dp.m.make_gaussian, dp.l2_distance(T=float)),
    ):
        native = make(atom, metric, 10.0)
        tally = tallied(
            lambda n, native=native: np.array(native(zeros[:n])), Law(family, 10.0), 10**5
        )
        assert tally.worst()[1] > FALSE_ALARM


# --- cells, runs, saturation ------------------------------------------------------------------

EDGES = st.sampled_from(
    [0, 1, 2, 2**62, 2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
)
CELL = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 2**63 - 1])
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(CELL, st.one_of(EDGES, st.integers(0, LARGEST)), st.integers(0, 1)), min_size=1
    )
)
def test_addition_saturates_like_unbounded_integers(cells):
    values, words, negative = zip(*cells, strict=True)
    out = saturating_add(
        np.array(values, np.int64), np.array(words, np.uint64), np.array(negative, np.uint8)
    )
    exact = [v - w if n else v + w for v, w, n in cells]
    assert out.tolist() == [min(max(e, I64.min), I64.max) for e in exact]


def test_magnitudes_beyond_a_word_are_kept_exactly():
    """Scripted so that the unary part goes on for 40 units of 2**61: past 2**64 after eight."""
    plan = laplace_digits(Fraction(1, 2**59))
    digits = len(plan.digits)
    assert digits == 61
    steps = 40
    scripted = [255] * digits + [0] + [0] * steps + [255]
    drawn = magnitudes(plan, 1, Script(scripted, endless=True))
    assert drawn.words.tolist() == [LARGEST]
    assert drawn.exact == {0: 1 + steps * 2**digits}


def test_gaussian_decides_on_the_exact_magnitude_beyond_a_word(monkeypatch):
    """A candidate past 2**64, with a uniform that is zero in all bits: integers decide, and accept."""
    plan = gaussian_plan(Fraction(2**59))
    digits, steps, lot = len(plan.proposal.digits), 9, 17
    assert digits == 61
    low_and_nonzero = [255] * lot * digits + [0] * lot
    beyond = [0] + [255] * (lot - 1) + [0] * (steps - 1) + [255]
    uniforms = [0] + [255] * (lot - 1)
    script = Script([*low_and_nonzero, *beyond, *uniforms], endless=True)
    asked, real = [], GaussianPlan.exponent
    monkeypatch.setattr(GaussianPlan, "exponent", lambda self, k: asked.append(k) or real(self, k))
    drawn = gaussian_magnitudes(plan, 1, script)
    assert asked == [1 + steps * 2**digits]
    assert drawn.words.tolist() == [LARGEST]
    assert drawn.exact == {0: 1 + steps * 2**digits}


@pytest.mark.parametrize("family", ["laplace", "gaussian"])
def test_sums_saturate_and_never_wrap(family):
    scale = Fraction(10**6)
    for value, toward in ((I64.max, 1), (I64.min, -1)):
        out = ADD[family](np.full(10**4, value), [(10**4, scale)])
        assert (out == value).mean() > 0.4  # half the noise points outward
        assert (np.abs(out - value, dtype=np.float64) < 1e8).all()
        assert not (np.sign(out) == -toward).any()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 150_000), st.integers(0, 3)), max_size=6))
def test_every_cell_gets_noise_of_its_own_run_once(runs):
    scales = [Fraction(1, 100 + i) for i in range(4)]  # stands in for an identity of the run
    noise = [(cells, scales[i]) for cells, i in runs]
    total = sum(cells for cells, _ in runs)

    def draw(scale, count, _):
        return np.full(count, scale.denominator, np.uint64)

    source = lambda n: np.zeros(n, np.uint8)  # noqa: E731 - all signs positive
    out = _sampling_noise._add(np.zeros(total, np.int64), noise, draw, source)
    expected = np.repeat([100 + i for _, i in runs], [cells for cells, _ in runs])
    assert np.array_equal(out, expected)


@pytest.mark.audit
@pytest.mark.parametrize("family", ["laplace", "gaussian"])
def test_each_run_has_its_own_scale(family):
    """Interleaved runs of three scales: each fits its own law, none fits its neighbour's."""
    scales = [Fraction(3, 2), Fraction(6), Fraction(24)]
    runs = [(1 + 777 * i % 5000, scales[i % 3]) for i in range(1200)]
    total = sum(cells for cells, _ in runs)
    owner = np.repeat([i % 3 for i in range(len(runs))], [cells for cells, _ in runs])
    out = ADD[family](np.zeros(total, np.int64), runs)
    for i, scale in enumerate(scales):
        mine = out[owner == i]
        assert (
            tallied(lambda _, mine=mine: mine, Law(family, float(scale)), mine.size).worst()[1]
            > FALSE_ALARM
        )
        wrong = Law(family, float(scales[(i + 1) % 3]))
        assert tallied(lambda _, mine=mine: mine, wrong, mine.size).worst()[1] < FALSE_ALARM


@pytest.mark.parametrize("family", ["laplace", "gaussian"])
def test_memory_beyond_the_result_does_not_grow_with_the_cells(family):
    ADD[family](np.zeros(10, np.int64), [(10, Fraction(10**4))])  # tables and thresholds
    extra = []
    for cells in (10**6, 4 * 10**6):
        values = np.zeros(cells, np.int64)
        tracemalloc.start()
        ADD[family](values, [(cells, Fraction(10**4))])
        extra.append(tracemalloc.get_traced_memory()[1] - values.nbytes)
        tracemalloc.stop()
    assert max(extra) < 2**24
    assert extra[1] < extra[0] + 2**20


@pytest.mark.audit
def test_two_releases_share_no_noise():
    first, second = (drawer("laplace", Fraction(100))(10**5) for _ in range(2))
    agree, pairs = (
        int((np.sign(first) * np.sign(second) > 0).sum()),
        int((first * second != 0).sum()),
    )
    assert binomial(agree, pairs, 0.5) > FALSE_ALARM


def test_input_is_left_alone_and_empty_is_empty():
    values = np.arange(5)
    for add in ADD.values():
        add(values, [(5, Fraction(3))])
        assert add(np.zeros(0, np.int64), []).shape == (0,)
        assert add(np.zeros(0, np.int64), [(0, Fraction(3))]).shape == (0,)
    assert values.tolist() == [0, 1, 2, 3, 4]


# --- measurements -----------------------------------------------------------------------------

VECTOR = dp.vector_domain(dp.atom_domain(T="i64"))
MAKERS = {
    "laplace": (make_bulk_laplace, dp.m.make_laplace, dp.l1_distance(T="i64")),
    "gaussian": (make_bulk_gaussian, dp.m.make_gaussian, dp.l2_distance(T=float)),
}


@pytest.mark.parametrize("family", MAKERS)
def test_map_is_opendps_to_the_last_bit(family):
    make, native, metric = MAKERS[family]
    scales = [5e-324, 1e-200, 1e-3, 0.1, 0.3, 0.5, 1.0, math.pi, 10.0, 1e4, 1e9, 2.0**59]
    distances = [0, 1, 2, 3, 7, 100, 12345, 2**31, 2**53 + 1]
    for scale in scales:
        ours, theirs = make(VECTOR, metric, scale=scale), native(VECTOR, metric, scale)
        for d_in in distances:
            real = float(d_in) if family == "gaussian" else d_in
            assert ours.map(real) == theirs.map(real)
        assert ours.input_domain == theirs.input_domain
        assert ours.input_metric == theirs.input_metric
        assert ours.output_measure == theirs.output_measure


@given(st.fractions(min_value=0, max_value=10**9), st.floats(1e-3, 1e6))
def test_laplace_map_bounds_fractional_distances(distance, scale):
    assert Fraction(laplace_map(scale)(distance)) >= distance / Fraction(scale)


@pytest.mark.parametrize("family", MAKERS)
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, -math.inf, 1e300, 2.0**60])
def test_bad_scales_are_refused_by_name(family, scale):
    make, _, metric = MAKERS[family]
    with pytest.raises(SimError, match=rf"OS101 bulk_{family}.scale.*Hint"):
        make(VECTOR, metric, scale=scale)


def test_bad_spaces_are_refused():
    with pytest.raises(SimError, match="OS202"):
        make_bulk_laplace(VECTOR, dp.l2_distance(T=float), scale=1.0)
    with pytest.raises(SimError, match="OS202"):
        make_bulk_gaussian(VECTOR, dp.l1_distance(T="i64"), scale=1.0)
    with pytest.raises(SimError, match="OS201"):
        make_bulk_laplace(
            dp.vector_domain(dp.atom_domain(T="f64", nan=False)), dp.l1_distance(T="i64"), scale=1.0
        )
    with pytest.raises(SimError, match="OS201"):
        BulkLaplace(scale=1.0).bind(Domain(), VectorNorm("l1"))
    with pytest.raises(SimError, match="OS202"):
        BulkLaplace(scale=1.0).bind(IntVector(4), VectorNorm("l1", weights=((3, 2),)))
    with pytest.raises(SimError, match="OS102"):
        BulkGaussian(scale=2.0**58).bind(IntVector(3), VectorNorm("l2", weights=((3, 4),)))


@pytest.mark.parametrize("family", MAKERS)
def test_extreme_scales_run(family):
    make, _, metric = MAKERS[family]
    for scale in (5e-324, 1e-200, 1e-3):
        assert make(VECTOR, metric, scale=scale)([7] * 1000).tolist() == [7] * 1000
    for scale in (1e9, 2.0**59):
        out = make(VECTOR, metric, scale=scale)([7] * 1000).astype(np.float64)
        assert 0.5 < np.abs(out).mean() / scale < 1.6


@pytest.mark.parametrize("family", MAKERS)
def test_releases_are_int64_arrays_of_the_input_shape(family):
    make, _, metric = MAKERS[family]
    measurement = make(VECTOR, metric, scale=2.0)
    for data in ([], [1, 2, 3], np.arange(1000), np.arange(3, dtype=np.int64)[::-1]):
        out = measurement(data)
        assert out.dtype == np.int64
        assert out.shape == (len(data),)


@pytest.mark.parametrize(
    ("family", "record"), [("laplace", BulkLaplace), ("gaussian", BulkGaussian)]
)
def test_release_is_its_noiseless_part_plus_the_declared_noise(family, record):
    norm = {"laplace": "l1", "gaussian": "l2"}[family]
    weights = ((2, 1), (3, 8))
    claim = record(scale=5.0).bind(IntVector(5), VectorNorm(norm, weights=weights))
    assert claim.core([1, 2, 3, 4, 5]).tolist() == [1, 2, 3, 4, 5]
    assert (claim.noise.family, claim.noise.scale) == (f"discrete_{family}", 5.0)
    assert (claim.noise.weights, claim.noise.sampler) == (weights, "bulk")
    for bad in ([1, 2], np.zeros(5), np.zeros((5, 1), np.int64)):
        with pytest.raises(SimError, match="OS602"):
            claim.function(bad)
    make, _, metric = MAKERS[family]
    assert parts_of(make(VECTOR, metric, scale=5.0)).noise.sampler == "bulk"


@pytest.mark.audit
@pytest.mark.parametrize(
    ("family", "record"), [("laplace", BulkLaplace), ("gaussian", BulkGaussian)]
)
def test_weights_multiply_the_scale_of_their_cells(family, record):
    norm = {"laplace": "l1", "gaussian": "l2"}[family]
    cells = 3 * 10**5
    metric = VectorNorm(norm, weights=((cells, 1), (cells, 3)))
    out = (
        record(scale=1.5).bind(IntVector(2 * cells), metric).function(np.zeros(2 * cells, np.int64))
    )
    for part, scale in ((out[:cells], 1.5), (out[cells:], 4.5)):
        assert (
            tallied(lambda _, part=part: part, Law(family, scale), cells).worst()[1] > FALSE_ALARM
        )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 9)), min_size=1, max_size=8),
    st.floats(0.05, 100.0),
)
def test_weighted_laplace_map_bounds_the_loss_of_any_neighbour(cells, scale):
    """The loss of the product law is the sum of |difference| / (scale * weight), attained far out."""
    weights = tuple((1, weight) for _, weight in cells)
    claim = BulkLaplace(scale=scale).bind(IntVector(len(cells)), VectorNorm("l1", weights=weights))
    distance = sum((Fraction(abs(change), weight) for change, weight in cells), Fraction(0))
    loss = sum((abs(change) / (Fraction(scale) * weight) for change, weight in cells), Fraction(0))
    assert Fraction(claim.privacy_map(distance)) >= loss


@pytest.mark.parametrize("order", [1.25, 2.0, 8.0])
def test_gaussian_map_bounds_the_renyi_divergence(order):
    """Of the exact discrete law, by summation: one cell, several scales, shifts and weights."""
    for scale, weight, shift in ((0.4, 1, 1), (0.7, 2, 1), (1.0, 1, 3), (2.5, 3, 5), (6.0, 1, 1)):
        claim = BulkGaussian(scale=scale).bind(
            IntVector(1), VectorNorm("l2", weights=((1, weight),))
        )
        deviation = scale * weight
        k = np.arange(-int(60 * deviation) - 60 * shift, int(60 * deviation) + 60 * shift)
        p, q = -(k**2) / (2 * deviation**2), -((k - shift) ** 2) / (2 * deviation**2)
        log_sum = np.logaddexp.reduce
        p, q = p - log_sum(p), q - log_sum(q)
        divergence = log_sum(order * p + (1 - order) * q) / (order - 1)
        rho = claim.privacy_map(Fraction(shift, weight))
        assert divergence <= order * rho * (1 + 1e-9)


def test_auto_means_bulk_from_ten_thousand_cells():
    assert sampler_for("auto", AUTO_CELLS - 1) == "opendp"
    assert sampler_for("auto", AUTO_CELLS) == "bulk"
    assert sampler_for("opendp", 10**9) == "opendp"
    assert sampler_for("bulk", 1) == "bulk"
