"""Certified numbers and exact coins: brackets, places, and every byte string that can come."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st

from opendp_sim.core.arithmetic import exp_bounds
from opendp_sim.core.arithmetic.exp_bounds import exp_neg_bounds
from opendp_sim.measurements.noise._impl import exact_coins as _sampling_accept
from opendp_sim.measurements.noise._impl.exact_coins import (
    CELLS,
    Bytes,
    Threshold,
    bernoulli,
    exp_coins,
    exp_threshold,
    fair_bits,
    logistic_bounds,
    logistic_threshold,
    nonzero_threshold,
)
from tests._tiers import some
from tests.measurements.noise._bulk_shared import RATIONALS, Script

dp.enable_features("contrib")


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
        patch.setattr(exp_bounds, "_GUARD_BITS", 0)
        low, high = exp_neg_bounds(x, bits)
        small = exp_bounds.exp_of_small(x / 80, bits)
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
    "x", some([Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(5), Fraction(40)], 3)
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
    values = _sampling_accept.exp_neg_floats(at.copy())
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
