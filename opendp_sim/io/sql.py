"""Read a query's result of a DuckDB or SQLite file, in blocks.

The file is opened to be read only, and the query reaches nothing else: ``ingest.md``, "Databases".
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from opendp_sim.core.errors import DataError
from opendp_sim.domains.cell import object_array
from opendp_sim.domains.records import Records
from opendp_sim.io.arrow import arrow_column, stored_in
from opendp_sim.io.conform import ANY
from opendp_sim.io.file_spec import (
    FileOptions,
    FileState,
    file_state,
    need_state,
    reading,
    same_file,
)
from opendp_sim.io.protocol import PieceSource, Raw

_SQLITE, _DUCKDB = b"SQLite format 3\x00", b"DUCK"
_ALONE = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
    "temp_directory": "",
    "threads": "1",
}
"""Of DuckDB: no other file, no extension, nothing written, one order of rows."""
_CELLS = 2**17
"""Cells without a type held at a time."""
_ALLOWED = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)
"""What a query may do in SQLite."""


def sql_source(place: FileOptions, records: Records) -> PieceSource:
    """Return a source over the rows of a query's result.

    Each row is a record. A query runs afresh for every pass. One that gives other rows the second time
    is refused: order them by a key, and use no random numbers and no clock.

    Raises:
        DataError (OS601): not a readable database, or not one query that reads. (OS602): the result
            lacks a declared column. (OS606): no DuckDB.
    """
    with reading(place.file, "readable DuckDB or SQLite"), same_file(place.file) as (raw, state):
        head = raw.read(16)
    if head != _SQLITE and head[8:12] != _DUCKDB:
        raise DataError(
            "OS601", str(place.file), expected="a file of DuckDB or SQLite", got="another one",
            hint="other files have kinds of their own: csv, parquet, arrow, jsonl.",
        )  # fmt: skip
    opener = _opened_sqlite if head == _SQLITE else _opened_duckdb
    with _asked(place, state), opener(place.file) as (names, _):
        known = names(f"SELECT * FROM (\n{place.query}\n)")  # noqa: S608 - the spec's own, read only
    parts = {c.name: stored_in(c, place.stored(c.name, known), known) for c in records.columns}
    wanted = list(dict.fromkeys(name for several in parts.values() for name in several))
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)
    once = _Repeated(str(place.file))

    def pieces(rows: int) -> Iterator[Raw]:
        text = f"SELECT {quoted} FROM (\n{place.query}\n)"  # noqa: S608 - as above
        with _asked(place, state), opener(place.file) as (_, batches):
            yield from once.compared(
                {
                    c.name: arrow_column(c, [batch[name] for name in parts[c.name]])
                    for c in records.columns
                }
                for batch in batches(text, wanted, rows)
            )

    return PieceSource(records, pieces)


_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
    "AND name NOT LIKE 'sqlite_%' ORDER BY name",
    "duckdb": "SELECT table_name AS name FROM information_schema.tables "
    "WHERE table_schema = 'main' ORDER BY table_name",
}


def tables_of(file: Path) -> dict[str, list[str]]:
    """Return a database's tables and their columns, which are its public form.

    Raises:
        DataError (OS601): not a readable database. (OS606): no DuckDB.
    """
    with reading(file, "readable DuckDB or SQLite"), same_file(file) as (raw, _):
        kind = "sqlite" if raw.read(16) == _SQLITE else "duckdb"
    opener = _opened_sqlite if kind == "sqlite" else _opened_duckdb
    with reading(file, "readable DuckDB or SQLite"), opener(file) as (names, batches):
        parts = (batch["name"] for batch in batches(_TABLES[kind], ["name"], 1000))
        found = [str(name) for part in parts for name in part.tolist()]
        quoted = ((name, '"' + name.replace('"', '""') + '"') for name in found)
        return {name: names(f"SELECT * FROM {as_told}") for name, as_told in quoted}  # noqa: S608 - quoted


@contextmanager
def _asked(place: FileOptions, state: FileState) -> Iterator[None]:
    """Replace a database's words, and refuse a file that was changed meanwhile."""
    hint = "ask it the query in its own program: one SELECT, of tables and columns that are there."
    with reading(place.file, "database", hint):
        need_state(place.file, file_state(place.file), state)
        yield
        need_state(place.file, file_state(place.file), state)


Names = Callable[[str], list[str]]
Batches = Callable[[str, list[str], int], Iterator[Mapping[str, Any]]]


@contextmanager
def _opened_duckdb(file: Path) -> Iterator[tuple[Names, Batches]]:
    """Yield functions for a query's names and batches in DuckDB."""
    try:
        library = import_module("duckdb")
    except ImportError:
        raise DataError(
            "OS606", "sql", expected="duckdb", got="no such package", hint="pip install duckdb.",
        ) from None  # fmt: skip
    with closing(library.connect(str(file), read_only=True, config=dict(_ALONE))) as held:

        def batches(text: str, wanted: list[str], rows: int) -> Iterator[Mapping[str, Any]]:
            asked = held.sql(text)
            open_reader = getattr(asked, "to_arrow_reader", None) or asked.fetch_arrow_reader
            reader = open_reader(rows)
            for batch in reader:
                for start in range(0, batch.num_rows, rows):
                    part = batch.slice(start, rows)
                    yield {name: part.column(at) for at, name in enumerate(wanted)}

        yield lambda text: list(held.sql(text).columns), batches


@contextmanager
def _opened_sqlite(file: Path) -> Iterator[tuple[Names, Batches]]:
    """Yield functions for a SQLite query's names and batches, by cells' types."""
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as held:
        held.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
        )
        held.text_factory = lambda raw: raw.decode("utf-8", ANY)

        def names(text: str) -> list[str]:
            return [column[0] for column in held.execute(f"{text} LIMIT 0").description]

        def batches(text: str, wanted: list[str], rows: int) -> Iterator[Mapping[str, Any]]:
            cursor = held.execute(text)
            count = max(1, min(rows, _CELLS // max(len(wanted), 1)))
            while found := cursor.fetchmany(count):
                columns = zip(*found, strict=True)
                yield {n: object_array(c) for n, c in zip(wanted, columns, strict=True)}

        yield names, batches


@dataclass
class _Repeated:
    """Compare a later pass over a query's rows with the first one.

    What the first pass found out of the records (that they pass the gate, how many rows a person has)
    is used for those of the later ones.
    """

    where: str
    first: list[bytes] = field(default_factory=list)

    def compared(self, pieces: Iterator[dict[str, Any]]) -> Iterator[Raw]:
        """Yield the pieces; refuse another result at the end (OS601)."""
        hashes: dict[str, Any] = {}
        for piece in pieces:
            for name, cells in piece.items():
                told = hashes.setdefault(name, hashlib.blake2b(digest_size=32))
                told.update(_content(cells))
            yield piece
        found = [one.digest() for one in hashes.values()]
        if self.first and found != self.first:
            raise DataError(
                "OS601", self.where, expected="a query that gives the same rows each time",
                got="other rows the second time",
                hint="order them by a key (order by id), and use no random numbers and no clock.",
            )  # fmt: skip
        self.first = found


def _content(cells: np.ndarray[Any, Any]) -> bytes:
    """Return a column's content, the same however it is cut."""
    if cells.dtype == object:
        return "".join(f"{cell!r}\n" for cell in cells.tolist()).encode("utf-8", "surrogatepass")
    return np.ascontiguousarray(cells).tobytes()
