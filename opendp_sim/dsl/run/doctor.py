"""Show the curator a data gate's effect on private data.

The result is private: for the curator and nobody else. Nothing here is differentially private: exact
numbers of records are counted. Nothing is charged and nothing is written. What it offers as a mended
declaration holds form alone (the file's dialect, dtypes): bounds and keys taken from data would be a
release of it.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path as File
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError, SimError
from opendp_sim.core.system.event_log import log_event
from opendp_sim.core.system.regular_files import decode_text, regular
from opendp_sim.domains.cell import MISSING, is_int64
from opendp_sim.domains.column import texts_there
from opendp_sim.domains.normalise import as_array, normal
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.grammar.parameters import resolve_parameters
from opendp_sim.dsl.grammar.parse import read_section
from opendp_sim.dsl.grammar.program import DataEntry, SourceRef
from opendp_sim.dsl.grammar.reader import draft_of_file
from opendp_sim.dsl.grammar.section import HOLE, hole_in
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.find_dialect import (
    DialectFit,
    about_cells,
    cells_read,
    find_common,
    find_dialect,
)
from opendp_sim.dsl.run.inputs import Memory, source_named
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.io.blocks import block_rows, length_of
from opendp_sim.io.file_spec import ENDINGS, left_out_files, read_place
from opendp_sim.io.open import files_of
from opendp_sim.io.protocol import PieceSource, formed

_NUMBERS = ("int64", "float64")
_DTYPES = (*_NUMBERS, "date", "bool", "str")
_SAMPLE, _LINE = 1000, 400
"""Records from which another dtype is guessed."""


@dataclass
class ColumnLook:
    """Describe the gate's effect on one column (private, exact numbers of records).

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
class FileLook:
    """Describe the gate's effect on one file of a folder (private)."""

    name: str
    records: int
    dropped: int


@dataclass
class Look:
    """Describe the gate's effect on one dataset, for its curator alone.

    Attributes:
        dataset: its name in the spec.
        ingest: what the spec says is done to defects.
        records: how many there are.
        dropped: how many ``enforce`` drops; ``refuse`` ends the run for one of them, or of ``clamped``.
        refused: the fault of the file's form that ends any run; empty for none.
        found: the options of a text file that differ from the declared ones, and why.
        as_declared: how many records are dropped without them; -1 where nothing can be read.
        files: of a folder or a pattern, each file.
    """

    dataset: str
    ingest: str
    records: int = 0
    dropped: int = 0
    columns: list[ColumnLook] = field(default_factory=list)
    refused: str = ""
    found: DialectFit = field(default_factory=DialectFit)
    as_declared: int = -1
    files: list[FileLook] = field(default_factory=list)

    @property
    def is_mended(self) -> bool:
        """Return whether another declaration reads more."""
        found = self.found.options or self.found.holes
        return bool(found or any(c.better for c in self.columns))

    def mended(self, entry: DataEntry) -> dict[str, Any]:
        """Return the dataset's declaration in the found form, with its bounds."""
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
        if self.found.options or self.found.holes:
            holes = dict.fromkeys(self.found.holes, "???")
            told["source"] = _with(entry.source, self.found.options | holes).plain()
        return {key: told[key] for key in ("source", "columns", "ingest") if key in told}


def doctor(plan: Plan, memory: Memory | None = None) -> list[Look]:
    """Return the gate's effect on every private dataset of a plan.

    The result is private.

    Args:
        plan: what ``plan_of`` made.
        memory: tables for sources of kind ``memory``.
    """
    used = {release.typed.entry.name: release.typed.entry for release in plan.releases.values()}
    return look_at(used.values(), plan.program.folder, memory)


def look_at(entries: Iterable[DataEntry], folder: str, memory: Memory | None = None) -> list[Look]:
    """Inspect datasets, except public ones, for a private result."""
    return [_look(entry, folder, memory or {}) for entry in entries if not entry.public]


def entries_of(path: str | File, given: Mapping[str, Any] | None = None) -> list[DataEntry]:
    """Return a spec's datasets.

    It may have holes except in its sources. A column whose bounds, keys or dtype are a hole is read
    without bounds, as text.

    Raises:
        Refused: a source is a hole, or the datasets cannot be read for another reason.
    """
    draft = draft_of_file(path, given)
    data = draft.document.data if draft.document is not None else None
    body = resolve_parameters(data, given or {}, Notes())[0] if isinstance(data, dict) else {}
    named = body.get("data")
    notes, found = Notes(), []
    for name, words in named.items() if isinstance(named, dict) else ():
        filled = _filled(words)
        if filled is None:
            notes.error("OS301", f"`{name}` has no file yet", ("data", name), part="key",
                        label="its source is a hole", help="write its path first.")  # fmt: skip
            continue
        entry = read_section(DataEntry, filled, ("data", name), notes, name=str(name))
        found += [] if entry is None else [entry]
    notes.raise_if_any(draft.document)
    if not found:
        draft.notes.raise_if_any(draft.document)
    return found


