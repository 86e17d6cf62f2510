"""Read ``.parquet`` files through pyarrow, in batches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from opendp_sim.core.errors import DataError, SimError
from opendp_sim.domains.records import Records
from opendp_sim.io.arrow import arrow_column, no_rows, stored_in
from opendp_sim.io.file_spec import (
    FileOptions,
    FileState,
    file_state,
    listed_files,
    name_in,
    naming,
    need_state,
    reading,
)
from opendp_sim.io.protocol import PieceSource, Raw, formed

# --------------------------------------------------------------------------------------------------
# One ``.parquet`` file or some row groups of it: opened, checked, and read a batch at a time.

_READ_AHEAD, _LEAST_READ = 2**22, 2**12
"""Bytes that the readers of all columns ask for at a time, and at least the one of a column."""
_SPARE = 2**25
"""Entries of lists beyond their declared length that a group of rows may hold: Arrow reads no part of a
list, and needs 16 bytes for each."""
_HEAVY = 2**28
"""Bytes of one batch, on average, and of the columns of a group whose records are of over 1 MiB each."""


@dataclass(frozen=True)
class FilePart:
    """Describe a file or row groups, with its folders' values."""

    file: Path
    keys: Mapping[str, str]
    groups: list[int] | None = None
    """Which row groups; None for all."""
    pinned: FileState = ()
    """The state of the file that was listed, or what of it is portable: another one is refused."""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The stored columns of each column: files of one folder may store a vector in different ways."""
    texts: tuple[str, ...] = ()
    """Columns of plain texts, which are read as dictionaries."""

    def columns(self, rows: int) -> dict[str, Any]:
        """Return the folders' columns as cells without a type."""
        return {name: np.full(rows, value, dtype=object) for name, value in self.keys.items()}


def plain_texts(schema: Any, names: set[str]) -> tuple[str, ...]:
    """Return which columns are texts, and nothing else, by type."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    kinds = {field.name: field.type for field in schema if field.name in names}
    return tuple(n for n, k in kinds.items() if types.is_string(k) or types.is_large_string(k))


def weight_of(file: Any, names: set[str]) -> int:
    """Return columns' unpacked bytes, lists whole, by the footer."""
    found, schema = 0, file.schema
    columns = [at for at in range(len(schema)) if schema.column(at).path.split(".")[0] in names]
    for group in range(file.metadata.num_row_groups):
        for at in columns:
            about = file.metadata.row_group(group).column(at)
            found += max(int(about.total_uncompressed_size), 8 * int(about.num_values))
    return found


