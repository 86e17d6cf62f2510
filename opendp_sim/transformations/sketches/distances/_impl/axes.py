"""Cut one column's integer grid values for a distance structure.

Every function here is elementwise in the records (no sum over rows), so features are row-local bit
for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.countable import LARGEST_FEATURE
from opendp_sim.core.errors import SpaceError
from opendp_sim.domains.rows import GridRows

_MAGIC = 1.5 * 2.0**52


def column_bounds(rows: GridRows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each column's integer bounds, two arrays of shape (d,)."""
    return tuple(  # type: ignore[return-value]
        np.ascontiguousarray(np.broadcast_to(np.array(bound, dtype=np.int64), rows.width))
        for bound in (rows.lower, rows.upper)
    )


def check_fits(key: str, largest: float) -> None:
    """Refuse a grid whose largest feature could overflow int64 sums."""
    if largest > LARGEST_FEATURE:
        raise SpaceError(
            "OS203", f"{key}.input_domain", expected=f"integer features up to {LARGEST_FEATURE}",
            got=f"a bound of {largest:.3g}", hint="quantize to fewer bits.",
        )  # fmt: skip


def splits(key: str, rows: GridRows, pieces: int) -> None:
    """Refuse a grid on which ``pieces`` cuts could leave int64.

    Positions are multiplied by the number of pieces before they are divided by the range.
    """
    widest = max(map(abs, (*rows.lower, *rows.upper))) * 2 + 1
    if widest * pieces >= 2**62:
        raise SpaceError(
            "OS203", f"{key}.input_domain", expected="range times pieces of a column below 2**62",
            got=f"a range of up to {widest} steps in {pieces} pieces",
            hint="quantize to fewer bits, or ask for fewer levels or thresholds.",
        )  # fmt: skip


def powered(key: str, unit: float, power: float) -> float:
    """Return ``unit**power``, or refuse a unit whose powers floats cannot hold."""
    if abs(math.log2(unit) * power) > 450:  # variances need their squares
        raise SpaceError(
            "OS203", f"{key}.input_domain", expected=f"distances whose power {power:g} fits a float",
            got=f"steps of {unit:.3g}", hint="change the unit of the data, or ask for a smaller p.",
        )  # fmt: skip
    return float(unit**power)


def grouped(
    values: NDArray[np.float64], lower: NDArray[np.float64], ratio: NDArray[np.float64] | None
) -> NDArray[np.int64]:
    """Return ``rint((x - lower) * ratio)`` per column, transposed to (d, n).

    ``x - lower`` is an exact integer, so the one product and the one rounding are all there is. Adding
    1.5 * 2**52 rounds to the nearest integer and leaves it in the float's low bits.
    """
    steps = np.array(values.T, order="C")  # a copy, also where the transpose would be a view
    steps -= lower[:, None]
    if ratio is not None:
        steps *= ratio[:, None]
    steps += _MAGIC
    found = steps.view(np.int64)
    found &= 2**51 - 1
    return found


ColumnBounds = tuple[NDArray[np.int64], NDArray[np.int64]]
"""First cells of intervals, and one past the last."""


