"""``.csv`` files, also gzipped: each cell on its own, in chunks where they are regular (``chunks``).

A vector is either one column of JSON lists or several columns of numbers: ``x_0 ... x_{d-1}``, or the
ones named in the source's ``columns`` option.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice, repeat
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.sources.chunks import CHUNK, Chunks, fast_cells
from opendp_sim.sources.conform import ANY, missing_column
from opendp_sim.sources.lines import ShortLines, good_lines
from opendp_sim.sources.place import Place, State, reading, same_file
from opendp_sim.sources.source import Raw, Table
from opendp_sim.spaces.cell import reals, wholes
from opendp_sim.spaces.encoded import ENCODED
from opendp_sim.spaces.records import Column, Records

__all__ = ["NO_HEADER", "csv_source"]

_CELLS = 2**17
"""Cells of text held at a time; a Python string costs ten times what its number does."""
_TEXT = 2**26
"""Characters of text held at a time."""
NO_HEADER = "a first line with a number in it, which is no header"
"""What is told of a file whose first line could be a record: it counts, as what records do does."""
_LONGEST = 2**31 - 1
"""Characters of a cell. The csv module stops at fewer, and would then read the rest as records."""


def csv_source(place: Place, records: Records) -> Table:
    """Return a source over a text file with a header line.

    A cell that is no number, and every cell of a line with too few cells or a misplaced quote, is
    missing: the gate refuses it or drops the record. Bytes that are no UTF-8 stay as they are.

    Raises:
        DataError (OS601): not a readable file. (OS602): the header lacks a declared column.
    """

    def pieces(rows: int) -> Iterator[Raw]:
        with reading(place.file, "readable .csv"):
            read = _by_chunks if _is_large(place) else _by_lines
            yield from read(place, records, rows, state=state)

    with reading(place.file, "readable .csv"), same_file(place.file) as (raw, state):
        lines = _lines(place, raw)
        header = next(lines, [])
        _check_header(header, place, records)
    return Table(records, pieces, packed=state[0])


def _by_lines(place: Place, records: Records, rows: int, state: State = ()) -> Iterator[Raw]:
    """Read a file by the csv module: what every other way must agree with."""
    with same_file(place.file, state) as (raw, _):
        lines = _lines(place, raw)
        header = next(lines, [])
        places = {c.name: _places(c, place, header) for c in records.columns}
        yield from _pieces(lines, records, rows, places, len(header))


def _by_chunks(
    place: Place, records: Records, rows: int, size: int = CHUNK, state: State = ()
) -> Iterator[Raw]:
    """Read a file by pyarrow where a chunk of it is regular, else by the csv module."""
    csv.field_size_limit(_LONGEST)
    with same_file(place.file, state) as (raw, _):
        chunks = Chunks(_unpacked(place, raw), place.delimiter, size)
        first = chunks.lines(next(chunks, b""))
        header = next(first, [])
        places = {c.name: _places(c, place, header) for c in records.columns}
        kinds = {at: _kind(c, places[c.name]) for c in records.columns for at in places[c.name]}
        shared = len(kinds) < sum(map(len, places.values()))  # a header that two columns read
        yield from _pieces(first, records, rows, places, len(header))
        for chunk in chunks:
            found = None
            if chunks.regular(chunk) and not shared:
                found = fast_cells(chunk, place.delimiter, len(header), kinds)
            if found is None:
                lines = chunks.lines(chunk)
                yield from _pieces(lines, records, rows, places, len(header))
            else:
                yield {
                    c.name: _joined([found[at] for at in places[c.name]]) for c in records.columns
                }


def _is_large(place: Place) -> bool:
    """Say whether a file is worth pyarrow, and pyarrow is there."""
    return place.file.stat().st_size >= CHUNK and find_spec("pyarrow") is not None


def _kind(column: Column, places: list[int]) -> str:
    """Say how a column's cells are read: a list of numbers is text here."""
    text = column.dtype in ("str", *ENCODED) or column.keys
    if text or (column.is_vector and len(places) == 1):
        return "text"
    return "real" if column.numpy_dtype.kind == "f" else "whole"


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=1)


