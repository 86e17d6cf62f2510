"""Every curve of selection against an oracle written apart from it, in 60-digit arithmetic.

Each claim is an upper bound, so it must be at least the oracle's value, and it must not be far above
it: the factor allowed is stated in each test. Parameters are drawn at random from a fixed seed.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2

from opendp_sim.domains.counts import USERS
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.gate_tail import LARGEST_ARGUMENT, gate_tail
from opendp_sim.measurements.selection._impl.gaussian_tail import (
    least_threshold,
    tail_of,
    threshold_for,
)
from opendp_sim.measurements.selection._impl.peeling_profile import peeling_profile, zero_profile
from opendp_sim.measurements.selection._impl.selection import gate_noise
from opendp_sim.measurements.selection._impl.stability import (
    chosen_profile,
    gated_delta,
    stable_profile,
)
from opendp_sim.measurements.selection.choose_k import ChooseK
from opendp_sim.measurements.selection.gated_peel import GatedPeel
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK
from opendp_sim.measurements.selection.limited_domain import LimitedDomain
from opendp_sim.measurements.selection.noisy_max_gaussian import (
    NoisyMaxGaussian,
    rank_curve,
    rank_delta,
)
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.stable_set import StableSet
from opendp_sim.measurements.selection.stable_top_k import StableTopK
from opendp_sim.measurements.selection.top_stable import TopStable

mp = pytest.importorskip("mpmath").mp
FLOOR = 4e-12
"""Absolute room of a bound: its rounding slack beside a probability of a half."""


class Part:
    """The part of all draws that a run looks at, the first ones: all of them in `deep`."""

    of = 1


@pytest.fixture(autouse=True, params=[2, pytest.param(1, marks=pytest.mark.deep)])
def sixty_digits(request):
    Part.of = request.param
    with mp.workdps(60):
        yield


def draws(seed, count):
    rng = np.random.default_rng(seed)
    return [rng for _ in range(-(-count // Part.of))]


# --- the discrete Gaussian ---------------------------------------------------------------------------


@lru_cache(maxsize=64)
def sums(s):
    """Sums of exp(-n^2 / (2 s^2)) over n >= j, for j = 0, 1, ..., term by term."""
    found, s = [mp.mpf(0)], mp.mpf(s)
    for n in range(int(60 * s) + 60, -1, -1):
        found.append(found[-1] + mp.exp(-(mp.mpf(n) ** 2) / (2 * s * s)))
    return found[::-1]


def gaussian_sum(s, j):
    """Sum of exp(-n^2 / (2 s^2)) over n >= j > 0: term by term, or by Euler and Maclaurin."""
    if s < 60:
        return sums(s)[min(int(j), len(sums(s)) - 1)]
    s, j = mp.mpf(s), int(j)
    u, f = j / s, mp.exp(-((mp.mpf(j) / s) ** 2) / 2)
    total = s * mp.sqrt(mp.pi / 2) * mp.erfc(u / mp.sqrt(2)) + f / 2
    # Derivatives of exp(-y^2 / 2) are Hermite polynomials; s is large, so the series ends soon.
    for order in range(1, 9):
        d = 2 * order - 1
        derivative = (
            (-1) ** d * mp.hermite(d, u / mp.sqrt(2)) / mp.mpf(2) ** (mp.mpf(d) / 2) * f / s**d
        )
        total -= mp.bernoulli(2 * order) / mp.factorial(2 * order) * derivative
    return total


def exact_tail(s, j):
    """Pr[N >= j]; the normaliser is a theta function."""
    z = (
        mp.jtheta(3, 0, mp.exp(-1 / (2 * mp.mpf(s) ** 2)))
        if s < 60
        else mp.mpf(s) * mp.sqrt(2 * mp.pi)
    )
    return gaussian_sum(s, j) / z if j > 0 else 1 - gaussian_sum(s, 1 - j) / z


def exact_stick(s, x, d):
    """Pr[N >= j] - e^x Pr[N >= j + d] at the best of the integers around the ratio's crossing."""
    middle = int(mp.floor(mp.mpf(x) * mp.mpf(s) ** 2 / d - mp.mpf(d) / 2))
    tries = (
        exact_tail(s, j) - mp.exp(x) * exact_tail(s, j + d) for j in range(middle - 2, middle + 4)
    )
    return max(mp.mpf(0), *tries)


LONG_TABLES = (2.0**13, 2.0**15)
"""Scales on both sides of where tables end: a table of 2^14 deviations takes a tenth of a second."""


