"""Exact per-class sums of grid rows: integers in float64, added in a fixed order or any other.

Integer-valued float64 numbers add exactly while every partial sum stays below 2**53, so the order of
additions (and so blocks, threads and memory layout) cannot change a bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.on_use import sparse

__all__ = ["ClassSums"]

_ROWS = 2**20
"""Rows whose sum is taken in float64; with coordinates below 2**32 it stays below 2**53."""


class ClassSums:
    """The sum of each class's rows, added up block by block.

    Args:
        classes: number of classes L.
        columns: number of columns d.
        rows: the most rows a block has, at most 2**20.
    """

    def __init__(self, classes: int, columns: int, rows: int) -> None:
        self.totals = np.zeros((classes, columns), dtype=np.int64)
        self._rows = min(rows, _ROWS)
        # One entry a column of the class-by-row matrix: every row is added to its class, streaming.
        # It is made once for all full blocks; only the classes in it change.
        self._member = self._matrix(self._rows) if classes > 1 else None

    def _matrix(self, rows: int) -> Any:
        where = np.zeros(rows, dtype=np.int32), np.arange(rows + 1, dtype=np.int32)
        return sparse.csc_array((np.ones(rows), *where), shape=(len(self.totals), rows))

    def add(self, values: NDArray[np.float64], labels: NDArray[np.int64] | None) -> None:
        """Add rows (n, d), integers of magnitude below 2**32, to the classes (n,) they belong to.

        ``labels`` are below the number of classes; None puts all rows in the first.
        """
        for start in range(0, len(values), self._rows):
            part = values[start : start + self._rows]
            if labels is None or self._member is None:
                self.totals[0] += part.sum(axis=0).astype(np.int64)
                continue
            member = self._member if len(part) == self._rows else self._matrix(len(part))
            member.indices[:] = labels[start : start + len(part)]
            self.totals += member.dot(part).astype(np.int64)
