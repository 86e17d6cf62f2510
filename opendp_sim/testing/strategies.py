"""Draw neighbouring datasets with extremes, ties, duplicates and none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.testing.case import Neighbours

__all__ = ["grid_pairs", "integer_vectors", "real_pairs", "row_pairs"]


def row_pairs(
    values: Callable[[st.DrawFn, int], NDArray[Any]], labels: int, *, ids: int = 0
) -> st.SearchStrategy[Neighbours]:
    """Draw two row sets that share some rows.

    In different places; the rest is the distance.

    Args:
        values: draws an array of n rows.
        labels: number of public labels; 0 for none.
        ids: number of different persons; 0 for none.
    """

    def rows(draw: st.DrawFn, most: int) -> Rows:
        count = draw(st.integers(0, most))
        array = values(draw, count)
        parts = [
            np.array(
                draw(st.lists(st.integers(0, k - 1), min_size=count, max_size=count)), np.int64
            )
            if k
            else None
            for k in (labels, ids)
        ]
        return Rows(array, *parts)

    @st.composite
    def pair(draw: st.DrawFn) -> Neighbours:
        shared, left, right = rows(draw, 8), rows(draw, 3), rows(draw, 3)
        return _join(shared, left), _join(right, shared), len(left) + len(right)

    return pair()


def grid_pairs(domain: GridRows) -> st.SearchStrategy[Neighbours]:
    """Draw neighbours on an integer grid.

    Bounds, zero, one step inside, duplicates, and a norm bound.
    """
    low, high = min(domain.lower), max(domain.upper)
    corner = st.sampled_from(sorted({low, high, 0, low + 1, high - 1, (low + high) // 2}))

    def values(draw: st.DrawFn, count: int) -> NDArray[Any]:
        cells = st.lists(
            corner | st.integers(low, high), min_size=domain.width, max_size=domain.width
        )
        array = np.array([draw(cells) for _ in range(count)], dtype=np.float64)
        array = np.clip(array.reshape(count, domain.width), domain.lower, domain.upper)
        return _within(array, domain.l2)

    return row_pairs(values, len(domain.labels or ()), ids=3 if domain.ids else 0)


def real_pairs(domain: RealRows) -> st.SearchStrategy[Neighbours]:
    """Draw neighbours among real rows.

    Bounds and beyond where there are none, -0.0, subnormals, 0.1.
    """
    low = min(domain.lower) if domain.lower else -1e6
    high = max(domain.upper) if domain.upper else 1e6
    corners = [v for v in (low, high, 0.0, -0.0, 0.1, -0.1, 5e-324, 0.5) if low <= v <= high]
    cell = st.sampled_from(corners) | st.floats(low, high)

    def values(draw: st.DrawFn, count: int) -> NDArray[Any]:
        cells = st.lists(cell, min_size=domain.width, max_size=domain.width)
        array = np.array([draw(cells) for _ in range(count)], dtype=np.float64)
        array = array.reshape(count, domain.width)
        if domain.lower:
            array = np.clip(array, domain.lower, domain.upper)
        return array

    return row_pairs(values, len(domain.labels or ()), ids=3 if domain.ids else 0)


def integer_vectors(cells: int, magnitude: int = 1000) -> st.SearchStrategy[Neighbours]:
    """Draw integer vectors at L1 distance at most ``d_in``.

    So L2 and L∞ too.
    """

    @st.composite
    def pair(draw: st.DrawFn) -> Neighbours:
        entry = st.integers(-magnitude, magnitude)
        left = np.array(draw(st.lists(entry, min_size=cells, max_size=cells)), dtype=np.int64)
        right = left.copy()
        d_in = draw(st.integers(0, 5))
        for _ in range(d_in if cells else 0):
            right[draw(st.integers(0, cells - 1))] += draw(st.sampled_from((-1, 1)))
        return left, right, d_in

    return pair()


def _within(array: NDArray[Any], l2: int | None) -> NDArray[Any]:
    """Shrink rows toward zero until they keep the integer norm bound."""
    if l2 is None:
        return array
    norms = np.sqrt(np.square(array).sum(axis=1, keepdims=True))
    shrunk: NDArray[Any] = np.trunc(array * np.minimum(1.0, l2 / np.maximum(norms, 1.0)))
    return shrunk + 0.0


def _join(left: Rows, right: Rows) -> Rows:
    def both(a: Any, b: Any) -> Any:
        return None if a is None else np.concatenate([a, b])

    return Rows(
        both(left.values, right.values), both(left.labels, right.labels), both(left.ids, right.ids)
    )
