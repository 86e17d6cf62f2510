"""Whiten rows along released second moments.

Then no direction of a gradient is slow. Lemmas 4 and 5 of ``linear_model.md``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.linear import integer_gram
from opendp_sim.core.arithmetic.matrix_product import matrix_product
from opendp_sim.measurements.linear._impl.scaled import GRID_SIDE, shorten_rows

UNIT = 2.0**-24
"""The unit of the released matrix."""
WIDEST_TABLE = 2**11
"""Columns, the constant included: far more than whitening helps."""
_LARGEST = 2.0**12
_FARTHEST = 2.0**20
_BLOCK = 2**15


def moments(rows: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the sums of products of column pairs, upper triangle by rows."""
    width = rows.shape[1]
    total = np.zeros((width, width), dtype=np.int64)
    for start in range(0, len(rows), _BLOCK):
        total += integer_gram(rows[start : start + _BLOCK].astype(np.float64), GRID_SIDE)
    return total[np.triu_indices(width)]


def moments_norm_squared(square: int) -> Fraction:
    """Bound the squared L2 norm of what one record adds to ``moments``.

    ``square`` bounds a row's squared norm, and SIDE every cell.
    """
    # sum over i <= j of z_i**2 z_j**2 = (|z|**4 + sum z_i**4) / 2
    return Fraction(square**2 + min(GRID_SIDE**2, square) * square, 2)


def whitening_of(
    cells: NDArray[np.int64], width: int, scale: float, constant: int
) -> tuple[NDArray[np.int64], float]:
    """Read the whitening matrix and the number of records from released moments.

    ``cells`` are the noisy upper triangle of w columns, the last one ``constant`` in every row, with
    noise of deviation ``scale``. The matrix (w, w) has integers in units of ``UNIT``; the number is at
    least 1.
    """
    matrix = np.zeros((width, width))
    matrix[np.triu_indices(width)] = cells / float(GRID_SIDE) ** 2
    matrix += np.triu(matrix, 1).T
    size = max(1.0, float(cells[-1]) / constant**2)
    values, vectors = np.linalg.eigh(matrix / size)
    noise = scale / GRID_SIDE**2 * np.sqrt(width) / size
    found = vectors / np.sqrt(width * (np.maximum(values, 0.0) + noise))
    whole = np.rint(np.clip(found, -_LARGEST, _LARGEST) / UNIT).astype(np.int64)
    return whole, size


def count_in(matrix: NDArray[np.int64], scale: float, constant: int) -> float:
    """Return about the number of records that ``whitening_of`` read.

    Its columns are eigenvectors divided by known roots, and the constant's own moment is known: what is
    left of it is the noise for one record. Less where an eigenvalue was below 0.
    """
    width, plain = len(matrix), matrix * UNIT
    square = np.maximum(np.square(plain).sum(axis=0), UNIT**2)
    whole = float((np.square(plain[-1] / square) / width).sum())
    noise = max(whole - (constant / GRID_SIDE) ** 2, UNIT)
    return max(scale / GRID_SIDE**2 * float(np.sqrt(width)) / noise, 1.0)


def whitened(rows: NDArray[np.float32], matrix: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return whitened rows (n, w), in whole steps of at most SIDE."""
    out = np.empty(rows.shape, dtype=np.float32)
    wide = matrix.astype(np.float64)
    for start in range(0, len(rows), _BLOCK):
        # Integers below 2**53 in any order, then one power of two and one truncation a cell.
        product = matrix_product(rows[start : start + _BLOCK].astype(np.float64), wide) * UNIT
        seen = np.clip(np.trunc(product), -_FARTHEST, _FARTHEST)
        out[start : start + _BLOCK] = shorten_rows(seen, GRID_SIDE) + 0.0
    return out
