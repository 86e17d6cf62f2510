"""Public queries column by column: what reads a table of each column reads it from the nearest cache.

Queries come one a row. Numpy turns a tall array around at ten times the cost of a pass over it, since the
cells of a column lie a row apart; tiles that fit the first-level cache cost two passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["by_column"]

_QUERIES, _CELLS, _TILE = 2**14, 2**20, 64
_PADDING = 8
"""Cells between two columns beyond their own: at a stride of a power of two they share cache lines."""


def by_column(values: NDArray[np.float64]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield which queries, and their columns: shape (d, some queries), ours to overwrite.

    The buffer is the same each time: whoever keeps a part copies it.
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
