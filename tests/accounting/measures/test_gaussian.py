"""The Gaussian curve: brackets against mpmath, inverses, other libraries, the laws it is claimed of."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from opendp_sim.accounting.measures import gaussian as gaussian_curve, normal_tail
from opendp_sim.accounting.measures.gaussian import (
    TINY,
    delta_bounds,
    delta_up,
    epsilon_up,
    mu_squared_down,
    mu_squared_of_pure,
)
from tests._tiers import some


def real(x):
    return mpmath.mpf(x.numerator) / x.denominator


def tail(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def curve(m, epsilon):
    """The definition, with as many digits as cancellation may eat and 50 more."""
    far = float((epsilon - m / 2) ** 2 / m) / 2 + abs(float(epsilon))
    with mpmath.workdps(int(70 + far / 2.3 + abs(math.log10(float(m))))):
        mu, e = mpmath.sqrt(real(m)), real(epsilon)
        return tail(e / mu - mu / 2) - mpmath.exp(e) * tail(e / mu + mu / 2)


def points(count, seed=1):
    """mu from 1e-8 to 50, epsilon of both signs, delta from 1 down to 1e-300."""
    rng = random.Random(seed)  # noqa: S311 - test points
    while count:
        mu = 10 ** rng.uniform(-8, math.log10(50))
        spread = rng.choice([rng.uniform(-3, 3), rng.uniform(0, 12), rng.uniform(0, 36)])
        epsilon = max(0.0, mu * (mu / 2 + spread)) * rng.choice([1, 1, 1, 1, -1])
        if rng.random() < 0.08:
            epsilon = 0.0
        if abs(epsilon) <= 1000:
            count -= 1
            yield Fraction(mu * mu), Fraction(epsilon)


@pytest.mark.parametrize(
    ("count", "reach"), [(150, 1e-260), pytest.param(600, 1e-280, marks=pytest.mark.long)]
)
def test_brackets_hold_the_true_curve_and_are_narrow(count, reach):
    least = 1.0
    for m, epsilon in points(count):
        (low, high), true = delta_bounds(m, epsilon), curve(m, epsilon)
        with mpmath.workdps(400):
            assert real(low) <= true <= real(high)
            assert high - low <= max(low / 2**60, TINY)
        least = min(least, float(true))
    assert least < reach  # the grid does reach that far


def test_far_ends_are_bounds():
    for m, epsilon in ((Fraction(1, 10**16), Fraction(1)), (Fraction(1), Fraction(10**6))):
        assert delta_bounds(m, epsilon) == (0, TINY)
        assert delta_up(m, epsilon) == 5e-324  # never 0: the truth is not
    low, high = delta_bounds(Fraction(10**6), Fraction(1))
    assert 1 - low < Fraction(1, 2**1000)
    assert high == 1
    assert delta_bounds(Fraction(0), Fraction(1)) == (0, 0)
    assert delta_up(Fraction(1), math.inf) == 0.0
    assert delta_bounds(Fraction(10**5), Fraction(-3))[1] <= 1
    # epsilon far beyond what e**epsilon can be formed for
    m, epsilon = Fraction(3600), Fraction(2000)
    low, high = delta_bounds(m, epsilon)
    with mpmath.workdps(60):
        assert real(low) <= curve(m, epsilon) <= real(high)


@pytest.mark.parametrize("square", ["0", "1e-30", "0.3", "15.999", "16", "1490", "1e9"])
@pytest.mark.parametrize("bits", some([20, 1, 90, 400], 2))
def test_mills_ratio_is_bracketed_on_both_sides_of_the_switch(square, bits):
    x2 = Fraction(square)
    low, high = normal_tail.mills_bounds(x2, bits)
    with mpmath.workdps(200):
        x = mpmath.sqrt(real(x2))
        ratio = mpmath.sqrt(mpmath.pi / 2) * mpmath.exp(x * x / 2) * mpmath.erfc(x / mpmath.sqrt(2))
        assert low <= mpmath.ldexp(ratio, bits) <= high
    assert high - low <= 3
    for negative in (False, True):
        below, above = normal_tail.upper_tail(x2, bits, negative=negative)
        with mpmath.workdps(int(200 + float(min(x2, 2000)))):
            x = mpmath.sqrt(real(x2)) * (-1 if negative else 1)
            assert 0 <= below <= above <= 1
            if x2 < 10**6:
                assert real(below) <= tail(x) <= real(above)


def test_series_and_fraction_agree_where_they_meet():
    """Two proofs of one number: the other branch, forced, brackets the same."""
    for square in (Fraction(9), Fraction(16), Fraction(40)):
        one = normal_tail._by_series(square, 120)
        two = normal_tail._by_fraction(square, 120, narrow=2**20)
        assert max(one[0], two[0]) <= min(one[1], two[1])


def test_inverses_are_certified_and_the_best_of_their_digits():
    rng = random.Random(2)  # noqa: S311 - test points
    for _ in range(25):
        epsilon, delta = 10 ** rng.uniform(-3, 2), 10 ** rng.uniform(-30, -1)
        m = mu_squared_down(epsilon, delta)
        assert curve(m, Fraction(epsilon)) <= delta
        assert curve(m * (1 + Fraction(3, 2**40)), Fraction(epsilon)) > delta
        found = epsilon_up(m, delta)
        assert curve(m, Fraction(found)) <= delta
        assert found <= epsilon * (1 + 3 / 2**40)
        assert curve(m, Fraction(found) * (1 - Fraction(3, 2**40))) > delta


def test_inverses_at_their_ends():
    assert epsilon_up(Fraction(0), 0.0) == 0.0
    assert epsilon_up(Fraction(1, 4), 0.5) == 0.0
    assert epsilon_up(Fraction(1, 4), 0.0) == math.inf
    assert epsilon_up(Fraction(10**4), 1e-9) > 5000
    tiny = mu_squared_down(1e-9, 1e-300)
    assert 0 < tiny < Fraction(1, 10**20)
    assert delta_up(tiny, 1e-9) <= 1e-300


def test_the_curve_falls_with_epsilon_and_grows_with_mu():
    grid = [Fraction(k, 7) for k in range(-20, 60)]
    for m in (Fraction(1, 100), Fraction(1), Fraction(25)):
        deltas = [delta_up(m, e) for e in grid]
        assert deltas == sorted(deltas, reverse=True)
        assert all(delta_up(m, e) <= delta_up(m * 2, e) for e in grid)


def test_dp_accounting_is_never_above_by_more_than_its_own_rounding():
    library = pytest.importorskip("dp_accounting")
    for mu, delta in itertools.product((1e-3, 0.1, 0.3, 1, 2, 10), (1e-2, 1e-6, 1e-12)):
        ours = epsilon_up(Fraction(mu) ** 2, delta)
        theirs = library.get_epsilon_gaussian(1 / mu, delta, tol=1e-13)
        assert ours >= theirs * (1 - 1e-12)
        assert ours <= theirs * (1 + 1e-11) + 1e-15
    for epsilon, delta in itertools.product((0.01, 0.5, 2, 10), (1e-3, 1e-6, 1e-9)):
        scale = 1 / math.sqrt(mu_squared_down(epsilon, delta))
        theirs = library.get_sigma_gaussian(epsilon, delta, tol=1e-13)
        assert scale == pytest.approx(theirs, rel=2e-12)
        assert scale >= theirs * (1 - 1e-12)


# --- what may be claimed to be Gaussian DP -----------------------------------------------------


def randomised_response(epsilon, x):
    """Hockey stick of randomised response at any real x."""
    v = 1 / (1 + mpmath.exp(epsilon))
    return max(0, 1 - v - mpmath.exp(x) * v) + max(0, v - mpmath.exp(x) * (1 - v))


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.5, 1, 2, 5, 20, 255.5, 256, 1e4])
def test_a_pure_release_is_gaussian_with_exactly_that_much(epsilon):
    m = mu_squared_of_pure(Fraction(epsilon))
    with mpmath.workdps(600):
        v = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        crossing = tail(mpmath.sqrt(real(m)) / 2)
        assert crossing <= v
        if epsilon < 256:
            assert tail(mpmath.sqrt(real(m) * (1 - mpmath.mpf(2) ** -38)) / 2) > v
    if epsilon <= 20:
        for i in range(-20, 21):
            x = Fraction(epsilon) * i / 20
            with mpmath.workdps(60):
                assert randomised_response(mpmath.mpf(epsilon), real(x)) <= curve(m, x) * (
                    1 + mpmath.mpf(10) ** -40
                )


def rounded(scale):
    reach = int(14 * scale) + 14
    upper = [tail((k - mpmath.mpf(1) / 2) / scale) for k in range(1, reach + 2)]
    mass = {0: 1 - 2 * upper[0]}
    for k in range(1, reach + 1):
        mass[k] = mass[-k] = upper[k - 1] - upper[k]
    return mass


def discrete(scale):
    reach = int(14 * scale) + 14
    mass = {k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * scale**2)) for k in range(-reach, reach + 1)}
    total = mpmath.fsum(mass.values())
    return {k: v / total for k, v in mass.items()}


def hockey_stick(mass, shift, epsilon):
    factor = mpmath.exp(epsilon)
    return mpmath.fsum(
        max(mpmath.mpf(0), v - factor * mass.get(k - shift, 0)) for k, v in mass.items()
    )


def worst_ratio(mass, scale, shift):
    worst = mpmath.mpf(0)
    for i in range(0, 41, 2):
        epsilon = mpmath.mpf(i) / 10 * shift / scale
        mu = shift / scale
        bound = tail(epsilon / mu - mu / 2) - mpmath.exp(epsilon) * tail(epsilon / mu + mu / 2)
        if bound < mpmath.mpf(10) ** -20:
            break
        worst = max(worst, hockey_stick(mass, shift, epsilon) / bound)
    return worst


@pytest.mark.parametrize("scale", ["0.3", "0.5", "1", "2", "3"])
def test_the_rounded_law_keeps_the_curve_and_the_discrete_one_does_not(scale):
    """Shift 1: equality at epsilon 0 for the rounded law; the discrete Gaussian is above the curve."""
    with mpmath.workdps(45):
        s = mpmath.mpf(scale)
        law, twin = rounded(s), discrete(s)
        for shift in (1, 2, 3):
            assert worst_ratio(law, s, shift) <= 1 + mpmath.mpf(10) ** -30
        at_zero = 1 - 2 * tail(1 / (2 * s))
        assert abs(hockey_stick(law, 1, 0) / at_zero - 1) < mpmath.mpf(10) ** -30
        assert worst_ratio(twin, s, 1) > mpmath.mpf("1.05")


@pytest.mark.parametrize("moves", [(1, 1), (1, 2)])
def test_two_cells_keep_the_curve_too(moves):
    scale = 0.5
    reach = 6
    with mpmath.workdps(30):
        laws = [{k: float(v) for k, v in f(mpmath.mpf(scale)).items()} for f in (rounded, discrete)]
    ratios = []
    for law in laws:
        mass = np.array([law[k] for k in range(-reach, reach + 1)])
        pad = np.concatenate([np.zeros(4), mass, np.zeros(4)])
        here = [np.roll(pad, move) for move in (0, 0)]
        there = [np.roll(pad, move) for move in moves]
        p, q = np.outer(*here), np.outer(*there)
        mu = math.hypot(*moves) / scale
        ratios.append(
            max(
                np.maximum(0, p - math.exp(e) * q).sum() / delta_up(Fraction(mu) ** 2, e)
                for e in (0.0, 0.5, 1.0, 2.0, 3.0)
            )
        )
    assert ratios[0] <= 1 + 1e-9
    assert ratios[1] > 1.0


@pytest.mark.parametrize("guessed", [lambda x: x * (1 + 2.0**-38), lambda _: 1e-7, lambda _: 0.0])
def test_an_inverse_is_the_same_for_every_guess(guessed, monkeypatch):
    """Certificates are checked bit for bit: no machine's libm decides an answer."""
    cases = [(0.7, 1e-6), (1.0, 1e-5), (1e-3, 0.5), (40.0, 1e-30)]
    inverses = mu_squared_down.__wrapped__, epsilon_up.__wrapped__

    def answers():
        found = [(inverses[0](e, d), d) for e, d in cases]
        return found, [inverses[1](Fraction(m), d) for m, d in [*found, (1, 1e-6), (16, 2.0**-20)]]

    asked, plain = [], gaussian_curve.delta_bounds
    monkeypatch.setattr(gaussian_curve, "delta_bounds", lambda *at: asked.append(at) or plain(*at))
    near, guess = answers(), gaussian_curve._guess
    few = len(asked)
    monkeypatch.setattr(gaussian_curve, "_guess", lambda holds: guessed(guess(holds)))
    assert answers() == near
    monkeypatch.setattr(gaussian_curve, "_around", lambda *_, **__: None)
    assert answers() == near
    assert few < 10 * 10  # ten inverses, each of which a bisection asks about 45 times


