"""Scale grid rows to integers of bounded length, one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.row_products import exact_dtype, squared_norms
from opendp_sim.domains.rows import GridRows

GRID_SIDE = 1024
"""Steps in the unit length of a scaled row."""
_SHORT = 1 - 2.0**-40
"""More than all roundings of a length: a shortened row is never longer than its bound."""
_LONG_ROWS, _TABLES = 102, 512
"""The constant cell of rows of one length, a tenth of it, and of tables', half of their bound."""
_FARTHEST = 2.0**25
_BLOCK = 2**20


def shorten_rows(rows: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Shorten integer rows (n, d) to norm ``most`` (``linear_model.md``, Lemma 1).

    Truncating to integers. Squares must add up below 2**53.
    """
    square = squared_norms(rows)
    long = square > float(most) ** 2
    if not long.any():
        return rows
    # Where nothing is to be done the factor is 1, and truncating an integer leaves it.
    factor = np.where(long, most * _SHORT / np.sqrt(np.where(long, square, 1.0)), 1.0)
    out: NDArray[np.float64] = np.trunc(rows * factor[:, None])
    return out


@dataclass(frozen=True)
class ScaledRows:
    """Scale one row for the gradients (Lemma 1).

    A public function of a row; ``linear_model.md``.

    Args:
        domain: the grid that rows come from.
        by_length: whether every row is scaled to the length ``GRID_SIDE``; else every column is moved and
            scaled by its bounds to [-SIDE, SIDE], and rows longer than SIDE are shortened.
    """

    domain: GridRows
    by_length: bool

    @property
    def constant(self) -> int:
        """The last cell of every row."""
        return _LONG_ROWS if self.by_length else _TABLES

    @property
    def width(self) -> int:
        """Number of columns, the constant included."""
        return self.domain.width + 1

    @property
    def norm_squared(self) -> int:
        """Bound on the squared L2 norm of a scaled row."""
        return GRID_SIDE**2 + self.constant**2

    def check(self, where: str) -> None:
        """Refuse a grid on which a squared norm is not exact (OS203)."""
        far = float(np.sqrt(self.domain.width)) * (
            self.domain.magnitude if self.by_length else GRID_SIDE
        )
        exact_dtype(far, far, where)
        exact_dtype(4.0 * self.domain.magnitude, 1.0, where)

    def __call__(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return the scaled rows, shape (n, d + 1), integers."""
        out = np.empty((len(values), self.width), dtype=np.float32)
        step = max(1, _BLOCK // self.width)
        for start in range(0, len(values), step):
            block = values[start : start + step].astype(np.float64)
            scaled = self._lengthened(block) if self.by_length else self._standardised(block)
            out[start : start + step, :-1] = scaled
        out[:, -1] = self.constant
        return out

    def of_queries(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return scaled public queries, far ones pulled to the bounds."""
        values = np.asarray(values, dtype=np.float64)
        if not self.by_length:
            return self(np.clip(np.rint(values), self.domain.lower, self.domain.upper))
        # A query's length does not matter: a long one is brought to where its square is exact.
        largest = np.abs(values).max(axis=1, initial=1.0)[:, None]
        most = min(_FARTHEST, max(1.0, float(self.domain.magnitude)))
        return self(np.rint(np.where(largest > most, values * (most / largest), values)))

    def _lengthened(self, block: NDArray[np.float64]) -> NDArray[np.float64]:
        length = np.sqrt(squared_norms(block))
        factor = GRID_SIDE * _SHORT / np.where(length == 0.0, np.inf, length)
        return np.trunc(block * factor[:, None]) + 0.0

    def _standardised(self, block: NDArray[np.float64]) -> NDArray[np.float64]:
        low = np.broadcast_to(np.asarray(self.domain.lower, dtype=np.float64), self.domain.width)
        high = np.broadcast_to(np.asarray(self.domain.upper, dtype=np.float64), self.domain.width)
        factor = GRID_SIDE / np.where(high > low, high - low, np.inf)
        return shorten_rows(np.trunc((2.0 * block - low - high) * factor), GRID_SIDE) + 0.0
