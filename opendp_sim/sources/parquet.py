"""``.parquet`` files, through pyarrow (the extra ``parquet``), a batch of records at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from opendp_sim.core.errors import DataError
from opendp_sim.sources.arrow import column_of, stored_in
from opendp_sim.sources.place import Place, check_state, reading, state_of
from opendp_sim.sources.source import Raw, Table
from opendp_sim.spaces.records import Records

__all__ = ["Part", "parquet_of", "parquet_parts", "parquet_source"]

_PAGE = 2**20
"""Bytes that the reader of one column asks for at a time."""
_SPARE = 2**25
"""Entries of lists beyond their declared length that a group of rows may hold: Arrow reads no part of a
list, and needs 16 bytes for each."""
_HEAVY = 2**28
"""Bytes of one batch, on average, and of the columns of a group whose records are of over 1 MiB each."""


def parquet_source(place: Place, records: Records) -> Table:
    """Return a source over a ``.parquet`` file, a folder of them, or a pattern such as ``day-*.parquet``.

    A vector is a column of lists, or several columns of numbers as in a ``.csv``. Nulls and lists of
    another length are missing: the gate refuses them or drops the record. Files of a folder are read
    in the order of their paths; a folder called ``year=2026`` gives its files a column ``year``.
    Nothing is read ahead: memory holds one page of each column and one batch.

    Raises:
        DataError (OS601): not a readable file, or no file. (OS602): no such column. (OS606): no pyarrow.
    """
    return parquet_of(place, records, _parts(place))


def parquet_of(place: Place, records: Records, parts: Sequence[Part]) -> Table:
    """Return a source over some parts of the files: what one task of an engine reads."""
    arrow = _pyarrow()
    length, weight, packed, names, listed = 0, 0, 0, {}, []
    for part in parts:
        with reading(place.file, "readable .parquet"), _opened(arrow, part) as file:
            state = part.pinned or state_of(part.file)
            known = [*file.schema_arrow.names, *part.keys]
            names = {c.name: stored_in(c, place.stored(c.name), known) for c in records.columns}
            told = {n for c in records.columns if c.dtype == "str" for n in names[c.name]}
            listed.append(replace(part, pinned=state, texts=_plain_texts(file.schema_arrow, told)))
            length += int(file.metadata.num_rows)
            weight += _weight(file, {name for several in names.values() for name in several})
            packed += part.file.stat().st_size
    wanted = sorted({name for several in names.values() for name in several})

    def pieces(rows: int) -> Iterator[Raw]:
        for part in listed:
            with reading(place.file, "readable .parquet"), _opened(arrow, part, part.texts) as file:
                stored = [name for name in wanted if name not in part.keys]
                none = (
                    file.schema_arrow.empty_table()
                )  # without records too: their types are checked
                lists = {n: c.width for c in records.columns for n in names[c.name]}
                for batch in chain([none], _batches(file, part, rows, stored, lists)):
                    held = {n: batch.column(n) for n in stored} | part.columns(len(batch))
                    yield {
                        c.name: column_of(c, [held[n] for n in names[c.name]])
                        for c in records.columns
                    }

    def form() -> Raw:
        if not listed:
            return records.no_records()
        with reading(place.file, "readable .parquet"), _opened(arrow, listed[0]) as file:
            stored = file.schema_arrow.empty_table()
            held = {n: stored.column(n) for n in wanted if n in stored.schema.names}
            held |= {n: c for n, c in listed[0].columns(0).items() if n not in held}
            return {c.name: column_of(c, [held[n] for n in names[c.name]]) for c in records.columns}

    return Table(records, pieces, length, form, weight, packed)


def parquet_parts(place: Place, count: int) -> tuple[list[tuple[Part, ...]], int]:
    """Return about ``count`` runs of row groups of nearly equal size, pinned, and the number of rows.

    Raises:
        DataError (OS601): not a readable file, or no file. (OS606): no pyarrow.
    """
    arrow = _pyarrow()
    found: list[tuple[Part, int]] = []
    for part in _parts(place):
        with reading(place.file, "readable .parquet"), _opened(arrow, part) as file:
            state = state_of(part.file)
            for group in range(file.metadata.num_row_groups):
                one = replace(part, groups=[group], pinned=state)
                found.append((one, int(file.metadata.row_group(group).num_rows)))
    total, runs, seen = sum(rows for _, rows in found), [], 0
    for part, rows in found:
        at = seen * count // max(total, 1)
        runs.append((at, part))
        seen += rows
    return [tuple(p for _, p in run) for _, run in groupby(runs, lambda one: one[0])], total


@dataclass(frozen=True)
class Part:
    """One file or some row groups of it, and what the names of its folders say about all its records."""

    file: Path
    keys: Mapping[str, str]
    groups: list[int] | None = None
    """Which row groups; None for all."""
    pinned: tuple[int, int] | None = None
    """Size and time of the last change of the file that was listed: another one is refused."""

    texts: tuple[str, ...] = ()
    """Columns of plain texts, which are read as dictionaries."""

    def columns(self, rows: int) -> dict[str, Any]:
        """Return the columns that the folders' names stand for."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        return {name: pa.repeat(pa.scalar(value), rows) for name, value in self.keys.items()}