@pytest.mark.parametrize(
    ("target", "guess", "found"),
    [
        (Fraction(1, 3), 1.6, True),
        (Fraction(1, 3), 1.67, True),
        (Fraction(1, 2), 1.5, False),  # within the width of a bracket of the curve
        (Fraction(1, 3), 1.0, False),  # far away
        (Fraction(5), 1.5, False),  # which holds everywhere
        (Fraction(-5), 1.5, False),  # and which nowhere
    ],
)
def test_neighbours_are_returned_where_a_curve_certainly_crosses(target, guess, found, monkeypatch):
    monkeypatch.setattr(gaussian_curve, "_REACH", 2**37)
    ends = gaussian_curve._around(lambda x: (2 - x, 2 - x), target, guess, falls=True)
    assert (ends is not None) == found
    if ends:
        assert ends[0] < 2 - target < ends[1] == ends[0] + Fraction(1, 2**40)


@pytest.mark.parametrize("below", [False, True])
def test_an_inverse_is_found_in_few_questions_whatever_its_power_of_two(below):
    """The least number of 40 digits above a bound, from 2**-1100 to 2**1100; each question can be dear."""
    for power in (-1100, -1074, -300, -17, -16, -2, -1, 0, 1, 2, 15, 16, 33, 1023, 1100):
        for bound in (Fraction(2) ** power, Fraction(2) ** power * Fraction(4, 3)):
            asked = []

            def holds(x, bound=bound, asked=asked):
                asked.append(x)
                return x > bound

            found = gaussian_curve._least(holds, below=below)
            step = Fraction(2) ** (power - 40)
            assert bound - step <= found <= bound if below else bound < found <= bound + step
            assert len(asked) <= 52 + abs(power) / 16
            assert Fraction(2) ** -17 * min(1, bound) <= min(asked)  # and not far beyond the answer
            assert max(asked) <= Fraction(2) ** 17 * max(1, bound)