def _pieces(
    lines: Iterator[list[str]],
    records: Records,
    rows: int,
    places: dict[str, list[int]],
    cells: int,
) -> Iterator[Raw]:
    count = max(1, min(rows, _CELLS // max(cells, 1)))
    while piece := _piece(lines, count, records, places, cells):
        yield piece


def _piece(
    lines: Iterator[list[str]],
    count: int,
    records: Records,
    places: dict[str, list[int]],
    cells: int,
) -> Raw:
    """Read up to ``count`` lines; nothing at the end. The text is gone when this returns.

    Fewer where they are long: of a line only the cells of declared columns are kept, and what is kept
    stays below ``_TEXT`` characters and one line.
    """
    wanted = sorted({at for several in places.values() for at in several})
    none = [""] * len(wanted)  # a line with another number of cells has none in a known place
    kept: list[list[str]] = []
    size, read = 0, False
    for row in islice(lines, count):
        read = True
        if row:  # the csv module gives [] for an empty line
            kept.append([row[at] for at in wanted] if len(row) == cells else none)
            size += sum(map(len, kept[-1]))
        if size > _TEXT:
            break
    columns = dict(
        zip(wanted, map(list, zip(*kept, strict=True)) if kept else repeat([]), strict=False)
    )
    return {
        c.name: _column(c, [columns[at] for at in places[c.name]]) for c in records.columns if read
    }


def _column(column: Column, parts: list[list[str]]) -> NDArray[Any]:
    """Return a column's cells as text; a vector that has a cell for each entry as numbers."""
    if len(parts) == 1:
        return np.array(parts[0], dtype=object)
    read = reals if column.numpy_dtype.kind == "f" else wholes
    return np.stack([read(part) for part in parts], axis=1)


def _lines(place: Place, raw: IO[bytes]) -> Iterator[list[str]]:
    csv.field_size_limit(_LONGEST)  # of the whole process; there is no other way
    file = io.TextIOWrapper(_unpacked(place, raw), encoding="utf-8-sig", errors=ANY, newline="")
    short = ShortLines(file, place.delimiter)
    return good_lines(csv.reader(short, delimiter=place.delimiter, strict=True), short)


def _unpacked(place: Place, raw: IO[bytes]) -> IO[bytes]:
    return io.BufferedReader(gzip.GzipFile(fileobj=raw)) if place.file.suffix == ".gz" else raw


def _check_header(header: list[str], place: Place, records: Records) -> None:
    """Refuse a header that lacks a declared column; and say so if it could be a record (OS602)."""
    try:
        for column in records.columns:
            _places(column, place, header)
    except DataError as error:
        if np.isfinite(reals(header)).any():
            error = DataError(
                error.code, error.where, expected=error.expected, got=NO_HEADER,
                hint="write a first line with the names of the columns.",
            )  # fmt: skip
        error.alone()


def _places(column: Column, place: Place, header: Sequence[str]) -> list[int]:
    """Return where in a line the column's cells are: one, or one for each entry of a vector."""
    stored = place.stored(column.name)
    if isinstance(stored, tuple):
        names = list(stored)
    elif stored in header or not column.is_vector:
        names = [stored]
    else:
        names = [f"{stored}_{entry}" for entry in range(column.width)]
    known = [name.strip() for name in header]
    if not all(name in known for name in names) or len(names) not in (1, column.width):
        raise missing_column(column.name, _headers(column))
    if any(known.count(name) > 1 for name in names):
        raise DataError(
            "OS602",
            f"column {column.name}",
            expected="a header of this name",
            got="several",
            hint="rename them in the file.",
        )
    return [known.index(name) for name in names]


def _headers(column: Column) -> str:
    """Say what headers a column can have: public declarations."""
    if not column.is_vector:
        return f"a header `{column.name}`"
    last = column.width - 1
    return (
        f"headers `{column.name}_0` to `{column.name}_{last}`, or one header `{column.name}` over lists "
        f"[..], or columns: {{{column.name}: [names of {column.width} headers]}}"
    )
