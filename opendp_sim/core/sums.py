"""Exact per-class sums of grid rows: integers in float64, added in a fixed order or any other.

Integer-valued float64 numbers add exactly while every partial sum stays below 2**53, so the order of
additions (and so blocks, threads and memory layout) cannot change a bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

__all__ = ["label_sums"]

_ROWS = 2**20
"""Rows whose sum is taken in float64; with coordinates below 2**32 it stays below 2**53."""


def label_sums(
    values: NDArray[np.float64], labels: NDArray[np.int64] | None, classes: int
) -> NDArray[np.int64]:
    """Return the sum of each class's rows: shape (classes, d).

    Args:
        values: shape (n, d), integers of magnitude below 2**32.
        labels: shape (n,), below ``classes``; None for one class.
        classes: number of classes.
    """
    out = np.zeros((classes, values.shape[1]), dtype=np.int64)
    for start in range(0, len(values), _ROWS):
        part = values[start : start + _ROWS]
        if labels is None:
            out[0] += part.sum(axis=0).astype(np.int64)
            continue
        # One entry a column of the class-by-row matrix: every row is added to its class, streaming.
        where = labels[start : start + _ROWS], np.arange(len(part) + 1)
        member = csc_array((np.ones(len(part)), *where), shape=(classes, len(part)))
        out += (member @ part).astype(np.int64)
    return out