def _parts(place: Place) -> list[Part]:
    """Return the files that a path, a folder or a pattern stands for, in the order of their paths."""
    root = place.file
    if root.is_dir():
        files = sorted(path for path in root.rglob("*.parquet") if path.is_file())
    elif any(sign in root.name for sign in "*?[") and not root.exists():
        root = root.parent
        files = sorted(path for path in root.glob(place.file.name) if path.is_file())
    else:
        return [Part(root, {})]
    if not files:
        raise DataError(
            "OS601", str(place.file), expected="at least one .parquet file", got="none",
            hint="check the folder or the pattern; it is relative to the spec.",
        )  # fmt: skip
    return [Part(path, _keys(path.relative_to(root).parts[:-1])) for path in files]


def _keys(folders: tuple[str, ...]) -> dict[str, str]:
    named = (folder.partition("=") for folder in folders)
    return {unquote(name): unquote(value) for name, sign, value in named if sign}


def _plain_texts(schema: Any, names: set[str]) -> tuple[str, ...]:
    """Return which of the columns are texts by their type, not lists or numbers written in bytes."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    kinds = {field.name: field.type for field in schema if field.name in names}
    return tuple(n for n, k in kinds.items() if types.is_string(k) or types.is_large_string(k))


def _weight(file: Any, names: set[str]) -> int:
    """Return the bytes that columns take unpacked, as the file says: of a list all its entries."""
    found, schema = 0, file.schema
    columns = [at for at in range(len(schema)) if schema.column(at).path.split(".")[0] in names]
    for group in range(file.metadata.num_row_groups):
        for at in columns:
            about = file.metadata.row_group(group).column(at)
            found += max(int(about.total_uncompressed_size), 8 * int(about.num_values))
    return found


def _batches(
    file: Any, part: Part, rows: int, stored: list[str], widths: Mapping[str, int]
) -> Iterator[Any]:
    """Yield batches that fit into memory by what the footer says; groups with long lists one by one.

    Raises:
        DataError (OS601): a group holds too much that is beyond its declaration, or too heavy records.
    """
    groups = range(file.metadata.num_row_groups) if part.groups is None else part.groups
    told = [(group, *_beyond(file, group, widths)) for group in groups]
    for alone, run in groupby(told, lambda one: one[0] if one[1] else -1):
        several = list(run)
        for _, spare, heaviest, count in several:
            if spare > _SPARE or heaviest > max(_HEAVY, count << 20):
                raise _too_heavy(part.file)
        size = min(max(1, _HEAVY * count // max(heavy, 1)) for *_, heavy, count in several)
        yield from file.iter_batches(
            batch_size=min(rows, size),
            columns=stored,
            row_groups=[alone] if alone >= 0 else [group for group, *_ in several],
        )


def _beyond(file: Any, group: int, widths: Mapping[str, int]) -> tuple[int, int, int]:
    """Return of a group of rows: entries beyond those of lists as declared, bytes, and records."""
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


def _too_heavy(file: Path) -> DataError:
    return DataError(
        "OS601",
        str(file),
        expected=f"at most {_SPARE:,} entries of lists beyond their declared "
        f"lengths, and {_HEAVY:,} bytes or 1 MiB a record, in each group of rows",
        got="more",
        hint="no part of a list or of a text can be read alone: shorten them, or write smaller groups.",
    )


@contextmanager
def _opened(arrow: Any, part: Part, texts: Sequence[str] = ()) -> Iterator[Any]:
    """Open a file that stays the same, the one that was listed if it is pinned, up to the last batch.

    Columns of ``texts`` come as dictionaries, as they lie in the file.
    """
    state = part.pinned or state_of(part.file)
    check_state(part.file, state)
    with arrow.ParquetFile(
        part.file, pre_buffer=False, buffer_size=_PAGE, read_dictionary=list(texts)
    ) as file:
        yield file
    check_state(part.file, state)


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet as arrow  # noqa: PLC0415 - an extra
    except ImportError:
        raise DataError(
            "OS606", "parquet", expected="pyarrow", got="no such package",
            hint="pip install 'opendp_sim[parquet]', or convert the file to .npz or .csv.",
        ) from None  # fmt: skip
    return arrow
