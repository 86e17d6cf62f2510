"""Scale columns to one integer range by public bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.device.device import Device, OnDevice
from opendp_sim.domains.rows import GridRows

LEVELS = 2**10
"""A: every column is an integer in [-A, A], so each bound is worth A whatever the column's unit."""


@dataclass(frozen=True)
class Standard:
    """Scale columns to integers in [-A, A] by public bounds.

    A constant A comes first. Row by row and elementwise: Lemma 1 of ``second_moments.md``.

    Args:
        rows: the grid, whose bounds are used.
        radius: bound on the L2 norm of the scaled row, constant included, in units of A, or None.
    """

    rows: GridRows
    radius: float | None = None

    @property
    def width(self) -> int:
        """Number of columns with the constant."""
        return self.rows.width + 1

    @property
    def lower(self) -> NDArray[np.float64]:
        """Lower bounds in steps, one a column."""
        return np.broadcast_to(np.array(self.rows.lower, dtype=np.float64), (self.rows.width,))

    @property
    def upper(self) -> NDArray[np.float64]:
        """Upper bounds in steps, one a column."""
        return np.broadcast_to(np.array(self.rows.upper, dtype=np.float64), (self.rows.width,))

    @property
    def norm_squared(self) -> int:
        """Return an integer bound of a scaled row's squared norm."""
        box = self.width * LEVELS**2
        return box if self.radius is None else min(box, math.floor((self.radius * LEVELS) ** 2))

    def on(self, device: Device, values: OnDevice) -> OnDevice:
        """Return scaled rows in a device's memory, by the same operations."""
        xp, low, high = device.xp, device.put(self.lower), device.put(self.upper)
        span = device.put(np.maximum(self.upper - self.lower, 1.0))
        out = xp.empty((len(values), self.width), dtype=np.float64)
        out[:, 0] = LEVELS
        out[:, 1:] = xp.trunc((2.0 * values - low - high) * LEVELS / span)
        if self.radius is None:
            return out
        squares = (out * out).sum(axis=1)  # integers that add up exactly in any order
        long = squares > self.norm_squared
        factor = xp.sqrt(self.norm_squared / xp.where(long, squares, 1.0)) * (1.0 - 2.0**-40)
        return xp.where(long[:, None], xp.trunc(out * factor[:, None]), out)

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scaled whole float64 rows ``(n, d + 1)`` of grid rows ``(n, d)``."""
        span = np.maximum(self.upper - self.lower, 1.0)
        out = np.empty((len(values), self.width))
        out[:, 0] = LEVELS
        scaled = out[:, 1:]
        np.trunc((2.0 * values - self.lower - self.upper) * LEVELS / span, out=scaled)
        if self.radius is not None:
            # Squares of integers below 2**21 add up exactly; root and quotient round, so the factor
            # is taken a little short, and truncation toward zero only shortens. The constant shrinks
            # with the rest: a long row loses weight, but keeps to the same linear relation.
            squares = np.zeros(len(values))
            for column in range(self.width):
                squares += out[:, column] * out[:, column]
            long = squares > self.norm_squared
            factor = np.sqrt(self.norm_squared / squares[long]) * (1.0 - 2.0**-40)
            out[long] = np.trunc(out[long] * factor[:, None])
        return out

    def bounds(self, column: int) -> tuple[float, float]:
        """Return a data column's public bounds in data units."""
        low, high = self.rows.to_data(np.stack([self.lower, self.upper]))[:, column]
        return float(low), float(high)

    def to_data(self, coefficients: NDArray[np.float64], target: int) -> NDArray[np.float64]:
        """Return data-unit coefficients (intercept first) of column ``target``.

        ``coefficients`` (d,) are of the constant 1 and of each other scaled column, in order.
        """
        middle = self.rows.to_data(((self.lower + self.upper) / 2.0)[None, :])[0]
        ends = np.stack([self.lower, np.maximum(self.upper, self.lower + 1.0)])
        low, high = self.rows.to_data(ends)
        half = (high - low) / 2.0
        others = np.delete(np.arange(self.rows.width), target)
        slopes = coefficients[1:] * half[target] / half[others]
        start = (
            middle[target] + half[target] * coefficients[0] - float((slopes * middle[others]).sum())
        )
        return np.concatenate([[start], slopes])
