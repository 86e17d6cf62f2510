"""When noisy votes overturn the class means: learned from the votes already released, at no cost.

Nothing here sees a record; everything is a function of the transcript.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Doubt"]

_IMAGINED = 30
"""Leads that are imagined before the first: as strong as their noise, right two times in three."""
_FIRST_RIGHT = 2 / 3
_SUREST = 0.99
_CAUTION = 2.0
"""Standard errors by which votes must be louder than their noise, before they count for anything."""


@dataclass
class Doubt:
    """How far votes are to be believed against the class that leads by the means.

    A lead is the votes of the leading class minus those of the second, in deviations of its noise. Over
    many queries its law is taken for ``N(+m, 1)`` where the first is right and ``N(-m, 1)`` where it is
    not: the mean square is ``1 + m**2``, and the mean tells how often the first is right. The second wins
    where that makes it more likely: with votes of nothing but noise (m = 0), never.

    Attributes:
        seen: how many leads so far. total: their sum. squares: the sum of their squares.
    """

    seen: int = _IMAGINED
    total: float = _IMAGINED * (2 * _FIRST_RIGHT - 1)
    squares: float = 2.0 * _IMAGINED

    @classmethod
    def of(cls, state: NDArray[np.float64]) -> Doubt:
        """Return the doubt that ``state`` describes: what was learned, and not from what."""
        seen, total, squares = state.tolist()
        if not (np.isfinite(state).all() and seen >= 1):
            raise ValueError("no state")
        return cls(int(seen), total, squares)

    @property
    def state(self) -> NDArray[np.float64]:
        """Three numbers, exactly as they are."""
        return np.array([self.seen, self.total, self.squares], dtype=np.float64)

    def learn(self, leads: NDArray[np.float64]) -> None:
        """Take account of released leads, shape (k,)."""
        self.seen += len(leads)
        self.total += float(leads.sum())
        self.squares += float(np.square(leads).sum())

    def overturned(self, leads: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return where the second class is more likely than the first, shape (k,)."""
        luck = _CAUTION * math.sqrt(2.0 / self.seen)  # deviation of a mean square of noise
        strength = math.sqrt(max(0.0, self.squares / self.seen - 1.0 - luck))
        if strength == 0.0:
            return np.zeros(len(leads), dtype=np.bool_)
        right = (1.0 + self.total / self.seen / strength) / 2
        right = min(max(right, 0.5), _SUREST)
        overturned: NDArray[np.bool_] = 2 * strength * leads < -math.log(right / (1 - right))
        return overturned
