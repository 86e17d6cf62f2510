"""Compute the allowed matrix products.

Exact integer ones over records, float ones over releases. Lemmas in ``linear.md``. A product over
records must be exact, so that it does not depend on how BLAS blocks it; a product of released and
public numbers is post-processing and may round.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.matrix_product import matrix_product

_EXACT = 2**53


def integer_gram(values: NDArray[np.float64], magnitude: int) -> NDArray[np.int64]:
    """Return ``values.T . values`` exactly, shape (c, c).

    Integer-valued (n, c), of absolute values up to a ``magnitude`` below 2**26.
    """
    columns = values.shape[1]
    out = np.zeros((columns, columns), dtype=np.int64)
    step = max(1, min(2**16, (_EXACT - 1) // max(1, magnitude) ** 2))
    for start in range(0, len(values), step):
        block = values[start : start + step]
        # Every partial sum is an integer below 2**53, so the float product is the integer one.
        out += matrix_product(block.T, block).astype(np.int64)
    return out


def table_product(counts: NDArray[np.int64], table: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``counts . table`` in int64 without BLAS, (..., T) by (T, k)."""
    return matrix_product(counts, table)


def public_product(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    """Return the float product of public or released arrays, never of records."""
    return matrix_product(left, right)
