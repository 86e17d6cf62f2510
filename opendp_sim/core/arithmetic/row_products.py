"""Exact inner products of integer rows at BLAS speed.

``row_products.md`` beside this file has the lemma: integer-valued floats whose rows are short enough
have products that no order of summation, no fused multiply-add and no blocking can change, so the
product of a record with a query does not depend on what else is in the matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.matrix_product import matrix_product, products_of_rows
from opendp_sim.core.errors import SpaceError

_EXACT: tuple[tuple[type[np.floating[Any]], int], ...] = ((np.float32, 2**24), (np.float64, 2**53))


def exact_dtype(norm: float, other: float, where: str) -> type[np.floating[Any]]:
    """Return the narrowest float with exact products of such rows.

    ``norm`` and ``other`` bound the L2 norms of left and right rows, in integer steps.

    Raises:
        SpaceError (OS203): not even float64 is wide enough.
    """
    for dtype, limit in _EXACT:
        # One step of room covers the rounding of the two bounds' own product.
        if norm * other * (1 + 1e-9) + 1 < limit:
            return dtype
    raise SpaceError(
        "OS203", where, expected="products of rows below 2**53 steps", got="a larger bound",
        hint="quantize to fewer bits, or normalise the rows.",
    )  # fmt: skip


def exact_products(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Return inner products (m, n) of (m, d) and (n, d) rows."""
    return matrix_product(left, right.T)


def squared_norms(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return the exact squared norm of integer rows, below 2**53."""
    if rows.dtype == np.float64:  # one call of BLAS a row: faster than einsum
        return np.asarray(products_of_rows(rows, rows), dtype=np.float64)
    return np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
