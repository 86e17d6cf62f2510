"""Drawing over very many candidates: the certified choice of a group, and the law of whole draws."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from opendp_sim.measurements.selection._impl.selection import Groups, draw_listed, draw_open
from tests._enumeration import sets
from tests._tiers import some

GROUPS = (
    ([7, 5, 4, 1, 0], [1, 2, 1, 3, 50], 1.5),
    ([10**9, 10**9 - 3, 40, 0], [2, 1, 5, 2**60], 3.7),
    ([9, 8, 7, 6], [1, 1, 1, 1], 1000.0),
)
"""Falling counts, how many have each, scale."""


def shares(counts, sizes, scale):
    """Running sums of the exact probabilities, to 200 digits."""
    with mpmath.workdps(200):
        weights = [
            n * mpmath.exp(mpmath.mpf(c - counts[0]) / mpmath.mpf(scale))
            for c, n in zip(counts, sizes, strict=True)
        ]
        whole = mpmath.fsum(weights)
        return [part / whole for part in itertools.accumulate(weights)]


@pytest.mark.parametrize(("counts", "sizes", "scale"), GROUPS)
def test_a_settled_draw_is_the_exact_one(counts, sizes, scale):
    """Against mpmath, for reals across the unit interval and beside every boundary."""
    exact = shares(counts, sizes, scale)
    generator, bits, decided = np.random.default_rng(5), 96, 0
    with mpmath.workdps(200):
        edges = [int(edge * 2**bits) + d for edge in exact for d in range(-3, 4)]
    drawn = [int.from_bytes(generator.bytes(12), "big") for _ in range(300)] + edges
    groups = Groups(counts, sizes, Fraction(scale))
    for number in drawn:
        if not 0 <= number < 2**bits:
            continue
        found = groups.settled(number, bits)
        with mpmath.workdps(200):
            low, high = (mpmath.mpf(number + d) / 2**bits for d in (0, 1))
            inside = [
                g
                for g, end in enumerate(exact)
                if (exact[g - 1] if g else 0) <= low and high <= end
            ]
        if found is not None:
            decided += 1
            assert inside == [found]
    assert decided > 300


def test_weights_follow_what_was_taken():
    groups = Groups([5, 3, 0], [1, 2, 9], Fraction(2))
    for group in (0, 1, 2, 2):
        groups.settled(1 << 90, 96)
        groups.remove(group)
    fresh = Groups([5, 3, 0], [0, 1, 7], Fraction(2))
    for number in range(0, 2**96, 2**88):
        assert groups.settled(number, 96) == fresh.settled(number, 96)


def chi_square(found, law, draws):
    """The statistic over outcomes with at least five expected draws, and its one-in-ten-million bound."""
    kept = {o: p for o, p in law.items() if p * draws >= 5}
    rest = draws - sum(found[o] for o in kept)
    expected = draws * (1 - sum(kept.values()))
    value = sum((found[o] - draws * p) ** 2 / (draws * p) for o, p in kept.items())
    if expected >= 5:
        value += (rest - expected) ** 2 / expected
    n = len(kept)
    return value, n + 2 * np.sqrt(n * 16.2) + 2 * 16.2  # Laurent and Massart, e^-16.2 < 1e-7


@pytest.fixture(params=[2_500, pytest.param(8_000, marks=pytest.mark.deep)])
def draws(request):
    return request.param


@pytest.mark.few(1)
@pytest.mark.parametrize("lowest", some([False, True], 2))
def test_sets_have_the_law_of_successive_exponential_draws(lowest, draws):
    """False alarm below 1e-6."""
    scores = np.array([4, 1, 1, 6, 4, 0])
    signed = -scores if lowest else scores
    law = {tuple(sorted(s)): p for s, p in sets(range(6), signed, 3, 2.5)}
    found = Counter(tuple(sorted(draw_listed(scores, 3, 2.5, lowest=lowest))) for _ in range(draws))
    assert set(found) <= set(law)
    value, most = chi_square(found, law, draws)
    assert value < most


@pytest.mark.long
def test_an_open_universe_has_the_law_of_a_listed_one(draws):
    """False alarm below 1e-6."""
    votes = np.array([3, 1, 2])
    names = [(True, 0), (True, 1), (True, 2), (False, 0), (False, 1)]
    law = {tuple(sorted(s)): p for s, p in sets(names, [3, 1, 2, 0, 0], 3, 1.5)}
    found = Counter(tuple(sorted(draw_open(votes, 5, 3, 1.5))) for _ in range(draws))
    assert set(found) <= set(law)
    value, most = chi_square(found, law, draws)
    assert value < most


def test_counts_far_apart_are_drawn_from_the_top_without_endless_refinement():
    scores = np.arange(2000, dtype=np.int64) * 10**6
    assert sorted(draw_listed(scores, 50, 2.0)) == list(range(1950, 2000))
    assert sorted(draw_listed(scores, 50, 2.0, lowest=True)) == list(range(50))


def test_everything_can_be_drawn():
    assert sorted(draw_listed(np.array([5, 5, 0, 9]), 4, 0.01)) == [0, 1, 2, 3]
    assert sorted(draw_open(np.empty(0, np.int64), 3, 3, 1.0)) == [(False, n) for n in range(3)]
