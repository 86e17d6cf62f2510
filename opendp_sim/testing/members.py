"""Draw members of a declared domain, corners first.

A mechanism must take them without an exception. Where OpenDP knows a domain as one of its own, that
one may be wider, and its members count too: rows with infinities, vectors of counts below zero or at
the ends of int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from opendp_sim.core.space import Domain
from opendp_sim.domains.counts import OpenCounts
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.domains.sketch import IntVector, Sketch
from opendp_sim.testing.strategies import grid_pairs

__all__ = ["members"]

_ROWS = 6
_LARGEST = float(np.finfo(np.float64).max)
_TEXTS = ("a", "b", "z", "None", "nan", "5", "a ", "x\0", "\ud800", "é")
_ENDS = (-(2**63), -(2**63) + 1, -(2**31), -1, 0, 1, 2**31, 2**53 + 1, 2**63 - 1)


def members(domain: Domain) -> st.SearchStrategy[Any] | None:
    """Return a strategy of datasets in ``domain``.

    And in the OpenDP domain that it publishes.

    Args:
        domain: any domain of this package.

    Returns:
        The strategy, or None for a domain that this module does not know.
    """
    if isinstance(domain, Records):
        return (
            st.integers(0, _ROWS)
            .flatmap(lambda count: _tables(domain, count))
            .filter(domain.member)
        )
    if isinstance(domain, RealRows):
        return st.integers(0, _ROWS).flatmap(lambda count: _real_rows(domain, count))
    if isinstance(domain, GridRows):
        return grid_pairs(domain).map(lambda pair: pair[0]).filter(domain.member)
    if isinstance(domain, IntVector | Sketch):
        known = domain.size if isinstance(domain, Sketch) else domain.cells
        size = st.integers(0, _ROWS) if known is None else st.just(known)
        return size.flatmap(_vectors)
    if isinstance(domain, OpenCounts):
        return _open_counts(domain)
    return None


def _cells(entry: st.SearchStrategy[Any], count: int, dtype: Any) -> st.SearchStrategy[Any]:
    listed = st.lists(entry, min_size=count, max_size=count)
    return listed.map(lambda cells: np.array(cells, dtype=dtype).reshape(count))


def _tables(domain: Records, count: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({c.name: _column(c, count) for c in domain.columns})


def _column(column: Column, count: int) -> st.SearchStrategy[Any]:
    dtype = column.numpy_dtype
    if dtype.kind == "O":
        return _cells(st.sampled_from(_TEXTS) | st.text(min_size=1, max_size=3), count, object)
    if column.keys:
        return _cells(st.integers(0, len(column.keys) - 1), count, np.int64)
    low, high = column.bounds or (-_LARGEST, _LARGEST)
    if dtype.kind == "f":
        entry = _reals(max(low, float(np.finfo(dtype).min)), min(high, float(np.finfo(dtype).max)))
    else:
        kind = np.iinfo(dtype)
        least = max(
            int(np.ceil(low)) if column.bounds else kind.min, kind.min + (kind.min == _ENDS[0])
        )
        entry = _integers(least, min(int(np.floor(high)) if column.bounds else kind.max, kind.max))
    flat = _cells(entry, count * column.width, dtype)
    return flat.map(lambda cells: cells.reshape(count, column.width)) if column.is_vector else flat


def _reals(low: float, high: float, *more: float) -> st.SearchStrategy[float]:
    corners = [v for v in (low, high, 0.0, -0.0, 0.1, 5e-324, 1e-300, -1e300) if low <= v <= high]
    return st.sampled_from([*corners, *more])


def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.sampled_from([v for v in {low, high, *_ENDS} if low <= v <= high])


def _real_rows(domain: RealRows, count: int) -> st.SearchStrategy[Rows]:
    if domain.lower:
        low = np.broadcast_to(domain.lower, domain.width)
        high = np.broadcast_to(domain.upper, domain.width)
        columns = [_reals(float(a), float(b)) for a, b in zip(low, high, strict=True)]
    else:
        ends = (-np.inf, np.inf) if domain.plain and domain.norm is None else ()
        columns = [_reals(-_LARGEST, _LARGEST, *ends)] * domain.width

    def rows(cells: Any, labels: Any, ids: Any) -> Rows:
        values = np.array(cells, dtype=np.float64).reshape(count, domain.width)
        return Rows(_within(values, domain), labels, ids)

    return st.builds(
        rows,
        st.lists(st.tuples(*columns), min_size=count, max_size=count),
        _cells(st.integers(0, len(domain.labels) - 1), count, np.int64)
        if domain.labels
        else st.none(),
        _cells(st.integers(0, 2), count, np.int64) | _cells(st.sampled_from("pq"), count, object)
        if domain.ids
        else st.none(),
    )


def _within(values: Any, domain: RealRows) -> Any:
    """Shrink rows to the domain's norm bound."""
    if domain.norm is None:
        return values
    kind, bound = domain.norm
    largest = np.abs(values).max(axis=1, initial=0.0)
    shares = values / np.where(largest > 0.0, largest, 1.0)[:, None]
    order = np.inf if kind == "linf" else int(kind[1])
    sizes = np.linalg.norm(shares, ord=order, axis=1)
    return shares * (bound / np.maximum(sizes, 1.0))[:, None]


def _vectors(size: int) -> st.SearchStrategy[Any]:
    if size > 64:  # few different cells: hypothesis would draw a long list for each example
        return st.sampled_from(_ENDS).map(lambda value: np.full(size, value, dtype=np.int64))
    return _cells(st.sampled_from(_ENDS) | st.integers(-5, 5), size, np.int64)


def _open_counts(domain: OpenCounts) -> st.SearchStrategy[dict[str, Any]]:
    entry: st.SearchStrategy[Any] = st.sampled_from(_TEXTS)
    if not domain.text:
        entry = _integers(0, (domain.universe or 2**62) - 1)
    if domain.universe is None and not domain.text:
        entry = _integers(-(2**63) + 1, 2**63 - 1)

    def build(votes: dict[Any, int]) -> dict[str, Any]:
        items = sorted(votes)
        dtype = object if domain.text else np.int64
        return {
            "item": np.array(items, dtype=dtype),
            "votes": np.array([votes[item] for item in items], dtype=np.int64),
        }

    return st.dictionaries(entry, st.sampled_from((1, 2, 1000, 2**31, 2**62)), max_size=5).map(
        build
    )
