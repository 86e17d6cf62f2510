"""``doctor``: what a data gate would do to private data, told to its curator and to nobody else.

Nothing here is differentially private: exact numbers of records are counted. Nothing is charged and
nothing is written. What it offers as a mended declaration holds form alone (delimiter, dtypes): bounds
and keys taken from data would be a release of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as File
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError, SimError, SpecError
from opendp_sim.core.system.regular_files import regular, text_of
from opendp_sim.domains.cell import MISSING, is_int64
from opendp_sim.domains.column import texts_there
from opendp_sim.domains.normalise import as_array, normal
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.grammar.program import DataEntry, SourceRef
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.inputs import Memory, source_of
from opendp_sim.io.blocks import length_of
from opendp_sim.io.protocol import Table

_DELIMITERS = (",", ";", "\t", "|")
_DTYPES = ("int64", "float64", "date", "bool", "str")
_SAMPLE, _LINE = 1000, 400
"""Records from which another dtype is guessed."""


@dataclass
class ColumnLook:
    """What the gate makes of one column: exact numbers of records.

    Attributes:
        missing: cells that are no value of the declared dtype, and labels outside the keys.
        clamped: records with a value outside the bounds, or outside the declared integers.
        stored: the dtype that the data has, where it has one.
        better: the dtype that reads more of the cells than the declared one does, or None.
    """

    name: str
    declared: str
    missing: int = 0
    clamped: int = 0
    stored: str = ""
    better: str | None = None


@dataclass
class Look:
    """What the gate makes of one dataset. Private: for its curator.

    Attributes:
        dataset: its name in the spec.
        ingest: what the spec says is done to defects.
        records: how many there are.
        dropped: how many ``enforce`` drops; ``refuse`` ends the run for one of them, or of ``clamped``.
        refused: the fault of the file's form that ends any run; empty for none.
        delimiter: the one that the file seems to have, where it is not the declared one.
    """

    dataset: str
    ingest: str
    records: int = 0
    dropped: int = 0
    columns: list[ColumnLook] = field(default_factory=list)
    refused: str = ""
    delimiter: str | None = None

    def mended(self, entry: DataEntry) -> dict[str, Any]:
        """Return the dataset's declaration with the form that was found; bounds and keys stay."""
        told: dict[str, Any] = entry.plain()
        for look in self.columns:
            if look.better is not None:
                old = told["columns"][look.name]
                kept = {"bounds"} if look.better in ("int64", "float64") else set()
                if isinstance(old.get("bounds", [0])[0], str):
                    kept = set()
                told["columns"][look.name] = {"dtype": look.better} | {
                    k: v for k, v in old.items() if k in kept | {"role"} and v is not None
                }
        if self.delimiter is not None:
            told["source"] = _with_delimiter(entry.source, self.delimiter).plain()
        return {key: told[key] for key in ("source", "columns", "ingest") if key in told}


def doctor(plan: Plan, memory: Memory | None = None) -> list[Look]:
    """Look at every private dataset that the plan reads. The result is private.

    Args:
        plan: what ``plan_of`` made.
        memory: tables for sources of kind ``memory``.
    """
    used = {release.typed.entry.name: release.typed.entry for release in plan.releases.values()}
    return [_look(e, plan.program.folder, memory or {}) for e in used.values() if not e.public]


def _look(entry: DataEntry, folder: str, memory: Memory) -> Look:
    found = Look(entry.name, entry.ingest)
    try:
        source = _opened(entry, folder, memory, found)
        found.columns = [_sampled(column, source) for column in entry.records.columns]
        wrong = [look for look in found.columns if look.missing < 0]
        if wrong:
            names = ", ".join(look.name for look in wrong)
            found.refused = f"OS602 a stored dtype that the declaration cannot mean: {names}"
            return found
        for block in source.blocks():
            _count(block, entry.records, found)
    except SimError as error:
        found.refused = f"{error.code} {error.where}: expected {error.expected}; got {error.got}"
    return found


