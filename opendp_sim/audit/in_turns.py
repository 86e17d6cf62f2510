"""Two questions in turns, many times: for answers that say one of two things, and never end.

A sparse vector that goes on after its positive answers hides each comparison behind noise of its own,
and all of them behind one more noise, of the bar. The latter is the same for both questions, so the
difference of how often each was answered one way has none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opendp_sim.audit.driver import REFUSED, SILENT

__all__ = ["Turns"]

Heard = Callable[[Any], tuple[Any, ...]]
_TURNS, _ENDED = 100, 7
"""Turns in all; and the one by which another answer has to come: else the queryable has ended."""
_LAST = 4
"""Answers at the end of a conversation, of which some must not be refusals."""


class Turns:
    """Asks two questions in turns, if answers are bare yes or no.

    Args:
        first: a question.
        second: another one, about other records.
        known: cells of answers to the first; the first of their texts counts as 1, others as 0.
    """

    def __init__(self, first: Any, second: Any, known: list[tuple[Any, ...]]) -> None:
        self.first, self.second = first, second
        self._one = min((c for cells in known for c in cells if isinstance(c, str)), default="")
        self.bare = _are_bare(known)
        """Whether answers are bare yes or no. Then the second question is asked before all others: counts
        without noise of their own are answered by no there, and by yes to the first, on one side only."""

    def __call__(self, heard: list[tuple[Any, ...]], ask: Heard) -> tuple[float, float, float]:
        """Return how often each is answered with 1, and the difference before them.

        Args:
            heard: what was answered before.
            ask: asks, and returns the cells of an answer.
        """
        if not _yes_or_no(heard):
            return 0.0, 0.0, 0.0
        sums, met = [0.0, 0.0], set[tuple[Any, ...]]()
        for turn in range(_TURNS):
            for place, question in enumerate((self.first, self.second)):
                cells = ask(question)
                met.add(cells)
                sums[place] += sum(map(self._value, cells))
            if turn == _ENDED and len(met) == 1:
                break
        return sums[0] - sums[1], sums[0], sums[1]

    def _value(self, cell: Any) -> float:
        return float(cell == self._one) if isinstance(cell, str) else float(cell == 1)


def _yes_or_no(heard: list[tuple[Any, ...]]) -> bool:
    """Say whether a conversation goes on, and its answers were bare."""
    lasting = any(cells not in ((REFUSED,), (SILENT,)) for cells in heard[-_LAST:])
    return lasting and _are_bare(heard)


def _are_bare(heard: list[tuple[Any, ...]]) -> bool:
    """Say whether something was answered, and all of it by single texts, or by 0 and 1."""
    answers = [cells for cells in heard if cells != (REFUSED,)]
    return any(cells != (SILENT,) for cells in answers) and all(
        len(cells) == 1 and (isinstance(cells[0], str) or cells[0] in (0.0, 1.0, SILENT))
        for cells in answers
    )
