"""The levels of a moment tree: widths, sensitivities, and the integers that realise their budgets.

Proofs: ``moment_tree.md``. All of it is public: no function here sees a record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.countable import LARGEST_FEATURE
from opendp_sim.sketches.distances.parts.axes import Dyadic, columns_of, fits
from opendp_sim.spaces.rows import GridRows

__all__ = ["MomentLevels"]

_FINENESS = 64
"""Least multiplier: rounding the level budgets to integers costs under one percent."""


@dataclass(frozen=True)
class MomentLevels:
    """One dyadic tree a column, and moments of order 0 to p in every node.

    Attributes:
        rows: the grid. height: levels H below the root. p: exponent.
        tuned_for: the noise for which budgets are split over levels and orders.
    """

    rows: GridRows
    height: int
    p: int
    tuned_for: Literal["laplace", "gaussian"]

    @cached_property
    def axes(self) -> tuple[Dyadic, ...]:
        """The tree of each column."""
        lower, upper = columns_of(self.rows)
        height, known = self.height, {}  # type: ignore[var-annotated]
        for pair in zip(lower.tolist(), upper.tolist(), strict=True):
            known.setdefault(pair, Dyadic(pair[0], pair[1] - pair[0] + 1, height))
        return tuple(known[pair] for pair in zip(lower.tolist(), upper.tolist(), strict=True))

    @cached_property
    def widths(self) -> NDArray[np.int64]:
        """Widest node of each column and level: shape (d, H), level 1 first."""
        levels = range(1, self.height + 1)
        found = {axis: [axis.width(level) for level in levels] for axis in set(self.axes)}
        return np.array([found[axis] for axis in self.axes], dtype=np.int64)

    @cached_property
    def reach(self) -> NDArray[np.object_]:
        """Largest ``|2x - 2c|**k``: shape (d, H, p + 1), exact integers."""
        most = self.widths.astype(object) - 1
        return np.stack([most**order for order in range(self.p + 1)], axis=2)

    @cached_property
    def steepest(self) -> NDArray[np.float64]:
        """Largest factor of a moment in an answer, in steps**p: shape (d, H, p + 1) (Lemma 2)."""
        p, far = self.p, 3.0 * self.widths
        return np.stack([math.comb(p, k) * far ** (p - k) / 2.0**p for k in range(p + 1)], axis=2)

    @cached_property
    def multipliers(self) -> NDArray[np.object_]:
        """The integers u_jlk that realise the budgets of Lemma 3: shape (d, H, p + 1)."""
        reach = self.reach.astype(np.float64)
        power = 2 / 3 if self.tuned_for == "laplace" else 1 / 2
        # A moment that is always zero costs nothing and is never read: leave it out of the scaling.
        some = reach > 0
        share = np.where(some, (self.steepest * reach) ** power, 0.0)
        ideal = np.divide(share, reach, out=np.zeros_like(share), where=some)
        ideal /= ideal[some].min()
        largest = float((ideal * reach).max())
        fits("moment_tree", largest)
        fine = min(_FINENESS, 2 ** int(math.log2(LARGEST_FEATURE / largest)))
        whole = np.maximum(np.rint(ideal * fine), 1.0)
        return np.frompyfunc(int, 1, 1)(whole)  # type: ignore[no-any-return]

    @cached_property
    def centres(self) -> NDArray[np.int64]:
        """Twice the centre of every node: shape (d, nodes)."""
        levels = range(1, self.height + 1)
        found = {
            axis: np.concatenate([axis.doubled_centre(level) for level in levels])
            for axis in set(self.axes)
        }
        return np.stack([found[axis] for axis in self.axes])

    @cached_property
    def level_scale(self) -> NDArray[np.float64]:
        """Return what one integer step of each level is worth; 0 where a level has no reach."""
        inverse = 1.0 / self.multipliers.astype(np.float64)
        return np.where(self.reach.astype(np.float64) == 0, 0.0, inverse)

    def node_scale(self) -> NDArray[np.float64]:
        """One over the multiplier of every node and order: shape (d, p + 1, nodes); 0 if unread."""
        inverse = np.where(self.reach == 0, 0.0, 1.0 / self.multipliers.astype(np.float64))
        repeats = 2 ** np.arange(1, self.height + 1)
        return np.repeat(inverse.astype(np.float64), repeats, axis=1).transpose(0, 2, 1)
