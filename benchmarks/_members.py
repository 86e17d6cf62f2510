"""Random members of a domain, corners first, a thousand a second and more: for campaigns.

The same corners as ``opendp_sim.testing.members``, drawn by numpy: Hypothesis takes ten times as long for a dataset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.core.space import Domain
from opendp_sim.domains.counts import OpenCounts
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.domains.sketch import IntVector, Sketch
from opendp_sim.testing import members, strategies

Draw = Callable[[np.random.Generator], Any]
_ROWS, _LARGEST = 6, float(np.finfo(np.float64).max)
_REALS = (0.0, -0.0, 0.1, 5e-324, 1e-300, -1e300)


def sampler(domain: Domain) -> Draw | None:
    """Return what draws a member of the domain, or of the OpenDP domain it publishes; None if unknown."""
    if isinstance(domain, Records):
        return lambda rng: _table(domain, rng)
    if isinstance(domain, RealRows):
        return _real_rows(domain)
    if isinstance(domain, GridRows):
        return _grid_rows(domain)
    if isinstance(domain, IntVector | Sketch):
        known = domain.size if isinstance(domain, Sketch) else domain.cells
        return lambda rng: _vector(rng.integers(0, _ROWS + 1) if known is None else known, rng)
    if isinstance(domain, OpenCounts):
        return lambda rng: _counts(domain, rng)
    return None


def _picked(corners: list[Any], dtype: Any) -> Draw:
    held = np.array(corners, dtype=dtype)
    return lambda rng: held[rng.integers(0, len(held))]


def _labels(domain: Any, count: int, rng: np.random.Generator) -> tuple[Any, Any]:
    labels = rng.integers(0, len(domain.labels), count) if domain.labels else None
    if not domain.ids:
        return labels, None
    texts = np.array(list("pqpqpq"), dtype=object)[:count]
    return labels, rng.integers(0, 3, count) if rng.random() < 0.5 else rng.permutation(texts)


def _real_rows(domain: RealRows) -> Draw:
    low = np.broadcast_to(domain.lower or (-_LARGEST,), domain.width)
    high = np.broadcast_to(domain.upper or (_LARGEST,), domain.width)
    more = (-np.inf, np.inf) if domain.plain and domain.norm is None and not domain.lower else ()
    columns = [
        np.array([float(a), float(b), *(v for v in _REALS if a <= v <= b), *more])
        for a, b in zip(low, high, strict=True)
    ]

    def draw(rng: np.random.Generator) -> Rows:
        count = int(rng.integers(0, _ROWS + 1))
        values = np.stack([c[rng.integers(0, len(c), count)] for c in columns], axis=1)
        return Rows(members._within(values, domain), *_labels(domain, count, rng))

    return draw


def _grid_rows(domain: GridRows) -> Draw:
    low, high = min(domain.lower), max(domain.upper)
    corners = np.array(sorted({low, high, 0, low + 1, high - 1, (low + high) // 2}), np.float64)

    def draw(rng: np.random.Generator) -> Rows:
        while True:
            found = tried(rng)
            if domain.member(found):  # shrinking to a norm can leave a box without zero
                return found

    def tried(rng: np.random.Generator) -> Rows:
        count = int(rng.integers(0, _ROWS + 1))
        shape = count, domain.width
        values = corners[rng.integers(0, len(corners), shape)]
        if rng.random() < 0.5:
            values = rng.integers(low, high, shape, endpoint=True).astype(np.float64)
        values = np.clip(values, domain.lower, domain.upper)
        return Rows(strategies._within(values, domain.l2), *_labels(domain, count, rng))

    return draw


def _table(domain: Records, rng: np.random.Generator) -> dict[str, Any]:
    count = int(rng.integers(0, _ROWS + 1))
    while True:
        found = {c.name: _column(c, count, rng) for c in domain.columns}
        if domain.member(found):
            return found


def _column(column: Column, count: int, rng: np.random.Generator) -> Any:
    dtype = column.numpy_dtype
    if dtype.kind == "O":
        texts = [*members._TEXTS, chr(int(rng.integers(33, 0xD000)))]
        return np.array([texts[at] for at in rng.integers(0, len(texts), count)] + [None], object)[
            :-1
        ]
    if column.keys:
        return rng.integers(0, len(column.keys), count)
    low, high = column.bounds or (-_LARGEST, _LARGEST)
    if dtype.kind == "f":
        ends = np.finfo(dtype)
        low, high = max(low, float(ends.min)), min(high, float(ends.max))
        corners: list[Any] = [low, high, *(v for v in _REALS if low <= v <= high)]
    else:
        kind = np.iinfo(dtype)
        least = int(np.ceil(low)) if column.bounds else kind.min + (kind.min == -(2**63))
        most = int(np.floor(high)) if column.bounds else kind.max
        least, most = max(least, kind.min), min(most, kind.max)
        corners = [least, most, *(v for v in members._ENDS if least <= v <= most)]
    shape = (count, column.width) if column.is_vector else (count,)
    return np.array(corners, dtype=dtype)[rng.integers(0, len(corners), shape)]


def _vector(size: Any, rng: np.random.Generator) -> Any:
    ends = np.array(members._ENDS, dtype=np.int64)
    if rng.random() < 0.3:
        return np.full(size, rng.choice(ends))
    small = rng.integers(-5, 6, size)
    return np.where(rng.random(size) < 0.3, ends[rng.integers(0, len(ends), size)], small)


def _counts(domain: OpenCounts, rng: np.random.Generator) -> dict[str, Any]:
    if domain.text:
        pool: list[Any] = list(members._TEXTS)
    else:
        most = 2**63 - 1 if domain.universe is None else domain.universe - 1
        least = -(2**63) + 1 if domain.universe is None else 0
        pool = [v for v in {least, most, *members._ENDS} if least <= v <= most]
    size = int(rng.integers(0, min(5, len(pool)) + 1))
    items = sorted(pool[at] for at in rng.permutation(len(pool))[:size])
    votes = np.array([1, 2, 1000, 2**31, 2**62], dtype=np.int64)[rng.integers(0, 5, size)]
    return {
        "item": np.array([*items, None], dtype=object)[:-1]
        if domain.text
        else np.array(items, dtype=np.int64),
        "votes": votes,
    }
