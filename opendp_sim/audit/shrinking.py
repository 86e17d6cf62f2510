"""A smaller pair on which an event keeps its excess, and how many releases fit into some seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from opendp_sim.audit.choosing import Chosen
from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.curves import Curve
from opendp_sim.audit.encoding import outcome
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.sampling import both_sides

__all__ = ["MOST", "Search", "affordable", "releases_of", "shrunk_pair", "smaller"]

MOST = 20_000
_KEEP = 0.75
_ALWAYS = 3
"""Smaller pairs that are tried whatever the clock says: all shared records left out, and either half."""
_GLANCED, _TWICE = 40, 2
"""Runs a side that judge a smaller pair; a pair that is too slow for two looks is kept."""


@dataclass(frozen=True)
class Search:
    """What is drawn from, and until when."""

    run: Callable[[Any], Any]
    curve: Curve
    end: float
    member: Callable[[Any], bool]

    def left(self, share: float = 1.0) -> float:
        """Return a part of the CPU seconds that are left."""
        return share * max(0.0, self.end - cpu_seconds())


def affordable(run: Callable[[Any], Any], pair: Pair, seconds: float) -> int:
    """Return how many releases of either side fit into so many CPU seconds, by one of each."""
    begin = cpu_seconds()
    for data in (pair.left, pair.right):
        outcome(run, data)
    cost = max(cpu_seconds() - begin, 1e-5)
    return int(min(MOST, seconds / cost))


def releases_of(run: Callable[[Any], Any], pair: Pair, count: int) -> tuple[list[Any], list[Any]]:
    """Return releases of either side, exceptions among them; a coin says which goes first in a round.

    A counter, a clock or a cache that warms up would tell one side from the other if it came first.
    """
    return both_sides(lambda data: [outcome(run, data)], pair, count)


def shrunk_pair(
    search: Search, pair: Pair, chosen: Chosen, seconds: float, glanced: int = _GLANCED
) -> Pair:
    """Leave out records of both sides while the event keeps most of its excess, on a few draws."""
    if not isinstance(pair.left, list) or not isinstance(pair.right, list):
        return pair
    end = cpu_seconds() + seconds
    if glanced == _GLANCED and affordable(search.run, pair, seconds) < _TWICE * glanced:
        return pair

    def excess(of: Pair) -> float:
        sides = releases_of(search.run, of, glanced)
        p, q = (sum(map(chosen.event.holds, side)) / glanced for side in sides)
        p, q = (q, p) if chosen.swapped else (p, q)
        return p - math.exp(min(chosen.point[0], 50.0)) * q - chosen.point[1]

    goal = _KEEP * excess(pair)
    better, tried = goal > 0, 0
    while better and (cpu_seconds() < end or tried < _ALWAYS):
        better = False
        for small in smaller(pair):
            tried += 1
            if cpu_seconds() > end and tried > _ALWAYS:
                break
            inside = search.member(small.left) and search.member(small.right)
            if inside and excess(small) >= goal:
                pair, better = small, True
                break
    return pair


def smaller(pair: Pair) -> Iterator[Pair]:
    """Yield the pair without half, a quarter, ... one of the records that both sides share."""
    shared = _shared(pair.left, pair.right)
    size = len(shared)
    while size >= 1:
        for start in range(0, len(shared), size):
            drop = shared[start : start + size]
            mine, other = {i for i, _ in drop}, {j for _, j in drop}
            yield replace(
                pair,
                left=[v for i, v in enumerate(pair.left) if i not in mine],
                right=[v for j, v in enumerate(pair.right) if j not in other],
                genome=None,
            )
        size //= 2


def _shared(left: list[Any], right: list[Any]) -> list[tuple[int, int]]:
    """Match equal records of both sides, each once."""
    places: dict[str, list[int]] = {}
    for j, value in reversed(list(enumerate(right))):
        places.setdefault(repr(value), []).append(j)
    return [(i, places[repr(v)].pop()) for i, v in enumerate(left) if places.get(repr(v))]
