"""Compile kernels with numba (extra ``fast``).

They give the numpy code's bits, in one pass. Each is the loop that the numpy code beside its call
stands for, operation by operation, so its results are equal bit for bit. Compiling takes a second or
two of a process, so a kernel waits until the process has done enough without it. Compiled code holds
no lock of the interpreter: threads count side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np

_WORTH = 2**30
"""Cells before a kernel is compiled: that takes .5 s of CPU, and saves .9 ns a cell."""


class CompiledLoop:
    """A loop that is compiled once it is worth it.

    Args:
        loop: plain Python that numba compiles.
        signature: the types of its arguments, for numba.
    """

    def __init__(self, loop: Callable[..., Any], signature: str) -> None:
        self._loop, self._signature = loop, signature
        self._done, self._tried, self._made, self._lock = 0, False, None, Lock()

    def after(self, cells: int) -> Callable[..., Any] | None:
        """Return the loop, or None without numba or before ``_WORTH`` cells."""
        self._done += cells  # a race of two threads loses a few cells, no more
        if self._done >= _WORTH and not self._tried:
            with self._lock:
                if not self._tried:
                    self._made, self._tried = _compiled(self._loop, self._signature), True
        return self._made


def _compiled(loop: Callable[..., Any], signature: str) -> Any:
    """Return the compiled loop, or None without a fitting numba."""
    try:
        return import_module("numba").njit(signature, nogil=True)(loop)
    except Exception:  # noqa: BLE001 - whatever hinders it: the numpy code does the same
        return None


def _counted(product: Any, add: float, mask: int, labels: Any, out: Any) -> int:
    """Add one to ``out[c, label, bits(product[c, i] + add) & mask]``; return how many are outside.

    ``add`` rounds to an integer, the low bits of the sum. Shapes: product (C, n), labels (n,), or (0,)
    for one class, out (C, L, T).
    """
    foreign, alone, places = 0, len(labels) == 0, labels.view(np.uint64)
    keep, classes, size = np.uint64(mask), np.uint64(out.shape[1]), np.uint64(out.shape[2])
    for c in range(product.shape[0]):
        row, own = product[c], out[c]
        for i in range(len(row)):
            # Without a sign no place is counted from the end: a quarter of the time.
            cell = np.float64(row[i] + add).view(np.uint64) & keep
            label = np.uint64(0) if alone else places[i]
            if cell < size and label < classes:
                own[label, cell] += 1
            else:
                foreign += 1
    return foreign


def _tallied(ids: Any, labels: Any, out: Any) -> int:
    """Add one to ``out[c, label, ids[c, i]]``; return how many are outside.

    Shapes: ids (C, n), labels (n,), or (0,) for one class, out (C, L, T).
    """
    foreign, alone, places = 0, len(labels) == 0, labels.view(np.uint64)
    classes, size = np.uint64(out.shape[1]), np.uint64(out.shape[2])
    for c in range(ids.shape[0]):
        for i in range(ids.shape[1]):
            cell = np.uint64(ids[c, i])  # below 0: beyond every place
            label = np.uint64(0) if alone else places[i]
            if cell < size and label < classes:
                out[c, label, cell] += 1
            else:
                foreign += 1
    return foreign


def _interpolated(asked: Any, scales: Any, starts: Any, tables: Any, sums: Any) -> None:
    """Add the interpolated values of each query to its sums.

    Args:
        asked: shape (d, n), within the columns.
        scales: shape (d, 2): lower end, and levels a step.
        starts: shape (d + 1,), where a column's levels start in the tables.
        tables: shape (2, L, levels): of each line the value at place 0, and its rise a level.
        sums: shape (L, n).
    """
    for c in range(asked.shape[0]):
        low, ratio, start, last = (
            scales[c, 0],
            scales[c, 1],
            starts[c],
            starts[c + 1] - starts[c] - 1,
        )
        for label in range(sums.shape[0]):
            for q in range(asked.shape[1]):
                place = (asked[c, q] - low) * ratio
                level = np.int64(place)  # no place is below 0, nor beyond the last level
                at = start + min(max(level, 0), last)
                sums[label, q] += tables[0, label, at] + tables[1, label, at] * place


COUNTED = CompiledLoop(
    _counted, "int64(float64[:,::1], float64, int64, int64[::1], int64[:,:,::1])"
)
"""Counts ids straight from products: ``PhaseProjection.count``."""
TALLIED = CompiledLoop(_tallied, "int64(int64[:,:], int64[::1], int64[:,:,:])")
"""Counts ids that are there: ``grid.count_ids``. numpy's own count keeps other threads waiting."""
INTERPOLATED = CompiledLoop(
    _interpolated, "void(float64[:,:], float64[:,::1], int64[::1], float64[:,:,::1], float64[:,:])"
)
"""Reads running integrals between their levels: ``ThresholdReader``."""
