"""How long a run takes before datasets grow: a quadratic function takes minutes at thousands of records.

No run can be stopped from outside. So an audit times runs on a few datasets that double in size, fits how
the seconds grow, and leaves out pairs on which one run would take longer than it has for it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.audit.neighbours import Pair, PairSpace

__all__ = ["PacedPairs", "longest", "paced"]

_FIRST, _LAST, _ENOUGH, _DRAWS = 8, 4096, 0.02, 12
"""Records of the first dataset and of the last; seconds of a run after which no longer one is timed; and
from how many datasets their records are."""
_GROWTH, _LONG = (1.0, 3.0), 1 << 16
"""Powers of the size that are fitted at least and at most, and what is never left out of a fast run."""
_TRIES = 40


@dataclass(frozen=True)
class PacedPairs:
    """The pairs of a space on which a run is short enough."""

    space: PairSpace
    most: int

    def has(self, pair: Pair) -> bool:
        """Say whether neither dataset has too many records."""
        return all(not isinstance(d, list) or len(d) <= self.most for d in (pair.left, pair.right))

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:
        """Return a random pair that is short enough, or the shortest of many."""
        drawn = [self.space.draw(rng, distance)]
        while not self.has(drawn[-1]) and len(drawn) < _TRIES:
            drawn.append(self.space.draw(rng, distance))
        return drawn[-1] if self.has(drawn[-1]) else min(drawn, key=lambda p: len(p.left))

    def corners(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Yield the structured pairs that are short enough."""
        return filter(self.has, self.space.corners(rng))

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Return a similar pair that is short enough, or the pair itself."""
        changed = self.space.mutate(pair, rng)
        return changed if self.has(changed) else pair

    def simpler(self, pair: Pair) -> Iterator[Pair]:
        """Yield smaller pairs."""
        return self.space.simpler(pair)


def paced(
    space: PairSpace, run: Callable[[Any], Any], rng: np.random.Generator, seconds: float
) -> PairSpace:
    """Return the pairs of a space on which a run takes about so many seconds at most."""
    drawn = [space.draw(rng).left for _ in range(_DRAWS)]
    if not all(isinstance(data, list) for data in drawn):
        return space
    records = list(itertools.chain(*drawn))
    if not records or len({len(data) for data in drawn}) == 1:  # of one size only
        return space
    most = longest(run, records, seconds)
    return space if most >= _LONG else PacedPairs(space, most)


def longest(run: Callable[[Any], Any], records: list[Any], seconds: float) -> int:
    """Return at how many records a run would take so many seconds, by those that were timed."""
    timed: list[tuple[int, float]] = []
    size = _FIRST
    while size <= _LAST:
        data = list(itertools.islice(itertools.cycle(records), size))
        begin = time.process_time()
        with contextlib.suppress(Exception):
            run(data)
        timed.append((size, max(time.process_time() - begin, 1e-6)))
        if timed[-1][1] > _ENOUGH:
            break
        size *= 2
    (n, last), (before, earlier) = timed[-1], timed[max(0, len(timed) - 3)]
    if len(timed) < 3:  # slow from the first: it does not grow
        return _LONG
    power = math.log(last / earlier) / math.log(n / before)
    return min(_LONG, int(n * (seconds / last) ** (1 / min(max(power, _GROWTH[0]), _GROWTH[1]))))
