"""Limit the sizes of datasets by the time of a run.

A quadratic function takes minutes at thousands of records. No run can be stopped from outside. So an
audit times runs on a few datasets that double in size, fits how the seconds grow, and leaves out pairs
on which one run would take longer than it has for it.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.audit.generators.domain_filter import FilteredPairs
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.audit.instrument.tape import MOST_DRAWS, Tape, TapeEndError
from opendp_sim.audit.work import run_cost

_FIRST, _FITTED, _LAST, _ENOUGH, _DRAWS = 1, 8, 1024, 0.02, 12
"""Records of the first dataset, of the first that growth is fitted to and of the last; seconds of a run
after which no longer one is timed; and from how many datasets their records are."""
_CORNERS, _WHOLE = 60, 0.03
"""How many structured pairs give records besides; seconds of all runs after which no more are timed."""
_SURE, _STEEP, _STEEPER = 5e-4, 12.0, 5.6
"""Seconds from which growth is looked at, and by how much the run of twice the size takes longer where it
grows as an exponential: permutations, or noise drawn again until it fits. Nothing larger than what was
counted is then run."""
_DOUBLE = 2.5
"""By what a run's draws grow at most where a dataset doubles, if there are some for every record."""
_GROWTH, _LONG = (1.0, 3.0), 1 << 16
"""Powers of the size that are fitted at least and at most, and what is never left out of a fast run."""
_TRIES = 40
_SLOW = 4.0
"""Seconds on the clock of a run, in code without lines to count, after which no longer one is made."""


@dataclass(frozen=True)
class PacedPairs(FilteredPairs):
    """The pairs of a space on which a run is short enough."""

    most: int

    def has(self, pair: Pair) -> bool:
        """Say whether neither dataset has too many records."""
        return all(not isinstance(d, list) or len(d) <= self.most for d in (pair.left, pair.right))

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:
        """Return a random pair that is short enough or shortest."""
        drawn = [self.space.draw(rng, distance)]
        while not self.has(drawn[-1]) and len(drawn) < _TRIES:
            drawn.append(self.space.draw(rng, distance))
        return drawn[-1] if self.has(drawn[-1]) else min(drawn, key=lambda p: len(p.left))


def paced(
    space: PairSpace,
    run: Callable[[Any], Any],
    rng: np.random.Generator,
    seconds: float,
    tape: Tape | None = None,
) -> PairSpace:
    """Return the pairs within a run's time limit."""
    drawn = [space.draw(rng).left for _ in range(_DRAWS)]
    if not all(isinstance(data, list) for data in drawn):
        return space
    corners = (pair.left for pair in itertools.islice(space.corners(rng), _CORNERS))
    records = list(itertools.chain(*drawn))
    known = [*records, *itertools.chain(*(data for data in corners if isinstance(data, list)))]
    if not records or len({len(data) for data in drawn}) == 1:  # of one size only
        return space
    tried = [records, *([one] for one in _extremes(known))]
    ends = [None if tape is None else Ends(tape, run) for _ in tried]
    most = min(longest(run, one, seconds, end) for one, end in zip(tried, ends, strict=True))
    return space if most >= _LONG else PacedPairs(space, most)


def _extremes(records: list[Any]) -> list[Any]:
    """Return the least and the greatest record."""
    try:
        finite = [one for one in records if abs(one) < math.inf]
        return [min(finite), max(finite)] if min(finite) < max(finite) else []
    except (TypeError, ValueError):
        return []


class Ends:
    """Check whether runs, with rejection loops, end within some draws."""

    def __init__(self, tape: Tape, run: Callable[[Any], Any]) -> None:
        self._tape, self._run, self._most, self._by_record = tape, run, 0, False

    def __call__(self, data: list[Any]) -> bool:
        """Return whether a run ends within draws, more for more records."""
        if not self._by_record:
            try:
                self._most = len(self._tape.run(self._run, data, "record")[1])
            except TapeEndError:
                self._by_record = _DOUBLE * self._most >= MOST_DRAWS
                return self._by_record
        return True


def longest(
    run: Callable[[Any], Any], records: list[Any], seconds: float, ends: Ends | None = None
) -> int:
    """Return the number of records within a run's time limit."""
    timed: list[tuple[int, float]] = []
    size = _FIRST
    while size <= _LAST:
        if ends is not None and not ends(list(itertools.islice(itertools.cycle(records), size))):
            return timed[-1][0] if timed else 0
        timed.append((size, _seconds(run, records, size)))
        if timed[-1][1] > _ENOUGH or _explodes(timed):
            break
        if sum(took for _, took in timed) > _WHOLE:
            break
        size *= 2
    (n, last), (before, _) = timed[-1], timed[max(0, len(timed) - 2)]
    if _explodes(timed):
        return n if last <= seconds else before
    timed = [part for part in timed if part[0] >= _FITTED]
    if len(timed) < 3:  # slow from the first: it does not grow
        return _LONG
    before, earlier = timed[-3]
    power = math.log(last / earlier) / math.log(n / before)
    return min(_LONG, int(n * (seconds / last) ** (1 / min(max(power, _GROWTH[0]), _GROWTH[1]))))


def _seconds(run: Callable[[Any], Any], records: list[Any], size: int) -> float:
    data = list(itertools.islice(itertools.cycle(records), size))
    begin = time.perf_counter()
    cost = run_cost(run, data)
    return cost if time.perf_counter() - begin < _SLOW else max(cost, 2 * _ENOUGH)


def _explodes(timed: list[tuple[int, float]]) -> bool:
    """Return whether the run time grows faster than polynomially."""
    if len(timed) < 2 or timed[-1][1] <= _SURE:
        return False
    ratio = timed[-1][1] / timed[-2][1]
    before = timed[-2][1] / timed[-3][1] if len(timed) > 2 else 1.0
    return ratio > _STEEP or (ratio > _STEEPER and ratio > 3 * before)
