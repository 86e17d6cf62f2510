"""``.parquet`` files, through pyarrow (the extra ``parquet``), a batch of records at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from opendp_sim.core.errors import DataError
from opendp_sim.sources.arrow import column_of, stored_in
from opendp_sim.sources.place import Place, reading
from opendp_sim.sources.source import Raw, Table
from opendp_sim.spaces.records import Records

__all__ = ["parquet_source"]

_PAGE = 2**20
"""Bytes that the reader of one column asks for at a time."""


def parquet_source(place: Place, records: Records) -> Table:
    """Return a source over a ``.parquet`` file, a folder of them, or a pattern such as ``day-*.parquet``.

    A vector is a column of lists, or several columns of numbers as in a ``.csv``. Nulls and lists of
    another length are missing: the gate refuses them or drops the record. Files of a folder are read
    in the order of their paths; a folder called ``year=2026`` gives its files a column ``year``.
    Nothing is read ahead: memory holds one page of each column and one batch.

    Raises:
        DataError (OS601): not a readable file, or no file. (OS602): no such column. (OS606): no pyarrow.
    """
    arrow = _pyarrow()
    parts = _parts(place)
    length = 0
    for part in parts:
        with reading(place.file, "readable .parquet"), _opened(arrow, part) as file:
            known = [*file.schema_arrow.names, *part.keys]
            names = {c.name: stored_in(c, place.stored(c.name), known) for c in records.columns}
            length += int(file.metadata.num_rows)
    wanted = sorted({name for several in names.values() for name in several})

    def pieces(rows: int) -> Iterator[Raw]:
        for part in parts:
            with reading(place.file, "readable .parquet"), _opened(arrow, part) as file:
                stored = [name for name in wanted if name not in part.keys]
                none = (
                    file.schema_arrow.empty_table()
                )  # without records too: their types are checked
                for batch in chain([none], file.iter_batches(batch_size=rows, columns=stored)):
                    held = {n: batch.column(n) for n in stored} | part.columns(len(batch))
                    yield {
                        c.name: column_of(c, [held[n] for n in names[c.name]])
                        for c in records.columns
                    }

    def form() -> Raw:
        with reading(place.file, "readable .parquet"), _opened(arrow, parts[0]) as file:
            stored = file.schema_arrow.empty_table()
            held = {n: stored.column(n) for n in wanted if n in stored.schema.names}
            held |= {n: c for n, c in parts[0].columns(0).items() if n not in held}
            return {c.name: column_of(c, [held[n] for n in names[c.name]]) for c in records.columns}

    return Table(records, pieces, length, form)


@dataclass(frozen=True)
class _Part:
    """One file, and what the names of its folders say about all its records."""

    file: Path
    keys: Mapping[str, str]

    def columns(self, rows: int) -> dict[str, Any]:
        """Return the columns that the folders' names stand for."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        return {name: pa.repeat(pa.scalar(value), rows) for name, value in self.keys.items()}


def _parts(place: Place) -> list[_Part]:
    """Return the files that a path, a folder or a pattern stands for, in the order of their paths."""
    root = place.file
    if root.is_dir():
        files = sorted(path for path in root.rglob("*.parquet") if path.is_file())
    elif any(sign in root.name for sign in "*?[") and not root.exists():
        root = root.parent
        files = sorted(path for path in root.glob(place.file.name) if path.is_file())
    else:
        return [_Part(root, {})]
    if not files:
        raise DataError(
            "OS601", str(place.file), expected="at least one .parquet file", got="none",
            hint="check the folder or the pattern; it is relative to the spec.",
        )  # fmt: skip
    return [_Part(path, _keys(path.relative_to(root).parts[:-1])) for path in files]


def _keys(folders: tuple[str, ...]) -> dict[str, str]:
    named = (folder.partition("=") for folder in folders)
    return {unquote(name): unquote(value) for name, sign, value in named if sign}


def _opened(arrow: Any, part: _Part) -> Any:
    return arrow.ParquetFile(part.file, pre_buffer=False, buffer_size=_PAGE)


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet as arrow  # noqa: PLC0415 - an extra
    except ImportError:
        raise DataError(
            "OS606", "parquet", expected="pyarrow", got="no such package",
            hint="pip install 'opendp_sim[parquet]', or convert the file to .npz or .csv.",
        ) from None  # fmt: skip
    return arrow
