"""Records of a spec as plain cells, neighbours of them, bad records among them, and four ways to hold them."""

from __future__ import annotations

import copy
import csv
import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.records import Column, Records

ROUTES = ("csv", "parquet", "npz", "memory")
Rows = list[dict[str, Any]]
"""Records as plain cells: a vector is a list, a category its key, ``None`` is missing."""


def rows_of(blocks: Iterator[dict[str, Any]], records: Records, count: int) -> Rows:
    """Return ``count`` records of a source, spread over it."""
    parts = list(blocks)
    whole = {c.name: np.concatenate([part[c.name] for part in parts]) for c in records.columns}
    size = len(next(iter(whole.values())))
    chosen = np.linspace(0, size - 1, min(count, size)).astype(int).tolist()
    return [{c.name: _plain(whole[c.name][at], c) for c in records.columns} for at in chosen]


def _plain(cell: Any, column: Column) -> Any:
    value = np.asarray(cell).tolist()
    return column.keys[value] if column.keys else value


def faults(records: Records, route: str) -> dict[str, tuple[Any, ...]]:
    """Return cells that break the declaration: (column and kind) to (column, variants of the cell)."""
    found: dict[str, tuple[Any, ...]] = {}
    for column in records.columns:
        kind = column.numpy_dtype.kind
        if column.keys:
            found[f"{column.name} foreign"] = (column, "zz", "5 private")
            continue
        if kind == "f":
            found[f"{column.name} nan"] = (column, float("nan"), float("inf"))
        if kind == "O" or (kind in "iu" and not column.is_vector):
            found[f"{column.name} missing"] = (column, None, None)
        if column.bounds:
            high = int(column.bounds[1])
            far = (high + 1.0, 1e30) if kind == "f" else (high + 1, high + 77)
            found[f"{column.name} beyond"] = (column, *far)
        if column.is_vector and route in ("csv", "parquet", "memory"):
            found[f"{column.name} width"] = (column, (), (1, 2, 3))
    return found


def with_faults(rows: Rows, *placed: tuple[int, Column, Any]) -> Rows:
    """Return the records with one more, bad, at each place; a place of -1 is the end."""
    out = copy.deepcopy(rows)
    for place, column, value in placed:
        bad = copy.deepcopy(rows[len(rows) // 2])
        if column.is_vector and not isinstance(value, tuple):
            bad[column.name][-1] = value
        else:
            bad[column.name] = list(value) if isinstance(value, tuple) else value
        out.insert(len(out) if place < 0 else place, bad)
    return out


def refused(rows: Rows, records: Records, route: str) -> dict[str, list[Rows]]:
    """Return sets of data sets that are refused: within a set nobody may tell one from another."""
    kinds, out, middle = faults(records, route), {}, len(rows) // 2
    for kind, (column, one, other) in kinds.items():
        out[kind] = [
            with_faults(rows, (0, column, one)),
            with_faults(rows, (-1, column, other)),
            with_faults(rows, (middle, column, other), (0, column, one), (-1, column, one)),
            with_faults(rows[:1], (0, column, one)),
        ]
    names = list(kinds)
    for first, second in pairwise(names):
        one, other = kinds[first], kinds[second]
        out[f"{first} and {second}"] = [
            with_faults(rows, (0, *one[:2]), (-1, *other[:2])),
            with_faults(rows, (0, *other[:2]), (-1, *one[:2])),
        ]
    return out


def passing(rows: Rows, records: Records, route: str, mode: str) -> list[Rows]:
    """Return data sets that go through the gate: texts about them are alike."""
    out = [rows, rows[1:], rows[:-1], [*rows, copy.deepcopy(rows[0])]]
    if mode != "enforce":
        return out
    for column, one, other in faults(records, route).values():
        out.append(with_faults(rows, (0, column, one)))
        out.append(with_faults(rows, (-1, column, other), (1, column, one)))
    return [*out, rows[:1], []]


def hold(rows: Rows, records: Records, route: str, folder: Path) -> dict[str, Any]:
    """Write ``t.<route>``, or return the arrays of ``memory``, in the given order."""
    cells = {c.name: [row[c.name] for row in rows] for c in records.columns}
    if route == "csv":
        with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(cells)
            writer.writerows(
                [_written(v) for v in line] for line in zip(*cells.values(), strict=True)
            )
    elif route == "npz":
        np.savez(folder / "t.npz", **{c.name: _typed(cells[c.name], c) for c in records.columns})
    elif route == "parquet":
        _parquet(cells, records, folder / "t.parquet")
    return {"t": cells}


def _written(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else "" if value is None else value


def _typed(cells: list[Any], column: Column) -> np.ndarray:
    """Return cells as an array whose dtype is that of the column, whatever the cells."""
    if column.keys or column.dtype == "str":
        return np.array(["" if v is None else str(v) for v in cells], dtype="U16")
    if column.numpy_dtype.kind in "iu":
        cells = [MISSING if v is None else v for v in cells]
        return np.array(cells, np.int64).reshape(_shape(cells, column))
    return np.array(cells, np.float64).reshape(_shape(cells, column))


def _shape(cells: list[Any], column: Column) -> tuple[int, ...]:
    return (len(cells), column.width) if column.is_vector else (len(cells),)


def _parquet(cells: dict[str, list[Any]], records: Records, file: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    arrays = {}
    for column in records.columns:
        values = cells[column.name]
        if column.keys or column.dtype == "str":
            values, kind = [None if v is None else str(v) for v in values], pa.string()
        else:
            kind = pa.int64() if column.numpy_dtype.kind in "iu" else pa.float64()
            kind = pa.list_(kind) if column.is_vector else kind
        arrays[column.name] = pa.array(values, kind)
    parquet.write_table(pa.table(arrays), file, row_group_size=4)


def shuffled(rows: Rows, seed: int = 1) -> Rows:
    """Return the records in another order."""
    return random.Random(seed).sample(rows, len(rows))  # noqa: S311 - no secret
