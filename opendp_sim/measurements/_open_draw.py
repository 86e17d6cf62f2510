"""The exponential mechanism over a universe too large to list, drawn exactly.

Candidates with equal counts are exchangeable, so a draw is two draws: a count, with probability
proportional to (how many have it) * exp(count / scale), and then one of them, uniformly. The first is
settled by comparing random bits with certified bounds, and refined until they decide. Proof:
``open_draw.md``, beside this file.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.randomness import private_bytes
from opendp_sim.measurements._sampling_exp import exp_neg_bounds

__all__ = ["draw_listed", "draw_open", "pick_group", "uniform_below"]

_START = 96
"""Fractional bits of the first attempt; each further one doubles them."""


def draw_open(
    votes: NDArray[np.int64], universe: int, rounds: int, scale: float
) -> list[tuple[bool, int]]:
    """Draw ``rounds`` different candidates one after another (Lemma 3).

    Args:
        votes: shape (m,), at least 1 each: the candidates that occur.
        universe: N >= m; the other N - m have no vote.
        rounds: how many to draw, at most N.
        scale: b of ``exp(count / b)``.

    Returns:
        (occurs, place): place among ``votes``, or the rank among the candidates that do not occur.
    """
    order = np.argsort(votes, kind="stable")
    ranked = np.asarray(votes)[order]
    first = np.flatnonzero(np.diff(ranked, prepend=0)) if len(ranked) else np.empty(0, np.int64)
    bounds = [*map(int, first), len(ranked)]
    counts = [0, *map(int, ranked[first])]
    left = [universe - len(ranked), *(b - a for a, b in pairwise(bounds))]
    powers = _Powers(counts, Fraction(scale))
    taken: list[list[int]] = [[] for _ in counts]
    out = []
    for _ in range(rounds):
        group = pick_group(left, powers)
        place = _nth_left(uniform_below(left[group]), taken[group])
        left[group] -= 1
        out.append((True, int(order[bounds[group - 1] + place])) if group else (False, place))
    return out


def draw_listed(
    scores: NDArray[np.int64], rounds: int, scale: float, *, lowest: bool = False
) -> list[int]:
    """Draw ``rounds`` different indices one after another; any whole scores (Lemma 3)."""
    votes = (scores.max() - scores if lowest else scores - scores.min()) + 1
    return [place for _, place in draw_open(votes, len(votes), rounds, scale)]


def _nth_left(rank: int, taken: list[int]) -> int:
    """Return the ``rank``-th place that is not taken, and take it."""
    place = rank
    for other in sorted(taken):
        if other <= place:
            place += 1
    taken.append(place)
    return place


class _Powers:
    """Certified ``exp((count - top) / scale)`` in integers, each computed once per precision."""

    def __init__(self, counts: list[int], scale: Fraction) -> None:
        """Take rising counts."""
        self._steps = [b - a for a, b in pairwise(counts)]
        self._scale = scale
        self._known: dict[int, list[tuple[int, int]]] = {}

    def bounds(self, bits: int) -> list[tuple[int, int]]:
        """Return (lower, upper) of each power times ``2**bits``: products of outward roundings."""
        if bits not in self._known:
            factors = {d: exp_neg_bounds(d / self._scale, bits) for d in set(self._steps)}
            low = high = 1 << bits
            found = [(low, high)]
            for step in reversed(self._steps):
                lower, upper = factors[step]
                low, high = low * lower >> bits, -(-high * upper >> bits)
                found.append((low, high))
            self._known[bits] = found[::-1]
        return self._known[bits]


def pick_group(sizes: list[int], powers: _Powers) -> int:
    """Draw g with probability proportional to ``sizes[g] * power[g]``, exactly (Lemma 2)."""
    bits, drawn, known = _START, 0, 0
    while True:
        fresh = bits - known
        drawn = (drawn << fresh) | int.from_bytes(private_bytes(fresh // 8).tobytes(), "big")
        known = bits
        found = _settled(drawn, bits, sizes, powers)
        if found is not None:
            return found
        bits *= 2


def _settled(drawn: int, bits: int, sizes: list[int], powers: _Powers) -> int | None:
    """Return the group that holds every real in [drawn, drawn + 1) / 2**bits, or None."""
    pairs = powers.bounds(bits + max(sizes).bit_length() + 32)
    low = list(accumulate(size * lower for size, (lower, _) in zip(sizes, pairs, strict=True)))
    high = list(accumulate(size * upper for size, (_, upper) in zip(sizes, pairs, strict=True)))
    # The first group whose running sum surely passes the draw; then whether the one before surely
    # does not.
    group = bisect_left(low, -(-(drawn + 1) * high[-1] >> bits))
    if group == len(low):
        return None
    before = high[group - 1] if group else 0
    return group if drawn * low[-1] >= before << bits else None


def uniform_below(bound: int) -> int:
    """Draw a whole number below ``bound``, uniformly: rejection of random bits."""
    bits = max((bound - 1).bit_length(), 1)
    size = (bits + 7) // 8
    while True:
        value = int.from_bytes(private_bytes(size).tobytes(), "big") >> (8 * size - bits)
        if value < bound:
            return value
