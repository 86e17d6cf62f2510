"""The cells that a column's leaves tell apart, and where queries fall between them.

Proof of what rounding to cells costs: Lemma 2 of ``distance_tree.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opendp_sim.sketches.distances.parts.axes import columns_of, powered
from opendp_sim.sketches.distances.parts.by_column import by_column
from opendp_sim.spaces.rows import GridRows

__all__ = ["NearestCells"]


@dataclass(frozen=True)
class NearestCells:
    """The cells of every column of a grid.

    Attributes:
        rows: the grid. height: levels H below the root, so that there are at most ``2**H`` cells.
    """

    rows: GridRows
    height: int

    @cached_property
    def spans(self) -> NDArray[np.int64]:
        """Grid values of each column: shape (d,)."""
        lower, upper = columns_of(self.rows)
        pairs = zip(lower.tolist(), upper.tolist(), strict=True)
        return np.array([top - low + 1 for low, top in pairs], dtype=np.int64)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Positions that each column's leaves tell apart: grid values, or leaves if these are fewer."""
        return np.asarray(np.minimum(self.spans, 2**self.height), dtype=np.int64)

    @cached_property
    def widths(self) -> NDArray[np.float64]:
        """Steps from one cell to the next."""
        return np.asarray(self.spans / self.counts, dtype=np.float64)

    @cached_property
    def slack(self) -> NDArray[np.float64]:
        """Half of what one leaf spans: no grid value is farther from its cell's place (Lemma 2)."""
        return np.where(self.spans > self.counts, (self.spans - 1) / 2.0 ** (self.height + 1), 0.0)

    def located(
        self, values: NDArray[np.float64], power: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return each query's cells (d, q), its way to the box, and what rounding to cells costs: (q,).

        For p = 1 a query outside is answered at the nearest end, and the rest of the way is counted
        once for each record; for other exponents the intervals start outside. The cost is per record,
        at most (Lemma 2).
        """
        places = np.empty((self.rows.width, len(values)), dtype=np.int64)
        beyond, missed = np.zeros((2, len(values)))
        lower, upper = (bound.astype(np.float64) for bound in columns_of(self.rows))
        for part, columns in by_column(values):
            inside = (columns.min(axis=1) >= lower) & (columns.max(axis=1) <= upper)
            for column, asked in enumerate(columns):
                if power == 1 and not inside[column]:
                    far = asked.copy()
                    np.clip(asked, lower[column], upper[column], out=asked)
                    beyond[part] += np.abs(far - asked)
                near = np.subtract(asked, lower[column], out=asked)
                cell, lost = self._nearest(near, column, power)
                places[column, part] = cell
                missed[part] += lost
        return places, beyond * self.rows.unit, missed * powered("distance", self.rows.unit, power)

    def _nearest(
        self, near: NDArray[np.float64], column: int, power: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the nearest cells, which may be outside, and what is lost; overwrites ``near``."""
        slack, width = float(self.slack[column]), float(self.widths[column])
        # Farthest place in the box; for p = 1 the factor is 1 and it does not matter.
        far = 0.0 if power == 1 else np.maximum(np.abs(near), np.abs(self.spans[column] - 1 - near))
        near -= slack
        cell: NDArray[np.float64] = near / width
        np.rint(cell, out=cell)
        near -= cell * width
        moved: NDArray[np.float64] = np.abs(near, out=near)
        moved += slack
        return cell, moved if power == 1 else power * moved * (far + moved) ** (power - 1)

    def powers(self, power: float) -> NDArray[np.float64]:
        """Return the p-th power of each column's cell width, in data units."""
        scaled: NDArray[np.float64] = self.widths**power * powered(
            "distance", self.rows.unit, power
        )
        return scaled

    def most_lost(self, power: float) -> float:
        """Bound the rounding to cells, per record, at queries on the grid inside the box."""
        moved = 2 * self.slack
        most = (power * moved * (self.spans - 1 + moved) ** (power - 1)).sum()
        return float(most) * powered("distance", self.rows.unit, power)