def in_and_around(
    cell_of: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    ends: tuple[int, int],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> tuple[ColumnBounds, ColumnBounds]:
    """Return the cells inside ``[lower, upper]``, and those that meet it.

    ``cell_of`` never falls from one value to the next; ``ends`` are the column's grid values, all in
    steps. Lemma 2 of ``interval_count.md``: a cell above that of the value before the first one inside
    holds no record from below, and likewise at the other end.
    """
    low, top = ends
    first = np.clip(np.ceil(lower), low, top + 1).astype(np.int64)
    last = np.clip(np.floor(upper), low - 1, top).astype(np.int64)
    before = np.where(first > low, cell_of(np.maximum(first - 1, low)) + 1, 0)
    after = np.where(last < top, cell_of(np.minimum(last + 1, top)), cell_of(last * 0 + top) + 1)
    begin = cell_of(np.minimum(first, top))
    end = np.where(last >= first, cell_of(np.maximum(last, low)) + 1, begin)
    return (before, np.maximum(np.where(last >= first, after, before), before)), (begin, end)


@dataclass(frozen=True)
class Dyadic:
    """A complete binary tree of height L over the integers ``lower .. lower + span - 1``.

    Leaf i holds the integers x with ``(x - lower) * 2**L // span == i``; a node of level l holds
    ``2**(L - l)`` neighbouring leaves. Nodes of a level partition the range (Lemma 1 of
    ``moment_tree.md``).
    """

    lower: int
    span: int
    height: int

    def leaves(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the leaf of each integer position, the nearest one outside."""
        inside = np.clip(steps - self.lower, 0, self.span - 1)
        return (inside << self.height) // self.span

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Return the leaves' first integers and the end."""
        index = np.arange(2**self.height + 1, dtype=np.int64)
        return self.lower - (-index * self.span >> self.height)

    def nodes(self, level: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first and last integer of a level's nodes."""
        edges = self.starts[:: 2 ** (self.height - level)]
        return edges[:-1], edges[1:] - 1

    def width(self, level: int) -> int:
        """Return the largest number of integers a node of ``level`` holds."""
        first, last = self.nodes(level)
        return int((last - first).max()) + 1

    def doubled_centre(self, level: int) -> NDArray[np.int64]:
        """Return twice each node's centre, an integer with ``|2x - 2c| <= width - 1``."""
        first, last = self.nodes(level)
        return first + last

    def covering(
        self, lower: NDArray[np.float64], upper: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the leaves ``[a, b)`` whose centres lie in ``[lower, upper]``."""
        centres = self.doubled_centre(self.height) / 2
        first = np.searchsorted(centres, lower, side="left")
        return first, np.maximum(np.searchsorted(centres, upper, side="right"), first)

    def in_and_around(
        self, lower: NDArray[np.float64], upper: NDArray[np.float64]
    ) -> tuple[ColumnBounds, ColumnBounds]:
        """Return the leaves that lie in ``[lower, upper]``, and those that meet it."""
        return in_and_around(self.leaves, (self.lower, self.lower + self.span - 1), lower, upper)


def dyadic_pieces(
    first: NDArray[np.int64], last: NDArray[np.int64], height: int
) -> Iterator[tuple[NDArray[np.int64], int, NDArray[np.int64]]]:
    """Cut leaf intervals ``[first, last)`` into maximal nodes, two a level.

    Yields ``(which, level, node)``: which intervals get which node of that level.
    """
    low, high = first.copy(), last.copy()
    for level in range(height, -1, -1):
        open_ = low < high
        for odd, place in ((low & 1, low), (high & 1, high - 1)):
            which = np.flatnonzero(open_ & (odd == 1))
            if which.size:
                yield which, level, place[which]
        low, high = (low + 1) >> 1, high >> 1


def interval_sums(
    nodes: NDArray[np.float64],
    leaves: tuple[NDArray[np.int64], NDArray[np.int64]],
    height: int,
    *,
    root: bool,
) -> NDArray[np.float64]:
    """Return sums over leaf intervals' maximal nodes, shape (L, q).

    ``nodes`` (L, nodes) go level by level from the ``root`` or from its children; ``leaves`` (q,) are
    first ones and one past the last.
    """
    sums = np.zeros((len(nodes), len(leaves[0])))
    for which, level, node in dyadic_pieces(*leaves, height):
        if level == 0 and not root:
            sums[:, which] += nodes[:, :1] + nodes[:, 1:2]
        else:
            sums[:, which] += nodes[:, 2**level - (1 if root else 2) + node]
    return sums


# --------------------------------------------------------------------------------------------------
# Public queries column by column: what reads a table of each column reads it from the nearest cache.
#
# Queries come one a row. Numpy turns a tall array around at ten times the cost of a pass over it,
# since the
# cells of a column lie a row apart; tiles that fit the first-level cache cost two passes.

_QUERIES, _CELLS, _TILE = 2**14, 2**20, 64
_PADDING = 8
"""Cells between two columns beyond their own: at a stride of a power of two they share cache lines."""


def by_column(values: NDArray[np.float64]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield groups of queries with their columns, shape (d, some queries).

    Whoever keeps a part copies it: the buffer is the same each time, and may be overwritten.
    """
    count, width = values.shape
    most = max(1, min(count, _QUERIES, max(_TILE, _CELLS // max(width, 1))))
    room = np.empty((width, most + _PADDING))
    for start in range(0, count, most):
        rows = values[start : start + most]
        columns = room[:, : len(rows)]
        for at in range(0, len(rows), _TILE):
            columns[:, at : at + _TILE] = rows[at : at + _TILE].T
        yield slice(start, start + len(rows)), columns
