"""Neighbours that show what code does with texts: order of records of one key, thresholds of counts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from opendp_sim.audit.mining import LARGEST_SIZE
from opendp_sim.audit.neighbours import Edit
from opendp_sim.audit.text_records import Texts

__all__ = ["Edited", "TextPairs", "thresholds"]

_MANY_OF_A_KEY, _RUNGS, _COUNTED, _TIED = (1, 2, 3, 10), range(3, 25), 3, (3, 9)
_MOST_SIZES, _LARGEST_OF_A_KEY = 2, 64
_MOST_THRESHOLDS, _MOST_NUMBERS = 16, 6

Edited = tuple[tuple[str, ...], tuple[Edit, ...]]
"""A dataset and what makes its neighbour."""


def thresholds(numbers: Collection[float]) -> list[int]:
    """Return counts about ``log(1 / delta) / epsilon`` for the numbers of the code."""
    small = sorted(c for c in numbers if 0 < c <= 0.1)[:_MOST_NUMBERS]
    rates = sorted({1.0, *(float(c) for c in numbers if 0.05 <= c <= 10)})[:_MOST_NUMBERS]
    found = (math.floor(-math.log(c) / rate) for c in small for rate in rates)
    near = dict.fromkeys(n + more for n in found for more in (0, 1, 2, -1))
    return [n for n in near if 2 <= n <= LARGEST_SIZE][:_MOST_THRESHOLDS]


@dataclass(frozen=True)
class TextPairs:
    """Neighbours of a space of texts."""

    texts: Texts
    counts: tuple[int, ...] = ()
    """Counts that may be thresholds, beside the small ones."""

    def reordered(self, sizes: Collection[int]) -> Iterator[Edited]:
        """Yield records of one key in one order, and the other order: datasets at distance zero.

        Args:
            sizes: numbers of records that the code names.
        """
        for many, (low, high) in itertools.product(_sizes(sizes), self.texts.kin):
            yield (low,) * many + (high,) * many, (Edit("reverse", 0),)
        for lows, highs in self.texts.users:
            yield (*lows, *highs), (Edit("reverse", 0),)

    def edited(self, sizes: Collection[int], changes: int, *, sized: bool) -> Iterator[Edited]:
        """Yield datasets and edits of their records.

        Args:
            sizes: numbers of records that the code names.
            changes: how many records an edit changes.
            sized: whether records are replaced, as the number of them is public.
        """
        for many, (low, high) in itertools.product(_sizes(sizes), self.texts.kin):
            for one, other in ((low, high), (high, low)):
                yield (other,) * many, _first(one, changes, sized=sized)
        for run in self.texts.runs:  # one that joins two runs makes a long one
            half = len(run) // 2
            joins = run[half : half + changes]
            if not sized and len(joins) == changes:
                edits = tuple(Edit("insert", half + i, day) for i, day in enumerate(joins))
                yield (*run[:half], *run[half + changes :]), edits
        for (first, second), many in itertools.product(self.texts.apart, (0, 1, 3)):
            if many or not sized:
                yield (second,) * many, _first(first, changes, sized=sized)
        yield from self._counted(changes, sized=sized)

    def _counted(self, changes: int, *, sized: bool) -> Iterator[Edited]:
        """Yield many of one word and one more, alone and beside as many of another less one or two."""
        keys = self.texts.keys[:_COUNTED] or ("a",)
        other = keys[1] if len(keys) > 1 else "b"
        for n, key in itertools.product(dict.fromkeys((*self.counts, *_RUNGS)), keys):
            unlike = keys[0] if key == other else other
            yield (key,) * n, _first(unlike if sized else key, changes, sized=sized)
        for n, less in itertools.product(_TIED, (0, 1, 2)):
            base = (keys[0],) * n + (other,) * (n - less)
            yield base, _first(other if sized else keys[0], changes, sized=sized)


def _sizes(named: Collection[int]) -> tuple[int, ...]:
    known = [n for n in named if 2 <= n <= _LARGEST_OF_A_KEY][:_MOST_SIZES]
    return tuple(dict.fromkeys((*_MANY_OF_A_KEY, *known)))


def _first(record: str, changes: int, *, sized: bool) -> tuple[Edit, ...]:
    """Return edits that put a record before the others, or in the place of the first ones."""
    return tuple(Edit("replace" if sized else "insert", i, record) for i in range(changes))