def _filled(given: Any) -> dict[str, Any] | None:
    """Return a dataset's words without holes; None where its source has one."""
    if not isinstance(given, dict):
        return None
    given = {**given, "source": _without_holes(given.get("source", HOLE))}
    if hole_in(given["source"]):
        return None
    columns = given.get("columns")
    kept = {k: v for k, v in given.items() if not hole_in(v) and k in ("ingest", "public")}
    if not isinstance(columns, dict):
        return {"source": given["source"], "columns": columns, **kept}
    told = {}
    for name, column in columns.items():
        words = column if isinstance(column, dict) else {"dtype": column}
        whole = {k: v for k, v in words.items() if not hole_in(v)}
        if "dtype" not in whole or (whole["dtype"] == "category" and "keys" not in whole):
            whole = {"dtype": "str"}
        told[name] = whole
    return {"source": given["source"], "columns": told, **kept}


def _without_holes(source: Any) -> Any:
    """Return a source without holes, other than its file."""
    if not isinstance(source, dict):
        return source
    return {
        kind: {k: v for k, v in options.items() if k == "file" or not hole_in(v)}
        if isinstance(options, dict)
        else options
        for kind, options in source.items()
    }


def mended_text(text: str, looks: Mapping[str, dict[str, Any]]) -> str:
    """Return a spec's text in the detected form, comments and holes included.

    ``looks`` gives each dataset's result of ``Look.mended``.
    """
    from ruamel.yaml import YAML  # noqa: PLC0415 - slow to import, seldom needed

    writer = YAML()
    writer.width = 120
    data = writer.load(text.replace("???", _HOLE))
    for name, told in looks.items():
        entry = data["data"][name]
        entry["source"] = _marked(told["source"])
        for column, words in told["columns"].items():
            have = entry["columns"][column]
            if isinstance(have, dict) and have.get("dtype") not in (words["dtype"], _HOLE):
                holes = have.get("dtype") == "category"
                if not holes:
                    entry["columns"][column] = words
    stream = io.StringIO()
    writer.dump(data, stream)
    return stream.getvalue().replace(_HOLE, "???")


def _marked(source: dict[str, Any]) -> dict[str, Any]:
    """Return a source whose holes the writer leaves without quotes."""
    return {
        kind: {k: _HOLE if v == "???" else v for k, v in given.items()}
        if isinstance(given, dict)
        else given
        for kind, given in source.items()
    }


_HOLE = "\ue000\ue000\ue000"


def _look(entry: DataEntry, folder: str, memory: Memory) -> Look:
    found = Look(entry.name, entry.ingest)
    log_event("opening private data `%s` for the doctor, which releases nothing", entry.name)
    try:
        files = _files(entry, folder)
        if files:
            _look_at_files(files, folder, found)
            _name_left_out(entry.source, folder, found)
        else:
            _look_at_one(entry.source, entry.records, folder, memory, found)
    except SimError as error:
        found.refused = _text(error)
    return found


def _text(error: SimError) -> str:
    return f"{error.code} {error.where}: expected {error.expected}; got {error.got}"


def _look_at_one(
    source: SourceRef, records: Records, folder: str, memory: Memory, found: Look
) -> None:
    """Look at one source, a text file in its likeliest dialect."""
    given = _options(source)
    if source.kind == "csv" and "votes" not in given:
        try:
            found.found = find_dialect(given, records, File(folder))
        except DataError as error:
            known = _header(source, folder)
            raise error.restated(got=f"the first line {known}") from None
        if found.found.options:
            found.as_declared = _dropped(source, records, folder)
    _count_all(_with(source, found.found.options), records, folder, memory, found)


def _dropped(source: SourceRef, records: Records, folder: str) -> int:
    """Return the private number of dropped records, -1 for a refused file."""
    declared = Look("", "enforce")
    with suppress(SimError):
        _count_all(source, records, folder, {}, declared, plainly=True)
        return declared.dropped
    return -1


