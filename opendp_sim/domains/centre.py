"""Choose zero or the box's middle as norms' centre (``moments_sketch.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opendp_sim.domains.rows import GridRows


@dataclass(frozen=True)
class Centre:
    """Describe a public centre in steps and the largest distance from it.

    Attributes:
        point: whole steps, one a column.
        reach: the largest distance of each column's bounds from it.
        longest_squared: the least bound on a row's squared L2 distance from it, by the type alone.
    """

    point: tuple[int, ...]
    reach: tuple[int, ...]
    longest_squared: int

    @property
    def moved(self) -> bool:
        """Whether it is not zero."""
        return any(self.point)

    def values(self) -> NDArray[np.float64]:
        """Return the point as integer-valued floats, shape (d,)."""
        return np.array(self.point, dtype=np.float64)


def nearest_centre(rows: GridRows) -> Centre:
    """Return the box's middle if rows are nearer to it, else zero."""
    each = rows.width // len(rows.lower)
    bounds = list(zip(rows.lower * each, rows.upper * each, strict=True))
    at_zero = _about(rows, bounds, (0,) * rows.width)
    middle = _about(rows, bounds, tuple((low + high) // 2 for low, high in bounds))
    return middle if middle.longest_squared < at_zero.longest_squared else at_zero


def _about(rows: GridRows, bounds: list[tuple[int, int]], point: tuple[int, ...]) -> Centre:
    reach = tuple(max(high - c, c - low) for (low, high), c in zip(bounds, point, strict=True))
    longest = sum(v * v for v in reach)
    if rows.l2 is not None:
        square = sum(c * c for c in point)
        apart = math.isqrt(square - 1) + 1 if square else 0  # rounded up
        longest = min(longest, (rows.l2 + apart) ** 2)
    return Centre(point, reach, longest)
