"""``.csv`` files, also gzipped: read line by line, each cell on its own.

A vector is either one column of JSON lists or several columns of numbers: ``x_0 ... x_{d-1}``, or the
ones named in the source's ``columns`` option.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.sources.conform import missing_column
from opendp_sim.sources.lines import ShortLines
from opendp_sim.sources.place import Place, reading
from opendp_sim.sources.source import Raw, Table
from opendp_sim.spaces.cell import reals, wholes
from opendp_sim.spaces.records import Column, Records

__all__ = ["csv_source"]

_CELLS = 2**17
"""Cells of text held at a time; a Python string costs ten times what its number does."""
_ANY = "surrogateescape"
"""Any bytes are text, and other bytes another text: one odd cell may not stop the run."""
_TEXT = 2**26
"""Characters of text held at a time."""
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


@contextmanager
def _lines(place: Place) -> Iterator[Iterator[list[str]]]:
    csv.field_size_limit(_LONGEST)  # of the whole process; there is no other way
    with _open(place) as file:
        short = ShortLines(file, place.delimiter)
        yield _good_lines(csv.reader(short, delimiter=place.delimiter, strict=True), short)


def _good_lines(lines: Iterator[list[str]], short: ShortLines) -> Iterator[list[str]]:
    """Yield one missing cell for a record whose quotes are wrong, or that is too long to hold."""
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except csv.Error:
            line = [""]
        yield [""] if short.record_was_cut() else line


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
