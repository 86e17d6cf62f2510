"""Compute norms of rows, exactly where floats do not decide."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.rounding import float_up


def norm_slack(width: int) -> float:
    """Return the slack factor for all roundings of a row's norm."""
    return 1.0 + max(1e-12, (width + 8) * 2.0**-50)


def row_norms(values: NDArray[Any], norm: str) -> NDArray[np.float64]:
    """Return the norm of each row, NaN with infinities."""
    wide = values.astype(np.float64, copy=False)
    largest: NDArray[np.float64] = np.abs(wide).max(axis=1, initial=0.0)
    if norm == "linf":
        return largest
    with np.errstate(all="ignore"):
        shares = wide / np.where(largest > 0.0, largest, 1.0)[:, None]
        return np.asarray(largest * np.linalg.norm(shares, ord=int(norm[1]), axis=1))


def any_longer(values: NDArray[np.float64], l2: int) -> bool:
    """Return whether an integer row is longer than ``l2``, exactly."""
    bound, slack = float_up(l2**2), norm_slack(values.shape[1])
    with np.errstate(over="ignore"):
        squares = np.square(values).sum(axis=1)
    doubtful = values[(squares > bound / slack) & (squares <= bound * slack)]
    exact = bound >= 2.0**53 and any(sum(int(v) ** 2 for v in row) > l2**2 for row in doubtful)
    return exact or bool((squares > (bound if bound < 2.0**53 else bound * slack)).any())