def _opened(entry: DataEntry, folder: str, memory: Memory, found: Look) -> Any:
    """Open the source; a text file with the first delimiter under which its header fits."""
    try:
        return source_of(entry.source, entry.records, folder, memory)
    except DataError as error:
        if entry.source.kind != "csv":
            raise
        for delimiter in _DELIMITERS:
            other = _with_delimiter(entry.source, delimiter)
            try:
                source = source_of(other, entry.records, folder, memory)
            except (DataError, SpecError):
                continue
            found.delimiter = delimiter
            return source
        known = _header(entry.source, folder)
        raise DataError(
            error.code, error.where, expected=error.expected, got=f"the first line {known}",
            hint=error.hint,
        ) from None  # fmt: skip


def _with_delimiter(source: SourceRef, delimiter: str) -> SourceRef:
    given = source.argument if isinstance(source.argument, Mapping) else {"file": source.argument}
    return replace(source, argument={**given, "delimiter": delimiter})


def _header(source: SourceRef, folder: str) -> str:
    named = source.argument["file"] if isinstance(source.argument, Mapping) else source.argument
    try:
        with regular(File(folder) / str(named)).open("rb") as file:
            raw = file.readline(_LINE)
            cuts = range(4 if len(raw) == _LINE else 1)  # the end may be amid a letter
            line = next((t for n in cuts if (t := text_of(raw[: len(raw) - n])) is not None), None)
            return "(no UTF-8 text)" if line is None else ascii(line.strip())
    except OSError:
        return "(no such file)"


# --- one column -----------------------------------------------------------------------------------


def _sampled(column: Column, source: Table) -> ColumnLook:
    """Compare the declared dtype with others on the first records; ``missing`` is -1 if it is refused."""
    look = ColumnLook(column.name, column.dtype)
    raw = _first(source, column.name)
    if raw is None:
        return look
    look.stored = "cells without a type" if raw.dtype == object else str(raw.dtype)
    unread = _unread(raw, column)
    if unread is None:
        look.missing = -1
    total = len(raw)
    if column.is_vector or column.keys or (unread is not None and unread * 2 <= total):
        return look
    rated = {dtype: _unread(raw, Column(column.name, dtype)) for dtype in _DTYPES}
    good = {dtype: count for dtype, count in rated.items() if count is not None}
    best = min(good, key=lambda dtype: good[dtype], default=None)
    if best is not None and good[best] * 2 < total and best != column.dtype:
        look.better = best
    return look


def _first(source: Table, name: str) -> NDArray[Any] | None:
    for piece in source.pieces(_SAMPLE):
        return as_array(piece[name])[:_SAMPLE]
    return None


def _unread(raw: NDArray[Any], column: Column) -> int | None:
    """Return how many cells are missing under a declaration; None where their dtype is refused."""
    values = normal(raw, column)
    try:
        column.check(values[:0], 0)
    except DataError:
        return None
    return int(_missing(values, column).sum())


def _missing(values: NDArray[Any], column: Column) -> NDArray[np.bool_]:
    """Say which records have a cell that is no value of the column."""
    if column.dtype == "str":
        return ~texts_there(values)
    if column.keys:
        return np.asarray((values < 0) | (values >= len(column.keys)))
    if values.dtype.kind == "f":
        return _any(~np.isfinite(values))
    return _any(values == MISSING) if is_int64(values) else np.zeros(len(values), dtype=bool)


def _any(cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.asarray(cells.reshape(len(cells), math.prod(cells.shape[1:])).any(axis=1))


def _outside(values: NDArray[Any], column: Column) -> NDArray[np.bool_]:
    """Say which records have a value outside the bounds, or that the declared integers do not hold."""
    ranges = [column.bounds] if column.bounds else []
    if column.numpy_dtype.kind in "iu" and values.dtype.kind in "iu" and not column.keys:
        held = np.iinfo(column.numpy_dtype)
        ranges.append((int(held.min), int(held.max)))
    outside = np.zeros(len(values), dtype=bool)
    with np.errstate(invalid="ignore"):
        for low, high in ranges:
            outside |= _any((values < low) | (values > high))
    return outside


def _count(block: Mapping[str, Any], records: Records, found: Look) -> None:
    dropped = np.zeros(length_of(dict(block)), dtype=bool)
    for look, column in zip(found.columns, records.columns, strict=True):
        values = block[column.name]
        missing = _missing(values, column)
        look.missing += int(missing.sum())
        look.clamped += int((_outside(values, column) & ~missing).sum())
        dropped |= missing
    found.records += len(dropped)
    found.dropped += int(dropped.sum())
