"""``.csv`` files, also gzipped: read line by line, each cell on its own.

A vector is either one column of JSON lists or several columns of numbers: ``x_0 ... x_{d-1}``, or the
ones named in the source's ``columns`` option.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.sources.conform import missing_column, numbers_of
from opendp_sim.sources.place import Place, reading
from opendp_sim.sources.source import Raw, Table
from opendp_sim.spaces.records import Column, Records

__all__ = ["csv_source"]

_CELLS = 2**17
"""Cells of text held at a time; a Python string costs ten times what its number does."""
_ANY = "surrogateescape"
"""Any bytes are text, and other bytes another text: one odd cell may not stop the run."""
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
        with reading(place.file, "readable .csv"), _lines(place) as lines:
            header = next(lines, [])
            places = {c.name: _places(c, place, header) for c in records.columns}
            count = max(1, min(rows, _CELLS // max(len(header), 1)))
            while piece := _piece(lines, count, records, places, len(header)):
                yield piece

    with reading(place.file, "readable .csv"), _lines(place) as lines:
        header = next(lines, [])
        for column in records.columns:
            _places(column, place, header)
    return Table(records, pieces)


def _piece(
    lines: Iterator[list[str]],
    count: int,
    records: Records,
    places: dict[str, list[int]],
    cells: int,
) -> Raw:
    """Read ``count`` lines; nothing at the end. The text is gone when this returns."""
    read = list(islice(lines, count))
    rows = [row for row in read if row]  # the csv module gives [] for an empty line
    return {c.name: _column(c, rows, places[c.name], cells) for c in records.columns if read}


@contextmanager
def _lines(place: Place) -> Iterator[Iterator[list[str]]]:
    csv.field_size_limit(_LONGEST)  # of the whole process; there is no other way
    with _open(place) as file:
        yield _good_lines(csv.reader(file, delimiter=place.delimiter, strict=True))


def _good_lines(lines: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield one missing cell for a line whose quotes are wrong: it costs that line only."""
    while True:
        try:
            yield next(lines)
        except StopIteration:
            return
        except csv.Error:
            yield [""]


def _open(place: Place) -> IO[str]:
    if place.file.suffix == ".gz":
        return gzip.open(place.file, "rt", encoding="utf-8-sig", errors=_ANY, newline="")
    return place.file.open(encoding="utf-8-sig", errors=_ANY, newline="")


def _places(column: Column, place: Place, header: Sequence[str]) -> list[int]:
    """Return where in a line the column's cells are: one, or one for each entry of a vector."""
    stored = place.stored(column.name)
    if isinstance(stored, tuple):
        names = list(stored)
    elif stored in header or not column.is_vector:
        names = [stored]
    else:
        names = [f"{stored}_{entry}" for entry in range(column.width)]
    at = {name.strip(): i for i, name in enumerate(header)}
    if not all(name in at for name in names) or len(names) not in (1, column.width):
        raise missing_column(column.name, _headers(column))
    return [at[name] for name in names]


def _headers(column: Column) -> str:
    """Say what headers a column can have: public declarations."""
    if not column.is_vector:
        return f"a header `{column.name}`"
    last = column.width - 1
    return (
        f"headers `{column.name}_0` to `{column.name}_{last}`, or one header `{column.name}` over lists "
        f"[..], or columns: {{{column.name}: [names of {column.width} headers]}}"
    )


def _column(column: Column, rows: list[list[str]], places: list[int], cells: int) -> NDArray[Any]:
    # A line with another number of cells has no cell in a known place: all of it is missing.
    text = [
        np.array([row[at].strip() if len(row) == cells else "" for row in rows], dtype=str)
        for at in places
    ]
    if not column.is_vector:
        if column.keys or column.dtype == "str":
            return text[0]
        return numbers_of(text[0], whole=column.dtype == "int64")
    whole = column.numpy_dtype.kind in "iu"
    if len(places) == column.width > 1:
        return np.stack([numbers_of(part, whole=whole) for part in text], axis=1)
    return _lists(text[0], column.width, whole=whole)


def _lists(cells: NDArray[np.str_], width: int, *, whole: bool) -> NDArray[Any]:
    """Read JSON lists of ``width`` numbers (or one bare number); all else is missing."""
    out = np.empty((len(cells), width), dtype=np.int64 if whole else np.float64)
    for row, cell in enumerate(cells):
        try:
            values = json.loads(cell)
        except (ValueError, RecursionError):
            values = None
        if isinstance(values, int | float):
            values = [values]
        good = isinstance(values, list) and len(values) == width
        text = [_text(v) for v in values] if good else [""] * width
        out[row] = numbers_of(np.array(text, dtype=str), whole=whole)
    return out


def _text(value: object) -> str:
    return repr(value) if isinstance(value, int | float) else ""
