"""The exponential mechanism over very many candidates, listed or not, drawn exactly.

Candidates with equal counts are exchangeable, so a draw is two draws: a count, with probability
proportional to (how many have it) * exp(count / scale), and then one of them, uniformly. The first is
settled by comparing random bits with certified bounds, and refined until they decide. Proof:
Lemmas 3 and 4 of ``peel.md``, beside this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.exp_bounds import exp_neg_bounds
from opendp_sim.core.randomness import private_bytes

__all__ = ["Groups", "draw_listed", "draw_open", "uniform_below"]

_START = 96
"""Fractional bits of the first attempt; each further one doubles them."""
_GUARD = 32
"""Bits by which weights are known better than the draw that they settle."""


def draw_open(
    votes: NDArray[np.int64], universe: int, rounds: int, scale: float
) -> list[tuple[bool, int]]:
    """Draw ``rounds`` different candidates one after another (Lemma 3 of ``peel.md``).

    Args:
        votes: shape (m,), at least 1 each: the candidates that occur.
        universe: N >= m; the other N - m have no vote.
        rounds: how many to draw, at most N.
        scale: b of ``exp(count / b)``.

    Returns:
        (occurs, place): place among ``votes``, or the rank among the candidates that do not occur.
    """
    counts, sizes = _counted(np.asarray(votes))
    if universe > len(votes):
        counts, sizes = [*counts, 0], [*sizes, universe - len(votes)]
    groups = Groups(counts, sizes, Fraction(scale))
    urns: dict[int, tuple[NDArray[np.int64] | None, _Urn]] = {}
    out = []
    for _ in range(rounds):
        group = groups.pick()
        if group not in urns:
            absent = counts[group] == 0
            members = None if absent else np.flatnonzero(votes == counts[group])
            urns[group] = members, _Urn(sizes[group])
        members, urn = urns[group]
        place = urn.draw()
        out.append((False, place) if members is None else (True, int(members[place])))
        groups.remove(group)
    return out


def draw_listed(
    scores: NDArray[np.int64], rounds: int, scale: float, *, lowest: bool = False
) -> list[int]:
    """Draw ``rounds`` different indices one after another; any whole scores."""
    votes = (scores.max() - scores if lowest else scores - scores.min()) + 1
    return [place for _, place in draw_open(votes, len(votes), rounds, scale)]


def _counted(votes: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return the distinct counts, falling, and how many candidates have each."""
    ranked = np.sort(votes)
    ends = np.flatnonzero(np.diff(ranked, append=0)) if len(ranked) else np.empty(0, np.int64)
    return ranked[ends][::-1].tolist(), np.diff(ends, prepend=-1)[::-1].tolist()


class _Urn:
    """The numbers 0 .. size - 1, drawn uniformly and not put back: a shuffle that moves little."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._moved: dict[int, int] = {}

    def draw(self) -> int:
        at = uniform_below(self._left)
        self._left -= 1
        found = self._moved.get(at, at)
        self._moved[at] = self._moved.pop(self._left, self._left)
        return found


@dataclass
class _Weights:
    """Powers of the groups from the top down, and totals of the candidates left in them.

    Attributes:
        powers: (lower, upper) bounds.
        lowest: lower bound on the weight of what is left.
        highest: upper bound on it.
        near: how many candidates are left.
    """

    powers: list[tuple[int, int]]
    lowest: int
    highest: int
    near: int


class Groups:
    """Groups of candidates with equal counts; a group is drawn by its size and its count."""

    def __init__(self, counts: list[int], sizes: list[int], scale: Fraction) -> None:
        """Take falling counts and the number of candidates that have each."""
        self._sizes, self._all = list(sizes), sum(sizes)
        self._steps, self._scale = [a - b for a, b in pairwise(counts)], scale
        self._spare = self._all.bit_length() + _GUARD
        self._top = 0
        self._known: dict[int, _Weights] = {}

    def remove(self, group: int) -> None:
        """Take one candidate out of a group."""
        self._sizes[group] -= 1
        self._all -= 1
        for weights in self._known.values():
            at = group - self._top
            if at < len(weights.powers):
                weights.lowest -= weights.powers[at][0]
                weights.highest -= weights.powers[at][1]
                weights.near -= 1

    def pick(self) -> int:
        """Draw g with probability proportional to ``sizes[g] * exp(counts[g] / scale)`` (Lemma 4)."""
        bits, drawn, known = _START, 0, 0
        while True:
            fresh = bits - known
            drawn = (drawn << fresh) | int.from_bytes(private_bytes(fresh // 8).tobytes(), "big")
            known = bits
            found = self.settled(drawn, bits)
            if found is None and not self._sizes[self._top]:
                self._lower_top()
                found = self.settled(drawn, bits)
            if found is not None:
                return found
            bits *= 2

    def settled(self, drawn: int, bits: int) -> int | None:
        """Return the group that holds every real in [drawn, drawn + 1) / 2**bits, or None."""
        weights = self._weights(bits)
        far = self._all - weights.near  # so far below the top that each weighs one unit at most
        surely, surely_not = (drawn + 1) * (weights.highest + far), drawn * weights.lowest
        low = high = 0
        for group, (lower, upper) in enumerate(weights.powers, self._top):
            before = high
            low, high = low + self._sizes[group] * lower, high + self._sizes[group] * upper
            if low << bits >= surely:
                return group if before << bits <= surely_not else None
        return None

    def _lower_top(self) -> None:
        """Measure weights from the first group that is not empty."""
        while not self._sizes[self._top]:
            self._top += 1
        self._known = {}

    def _weights(self, bits: int) -> _Weights:
        """Return certified ``exp((count - top) / scale) * 2**n`` from the top group down.

        Each is a product of outward roundings. Where the upper bound is down to one unit the list ends.
        """
        if bits not in self._known:
            places, factors = bits + self._spare, dict[int, tuple[int, int]]()
            low = high = 1 << places
            powers = [(low, high)]
            for step in islice(self._steps, self._top, None):
                if step not in factors:
                    factors[step] = exp_neg_bounds(step / self._scale, places)
                lower, upper = factors[step]
                low, high = low * lower >> places, -(-high * upper >> places)
                if high <= 1:
                    break
                powers.append((low, high))
            sizes = self._sizes[self._top : self._top + len(powers)]
            self._known[bits] = _Weights(
                powers,
                sum(n * lower for n, (lower, _) in zip(sizes, powers, strict=True)),
                sum(n * upper for n, (_, upper) in zip(sizes, powers, strict=True)),
                sum(sizes),
            )
        return self._known[bits]


def uniform_below(bound: int) -> int:
    """Draw a whole number below ``bound``, uniformly: rejection of random bits."""
    bits = max((bound - 1).bit_length(), 1)
    size = (bits + 7) // 8
    while True:
        value = int.from_bytes(private_bytes(size).tobytes(), "big") >> (8 * size - bits)
        if value < bound:
            return value
