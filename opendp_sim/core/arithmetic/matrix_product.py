"""Call BLAS without its floating-point flags.

A kernel of BLAS may compute with the padding of its own buffers, which nobody reads, and so raise
"invalid" or "overflow" beside a finite, correct product. Whether it does so depends on what lay in
memory before. All callers bound their products beforehand (``row_products.md``, ``linear.md``,
``grid.md``), so the flags can say nothing more, and no warning of theirs reaches a user or a log.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def matrix_product(
    left: NDArray[Any], right: NDArray[Any], out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return ``np.matmul(left, right, out)`` of bounded arrays without a warning."""
    with np.errstate(all="ignore"):
        found: NDArray[Any] = np.matmul(left, right, out=out)
    return found


def products_of_rows(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Return the inner products of matching rows without a warning."""
    with np.errstate(all="ignore"):
        found: NDArray[Any] = np.vecdot(left, right)
    return found
