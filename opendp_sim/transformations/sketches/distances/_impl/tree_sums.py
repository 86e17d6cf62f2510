"""Turn a dyadic tree's counts into sums of distances.

By far ends, and by the least-squares tree. Proofs: ``distance_tree.md``, Lemmas 2 and 3. Everything
here is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.system.lazy_import import sparse
from opendp_sim.domains.rows import GridRows
from opendp_sim.transformations.sketches.distances._impl.axes import (
    by_column,
    column_bounds,
    dyadic_pieces,
    powered,
)


@dataclass(frozen=True)
class FarEnds:
    """Sum distances to far ends on one axis, in cells.

    Cells are the smallest parts of a column that leaves distinguish. A cell at distance in
    ``(far_{j+1}, far_j]`` weighs ``far_j**p``; the far ends are ``far_j = (cells - 1) (1 +
    alpha)**(-j/p)`` for integers j (negative for queries outside), so they do not depend on which
    queries are asked together.

    Attributes:
        cells: number of cells, at most ``2**height``; cell c has the leaves
            ``c 2**height // cells`` up to the next cell's first.
        height: of the tree.
        power: p. alpha: ratio of neighbouring far ends' p-th powers, less one.
        reach: the largest distance that is asked for, in cells.
    """

    cells: int
    height: int
    power: float
    alpha: float
    reach: float

    @property
    def edges(self) -> NDArray[np.int64]:
        """Return each cell's first leaf, then the number of leaves."""
        return (np.arange(self.cells + 1, dtype=np.int64) << self.height) // self.cells

    def intervals(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return ``(nearest, farthest, weight)`` of each interval of distances, nearest first."""
        step, base = math.log1p(self.alpha) / self.power, max(self.cells - 1, 1)
        beyond = max(self.reach / base, 1.0)
        most, least = math.ceil(math.log(base) / step), -math.ceil(math.log(beyond) / step)
        far = base * np.exp(-step * np.arange(most, least - 1, -1))
        farthest = np.floor(far).astype(np.int64)
        nearest = np.concatenate([[1], farthest[:-1] + 1])
        some = nearest <= farthest
        weight: NDArray[np.float64] = far[some] ** self.power
        return nearest[some], farthest[some], weight

    def dense(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return leaves' weights at cell positions, shape (positions, leaves)."""
        _, farthest, weight = self.intervals()
        gap = np.abs(np.arange(self.cells) - positions[:, None])
        place = np.searchsorted(np.concatenate([[0], farthest]), gap)
        weights = np.concatenate([[0.0], weight])[place]
        return np.repeat(weights, np.diff(self.edges), axis=1)

    def nodes(self, positions: NDArray[np.int64]) -> Any:
        """Return the weights in the sums of maximal nodes."""
        found = self.intervals()
        right = self._side(positions, found, forward=True)
        left = self._side(positions, found, forward=False)
        asked, first, last, weight = (
            np.concatenate(parts) for parts in zip(right, left, strict=True)
        )
        rows, columns, data = [], [], []
        for which, level, node in dyadic_pieces(first, last, self.height):
            rows.append(asked[which])
            columns.append(2**level - 1 + node)
            data.append(weight[which])
        shape = len(positions), 2 ** (self.height + 1) - 1
        if not rows:
            return sparse.csr_array(shape)
        joined = np.concatenate(data), (np.concatenate(rows), np.concatenate(columns))
        return sparse.csr_array(joined, shape=shape)

    def _side(
        self,
        positions: NDArray[np.int64],
        found: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
        *,
        forward: bool,
    ) -> tuple[NDArray[Any], ...]:
        """Return ``(which position, first leaf, past the last, weight)`` of the intervals there."""
        nearest, farthest, weight = found
        ahead = self.cells - 1 - positions
        low, high = (-positions, ahead) if forward else (-ahead, positions)
        start = np.searchsorted(farthest, np.maximum(low, 1))
        stop = np.maximum(np.searchsorted(nearest, high, side="right"), start)
        asked = np.repeat(np.arange(len(positions)), stop - start)
        # Counts from 0 within each position's run, then from its first interval.
        run = np.arange(len(asked)) - np.repeat(
            np.cumsum(stop - start) - (stop - start), stop - start
        )
        which, at = run + start[asked], positions[asked]
        ends = (nearest[which], farthest[which] + 1)
        first, last = (
            (at + ends[0], at + ends[1]) if forward else (at - ends[1] + 1, at - ends[0] + 1)
        )
        inside = [self.edges[np.clip(end, 0, self.cells)] for end in (first, last)]
        return asked, *inside, weight[which]


def consistent_variance(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return linear functions' (q, M) variance under least squares, per cell's.

    Haar functions diagonalise the tree (Lemma 3): one that splits a node of h leaves has eigenvalue ``h
    - 1``, the constant ``2 M - 1`` for M leaves.
    """
    leaves, blocks = weights.shape[1], weights
    variance, half = np.zeros(len(weights)), 1
    while half < leaves:
        pairs = blocks.reshape(len(weights), -1, 2)
        gap = pairs[:, :, 0] - pairs[:, :, 1]
        variance += np.square(gap).sum(axis=1) / (2 * half * (2 * half - 1))
        blocks, half = pairs.sum(axis=2), 2 * half
    return variance + np.square(blocks[:, 0]) / (leaves * (2 * leaves - 1))


def consistent(counts: NDArray[np.float64], height: int) -> NDArray[np.float64]:
    """Return least-squares counts whose nodes add up their children's (Lemma 3).

    ``counts`` have shape (..., nodes) and equal variances.
    """
    out = counts.copy()

    def level(depth: int) -> NDArray[np.float64]:
        return out[..., 2**depth - 1 : 2 ** (depth + 1) - 1]

    for depth in range(height - 1, -1, -1):  # upwards: combine a node with its children
        below = 2.0 ** (height - depth)
        children = level(depth + 1).reshape(*out.shape[:-1], -1, 2).sum(axis=-1)
        level(depth)[...] = (below * level(depth) + (below - 1) * children) / (2 * below - 1)
    for depth in range(1, height + 1):  # downwards: share out what is left
        pairs = level(depth).reshape(*out.shape[:-1], -1, 2)
        left = level(depth - 1) - pairs.sum(axis=-1)
        level(depth)[...] += np.repeat(left, 2, axis=-1) / 2
    return out


# --------------------------------------------------------------------------------------------------
# The cells that a column's leaves tell apart, and where queries fall between them.
#
# Proof of what rounding to cells costs: Lemma 2 of ``distance_tree.md``.


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
        """Return the grid values of each column, shape (d,)."""
        lower, upper = column_bounds(self.rows)
        pairs = zip(lower.tolist(), upper.tolist(), strict=True)
        return np.array([top - low + 1 for low, top in pairs], dtype=np.int64)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Return the grid values, or fewer leaves, of each column."""
        return np.asarray(np.minimum(self.spans, 2**self.height), dtype=np.int64)

    @cached_property
    def widths(self) -> NDArray[np.float64]:
        """Steps from one cell to the next."""
        return np.asarray(self.spans / self.counts, dtype=np.float64)

    @cached_property
    def slack(self) -> NDArray[np.float64]:
        """Return half of a leaf's span, beyond any grid value (Lemma 2)."""
        return np.where(self.spans > self.counts, (self.spans - 1) / 2.0 ** (self.height + 1), 0.0)

    def located(
        self, values: NDArray[np.float64], power: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return queries' cells, distances to the box, and rounding costs.

        Cells (d, q); the others (q,). For p = 1 a query outside is answered at the nearest end, and
        the rest of the way is counted once for each record; for other exponents the intervals start
        outside. The cost is per record, at most (Lemma 2).
        """
        places = np.empty((self.rows.width, len(values)), dtype=np.int64)
        beyond, missed = np.zeros((2, len(values)))
        lower, upper = (bound.astype(np.float64) for bound in column_bounds(self.rows))
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
        """Return the nearest cells and the loss, overwriting ``near``."""
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
        """Bound the rounding to cells, per record, at grid queries."""
        moved = 2 * self.slack
        most = (power * moved * (self.spans - 1 + moved) ** (power - 1)).sum()
        return float(most) * powered("distance", self.rows.unit, power)
