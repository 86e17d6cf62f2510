"""Datasets of the project's own row domains, taught to the generator by their descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.atoms import Source
from opendp_sim.audit.datasets import Records, teach
from opendp_sim.spaces.records import Records as RecordTable
from opendp_sim.spaces.rows import GridRows, RealRows, Rows

__all__: list[str] = []

Record = tuple[tuple[float, ...], int, Any]
"""Values, index of the label (0 without labels), person (0 without ids)."""


@teach(GridRows)
def _grid(descriptor: Any) -> Records:
    low, high = _bounds(descriptor, 8)

    def inside(row: NDArray[np.float64]) -> NDArray[np.float64]:
        row = np.clip(np.trunc(row), low, high)
        if descriptor.l2 is not None:
            length = float(np.linalg.norm(row))
            row = np.trunc(row * (descriptor.l2 / length)) if length > descriptor.l2 else row
        return row

    return _rows(descriptor, low, high, inside)


@teach(RealRows)
def _real(descriptor: Any) -> Records:
    low, high = _bounds(descriptor, 8.0)

    def inside(row: NDArray[np.float64]) -> NDArray[np.float64]:
        row = np.clip(row, low, high)
        if descriptor.norm is not None:
            order = {"l1": 1, "l2": 2, "linf": np.inf}[descriptor.norm[0]]
            length = float(np.linalg.norm(row, ord=order))
            row = row * (descriptor.norm[1] / length) if length > descriptor.norm[1] else row
        return row

    return _rows(descriptor, low, high, inside)


def _bounds(descriptor: Any, reach: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low = np.array(descriptor.lower or (-reach,), dtype=float)
    high = np.array(descriptor.upper or (reach,), dtype=float)
    width = descriptor.width
    return np.broadcast_to(low, (width,)).copy(), np.broadcast_to(high, (width,)).copy()


def _rows(
    descriptor: Any, low: NDArray[np.float64], high: NDArray[np.float64], inside: Any
) -> Records:
    """Rows with labels and person ids where the domain has them."""
    width, labels = descriptor.width, len(descriptor.labels or (0,))

    def record(values: NDArray[np.float64], label: int, person: int) -> Record:
        return tuple(float(v) for v in inside(np.asarray(values, dtype=float))), label, person

    def draw(rng: np.random.Generator) -> Record:
        kind = rng.integers(4)
        if kind == 0:
            values = rng.uniform(low, high)
        elif kind == 1:
            values = np.where(rng.random(width) < 0.5, low, high)
        elif kind == 2:
            values = np.zeros(width)
            spot = int(rng.integers(width))
            values[spot] = (low, high)[int(rng.integers(2))][spot]
        else:
            values = (low + high) / 2 + rng.integers(-2, 3, size=width)
        return record(values, int(rng.integers(labels)), int(rng.integers(3)))

    corners = [
        record(v, label, 0) for v in (np.zeros(width), low, high) for label in {0, labels - 1}
    ]

    def build(records: Sequence[Record]) -> Rows:
        values = np.array([r[0] for r in records], dtype=np.float64).reshape(len(records), width)
        tags = np.array([r[1] for r in records], dtype=np.int64) if descriptor.labels else None
        ids = np.array([r[2] for r in records], dtype=np.int64) if descriptor.ids else None
        return Rows(values, tags, ids)

    def split(rows: Rows) -> list[Record]:
        tags = rows.labels if rows.labels is not None else np.zeros(len(rows), np.int64)
        ids = rows.ids if rows.ids is not None else np.zeros(len(rows), np.int64)
        return [
            (tuple(map(float, v)), int(t), p)
            for v, t, p in zip(rows.values, tags, ids.tolist(), strict=True)
        ]

    return Records(Source(tuple(corners), draw, corners[0]), build, split)


@teach(RecordTable)
def _table(descriptor: Any) -> Records:
    """Datasets of named columns; a record is the tuple of its cells in the order of the columns."""
    columns = descriptor.columns
    sources = [_column(column) for column in columns]

    def draw(rng: np.random.Generator) -> tuple[Any, ...]:
        return tuple(source.pick(rng) for source in sources)

    first = tuple(source.corners[0] for source in sources)
    # One cell at a time: a fault of records that agree in a cell (one person, two values) shows between
    # the first corner and another. The last one, all cells odd, is what the others are added to.
    turned = (source.corners[:0:-1] for source in sources)
    corners = (
        first,
        *(
            (*first[:spot], value, *first[spot + 1 :])
            for values in zip_longest(*turned)
            for spot, value in enumerate(values)
            if value is not None
        ),
        tuple(source.corners[-1] for source in sources),
    )

    def build(records: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        out = {}
        for spot, column in enumerate(columns):
            shape = (len(records), column.width) if column.is_vector else (len(records),)
            cells = [record[spot] for record in records]
            out[column.name] = np.array(cells, dtype=column.numpy_dtype).reshape(shape)
        return out

    def split(data: dict[str, Any]) -> list[tuple[Any, ...]]:
        held = [data[column.name].tolist() for column in columns]
        return [
            tuple(tuple(c) if isinstance(c, list) else c for c in row)
            for row in zip(*held, strict=True)
        ]

    return Records(Source(corners, draw, corners[0]), build, split)


def _column(column: Any) -> Source:
    """Values of one column: keys, words, or numbers within the declared bounds."""
    if column.keys:
        return _listed(range(len(column.keys)))
    if column.dtype == "str":
        return _listed(("u", "v", "w", "u2", "U"))
    low, high = column.bounds or (-8.0, 8.0)
    whole = column.numpy_dtype.kind in "iu"
    low, high = (float(np.ceil(low)), float(np.floor(high))) if whole else (low, high)
    middle = min(max(0.0, low), high)

    def one(value: Any) -> Any:
        held = column.numpy_dtype.type(value)
        inside = held if low <= held <= high else column.numpy_dtype.type(middle)
        value = inside.item()
        return (value,) * column.width if column.is_vector else value

    def draw(rng: np.random.Generator) -> Any:
        if not column.is_vector:
            return one(rng.integers(int(low), int(high) + 1) if whole else rng.uniform(low, high))
        return tuple(
            float(np.clip(column.numpy_dtype.type(v), low, high))
            for v in rng.uniform(low, high, column.width)
        )

    corners = [one(v) for v in (middle, low, high)]
    if column.is_vector:  # cells that differ: what depends on their order shows
        plain, lowest, highest = corners
        corners += [(*lowest[:1], *plain[1:]), (*plain[:-1], *highest[-1:])]
    kept = tuple(dict.fromkeys(corners))
    return Source(kept, draw, kept[0])


def _listed(values: Sequence[Any]) -> Source:
    known = tuple(values)
    return Source(known, lambda rng: known[int(rng.integers(len(known)))], known[0])
