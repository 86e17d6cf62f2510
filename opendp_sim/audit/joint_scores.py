"""Scores of outputs whose places move against each other: a sparse vector's answers share a threshold.

Place by place such an output tells little, for what moves all answers is the luck of the threshold; the
answers that a record moves, less those that it leaves, tell most. The weights are those of a linear
discriminant (Fisher), learned from draws. A score, so it proves nothing: bets on new draws do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opendp_sim.audit.cell_scores import Rates, clearest
from opendp_sim.audit.curves import Curve
from opendp_sim.audit.shift_scores import Rows

__all__ = ["Joint", "surplus_together"]

_FEWEST, _SMOOTH, _MOST = 100, 1e-3, 1e6
"""Draws of a side, what is added to variances, and the largest number that is read."""
_CUTS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
_OPPOSITE = tuple(1 - cut for cut in _CUTS)


@dataclass(frozen=True)
class Joint:
    """The weight of every place, and what each is read against."""

    weights: Rows
    middle: Rows

    @classmethod
    def of(cls, left: Rows, right: Rows) -> Joint:
        """Learn from draws of both sides."""
        first, second = (np.clip(side, -_MOST, _MOST) for side in (left, right))
        spread = np.atleast_2d(np.cov(first.T) + np.cov(second.T)) / 2
        ridge = _SMOOTH * (float(np.trace(spread)) / len(spread) + _SMOOTH)
        means = first.mean(axis=0), second.mean(axis=0)
        weights = np.linalg.solve(spread + ridge * np.eye(len(spread)), means[0] - means[1])
        return cls(weights, (means[0] + means[1]) / 2)

    def score(self, rows: Rows) -> Rows:
        """Return what rows say for the left."""
        return np.asarray((np.clip(rows, -_MOST, _MOST) - self.middle).dot(self.weights))


def surplus_together(curve: Curve, left: Rows, right: Rows) -> float:
    """Return the excess of the best event of the score over a claim, in standard errors.

    One half of the draws says what the score is, the other judges, both ways round. A search, no test.
    """
    count = len(left) // 2
    if count < _FEWEST or left.shape[1] != right.shape[1] or left.shape[1] < 2:
        return 0.0
    rates, back = list[Rates](), list[Rates]()
    for one, other in ((0, 1), (1, 0)):
        score = Joint.of(left[one::2], right[one::2]).score
        learned = score(left[one::2]), score(right[one::2])
        high, low = (np.quantile(s, q) for s, q in zip(learned, (_CUTS, _OPPOSITE), strict=True))
        a, b = (score(side[other::2])[:, None] for side in (left, right))
        for into, p, q in ((rates, a > high, b > high), (back, b < low, a < low)):
            into.append((p.mean(axis=0), q.mean(axis=0), (p & q).mean(axis=0)))
    return max(clearest(curve, rates, count), clearest(curve, back, count))
