"""Scores of numeric outputs whose two sides differ by a shift: sums of what each place says of it.

A function that adds noise of its own to several answers shows a little in each; learned place by place
from few draws most of that is lost in the luck of single values. Two middles and a width a place are
learned from few. A score, so it proves nothing: bets on new draws do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.cell_scores import clearest
from opendp_sim.audit.curves import Curve
from opendp_sim.audit.views import numbers

__all__ = ["Leaning", "rows_of", "surplus_of_shift"]

_PLACES, _TRIM, _LUCK, _MOST, _FEWEST = 64, 0.1, 2.5, 8.0, 40
"""Places at most, what is cut off at each end of a mean, the errors that a shift must be clear of, the
most that one place says, and the fewest draws."""
_CUTS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)

Rows = NDArray[np.float64]


def rows_of(values: Sequence[Any]) -> Rows | None:
    """Return outputs as rows of numbers; ``None`` where they are not all numbers, and as many."""
    rows = [numbers(value) for value in values]
    sizes = {len(row) if row is not None else 0 for row in rows}
    if len(sizes) != 1 or not 0 < max(sizes) <= _PLACES:
        return None
    table = np.nan_to_num(np.array(rows, dtype=float), nan=-1e300)
    return np.asarray(np.clip(table, -1e300, 1e300))


@dataclass(frozen=True)
class Leaning:
    """Where either side has its middle, and how wide the noise is, place by place."""

    first: Rows
    second: Rows
    width: Rows

    @classmethod
    def of(cls, left: Rows, right: Rows) -> Leaning:
        """Learn from draws; places that have not clearly moved say nothing."""
        first, second = _middle(left), _middle(right)
        width = np.maximum(np.abs(left - first).mean(axis=0), np.abs(right - second).mean(axis=0))
        luck = _LUCK * width * math.sqrt(2 / len(left))
        still = np.abs(second - first) <= luck
        return cls(first, np.where(still, first, second), np.maximum(width, 1e-12))

    def score(self, rows: Rows) -> Rows:
        """Return what rows say for the left: for Laplace noise, nearly the log-likelihood ratio."""
        with np.errstate(over="ignore", invalid="ignore"):
            gain = (np.abs(rows - self.second) - np.abs(rows - self.first)) / self.width
        return np.asarray(np.clip(np.nan_to_num(gain), -_MOST, _MOST).sum(axis=1))

    def rows(self, run: Callable[[Any], Any]) -> Callable[[Any], list[float]]:
        """Return the run with its outputs as rows of numbers; what is no such row says nothing."""
        nothing: list[float] = ((self.first + self.second) / 2).tolist()

        def one(data: Any) -> list[float]:
            try:
                row = numbers(run(data))
            except Exception:  # noqa: BLE001 - an exception is an output that says nothing here
                return nothing
            return nothing if row is None or len(row) != len(nothing) else row

        return one


def _middle(rows: Rows) -> Rows:
    """Return the means of the places without their ends."""
    cut = int(_TRIM * len(rows))
    return np.asarray(np.sort(rows, axis=0)[cut : len(rows) - cut].mean(axis=0))


def surplus_of_shift(curve: Curve, left: Rows, right: Rows) -> float:
    """Return the excess of the best event of the score over a claim, in standard errors.

    One half of the draws says what the score is, the other judges, both ways round. A search, no test.
    """
    count = len(left) // 2
    if count < _FEWEST or left.shape[1] != right.shape[1]:
        return 0.0
    rates = []
    for one, other in ((0, 1), (1, 0)):
        leaning = Leaning.of(left[one::2], right[one::2])
        cuts = np.quantile(leaning.score(left[one::2]), _CUTS)
        a, b = (leaning.score(side[other::2])[:, None] >= cuts for side in (left, right))
        rates.append((a.mean(axis=0), b.mean(axis=0), (a & b).mean(axis=0)))
    return clearest(curve, rates, count)