def batches(
    file: Any,
    part: FilePart,
    rows: int,
    stored: list[str],
    widths: Mapping[str, int],
    *,
    threads: bool,
) -> Iterator[Any]:
    """Yield batches that fit into memory, groups with long lists alone.

    Raises:
        DataError (OS601): a group holds too much that is beyond its declaration, or too heavy records.
    """
    groups = range(file.metadata.num_row_groups) if part.groups is None else part.groups
    told = [(group, *beyond(file, group, widths)) for group in groups]
    for alone, run in groupby(told, lambda one: one[0] if one[1] else -1):
        several = list(run)
        if any(unbounded_decode(*one) for _, *one in several):
            raise too_heavy(part.file)
        sizes = (max(1, _HEAVY * count // max(heavy, 1)) for *_, heavy, count in several if count)
        yield from file.iter_batches(
            batch_size=min((rows, *sizes)),
            columns=stored,
            row_groups=[alone] if alone >= 0 else [group for group, *_ in several],
            use_threads=threads,
        )


def beyond(file: Any, group: int, widths: Mapping[str, int]) -> tuple[int, int, int]:
    """Return a row group's entries, bytes and records beyond the declaration."""
    about, spare, heavy = file.metadata.row_group(group), 0, 0
    count = int(about.num_rows)
    for at in range(about.num_columns):
        column = about.column(at)
        name = column.path_in_schema.split(".")[0]
        if name in widths:
            listed = file.schema.column(at).max_repetition_level > 0
            spare += max(0, int(column.num_values) - count * widths[name]) if listed else 0
            heavy += int(column.total_uncompressed_size)
    return spare, heavy, count


def unbounded_decode(spare: int, heavy: int, count: int) -> bool:
    """Return whether a row group exceeds its declaration."""
    return spare > _SPARE or heavy > max(_HEAVY, count << 20)


def too_heavy(file: Path) -> DataError:
    """Return the refusal of a file's oversized row group."""
    return DataError(
        "OS601",
        str(file),
        expected=f"at most {_SPARE:,} entries of lists beyond their declared "
        f"lengths, and {_HEAVY:,} bytes or 1 MiB a record, in each group of rows",
        got="more",
        hint="no part of a list or of a text can be read alone: shorten them, or write smaller groups.",
    )


@contextmanager
def open_part(
    arrow: Any, part: FilePart, texts: Sequence[str] = (), columns: int = 1
) -> Iterator[tuple[Any, FileState]]:
    """Open an unchanging file up to the last batch.

    The listed one if it is pinned. Columns of ``texts`` come as dictionaries, as they lie in the file.
    So many ``columns`` are read side by side.
    What was opened is looked at, not what the path leads to before or after.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra

    with pa.OSFile(os.fsencode(part.file)) as raw:
        state = file_state(raw.fileno())
        need_state(part.file, state, part.pinned)
        with arrow.ParquetFile(
            raw, pre_buffer=False, buffer_size=read_ahead(columns), read_dictionary=list(texts)
        ) as file:
            yield file, state
        need_state(part.file, file_state(raw.fileno()), state)


def read_ahead(columns: int) -> int:
    """Return the bytes to read at a time of one column."""
    return min(2**20, max(_LEAST_READ, _READ_AHEAD // columns))


def parquet_reader() -> Any:
    """Return pyarrow's reader, or refuse."""
    try:
        import pyarrow.parquet as arrow  # noqa: PLC0415 - an extra
    except ImportError:
        raise DataError(
            "OS606", "parquet", expected="pyarrow", got="no such package",
            hint="pip install 'opendp_sim[parquet]', or convert the file to .npz or .csv.",
        ) from None  # fmt: skip
    return arrow


# --------------------------------------------------------------------------------------------------


def parquet_source(place: FileOptions, records: Records) -> PieceSource:
    """Return a source over ``.parquet`` files.

    A file, a folder of them, or a pattern such as ``day-*.parquet``. A vector is a column of lists, or
    several columns of numbers as in a ``.csv``. Nulls and lists of another length are missing: the
    gate refuses them or drops the record. Files of a folder are read in the order of their paths, each
    with its own way to store a vector; a folder called ``year=2026`` gives its files a column
    ``year``. Names that begin with ``.`` or ``_`` are left out, as by other readers: of what is being
    written, or is about other files (but ``_year=2026`` is read). Nothing is read ahead: memory holds
    one page of each column and one batch.

    Raises:
        DataError (OS601): not a readable file, or no file. (OS602): no such column. (OS606): no pyarrow.
    """
    return parquet_of(place, records, _parts(place), threads=True)


def _names(
    place: FileOptions, part: FilePart, records: Records, known: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return a file's names of each column, or refuse it (OS602)."""
    try:
        return {c.name: stored_in(c, place.stored(c.name, known), known) for c in records.columns}
    except DataError as error:
        refused = error
    if part.file != place.file:
        given = ", ".join(part.keys) or "none"
        refused = refused.restated(
            where=f"{name_in(place, part.file)}: {refused.where}",
            got=f"no such column in this file, nor in the names of their folders ({given})",
            hint=f"a folder called `year=2026` gives its files a column `year`; {refused.hint}",
        )
    raise refused


def parquet_of(
    place: FileOptions, records: Records, parts: Sequence[FilePart], *, threads: bool = False
) -> PieceSource:
    """Return a source over parts of files, an engine's task.

    ``threads``: columns are decoded side by side, by threads of pyarrow's.
    """
    arrow = parquet_reader()
    length, weight, packed, listed = 0, 0, 0, []
    for part in parts:
        with _read(arrow, place, part) as (file, state):
            known = [*file.schema_arrow.names, *part.keys]
            names = _names(place, part, records, known)
            told = {n for c in records.columns if c.dtype == "str" or c.keys for n in names[c.name]}
            texts = plain_texts(file.schema_arrow, told)
            listed.append(replace(part, pinned=state, names=names, texts=texts))
            length += int(file.metadata.num_rows)
            weight += weight_of(file, {name for several in names.values() for name in several})
            packed += state[0]
    found = _Listed(arrow, place, records, listed)
    pieces = partial(found.pieces, listed, threads=threads)
    return PieceSource(records, pieces, length, found.form, weight, packed, found.cut)


@dataclass(frozen=True)
class _Listed:
    """Hold a source's listed parts and the stored columns."""

    arrow: Any
    place: FileOptions
    records: Records
    parts: list[FilePart]

    def _widths(self, part: FilePart) -> dict[str, int]:
        return {name: c.width for c in self.records.columns for name in part.names[c.name]}

    def _raw(self, part: FilePart, held: Mapping[str, Any]) -> Raw:
        """Return stored columns of a part as the columns of the records."""
        return {
            c.name: arrow_column(c, [held[n] for n in part.names[c.name]])
            for c in self.records.columns
        }

    def pieces(self, parts: Sequence[FilePart], rows: int, *, threads: bool) -> Iterator[Raw]:
        """Yield what parts hold, at most so many records at a time."""
        for part in parts:
            widths = self._widths(part)
            stored = [name for name in sorted(widths) if name not in part.keys]
            with _read(self.arrow, self.place, part, part.texts, len(stored)) as (file, _):
                none = no_rows(file.schema_arrow)  # their types are checked without records too
                found = batches(file, part, rows, stored, widths, threads=threads)
                yield from map(partial(self._raw_of, part, stored), chain([none], found))

    def _raw_of(self, part: FilePart, stored: Sequence[str], batch: Any) -> Raw:
        held = {n: batch.column(n) for n in stored} | part.columns(len(batch))
        return self._raw(part, held)

    def form(self) -> Raw:
        """Return the columns without records, as stored."""
        found = [self._form_of(part) for part in self.parts]
        if len(found) > 1:
            for part, one in zip(self.parts, found, strict=True):
                with naming(part.file, self.place):
                    formed(one, self.records)
        return found[0] if found else self.records.no_records()

    def _form_of(self, part: FilePart) -> Raw:
        with _read(self.arrow, self.place, part) as (file, _):
            stored = no_rows(file.schema_arrow)
            held = {n: stored.column(n) for n in self._widths(part) if n in stored.schema.names}
            return self._raw(part, part.columns(0) | held)

    def cut(self, workers: int) -> list[PieceSource] | None:
        """Return runs of row groups for threads, or None."""
        each = (_units(self.arrow, self.place, p, self._widths(p)) for p in self.parts)
        units = list(chain.from_iterable(each))
        runs = _runs(units, _TASKS * workers)
        busy = _gain([sum(weight for _, weight in run) for run in runs], workers)
        if busy < min(0.75 * workers, 2):
            return None
        some = (partial(self.pieces, _merged(run), threads=False) for run in runs)
        return [PieceSource(self.records, pieces, None) for pieces in some]


@contextmanager
def _read(
    arrow: Any, place: FileOptions, part: FilePart, texts: Sequence[str] = (), columns: int = 1
) -> Iterator[tuple[Any, FileState]]:
    """Open a part, reporting errors of the whole source."""
    with reading(place.file, "readable .parquet"), open_part(arrow, part, texts, columns) as found:
        yield found


_TASKS = 4
"""Runs of row groups for each thread: the last of them end at nearly the same time."""


def _units(
    arrow: Any, place: FileOptions, part: FilePart, widths: Mapping[str, int]
) -> list[tuple[FilePart, int]]:
    """Return a file's separately readable row groups, with records.

    A file that is not read to its end, or in which the refusal of one group comes before the reading of
    another, stays one: what is told of it must not depend on how it was cut.
    """
    try:
        with _read(arrow, place, part) as (file, _):
            groups = range(file.metadata.num_row_groups) if part.groups is None else part.groups
            told = [beyond(file, group, widths) for group in groups]
    except SimError:  # told where it is read, if nothing is told before
        return [(part, 1)]
    if not told or any(unbounded_decode(*one) for one in told):
        return [(part, sum(count for *_, count in told))]
    return [
        (replace(part, groups=[group]), count)
        for group, (*_, count) in zip(groups, told, strict=True)
    ]


def _runs(units: Sequence[tuple[FilePart, int]], count: int) -> list[list[tuple[FilePart, int]]]:
    """Return about ``count`` nearly equal runs of units."""
    total, seen, found = max(1, sum(weight for _, weight in units)), 0, []
    for part, weight in units:
        found.append((seen * count // total, (part, weight)))
        seen += weight
    return [[unit for _, unit in run] for _, run in groupby(found, lambda one: one[0])]


def _gain(weights: Sequence[int], workers: int) -> float:
    """Return the threads with work, on average."""
    busy = [0] * workers
    for weight in weights:
        at = busy.index(min(busy))
        busy[at] += weight
    return sum(weights) / max(1, *busy)


def _merged(run: Sequence[tuple[FilePart, int]]) -> list[FilePart]:
    """Merge a file's adjacent groups into one part."""
    found: list[FilePart] = []
    for part, _ in run:
        last = found[-1] if found else None
        if last is None or last.groups is None or part.groups is None or last.file != part.file:
            found.append(part)
        else:
            found[-1] = replace(last, groups=[*last.groups, *part.groups])
    return found


def parquet_parts(place: FileOptions, count: int) -> tuple[list[tuple[FilePart, ...]], int]:
    """Return about ``count`` equal pinned runs of row groups, and rows.

    Raises:
        DataError (OS601): not a readable file, or no file. (OS606): no pyarrow.
    """
    arrow = parquet_reader()
    found: list[tuple[FilePart, int]] = []
    for part in _parts(place):
        with _read(arrow, place, part) as (file, state):
            for group in range(file.metadata.num_row_groups):
                one = replace(part, groups=[group], pinned=state)
                found.append((one, int(file.metadata.row_group(group).num_rows)))
    return [tuple(_merged(run)) for run in _runs(found, count)], sum(rows for _, rows in found)


def _parts(place: FileOptions) -> list[FilePart]:
    """Return the files of a path, folder or pattern."""
    return [FilePart(path, keys) for path, keys in listed_files(place, "parquet")]
