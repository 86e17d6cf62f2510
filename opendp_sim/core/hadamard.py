"""The Walsh-Hadamard transform of integer rows: additions only, exact below 2**53.

Every partial sum is a signed sum of the row's own entries, so a bound on their absolute sum below
2**53 makes each float64 operation exact and the result independent of how rows are batched.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["signed_hadamard"]

_CELLS = 2**19


def signed_hadamard(
    values: NDArray[np.float64], signs: NDArray[np.int8], places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the coordinates ``places`` of ``H diag(signs) x`` for each row x, shape (n, k).

    ``H`` is the D x D matrix of ``(-1)**popcount(i & j)``, D the least power of two that is at least
    the width; rows are padded with zeros.

    Args:
        values: shape (n, d), integers whose absolute values add up below 2**53 in each row.
        signs: shape (d,), -1 or 1.
        places: shape (k,), below D.
    """
    count, width = values.shape
    full = 1 << (width - 1).bit_length()
    out = np.empty((count, len(places)))
    for part in _parts(count, full):
        # Columns of the batch are rows of the work array: each step adds whole contiguous runs.
        work = np.zeros((full, part.stop - part.start))
        np.multiply(values[part].T, signs[:, None], out=work[:width])
        half = 1
        while half < full:
            pairs = work.reshape(full // (2 * half), 2, half, -1)
            total = pairs[:, 0] + pairs[:, 1]
            np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
            pairs[:, 0] = total
            half *= 2
        out[part] = work[places].T
    out += 0.0  # one zero: the sign of zero would depend on the order of additions
    return out


def _parts(count: int, full: int) -> Iterator[slice]:
    step = max(1, _CELLS // full)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