def _count_all(
    ref: SourceRef,
    records: Records,
    folder: str,
    memory: Memory,
    found: Look,
    *,
    plainly: bool = False,
) -> None:
    """Count what the gate does to a source's records."""
    source: Any = source_named(ref, records, folder, memory)
    found.columns = [ColumnLook(c.name, c.dtype) for c in records.columns]
    if not plainly:
        found.found.reasons += about_cells(ref.kind, _options(ref), records, File(folder))
        single = [c for c in records.columns if not c.is_vector]
        texts: Any = None
        if ref.kind == "csv" and "votes" not in _options(ref) and single:
            plain = Records(tuple(Column(c.name, "str") for c in single))
            texts = source_named(ref, plain, folder, memory)
        found.columns = [_sampled(column, source, texts) for column in records.columns]
    wrong = [look.name for look in found.columns if look.missing < 0]
    if wrong:
        found.refused = f"OS602 a stored dtype that the declaration cannot mean: {', '.join(wrong)}"
        return
    odd = {column.name: Counter[str]() for column in records.columns}
    for piece in source.pieces(block_rows(records)):
        _count(formed(piece, records), records, found)
        for column in records.columns:
            _note_unread(as_array(piece[column.name]), column, odd[column.name])
    for name, cells in odd.items():
        if cells:
            found.found.examples.setdefault(name, [cell for cell, _ in cells.most_common(3)])


def _note_unread(raw: NDArray[Any], column: Column, odd: Counter[str]) -> None:
    """Count cells that are no value of a column."""
    if raw.dtype.kind not in "OUS" or raw.ndim > 1 or len(odd) > _SAMPLE:
        return
    cells = raw[_missing(normal(raw, column), column)].tolist()
    odd.update(ascii(cell)[:40] for cell in cells if isinstance(cell, _SHOWN))


_SHOWN = (str, bytes, int, list, dict)
"""Types of a cell that stands there, and could not be read."""


# --- folders and patterns -------------------------------------------------------------------------

_Part = tuple[SourceRef, Records, dict[str, int]]
"""A file's source, its own columns, and for those that its folders name 1 where that is no value."""


def _files(entry: DataEntry, folder: str) -> dict[str, _Part]:
    """Return the files of a folder or pattern; none for one file."""
    ref, found = entry.source, {}
    if ref.kind not in ENDINGS:
        return {}
    for name, file, keys in files_of(ref.kind, ref.argument, File(folder)):
        place = read_place(_options(ref), File(folder), ref.kind)
        named = {c: keys[n] for c in entry.records.columns if (n := place.stored(c.name)) in keys}
        missing = {c.name: int(_missing(normal([key], c), c).sum()) for c, key in named.items()}
        own = Records(tuple(c for c in entry.records.columns if c not in named))
        found[name] = (_with(ref, {"file": str(file)}), own, missing)
    return found


def _look_at_files(files: Mapping[str, _Part], folder: str, found: Look) -> None:
    """Look at each file in their common dialect."""
    if next(iter(files.values()))[0].kind == "csv":
        found.found = _common_dialect(files, folder, found)
        if found.found.options:
            lost = [_dropped(ref, records, folder) for ref, records, _ in files.values()]
            found.as_declared = -1 if min(lost) < 0 else sum(lost)
    for name, (ref, records, keyed) in files.items():
        look = Look(name, found.ingest)
        try:
            _count_all(_with(ref, found.found.options), records, folder, {}, look)
        except SimError as error:
            look.refused = _text(error)
        if look.refused and not found.refused:
            found.refused = f"{name}: {look.refused}"
        look.columns += [
            ColumnLook(column, "", missing * look.records) for column, missing in keyed.items()
        ]
        if any(keyed.values()):
            look.dropped = look.records
        _add(look, found)


