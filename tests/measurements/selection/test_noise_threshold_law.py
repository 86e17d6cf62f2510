"""Noise threshold against a law that is written down here alone: 40 digits, every pair of datasets of persons.

Nothing of the mechanism is used but its claim and its answers. The law: an item of c > 0 votes is listed with
c + N where that reaches T, and items are independent. Neighbours: persons with their items, of whom some leave
and some come, so a replaced person is one of each.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from opendp_sim.core.bridge import build
from opendp_sim.domains.counts import USERS, OpenCounts
from opendp_sim.measurements.selection.noise_threshold import NoiseThreshold
from tests._tiers import tiered

OPEN = OpenCounts(text=False)
BOTH = ("gaussian", "laplace")
ORDERS = (1.01, 2.0, 8.0, 200.0)
EPSILONS = (0.0, 0.01, 0.3, 1.0, 2.5)


def tail(noise: str, scale: float, j: int) -> mpmath.mpf:
    """``Pr[N >= j]`` of a normal variable rounded to whole numbers, or of q**|n| (1 - q) / (1 + q)."""
    with mpmath.workdps(40):
        if noise == "gaussian":
            return mpmath.erfc((j - mpmath.mpf(1) / 2) / scale / mpmath.sqrt(2)) / 2
        q = mpmath.exp(-1 / mpmath.mpf(scale))
        return q**j / (1 + q) if j > 0 else 1 - q ** (1 - j) / (1 + q)


@lru_cache(maxsize=4096)
def cell(noise: str, scale: float, bar: int, votes: int, top: int) -> np.ndarray:
    """The law of one item: not listed, listed with ``bar``, ``bar + 1``, ..., ``top`` or more."""
    out = np.zeros(top - bar + 2)
    if votes == 0:
        out[0] = 1.0
        return out
    tails = [tail(noise, scale, y - votes) for y in range(bar, top + 1)]
    out[0] = float(1 - tails[0])
    out[1:-1] = [float(a - b) for a, b in itertools.pairwise(tails)]
    out[-1] = float(tails[-1])
    return out


def apart(gone: int, come: int, items: int, bases: tuple[int, ...], universe: int) -> set:
    """Counts of the items that differ, on both sides, where so many persons left and came."""
    found = set()
    for left in itertools.product(range(gone + 1), repeat=universe):
        for right in itertools.product(range(come + 1), repeat=universe):
            # Persons of at most `items` items each: any counts up to the persons and items there are.
            if sum(left) > items * gone or sum(right) > items * come:
                continue
            moved = [(a, b) for a, b in zip(left, right, strict=True) if a != b]
            for stays in itertools.product(bases, repeat=len(moved)):
                pairs = [(c + a, c + b) for c, (a, b) in zip(stays, moved, strict=True)]
                found.add(tuple(sorted(pairs)))
    return found - {()}


def laws(noise: str, scale: float, bar: int, pairs: set) -> list[tuple[np.ndarray, np.ndarray]]:
    """Both laws of the items that differ, pairs of equally many such items in one array each."""
    most = max(c for pair in pairs for both in pair for c in both)
    top = max(bar, most) + math.ceil((8.3 if noise == "gaussian" else 12) * scale)
    out = []
    for size in sorted({len(pair) for pair in pairs}):
        sides: list[list[np.ndarray]] = [[], []]
        for pair in pairs:
            if len(pair) == size:
                for side in (0, 1):
                    law = np.ones(1)
                    for both in pair:
                        law = np.outer(law, cell(noise, scale, bar, both[side], top)).ravel()
                    sides[side].append(law)
        out.append((np.array(sides[0]), np.array(sides[1])))
    return out


def excess(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """The largest ``P(E) - e**epsilon Q(E)`` over all events and pairs: exact, by the positive part."""
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum(axis=1).max())


def cut(p: np.ndarray, q: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Cut delta off both laws so that every Renyi divergence is the least that is left.

    The sum of P1**a Q1**(1-a) is convex; its derivatives are monotone in the ratio P1 / Q1, so the least is
    ``P1 = min(P', l Q')`` and ``Q1 = min(Q', m P')``, primes for divided by 1 - delta, whatever the order.
    """
    p, q = p / (1 - delta), q / (1 - delta)

    def least(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        low, high = np.full((len(a), 1), -40.0), np.full((len(a), 1), 80.0)
        for _ in range(60):
            middle = (low + high) / 2
            fits = np.minimum(a, np.exp(middle) * b).sum(axis=1, keepdims=True) >= 1
            low, high = np.where(fits, low, middle), np.where(fits, middle, high)
        return np.minimum(a, np.exp(high) * b)

    first, second = least(p, q), least(q, p)
    short = 1 - 1e-9  # a mass that cannot be reached is one that no delta so small covers
    assert first.sum(axis=1).min() >= short
    assert second.sum(axis=1).min() >= short
    return first, second


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    """The largest divergence over the pairs; where Q has nothing, P must have nothing."""
    assert not ((p > 0) & (q == 0)).any()
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, order * np.log(p) + (1 - order) * np.log(q), -np.inf)
    return float(np.logaddexp.reduce(terms, axis=1).max() / (order - 1))