@pytest.mark.parametrize(
    ("scales", "count"),
    [
        ((0.05, 50), 25),
        ((50, 900), 25),
        pytest.param(LONG_TABLES, 5, marks=pytest.mark.long),
        pytest.param(LONG_TABLES, 25, marks=pytest.mark.deep),
        ((2.0**15, 2.0**39), 25),
    ],
)
def test_tails(scales, count):
    """Factor 1 + 1e-8 with tables, 1 + 1e-7 beyond (twelve deviations out): no step is lost at 2^14."""
    for rng in draws(1, count):
        s = float(np.exp(rng.uniform(*np.log(scales))))
        j = int(rng.uniform(-3, 12) * s) + int(rng.integers(-2, 3))
        tail, exact = tail_of(s), exact_tail(s, j)
        room = mp.mpf("1e-8") if s <= 2**14 else mp.mpf("1e-7")
        assert exact <= mp.mpf(float(tail(j))) <= exact * (1 + room) + mp.mpf("2e-300")
        assert exact * (1 - room) - mp.mpf("2e-300") <= mp.mpf(float(tail.lower(j))) <= exact
    for rng in draws(2, max(2, count // 5)):
        s, delta = float(np.exp(rng.uniform(*np.log(scales)))), 10 ** rng.uniform(-12, -2)
        d = int(rng.integers(1, 9))
        found = threshold_for(s, delta, d)
        assert exact_tail(s, found - d) <= delta
        if found > d + 1:
            assert exact_tail(s, found - d - 2 - int(1e-6 * s)) > delta


@pytest.mark.parametrize(
    ("scales", "count"),
    [
        ((0.3, 50), 20),
        ((50, 900), 20),
        pytest.param(LONG_TABLES, 5, marks=pytest.mark.long),
        pytest.param(LONG_TABLES, 20, marks=pytest.mark.deep),
        ((2.0**15, 2.0**36), 20),
    ],
)
def test_hockey_sticks(scales, count):
    """Factor 1 + 1e-3 plus the floor; a scale above 2^14 no longer costs twice the loss."""
    for rng in draws(3, count):
        s, d = float(np.exp(rng.uniform(*np.log(scales)))), int(rng.integers(1, 4))
        x = float(rng.uniform(0, 5) * d / s)
        found = mp.mpf(float(tail_of(s).hockey_stick(np.array(x), d)))
        exact = exact_stick(s, x, d)
        room = mp.mpf(FLOOR) if s > 2**14 else mp.mpf("3e-9")
        assert exact <= found <= exact * (1 + mp.mpf("1e-3")) + room
    s = 2.0**15
    one, two = (float(tail_of(s).hockey_stick(np.array(1e-5), d)) for d in (1, 2))
    assert one < 0.6 * two


# --- peeling ---------------------------------------------------------------------------------------------


def chance(t, e):
    return (1 - mp.exp(t - e)) / (1 - mp.exp(-e))


def one_draw(x, e):
    """The profile of one draw of bounded range e at any real x, in closed form.

    For |x| < e the best t is (x + e) / 2; outside there is nothing to gain.
    """
    if x < 0:
        return 1 - mp.exp(x) + mp.exp(x) * one_draw(-x, e)
    if x >= e:
        return mp.mpf(0)
    t = (x + e) / 2
    return chance(t, e) * (1 - mp.exp(x - t))


def best_over(function, low, high, cells=24, rounds=40):
    """The maximum by a grid and golden sections around its best point: a lower bound on the sup."""
    grid = [low + (high - low) * i / cells for i in range(cells + 1)]
    values = [function(t) for t in grid]
    at = values.index(max(values))
    a, b, golden = grid[max(at - 1, 0)], grid[min(at + 1, cells)], (mp.sqrt(5) - 1) / 2
    best = values[at]
    for _ in range(rounds):
        left, right = b - golden * (b - a), a + golden * (b - a)
        one, two = function(left), function(right)
        best = max(best, one, two)
        a, b = (a, right) if one > two else (left, b)
    return best


def two_draws(x, e):
    return best_over(
        lambda t: chance(t, e) * one_draw(x - t, e) + (1 - chance(t, e)) * one_draw(x - t + e, e),
        mp.mpf(0),
        e,
    )


def equal_draws(x, e, rounds, t):
    """k draws with one parameter t: a binomial sum, and a lower bound on the adaptive curve."""
    p, total = chance(t, e), mp.mpf(0)
    for hits in range(rounds, -1, -1):
        loss = rounds * t - (rounds - hits) * e
        if loss <= x:
            break
        total += (
            mp.binomial(rounds, hits)
            * p**hits
            * (1 - p) ** (rounds - hits)
            * (1 - mp.exp(x - loss))
        )
    return total


@pytest.mark.parametrize("rounds", [1, 2])
def test_peeling_of_few_rounds(rounds):
    """Factor 1.03 where delta is above 1e-9."""
    exact = {1: one_draw, 2: two_draws}[rounds]
    for rng in draws(4 + rounds, 12):
        e = float(np.exp(rng.uniform(np.log(0.02), np.log(6))))
        x = float(rng.uniform(0, 0.95) * rounds * e)
        found, least = mp.mpf(peeling_profile(rounds, e).delta(x)), exact(mp.mpf(x), mp.mpf(e))
        assert least <= found
        if least > 1e-9 and x < 0.8 * rounds * e:
            assert found <= least * mp.mpf("1.03")


@pytest.mark.parametrize(
    ("rounds", "factor"),
    [(5, 1.1), (16, 1.15), (60, 1.3), pytest.param(400, 1.7, marks=pytest.mark.deep)],
)
def test_peeling_of_many_rounds(rounds, factor):
    """At least any fixed choice of draws, and within a factor (in delta) of the best fixed one."""
    for rng in draws(7, 4):
        e = float(rng.uniform(0.2, 2.0)) / rounds**0.5
        x = float(rng.uniform(0.2, 2.0)) * e * rounds**0.5
        found = mp.mpf(peeling_profile(rounds, e).delta(x))
        with mp.workdps(30):
            x, e = mp.mpf(x), mp.mpf(e)
            least = best_over(lambda t, x=x, e=e: equal_draws(x, e, rounds, t), e / 5, e, rounds=8)
        assert least <= found
        if least > 1e-9:
            assert found <= least * factor


# --- tests of stability --------------------------------------------------------------------------------


def exact_stable(s, threshold, d, x):
    """One test at any real x: the larger of its two cases."""
    if x < 0:
        return 1 - mp.exp(x) + mp.exp(x) * exact_stable(s, threshold, d, -x)
    return max(exact_stick(s, x, d), exact_tail(s, threshold - d))


def test_one_stability_test():
    """Factor 1 + 1e-3 plus the floor of the tables."""
    for rng in draws(8, 20):
        s, d = float(np.exp(rng.uniform(np.log(0.5), np.log(300)))), int(rng.integers(1, 4))
        threshold = threshold_for(s, 10 ** rng.uniform(-9, -2), d)
        x = float(rng.uniform(0, 4) * d / s)
        found = mp.mpf(float(stable_profile(np.array(x), s, threshold, d)))
        exact = exact_stable(s, threshold, d, x)
        assert exact <= found <= exact * (1 + mp.mpf("1e-3")) + mp.mpf("3e-9")


def test_a_drawn_rank_and_its_test():
    """One draw of bounded range 2 d / s in front: factor 1.05 where delta is above 1e-8."""
    for rng in draws(9, 4):
        s, d = float(np.exp(rng.uniform(np.log(3), np.log(40)))), int(rng.integers(1, 3))
        threshold, e = threshold_for(s, 10 ** rng.uniform(-7, -3), d), mp.mpf(2 * d) / mp.mpf(s)
        x = float(rng.uniform(0, 5) * d / s)
        found = mp.mpf(chosen_profile(s, threshold, d, float(e) * (1 + 1e-15)).delta(x))
        exact = best_over(
            lambda t, s=s, T=threshold, d=d, x=x, e=e: (
                chance(t, e) * exact_stable(s, T, d, x - t)
                + (1 - chance(t, e)) * exact_stable(s, T, d, x - t + e)
            ),
            mp.mpf(0),
            e,
            cells=12,
            rounds=12,
        )
        assert exact <= found
        assert found <= exact * mp.mpf("1.05") + mp.mpf("1e-8")


# --- gates -----------------------------------------------------------------------------------------------


LONG = np.longdouble
"""Sums of terms of one sign in 64-bit mantissas: exact to 1e-14 at these lengths, however small."""


@lru_cache(maxsize=64)
def drop_law(t):
    """The masses of H, term by term."""
    mode = int(1.5 * t)
    z = np.arange(mode + int(45 * t) + 45, dtype=LONG)
    mass = np.exp(-(((z - mode) / LONG(t)) ** 2) / 2)
    return z, mass / mass.sum()


@lru_cache(maxsize=65536)
def gate_law(b, t, j):
    """(Pr[G - H >= j], Pr[G - H < j]): means over H of a geometric tail and of its start.

    Masses that sum to one may add up to a last bit more, which no probability is.
    """
    z, mass = drop_law(t)
    loss = np.maximum(z + j, 0) / LONG(b)
    return tuple(
        min(mp.mpf(str(v)), mp.mpf(1))
        for v in ((mass * np.exp(-loss)).sum(), -(mass * np.expm1(-loss)).sum())
    )


def gate_passes(b, t, j):
    return gate_law(b, t, j)[0]


@pytest.mark.parametrize("widths", [(0.03, 3), (3, 60), (60, 400)])
def test_tails_of_gates(widths):
    """Factor 1 + 7e-9 on both sides of both tails, however small they are."""
    for rng in draws(15, 12):
        t, b = (float(np.exp(rng.uniform(*np.log(edges)))) for edges in (widths, (0.05, 200)))
        gate = gate_tail(b, t)
        for j in (0, 1, int(rng.uniform(0, 40) * b), -int(rng.uniform(0, 12) * t)):
            passes, fails = gate_law(b, t, j)
            room, least = 1 + mp.mpf("7e-9"), mp.mpf("2.1e-300")
            assert passes <= mp.mpf(float(gate(j))) <= passes * room + least
            assert passes / room - least <= mp.mpf(float(gate.lower(j))) <= passes
            assert fails <= mp.mpf(float(gate.fails(j))) <= fails * room + least
            assert fails / room - least <= mp.mpf(float(gate.fails_lower(j))) <= fails
        edge = gate.level(0.95)
        assert gate_passes(b, t, edge) >= mp.mpf("0.9499999") >= gate_passes(b, t, edge + 1)


@pytest.mark.long
def test_the_tails_of_the_widest_gate():
    """The longest table."""
    t, b = LARGEST_ARGUMENT, 3.0e4
    gate, room = gate_tail(b, t), mp.mpf("7e-9")
    for j in (-int(8 * t), -int(3 * t), -5, 0, 7, int(10 * b)):
        passes, fails = gate_law(b, t, j)
        for upper, exact, lower in (
            (gate(j), passes, gate.lower(j)),
            (gate.fails(j), fails, gate.fails_lower(j)),
        ):
            assert exact <= mp.mpf(float(upper)) <= exact * (1 + room)
            assert exact * (1 - room) <= mp.mpf(float(lower)) <= exact


def exact_gate(epsilon, b, t, threshold, d, rest):
    """Every pass level and every change of the gap, not the two ends alone."""
    worst = gate_passes(b, t, threshold - d)
    best, e = worst + (1 - worst) * rest(mp.mpf(epsilon)), mp.exp(epsilon)
    least = -int(12 * t) - 2
    levels = range(least - d, threshold + 1)
    law = {j: gate_law(b, t, j) for j in levels}
    for j, shift in product(range(least, threshold + 1), range(-d, d + 1)):
        if j + shift not in law:
            continue
        (p, fails), (q, other) = law[j], law[j + shift]
        best = max(best, max(p - e * q, mp.mpf(0)) + fails * rest(epsilon - mp.log(fails / other)))
    return best


@pytest.mark.parametrize("users", [1, 3])
def test_a_test_and_then_one_draw(users):
    """Factor 1.05 (that of one draw); shifts between the two ends are in the oracle."""
    for rng in draws(10, 5):
        t, e = float(rng.uniform(0.4, 4)), float(rng.uniform(0.2, 1.5))
        gate = gate_tail(users / e * float(rng.uniform(0.3, 3)), t)
        threshold = least_threshold(gate, 10 ** rng.uniform(-5, -2), users)
        epsilon = float(rng.uniform(0.05, 1.3)) * e
        found = mp.mpf(gated_delta(epsilon, gate, threshold, users, peeling_profile(1, e)))
        with mp.workdps(25):
            exact = exact_gate(
                epsilon,
                gate.right,
                t,
                threshold,
                users,
                lambda x, e=e: one_draw(mp.mpf(x), mp.mpf(e)),
            )
        assert exact <= found <= exact * mp.mpf("1.05") + mp.mpf("1e-9")


def test_a_test_and_then_nothing_is_the_test_alone():
    """The larger of an unstable set's pass and the sum of all that one gap shows more than its neighbour."""
    for b, t, users in ((1.5, 2.0, 1), (6.0, 5.0, 2), (0.7, 0.2, 1)):
        gate = gate_tail(b, t)
        threshold = least_threshold(gate, 1e-4, users)
        for epsilon in (0.1, 0.7, 2.0):
            found = mp.mpf(gated_delta(epsilon, gate, threshold, users, zero_profile(1.0, 2)))
            exact, e = gate_passes(b, t, threshold - users), mp.exp(epsilon)
            for j, shift in product(range(-int(14 * t) - 9, threshold + 1), (-users, users)):
                (p, fails), (q, other) = gate_law(b, t, j), gate_law(b, t, j + shift)
                exact = max(exact, max(p - e * q, 0) + max(fails - e * other, 0))
            assert exact <= found <= exact * mp.mpf("1.001") + mp.mpf("1e-8")


@pytest.mark.parametrize(
    ("b", "t", "runs"),
    [
        (0.6, 0.9, 1500),
        pytest.param(2.5, 4.0, 6000, marks=pytest.mark.long),
        pytest.param(0.6, 0.9, 6000, marks=pytest.mark.long),
        pytest.param(9.0, 1.2, 6000, marks=pytest.mark.deep),
    ],
)
def test_the_law_of_a_gates_noise(b, t, runs):
    """Chi-square over cells of at least 20 expected draws; false alarm 3e-7 each."""
    drawn = np.array([gate_noise(b, t) for _ in range(runs)])
    cuts = np.arange(-int(8 * t) - 5, int(12 * b) + 5)
    passes = np.array([float(gate_passes(b, t, int(j))) for j in cuts])
    edges = [cuts[0] - 10**6]
    last = 1.0
    for j, p in zip(cuts, passes, strict=True):
        if (last - p) * runs >= 20 and p * runs >= 20:
            edges.append(j)
            last = p
    chances = -np.diff([1.0, *(float(gate_passes(b, t, int(j))) for j in edges[1:]), 0.0])
    found = np.histogram(drawn, [*edges, 10**6])[0]
    statistic = float(((found - runs * chances) ** 2 / (runs * chances)).sum())
    assert chi2.sf(statistic, len(found) - 1) > 3e-7
    exchanged = np.histogram(-drawn, [*edges, 10**6])[0]
    assert (
        chi2.sf(((exchanged - runs * chances) ** 2 / (runs * chances)).sum(), len(found) - 1) < 1e-9
    )


# --- the rest ------------------------------------------------------------------------------------------


def test_noisy_max_curves():
    """The Rényi curve to 1e-11; delta within 1 % of the least over all orders."""
    for rng in draws(11, 8):
        s, users, ranks = (
            float(rng.uniform(1, 40)),
            int(rng.integers(1, 4)),
            int(rng.integers(1, 60)),
        )

        def exact(alpha, s=s, users=users, ranks=ranks):
            square = (mp.mpf(users) / mp.mpf(s)) ** 2
            return min(2 * alpha * square + mp.log(ranks) / (alpha - 1), ranks * alpha * square / 2)

        for alpha in (1.001, 1.5, 7.0, 900.0):
            claimed = mp.mpf(rank_curve(alpha, users, s, ranks))
            assert exact(mp.mpf(alpha)) <= claimed <= exact(mp.mpf(alpha)) * (1 + mp.mpf("1e-11"))
        rho = NoisyMaxGaussian(k_max=ranks, scale=s, accounting="zcdp").bind(IntVector(99), USERS)
        assert all(
            mp.mpf(rho.privacy_map(users)) * a >= exact(a) for a in (mp.mpf("1.0001"), 2, 50)
        )
        epsilon = float(rng.uniform(0.2, 5))

        def log_delta(u, epsilon=epsilon, exact=exact):
            alpha = 1 + mp.exp(u)
            return -(
                (alpha - 1) * (exact(alpha) - epsilon)
                + (alpha - 1) * mp.log1p(-1 / alpha)
                - mp.log(alpha)
            )

        with mp.workdps(30):
            least = mp.exp(-best_over(log_delta, mp.mpf(-6), mp.mpf(13), cells=60))
        found = mp.mpf(rank_delta(epsilon, users, s, ranks))
        assert (
            min(least, 1) * (1 - mp.mpf("1e-9"))
            <= found
            <= least * mp.mpf("1.01") + mp.mpf("1e-30")
        )


def test_the_limited_domains_deltas():
    for rng in draws(12, 8):
        s, users, k = float(rng.uniform(0.5, 30)), int(rng.integers(1, 4)), int(rng.integers(1, 9))
        ranks, delta = k + int(rng.integers(1, 20)), 10 ** rng.uniform(-9, -2)
        for accounting in ("zcdp", "curve"):
            limited = LimitedDomain(
                k=k, k_max=ranks, scale=s, delta=delta, distance=users, accounting=accounting
            )
            claim = limited.bind(IntVector(99), USERS)
            theta = mp.mpf(claim.expected["height"])
            if accounting == "zcdp":
                exact = 1 - (1 + ranks * mp.exp((users - theta) / mp.mpf(s))) ** (-k)
                found = mp.mpf(claim.privacy_map(users)[1])
            else:
                exact = sum(ranks / (1 + mp.exp((theta - d) / mp.mpf(s))) for d in (users, 0))
                far = 2.0 * k * users / s + 1.0  # beyond the range of k draws they lose nothing
                found = mp.mpf(claim.privacy_map(users)(far)) - mp.mpf(
                    peeling_profile(k, users / s * (1 + 2.0**-52)).delta(far)
                )
            assert (
                exact * (1 - mp.mpf("1e-13"))
                <= found
                <= exact * (1 + mp.mpf("1e-8")) + mp.mpf("1e-28")
            )
            assert exact <= delta


def test_top_stable_tails():
    """X - Y as a double geometric sum, term by term; factor 1 + 1e-8 plus the stated cut."""
    for rng in draws(13, 4):
        epsilon, users, ranks = (
            float(rng.uniform(0.3, 3)),
            int(rng.integers(1, 3)),
            int(rng.integers(2, 9)),
        )
        mechanism = TopStable(k=1, k_max=ranks, epsilon=epsilon, delta=1e-5, distance=users)
        claim = mechanism.bind(IntVector(99), USERS)
        left, right = (mp.mpf(v) for v in mechanism.scales)
        least = int(claim.expected["threshold"]) - users
        p, q = mp.exp(-1 / left), mp.exp(-1 / right)
        exact = mp.mpf(0)
        for y in range(-int(120 * right), int(120 * right) + 1):
            at = least + y
            above = p**at / (1 + p) if at >= 1 else 1 - p ** (1 - at) / (1 + p)
            exact += q ** abs(y) * (1 - q) / (1 + q) * above
        found = mp.mpf(claim.privacy_map(users)[1])
        assert (
            ranks * exact <= found <= ranks * exact * (1 + mp.mpf("1e-8")) + ranks * mp.mpf("6e-20")
        )
        assert found <= 1e-5


def test_every_rho_is_the_formula_rounded_up():
    """Within 1e-9, as exact rationals of the float parameters."""
    for rng in draws(14, 10):
        s, users = float(rng.uniform(0.3, 200)), int(rng.integers(1, 5))
        k, items = int(rng.integers(1, 6)), 14
        square = (Fraction(users) / Fraction(s)) ** 2
        near = {"delta": 1e-6, "distance": users}
        share = 0.1
        expected = [
            (ChooseK(k_max=9, scale=s), square / 2),
            (StableSet(k=k, scale=s, **near), square / 2),
            (StableTopK(k_max=9, scale=s, **near), square),
            (StableTopK(k_max=9, k=k, scale=s, fill="peel", **near), 2 * square),
            (Peel(k=k, scale=s), k * square / 8),
            (GatedPeel(k=k, scale=s, share=share, **near), k * square / 8 / Fraction(1 - share)),
            (LimitedDomain(k=k, k_max=9, scale=s, **near), k * square / 8),
            (GaussianTopK(k=k, scale=s), items * square / 2),
            (NoisyMaxGaussian(k_max=9, scale=s, accounting="zcdp"), 9 * square / 2),
        ]
        for mechanism, exact in expected:
            found = mechanism.bind(IntVector(items), USERS).privacy_map(users)
            rho = Fraction(found[0] if isinstance(found, tuple) else found)
            slack = Fraction(1, 10**9)
            assert exact * (1 - slack / 10**4) <= rho <= exact * (1 + slack), mechanism.key
        at_l2 = GaussianTopK(k=k, scale=s).bind(IntVector(items), VectorNorm("l2")).privacy_map(1.5)
        assert Fraction(9, 4) / Fraction(s) ** 2 / 2 <= Fraction(at_l2)