def _common_dialect(files: Mapping[str, _Part], folder: str, found: Look) -> DialectFit:
    rows = max(_SAMPLE // 5, 5 * _SAMPLE // len(files))
    fits: dict[str, DialectFit] = {}
    for name, (ref, records, _) in files.items():
        try:
            fits[name] = find_dialect(_options(ref), records, File(folder), rows)
        except DataError as error:
            told = error.restated(got=f"the first line {_header(ref, folder)}")
            found.refused = found.refused or f"{name}: {_text(told)}"

    def reads(name: str, options: Mapping[str, Any]) -> int:
        ref, records, _ = files[name]
        return cells_read({**_options(ref), **options}, records, File(folder), rows)

    return find_common(fits, reads) if fits else DialectFit()


def _add(look: Look, found: Look) -> None:
    """Add what was found in one file."""
    found.files.append(FileLook(look.dataset, look.records, look.dropped))
    found.records += look.records
    found.dropped += look.dropped
    found.found.reasons += [f"{look.dataset}: {reason}" for reason in look.found.reasons]
    for name, cells in look.found.examples.items():
        found.found.examples.setdefault(f"{name} of {look.dataset}", cells)
    known = {column.name: column for column in found.columns}
    for column in look.columns:
        have = known.get(column.name)
        if have is None:
            found.columns.append(column)
            continue
        have.missing += column.missing
        have.clamped += column.clamped
        have.better = column.better if have.better in (None, column.better) else None


def _name_left_out(source: SourceRef, folder: str, found: Look) -> None:
    """Name a folder's files that are not read."""
    names = left_out_files(read_place(_options(source), File(folder), source.kind), source.kind)
    if names:
        shown = ", ".join(names[:5]) + f" and {len(names) - 5:,} more" * (len(names) > 5)
        found.found.reasons.append(f"left out of the folder, by its name: {shown}")


def _options(source: SourceRef) -> dict[str, Any]:
    given = source.argument
    return dict(given) if isinstance(given, Mapping) else {"file": given}


def _with(source: SourceRef, options: Mapping[str, Any]) -> SourceRef:
    return replace(source, argument={**_options(source), **options}) if options else source


def _header(source: SourceRef, folder: str) -> str:
    named = source.argument["file"] if isinstance(source.argument, Mapping) else source.argument
    try:
        with regular(File(folder) / str(named)).open("rb") as file:
            raw = file.readline(_LINE)
            cuts = range(4 if len(raw) == _LINE else 1)  # the end may be amid a letter
            line = next(
                (t for n in cuts if (t := decode_text(raw[: len(raw) - n])) is not None), None
            )
            return "(no UTF-8 text)" if line is None else ascii(line.strip())
    except OSError:
        return "(no such file)"


# --- one column -----------------------------------------------------------------------------------


def _sampled(column: Column, source: PieceSource, texts: PieceSource | None) -> ColumnLook:
    """Compare the declared dtype with others on first records (private).

    ``texts``: a text file's cells as they stand, where its dialect makes numbers of them.
    """
    look = ColumnLook(column.name, column.dtype)
    raw = _first(source, column.name)
    if raw is None:
        return look
    look.stored = _type_name(raw.dtype)
    unread = _unread(raw, column)
    if unread is None:
        look.missing = -1
    total = len(raw)
    if column.is_vector or column.keys or (unread is not None and unread * 2 <= total):
        return look
    cells = raw if texts is None else _first(texts, column.name)
    rated = {
        dtype: _unread(
            raw if cells is None or dtype in _NUMBERS else cells, Column(column.name, dtype)
        )
        for dtype in _DTYPES
    }
    good = {dtype: count for dtype, count in rated.items() if count is not None}
    best = min(good, key=lambda dtype: good[dtype], default=None)
    if best == "str" and _of_numbers(raw if cells is None else cells):
        return look
    if best is not None and good[best] * 2 < total and best != column.dtype:
        look.better = best
    return look


def _type_name(dtype: np.dtype[Any]) -> str:
    """Return a stored type's name, Arrow's own if it is refused."""
    if dtype.names:
        return dtype.names[0]
    return {"O": "cells without a type", "U": "text", "T": "text"}.get(dtype.kind, str(dtype))


def _of_numbers(raw: NDArray[Any]) -> bool:
    """Return whether most cells of a column start with numbers."""
    cells = [cell for cell in raw.tolist() if isinstance(cell, str) and cell.strip()]
    return sum(bool(_NUMBER.match(cell)) for cell in cells) * 2 > len(cells)


_NUMBER = re.compile(r"\s*[^\w\s]{0,2}\s*[.,]?\d+([.,\s\u00a0\u202f']\d+)*(\D|$)")


def _first(source: PieceSource, name: str) -> NDArray[Any] | None:
    for piece in source.pieces(_SAMPLE):
        return as_array(piece[name])[:_SAMPLE]
    return None


def _unread(raw: NDArray[Any], column: Column) -> int | None:
    """Return the private number of missing cells, or None."""
    values = normal(raw, column)
    try:
        column.check(values[:0], 0)
    except DataError:
        return None
    return int(_missing(values, column).sum())


def _missing(values: NDArray[Any], column: Column) -> NDArray[np.bool_]:
    """Return a private mask of records with a cell outside the domain."""
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
    """Return a private mask of records outside the bounds or the integers."""
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