SPLITS = [(1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (2, 1)]


@pytest.mark.few(7)
@pytest.mark.parametrize("noise", BOTH)
@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("split", tiered(SPLITS, lambda at: sum(at) < 3))
def test_no_pair_of_persons_datasets_exceeds_the_claim(noise, items, split):
    """The claim is asked at the distance that the threshold is made for, and at others."""
    users = sum(split)
    scale = 0.8 * items ** (0.5 if noise == "gaussian" else 1)
    for made_for in {1, users}:
        stated = {"noise": noise, "scale": scale, "delta": 0.03, "distance": made_for}
        metric = replace(USERS, touched=items)
        claim = NoiseThreshold(**stated).bind(OPEN, metric)
        curve = NoiseThreshold(accounting="curve", **stated).bind(OPEN, metric).privacy_map(users)
        bar = int(claim.expected["threshold"])
        rho, delta = claim.privacy_map(users)
        pairs = apart(*split, items, (0, bar - 2, bar + 1), 2 if users > 2 else 3)
        for p, q in laws(noise, scale, bar, pairs):
            for epsilon in EPSILONS:
                assert excess(p, q, epsilon) <= curve(epsilon) * (1 + 1e-9) + 1e-12
                assert excess(q, p, epsilon) <= curve(epsilon) * (1 + 1e-9) + 1e-12
            first, second = cut(p, q, delta)
            for order in ORDERS:
                assert renyi(first, second, order) <= rho * order * (1 + 1e-6) + 1e-8


@pytest.mark.parametrize("noise", BOTH)
def test_what_cuts_delta_off_sees_a_claim_that_is_a_tenth_too_small(noise):
    """Both halves of the claim are attained: delta by one pair, rho by another; a tenth less is seen."""
    stated = {"noise": noise, "scale": 1.5, "delta": 0.03}
    claim = NoiseThreshold(**stated).bind(OPEN, replace(USERS, touched=1))
    bar, (rho, delta) = int(claim.expected["threshold"]), claim.privacy_map(1)
    ((p, q),) = laws(noise, 1.5, bar, {((1, 0),)})
    with pytest.raises(AssertionError):
        cut(p, q, 0.9 * delta)
    # A rounded normal variable far above the threshold has the whole loss at an order that suits it; Laplace
    # noise has the half of its square only where it is small.
    ((p, q),) = laws(noise, 1.5, bar, {((bar + 30, bar + 31),)})
    worst = max(renyi(*cut(p, q, 0.0), order) / order for order in (1.01, 1.5, 2.0, 4.0))
    assert (0.85 if noise == "gaussian" else 0.6) * rho <= worst <= rho


def truth(noise: str, scale: float, bar: int, users: int, items: int) -> mpmath.mpf:
    """The chance that an item of one side passes, for the worst division of the votes among items."""
    with mpmath.workdps(60):
        stays = {v: mpmath.log1p(-tail(noise, scale, bar - v)) for v in range(1, users + 1)}
        lost = [mpmath.mpf(0)]
        for votes in range(1, users * items + 1):  # the best of all partitions, by the last part
            lost.append(min(lost[votes - v] + stays[v] for v in range(1, min(users, votes) + 1)))
        return -mpmath.expm1(lost[-1])


@pytest.mark.parametrize("noise", BOTH)
def test_the_threshold_is_the_least_that_keeps_delta(noise):
    """At the ends of what may be asked too: scales of 2**-60 to 2**40, deltas of 1e-100 to .1."""
    rng = np.random.default_rng(11)
    asked = [(2.0**-60, 1e-6), (2.0**40, 1e-6), (2.0**40, 1e-100), (0.02, 0.1), (2.0**40, 0.1)]
    asked += [
        (float(2 ** rng.uniform(-4, 14)), float(10 ** rng.uniform(-12, -1))) for _ in range(25)
    ]
    for number, (scale, delta) in enumerate(asked):
        users, items = 1 + number % 4, (1, 3, 40)[number % 3]
        stated = {"noise": noise, "scale": scale, "delta": delta, "distance": users}
        claim = NoiseThreshold(**stated).bind(OPEN, replace(USERS, touched=items))
        bar = int(claim.expected["threshold"])
        assert bar > users
        exact = truth(noise, scale, bar, users, items)
        assert exact <= delta
        assert bar == users + 1 or truth(noise, scale, bar - 1, users, items) > delta * (1 - 1e-9)
        for at in {1, users, min(bar - 1, users + 2)}:
            told, is_true = claim.privacy_map(at)[1], truth(noise, scale, bar, at, items)
            assert is_true <= told <= is_true * (1 + 1e-8) + 1e-298


@pytest.mark.parametrize("noise", BOTH)
def test_one_users_curve_is_the_largest_of_two_laws_at_a_small_epsilon(noise):
    """Scale 2,000, one user of one item: nothing is lost at any epsilon from 1e-6 on (Gaussian 1e-3)."""
    scale, delta = 2000.0, 1e-5
    stated = {"noise": noise, "scale": scale, "delta": delta, "accounting": "curve"}
    claim = NoiseThreshold(**stated).bind(OPEN, replace(USERS, touched=1))
    curve, bar = claim.privacy_map(1), int(claim.expected["threshold"])
    for epsilon in (1e-6, 1e-5, 1e-4, 4e-4, 6e-4):
        # The ratio of the two laws rises, so the best event is a count of at least some number.
        near = round(scale**2 * epsilon) if noise == "gaussian" else 0
        with mpmath.workdps(40):
            both = max(
                tail(noise, scale, j - 1) - mpmath.exp(epsilon) * tail(noise, scale, j)
                for j in range(near - 3, near + 5)
            )
        worst = max(float(both), float(tail(noise, scale, bar - 1)))
        assert worst * (1 - 1e-12) <= curve(epsilon) <= worst * 1.001 + 1e-12


@pytest.mark.parametrize("noise", BOTH)
def test_what_is_drawn_has_this_law(noise):
    """60,000 items of each of five counts in one release, every noisy count; false alarm below 1e-6."""
    scale, each = 2.3, 60_000
    claim = NoiseThreshold(scale=scale, delta=0.01, noise=noise, ranked=True).bind(
        OPEN, replace(USERS, touched=1)
    )
    bar = int(claim.expected["threshold"])
    counts = (1, bar - 3, bar, bar + 2, 2**61)
    votes = np.repeat(np.array(counts, dtype=np.int64), each)
    told = claim.function({"item": np.arange(len(votes)), "votes": votes})
    assert told["count"] == sorted(told["count"], reverse=True)
    which = np.array(told["item"]) // each
    for place, count in enumerate(counts):
        listed = np.array(told["count"])[which == place]
        assert (len(listed) == 0) or listed.min() >= bar
        seen = {int(y): int(n) for y, n in zip(*np.unique(listed, return_counts=True), strict=True)}
        for y in (*range(bar, bar + 12), *range(count - 4, count + 5)):
            chance = float(tail(noise, scale, y - count) - tail(noise, scale, y + 1 - count))
            found = seen.get(y, 0) if y >= bar else 0
            chance = chance if y >= bar else 0.0
            assert binom.cdf(found, each, chance) > 1e-9
            assert binom.sf(found - 1, each, chance) > 1e-9
        passed = float(tail(noise, scale, bar - count))
        assert binom.cdf(len(listed), each, passed) > 1e-9
        assert binom.sf(len(listed) - 1, each, passed) > 1e-9


def test_ties_ends_and_nothing_at_all():
    """Noise below a vote: counts decide, equal ones by the public order, and T itself passes."""
    metric = replace(USERS, touched=1)
    stated = {"scale": 2.0**-60, "delta": 1e-6, "distance": 3}

    def listed(votes, **more):
        items = np.arange(len(votes)) * 2
        claim = NoiseThreshold(**stated, **more).bind(OPEN, metric)
        return claim.function({"item": items, "votes": np.array(votes, dtype=np.int64)})

    bar = int(NoiseThreshold(**stated).bind(OPEN, metric).expected["threshold"])
    assert bar == 4
    assert listed([bar - 1, bar, bar + 1]) == [2, 4]
    assert listed([5, 5, 5, 5], k=2) == [0, 2]
    assert listed([5, 6, 5, 6, 5], k=3) == [0, 2, 6]
    assert listed([5, 6, 5], k=2, ranked=True) == {"rank": [1, 2], "item": [2, 0], "count": [6, 5]}
    assert listed([]) == []
    assert listed([], k=1, ranked=True) == {"rank": [], "item": [], "count": []}
    most = 2**63 - 1
    for noise in BOTH:  # noise that would leave int64 stays at its end
        claim = NoiseThreshold(scale=2.0**40, delta=1e-6, noise=noise, ranked=True)
        told = claim.bind(OPEN, metric).function(
            {"item": np.arange(64), "votes": np.full(64, most, dtype=np.int64)}
        )
        assert len(told["count"]) == 64
        assert max(told["count"]) == most


@pytest.mark.parametrize("noise", BOTH)
def test_the_curve_below_epsilon_zero_is_the_mirror_image(noise):
    """P(E) - e**epsilon Q(E) at epsilon < 0 is at least 1 - e**epsilon: no smaller number is told."""
    metric = replace(USERS, touched=1)
    mechanism = NoiseThreshold(scale=1.5, delta=0.03, noise=noise, accounting="curve")
    claim = mechanism.bind(OPEN, metric)
    bar = int(claim.expected["threshold"])
    told = build(claim, mechanism.key, OPEN, metric).map(1)
    (p, q), *_ = laws(noise, 1.5, bar, apart(1, 0, 1, (0, bar - 1, bar), 1))
    for epsilon in (-3.0, -1.0, -0.1):
        real = max(excess(p, q, epsilon), excess(q, p, epsilon))
        assert 1 - math.exp(epsilon) <= real <= told.delta(epsilon) * (1 + 1e-9)
