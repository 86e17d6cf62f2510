"""How a moment tree is built from rows and read after its release.

Proofs: ``moment_tree.md``. Reading is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, Counted, DistanceReading, Linear
from opendp_sim.core.grid import chunks, count_ids
from opendp_sim.sketches.distances.parts.axes import Cells, Dyadic, interval_sums, powered
from opendp_sim.sketches.distances.parts.moment_levels import MomentLevels
from opendp_sim.sketches.distances.parts.moment_table import MomentTable
from opendp_sim.sketches.parts.classes import Classes
from opendp_sim.spaces.rows import Rows, as_rows, floats_of

__all__ = ["MomentReader"]


@dataclass(frozen=True)
class MomentReader(Classes, MomentLevels):
    """The public tree of one bound sketch: builds it, and reads a release of it."""

    per_label: bool

    @property
    def exponents(self) -> str:
        """The only exponent."""
        return f"p = {self.p}"

    @property
    def power(self) -> float:
        """The same, as a number."""
        return float(self.p)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (L, d, p + 1, nodes); node i of level l is at ``2**l - 2 + i``."""
        nodes = 2 ** (self.height + 1) - 2
        return self.classes, self.rows.width, self.p + 1, nodes

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows = as_rows(data)
        height = self.height
        moments = self._leaves(rows)
        view, times = out.reshape(self.shape), self.multipliers.astype(np.int64)
        for level in range(height, 0, -1):
            base = 2**level - 2
            view[..., base : base + 2**level] += moments * times[:, level - 1, :, None]
            if level > 1:
                moments = self._merge(moments, level)

    def _leaves(self, rows: Rows) -> NDArray[np.int64]:
        """Return the leaves' own moments: shape (L, d, p + 1, 2**H)."""
        height, p = self.height, self.p
        out = np.zeros((p + 1, self.rows.width, self.classes, 2**height), dtype=np.int64)
        for part in chunks(len(rows), self.rows.width):
            steps = rows.values[part].T.astype(np.int64)
            leaves = np.stack(
                [axis.leaves(column) for axis, column in zip(self.axes, steps, strict=True)]
            )
            labels = rows.labels[part] if self.per_label and rows.labels is not None else None
            for column, axis in enumerate(self.axes):
                if axis.width(height) > 1:
                    self._add_powers(axis, steps[column], leaves[column], labels, out[:, column])
            count_ids(leaves, labels, out[0])
        return out.transpose(2, 1, 0, 3)

    def _add_powers(
        self,
        axis: Dyadic,
        steps: NDArray[np.int64],
        leaves: NDArray[np.int64],
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
    ) -> None:
        """Add a column's leaf moments of order 1 to p; float64 sums of these integers are exact."""
        centred = 2 * steps - axis.doubled_centre(axis.height)[leaves]
        ids = leaves if labels is None else leaves + labels.astype(np.int64) * out.shape[2]
        for order in range(1, len(out)):
            sums = np.bincount(ids, weights=centred**order, minlength=out[order].size)
            out[order] += sums.astype(np.int64).reshape(out[order].shape)

    def _merge(self, moments: NDArray[np.int64], level: int) -> NDArray[np.int64]:
        """Return the parents' moments: shift each child's to the parent's centre and add (Lemma 2)."""
        parents = self.centres[:, 2 ** (level - 1) - 2 : 2**level - 2]
        shift = self.centres[:, 2**level - 2 : 2 ** (level + 1) - 2] - np.repeat(parents, 2, axis=1)
        moved = np.zeros_like(moments)
        for order in range(moments.shape[2]):
            for lower in range(order + 1):
                factor = math.comb(order, lower) * shift ** (order - lower)
                moved[:, :, order] += factor * moments[:, :, lower]
        merged: NDArray[np.int64] = moved.reshape(*moved.shape[:3], -1, 2).sum(axis=4)
        return merged

    # --- reading --------------------------------------------------------------------------------

    def count_factor(self) -> float:
        """Return the deviation of the released number of records per unit of a cell's."""
        return self.counted_factor

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records: both halves, the best mean over columns."""
        times = self.multipliers[:, 0, 0].astype(np.float64)
        halves = np.asarray(released["moments"])[:, :, 0, :2].sum(axis=2)
        sizes = (halves * times).sum(axis=1) / np.square(times).sum()
        return Counted(sizes, self.counted_factor)

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Return the polynomials that Lemma 2 is between the starts of leaves, made once a release."""
        del p, alpha  # only the tree's own exponent, and exact: no far ends
        cells = np.asarray(released["moments"]) * self.node_scale()
        table = MomentTable.of(self.axes, self.centres, cells, self.level_scale)
        scale = self._area

        def at(queries: Any) -> Linear:
            sums, variance, counted, missed = table.at(floats_of(queries))
            with_count = counted * (self.counted_factor**2 / 2)
            return Linear(sums * scale, variance * scale**2, with_count * scale, missed * scale)

        return DistanceReading(float(self.p), at)

    @cached_property
    def counted_factor(self) -> float:
        """Deviation of the released number of records per unit of cell deviation."""
        return math.sqrt(2.0 / np.square(self.multipliers[:, 0, 0].astype(np.float64)).sum())

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Bound the deviation of a sum inside the box per unit of cell deviation (Lemma 3)."""
        del alpha
        if p not in (None, float(self.p)):
            return None
        worst = np.square(self.steepest * self.level_scale).sum()
        return float(self._area * math.sqrt(worst))

    def bias(self, p: float | None) -> float:
        """Bound what the dropped leaves hold, per record, at queries on the grid (Lemma 2)."""
        del p
        lost = self.widths[:, -1].astype(np.float64) - 1
        return float((lost**self.p).sum()) * self._area

    @property
    def _area(self) -> float:
        return powered("moment_tree", self.rows.unit, self.p)

    def count(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> Linear:
        """Count records in intervals of one column by the counts of maximal nodes."""
        return self._between(released, column, self.axes[column].covering(lower, upper))

    def around(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> tuple[Linear, Linear]:
        """Count the leaves that lie in an interval, and those that meet it."""
        inner, outer = self.axes[column].in_and_around(lower, upper)
        return self._between(released, column, inner), self._between(released, column, outer)

    def widest(self, column: int) -> float:
        """Bound the variance of a count: both halves, or two nodes a level of which one is a half."""
        levels = [
            float(self.node_scale()[column, 0, 2**level - 2]) ** 2
            for level in range(1, self.height + 1)
        ]
        return max(2 * levels[0], levels[0] + sum(levels[1:]), 2 * sum(levels[1:]))

    def _between(self, released: Arrays, column: int, leaves: Cells) -> Linear:
        axis = self.axes[column]
        cells = (np.asarray(released["moments"]) * self.node_scale())[:, column, 0]
        variance = np.square(self.node_scale()[column, 0])[None, :]
        sums = interval_sums(cells, leaves, axis.height, root=False)
        spread = interval_sums(variance, leaves, axis.height, root=False)
        return Linear(sums, spread[0], np.zeros(sums.shape[1]))
