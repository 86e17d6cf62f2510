"""Read ``.csv`` files, also compressed (``.gz``, ``.zst``).

Each cell on its own, in chunks where they are regular. A vector is either one column of JSON lists or
several columns of numbers: ``x_0 ... x_{d-1}``, or the ones named in the source's ``columns`` option.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice, repeat
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.domains.cell import DIGITS, object_array, reals, wholes
from opendp_sim.domains.encoded import ENCODED
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.columns import pyarrow
from opendp_sim.io.conform import ANY, missing_column
from opendp_sim.io.dialect import opened
from opendp_sim.io.file_spec import (
    NO_HEADER,
    At,
    FileOptions,
    FileState,
    hint_by_bytes,
    reading,
    same_file,
)
from opendp_sim.io.protocol import PieceSource, Raw

# --------------------------------------------------------------------------------------------------
# Lines for the csv module, none of them long: what one record can take of memory is bounded.
#
# A quoted cell may hold line ends, so an opened quote that is never closed would make the rest of a file
# one cell; and a line may be as long as its file. The csv module would hold either as a whole, and
# its own
# limit cuts a record in the middle and reads the rest as others. Here the text behind the limit is
# left out
# and what opens and closes quotes is kept, so the csv module finds the same records; the one that
# was cut is known, and counts as missing.

LONGEST_RECORD = 2**24
"""Characters of a record; a longer one is missing as a whole."""
_START, _BARE, _QUOTED, _CLOSED, _WRONG = range(5)
"""Where the csv module is: at the start of a cell, in one, in a quoted one, behind a quote, lost."""


class _Lines(Protocol):
    """What a text file is asked for."""

    def readline(self, size: int, /) -> str:
        """Return the next line, up to ``size`` characters."""


class ShortLines:
    """Yield a file's lines, cut where a record is too long.

    Args:
        file: text, opened with ``newline=""``.
        delimiter: what stands between cells, one character.
        longest: characters of a record.
        quote: what stands around a cell; None for nothing.
    """

    def __init__(
        self, file: _Lines, delimiter: str, longest: int = LONGEST_RECORD, quote: str | None = '"'
    ) -> None:
        self._file, self._delimiter, self._longest, self._quote = file, delimiter, longest, quote
        signs = re.escape((quote or "") + delimiter)
        self._marks = re.compile(f"[{signs}]|[^{signs}]+")
        self._kinds = {quote: "quote", delimiter: "delimiter"}
        self._told, self._cut = 0, False

    def __iter__(self) -> Iterator[str]:
        """Return itself."""
        return self

    def __next__(self) -> str:
        """Return the next line of a record, or its rest."""
        line = self._file.readline(self._longest)
        if not line:
            raise StopIteration
        size = len(line)
        self._told += size
        if self._told <= self._longest and (size < self._longest or _ends(line)):
            return line
        within = self._told > size
        return self._rest(line, _QUOTED if within else _START)

    @property
    def within(self) -> bool:
        """Whether a record has begun."""
        return self._told > 0

    def record_was_cut(self) -> bool:
        """Return whether the last record was cut, and begin a new one."""
        cut, self._told, self._cut = self._cut, 0, False
        return cut

    def _rest(self, piece: str, state: int) -> str:
        """Read a line to its end, and return a short one."""
        within, self._cut = state == _QUOTED, True
        while piece:
            state = self._after(piece, state)
            if _ends(piece):
                break
            piece = self._file.readline(self._longest)
        if state == _QUOTED:
            return "" if within else str(self._quote)
        return f"{self._quote}\n" if within else "x\n"

    def _after(self, piece: str, state: int) -> int:
        """Return the csv module's state behind a piece of a line."""
        for found in self._marks.finditer(piece.rstrip("\r\n") if _ends(piece) else piece):
            state = _NEXT[state][self._kinds.get(found[0], "text")]
        return state


def good_lines(lines: Iterator[list[str]], short: ShortLines) -> Iterator[list[str]]:
    """Yield one missing cell for a broken or long record."""
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except csv.Error:
            line = [""]
        yield [""] if short.record_was_cut() else line


_NEXT = (
    {"quote": _QUOTED, "delimiter": _START, "text": _BARE},
    {"quote": _BARE, "delimiter": _START, "text": _BARE},
    {"quote": _CLOSED, "delimiter": _QUOTED, "text": _QUOTED},
    {"quote": _QUOTED, "delimiter": _START, "text": _WRONG},
    {"quote": _WRONG, "delimiter": _WRONG, "text": _WRONG},
)
"""The csv module's table, by state and kind of character; a quote that is doubled is two."""


def _ends(line: str) -> bool:
    return line.endswith(("\n", "\r"))


# --------------------------------------------------------------------------------------------------
# A carriage return alone ends a line where it ends the header line (files of old Macs). Elsewhere it is a
# letter of its cell: writers whose lines end by a line feed do not quote it. The header is public, so
# it is no fact of a record which of the two holds: nobody makes two records of one (``ingest.md``).
# The csv module knows the first reading alone: for it the letter is written as a code that no decoded
# text holds, and read back in every cell.

_RETURN, _CODE = "\r", "\udc0d"
_ALONE = re.compile(r"\r(?!\n|\Z)")


class _Returns:
    """Read lines by line feeds, with lone carriage returns as codes."""

    def __init__(self, file: _Lines) -> None:
        self._file = file

    def readline(self, size: int) -> str:
        """Return the next line, up to ``size`` characters, or one more."""
        line = self._file.readline(size)
        if line.endswith(_RETURN):
            line += self._file.readline(1)
        return _ALONE.sub(_CODE, line) if _RETURN in line else line


def _returned(lines: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield records with their carriage returns."""
    for line in lines:
        yield [cell.replace(_CODE, _RETURN) for cell in line] if any(map(_coded, line)) else line


def _coded(cell: str) -> bool:
    return _CODE in cell


def keeps_returns(first: bytes, place: FileOptions) -> bool:
    """Return whether a lone carriage return is a letter of its cell.

    Args:
        first: the bytes of the file's header line, or more.
        place: the file; without a header line in it lines end by a line feed.
    """
    at = first.find(b"\r")
    feed = first.find(b"\n")
    return bool(place.dialect.header) or not 0 <= at < (feed - 1 if feed >= 0 else len(first))


# --------------------------------------------------------------------------------------------------
# Text files in chunks of whole lines: pyarrow reads regular ones, the csv module the odd ones.
#
# Both give the same cells (``tests/io/test_csv_chunks.py`` puts odd ones to both). A chunk without
# quotes, lone carriage returns and zero bytes is the same to every reader: lines are cut at their ends,
# and cells at the delimiter. pyarrow then makes numbers of it in one go. A number that pyarrow refuses or
# reads as none that is finite, or that is longer than a number may be, is read as a cell of text by
# ``domains.cell``, with its whole column; a line with another number of cells gives the whole chunk to
# the csv module. No odd cell is pyarrow's.

CHUNK = 2**20
"""Bytes read at a time."""
_DELIMITERS = ",;\t|"
_BOM = b"\xef\xbb\xbf"


class Chunks:
    """Yield a file's bytes in chunks of whole lines.

    The first chunk is the first line alone. A line that is longer than ``size`` comes in several
    chunks, of which ``regular`` is false.
    """

    def __init__(self, raw: io.BufferedReader, place: FileOptions, size: int = CHUNK) -> None:
        self._raw, self._place, self._size = raw, place, size
        self._rest, self._first, self._ended = b"", True, False
        self._keeps = keeps_returns(raw.peek(1), place)
        self._decoder = codecs.getincrementaldecoder("utf-8")(ANY)

    def __iter__(self) -> Iterator[bytes]:
        """Return itself."""
        return self

    def __next__(self) -> bytes:
        """Return the next lines."""
        if self._first:
            self._first = False
            found = self._raw.readline(self._size)
            if found:
                return found
        got = self._raw.read(self._size)
        self._ended = len(got) < self._size
        found = self._rest + got
        cut = found.rfind(b"\n") + 1
        if self._ended or not cut:
            cut = len(found)
        self._rest = found[cut:]
        if not found:
            raise StopIteration
        return found[:cut]

    def regular(self, chunk: bytes) -> bool:
        """Return whether every reader reads a chunk the same."""
        quote = self._place.dialect.mark
        return (
            self._place.delimiter in _DELIMITERS
            and not chunk.startswith(_BOM)  # pyarrow would leave it out
            and (quote is None or quote.encode() not in chunk)
            and b"\x00" not in chunk
            and chunk.count(b"\r") == chunk.count(b"\r\n")
            and (chunk.endswith(b"\n") or self._ended)
        )

    def lines(self, chunk: bytes) -> Iterator[list[str]]:
        """Yield a chunk's records, the last one completed, by the csv module."""
        ends = _line_ends(keeps=self._keeps)
        text = _Text(io.StringIO(self._decoder.decode(chunk), newline=ends), self._more, ends)
        records, short = _records(text, self._place, keeps=self._keeps)
        text.within = lambda: short.within
        return records

    def _more(self) -> str:
        chunk = next(self, None)
        return self._decoder.decode(chunk or b"", chunk is None)


@dataclass
class _Text:
    """Yield lines of one chunk and the rest of its last record."""

    held: io.StringIO
    more: Callable[[], str]
    ends: str
    within: Callable[[], bool] = bool

    def readline(self, size: int) -> str:
        """Return the next line, up to ``size`` characters."""
        line = self.held.readline(size)
        marks = ("\n",) if self.ends else ("\n", "\r")
        while len(line) < size and not line.endswith(marks) and (line or self.within()):
            more = self.more()
            if not more:
                break
            self.held = io.StringIO(more, newline=self.ends)
            line += self.held.readline(size - len(line))
        return line


def _records(
    file: _Lines, place: FileOptions, *, keeps: bool
) -> tuple[Iterator[list[str]], ShortLines]:
    """Return a text's records by the csv module, and their lines."""
    quote = place.dialect.mark
    short = ShortLines(_Returns(file) if keeps else file, place.delimiter, quote=quote)
    how: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if quote is None else {"quotechar": quote}
    lines = good_lines(csv.reader(short, delimiter=place.delimiter, strict=True, **how), short)
    return (_returned(lines) if keeps else lines), short


def _line_ends(*, keeps: bool) -> str:
    """Return the `newline` of Python that keeps line ends."""
    return "\n" if keeps else ""


# --- by pyarrow -----------------------------------------------------------------------------------


def fast_cells(
    chunk: bytes, delimiter: str, cells: int, kinds: dict[int, str]
) -> dict[int, NDArray[Any]] | None:
    """Return a regular chunk's cells by place, None for another.

    Args:
        chunk: whole lines.
        delimiter: between cells.
        cells: a line's.
        kinds: place to what is read there: ``text``, ``real`` or ``whole``: shape (n,) of objects, as the
            csv module gives them, float64 or int64.
    """
    plain = not (b"0x" in chunk or b"0X" in chunk)  # pyarrow reads them as numbers of base 16
    types = {"text": "string", "real": "float64", "whole": "int64" if plain else "string"}
    table = None
    if not _has_long(chunk, delimiter):
        table = _read(chunk, delimiter, cells, {at: types[kind] for at, kind in kinds.items()})
    if table is not None:
        found = {at: _numbers(table.column(f"c{at}"), kind) for at, kind in kinds.items()}
        if all(values is not None for values in found.values()):
            return found  # type: ignore[return-value]
    table = _read(chunk, delimiter, cells, dict.fromkeys(kinds, "string"))
    if table is None:
        return None
    return {at: _cells(table.column(f"c{at}"), kind, plain=plain) for at, kind in kinds.items()}


def _has_long(chunk: bytes, delimiter: str) -> bool:
    """Return whether a cell is longer than any number."""
    marks, at = (delimiter.encode(), b"\n"), 0
    while at < len(chunk) - DIGITS:
        found = max(chunk.rfind(mark, at, at + DIGITS + 1) for mark in marks)
        if found < 0:
            return True
        at = found + 1
    return False


def _read(chunk: bytes, delimiter: str, cells: int, types: dict[int, str]) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import csv as arrow  # noqa: PLC0415 - an extra

    names = [f"c{at}" for at in range(cells)]
    try:
        return arrow.read_csv(
            pa.BufferReader(chunk),
            read_options=arrow.ReadOptions(
                column_names=names, use_threads=False, block_size=len(chunk) + 1
            ),
            parse_options=arrow.ParseOptions(
                delimiter=delimiter, quote_char=False, ignore_empty_lines=True
            ),
            convert_options=arrow.ConvertOptions(
                column_types={names[at]: kind for at, kind in types.items()},
                include_columns=[names[at] for at in types],
                null_values=[],
                strings_can_be_null=False,
                check_utf8=True,
            ),
        )
    except pa.ArrowInvalid:
        return None


def _numbers(column: Any, kind: str) -> NDArray[Any] | None:
    """Return a number column, or None if one is invalid."""
    if kind == "text" or str(column.type) == "string":
        cells = column.to_pylist()
        return object_array(cells) if kind == "text" else wholes(cells)
    parts = [np.from_dlpack(chunk) for chunk in column.chunks]  # no cell is null
    numbers = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return numbers if kind == "whole" or np.isfinite(numbers).all() else None


def _cells(column: Any, kind: str, *, plain: bool) -> NDArray[Any]:
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import compute  # noqa: PLC0415 - an extra

    longest = compute.max(compute.binary_length(column)).as_py() or 0
    if longest <= DIGITS and (kind == "real" or (kind == "whole" and plain)):
        try:
            numbers = _numbers(column.cast("float64" if kind == "real" else "int64"), kind)
        except pa.ArrowInvalid:
            numbers = None
        if numbers is not None:
            return numbers
    cells = column.to_pylist()
    return object_array(cells) if kind == "text" else (reals if kind == "real" else wholes)(cells)


# --------------------------------------------------------------------------------------------------

_CELLS = 2**17
"""Cells of text held at a time; a Python string costs ten times what its number does."""
_TEXT = 2**26
"""Characters of text held at a time."""
_UTF16 = tuple(mark.decode("utf-8", ANY) for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
"""What the first bytes of a file in UTF-16 are, read as UTF-8."""
_LONGEST = 2**31 - 1
"""Characters of a cell. The csv module stops at fewer, and would then read the rest as records."""


def csv_source(place: FileOptions, records: Records) -> PieceSource:
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
        lines = csv_records(place, raw)
        _check_header(csv_header(place, lines), place, records)
    return PieceSource(records, pieces, packed=state[0])


@dataclass(frozen=True)
class _Layout:
    """Hold every declared column's place in a line, by the header."""

    place: FileOptions
    records: Records
    places: dict[str, list[int]]
    cells: int | None
    """Of a line; None in a file without a header, whose lines are read by place alone."""

    @property
    def wanted(self) -> list[int]:
        """Return the places that are read, in order."""
        return sorted({at for several in self.places.values() for at in several})

    def picked(self, line: list[str]) -> list[str]:
        """Return the wanted cells of a line, empty if it is unfit."""
        cells = self.place.dialect.cells(line, self.cells)
        if cells is None:
            return [""] * len(self.wanted)
        return [cells[at] if at < len(cells) else "" for at in self.wanted]

    def kinds(self) -> dict[int, str] | None:
        """Return each place's kind of cell; None where two columns read one."""
        found = {at: self._kind(c) for c in self.records.columns for at in self.places[c.name]}
        return None if len(found) < sum(map(len, self.places.values())) else found

    def _kind(self, column: Column) -> str:
        if self.place.dialect.writes_numbers or self.is_text(column):
            return "text"
        return "real" if column.numpy_dtype.kind == "f" else "whole"

    def is_text(self, column: Column) -> bool:
        """Return whether a column's cells are no single numbers."""
        text = column.dtype in ("str", *ENCODED) or column.keys
        return bool(text or (column.is_vector and len(self.places[column.name]) == 1))

    def column(self, column: Column, parts: list[Any]) -> NDArray[Any]:
        """Return a column from its cells, or those of its entries."""
        dialect = self.place.dialect
        if dialect.writes_numbers:
            read = dialect.text if self.is_text(column) else dialect.number
            parts = [list(map(read, part)) for part in parts]
        if len(parts) == 1:
            return parts[0] if isinstance(parts[0], np.ndarray) else object_array(parts[0])
        if not isinstance(parts[0], np.ndarray):
            numbers = reals if column.numpy_dtype.kind == "f" else wholes
            parts = [numbers(part) for part in parts]
        return np.stack(parts, axis=1)


def layout_of(place: FileOptions, records: Records, header: list[str] | None) -> _Layout:
    """Return the declared columns' places, or refuse the header (OS602)."""
    places = {c.name: _places(c, place, header) for c in records.columns}
    return _Layout(place, records, places, None if header is None else len(header))


def csv_header(place: FileOptions, lines: Iterator[list[str]]) -> list[str] | None:
    """Return the names, declared or in the first line, or None."""
    declared = place.dialect.header
    if isinstance(declared, str):
        return None
    return list(declared) or next(lines, [])


def header_line(place: FileOptions) -> list[str]:
    """Return the names in a file's header line, without blanks around."""
    with reading(place.file, "readable .csv"), same_file(place.file) as (raw, _):
        return [name.strip() for name in csv_header(place, csv_records(place, raw)) or ()]


def _by_lines(
    place: FileOptions, records: Records, rows: int, state: FileState = ()
) -> Iterator[Raw]:
    """Read a file by the csv module, the reference."""
    with same_file(place.file, state) as (raw, _):
        lines = csv_records(place, raw)
        yield from _pieces(lines, rows, layout_of(place, records, csv_header(place, lines)))


def _by_chunks(
    place: FileOptions, records: Records, rows: int, size: int = CHUNK, state: FileState = ()
) -> Iterator[Raw]:
    """Read regular chunks by pyarrow, others by the csv module."""
    csv.field_size_limit(_LONGEST)
    with same_file(place.file, state) as (raw, _):
        chunks = Chunks(_unpacked(place, raw), place, size)
        first = chunks.lines(next(chunks, b""))
        layout = layout_of(place, records, csv_header(place, first))
        kinds = layout.kinds()
        yield from _pieces(first, rows, layout)
        for chunk in chunks:
            found = None
            if kinds is not None and layout.cells is not None and chunks.regular(chunk):
                found = fast_cells(chunk, place.delimiter, layout.cells, kinds)
            if found is None:
                yield from _pieces(chunks.lines(chunk), rows, layout)
            else:
                yield {
                    c.name: layout.column(c, [found[at] for at in layout.places[c.name]])
                    for c in records.columns
                }


def _is_large(place: FileOptions) -> bool:
    """Say whether a file is worth pyarrow, and pyarrow is there."""
    return place.file.stat().st_size >= CHUNK and find_spec("pyarrow") is not None


def _pieces(lines: Iterator[list[str]], rows: int, layout: _Layout) -> Iterator[Raw]:
    count = max(1, min(rows, _CELLS // max(layout.cells or len(layout.wanted), 1)))
    while piece := _piece(lines, count, layout):
        yield piece


def _piece(lines: Iterator[list[str]], count: int, layout: _Layout) -> Raw:
    """Read up to ``count`` lines, empty at the end.

    The text is gone when this returns. Fewer where they are long: of a line only the cells of declared
    columns are kept, and what is kept stays below ``_TEXT`` characters and one line.
    """
    kept: list[list[str]] = []
    size, read = 0, False
    for row in islice(lines, count):
        read = True
        if row:  # the csv module gives [] for an empty line
            kept.append(layout.picked(row))
            size += sum(map(len, kept[-1]))
        if size > _TEXT:
            break
    cells = map(list, zip(*kept, strict=True)) if kept else repeat([])
    columns = dict(zip(layout.wanted, cells, strict=False))
    return {
        c.name: layout.column(c, [columns[at] for at in layout.places[c.name]])
        for c in layout.records.columns
        if read
    }


def csv_records(place: FileOptions, raw: IO[bytes]) -> Iterator[list[str]]:
    """Yield a text file's records by the csv module, as they stand."""
    csv.field_size_limit(_LONGEST)  # of the whole process; there is no other way
    text = _unpacked(place, raw)
    keeps = keeps_returns(text.peek(1), place)
    ends = _line_ends(keeps=keeps)
    file = io.TextIOWrapper(text, encoding="utf-8", errors=ANY, newline=ends)
    return _records(file, place, keeps=keeps)[0]


def _unpacked(place: FileOptions, raw: IO[bytes]) -> io.BufferedReader:
    """Return a file's text in UTF-8 from its header line on."""
    return opened(decompressed(place, raw), place.dialect, place.delimiter)


def decompressed(place: FileOptions, raw: IO[bytes]) -> IO[bytes]:
    """Return a file's bytes, unpacked if named ``.gz`` or ``.zst``."""
    packed = place.file.suffix.lower()
    if packed == ".gz":
        raw = io.BufferedReader(gzip.GzipFile(fileobj=raw))
    elif packed == ".zst":
        arrow = pyarrow()
        raw = arrow.CompressedInputStream(arrow.PythonFile(raw), "zstd")
    return raw


def _check_header(header: list[str] | None, place: FileOptions, records: Records) -> None:
    """Refuse headers without declared columns, naming those like records (OS602)."""
    try:
        layout_of(place, records, header)
    except DataError as error:
        if header is not None and not place.dialect.header and _has_numbers(header, place):
            hint = "write a first line with the names of the columns, or list them in the source's"
            error.restated(got=NO_HEADER, hint=f"{hint} `header`.").alone()
        foreign = hint_by_bytes(place.file, ".csv")
        if foreign is not None and place.file.suffix.lower() not in (".gz", ".zst"):
            error = DataError(
                "OS601", str(place.file), expected="a .csv file", got="a file of another kind",
                hint=foreign,
            )  # fmt: skip
        first = "".join((header or [])[:1])
        if foreign is None and (
            first.startswith(_UTF16) or first.count("\x00") * 3 > len(first) > 0
        ):
            hint = "write `encoding: utf-16` beside its `file`."
            error = error.restated(got="a file in UTF-16", hint=hint)
        error.alone()


def _has_numbers(header: list[str], place: FileOptions) -> bool:
    """Return whether a cell of a header line is a number."""
    own = filter(None, map(place.dialect.number, header))
    return bool(np.isfinite(reals([*header, *own])).any())


def _places(column: Column, place: FileOptions, header: list[str] | None) -> list[int]:
    """Return the places of a column's cells in a line."""
    known = [name.strip() for name in header or ()]
    stored = place.stored(column.name, known)
    if isinstance(stored, tuple):
        names = list(stored)
    elif isinstance(stored, At) or stored in known or not column.is_vector:
        names = [stored]
    else:
        names = [f"{stored}_{entry}" for entry in range(column.width)]
    numbered = {str(at) for at in range(1, len(known) + 1)}
    if len(names) not in (1, column.width) or not all(
        (header is None or name in numbered) if isinstance(name, At) else name in known
        for name in names
    ):
        raise missing_column(column.name, _headers(column))
    if any(known.count(name) > 1 for name in names if not isinstance(name, At)):
        raise DataError(
            "OS602", f"column {column.name}", expected="a header of this name", got="several",
            hint=f"rename them in the file, or write a place: columns: {{{column.name}: {{at: 3}}}}.",
        )  # fmt: skip
    return [int(name) - 1 if isinstance(name, At) else known.index(name) for name in names]


def _headers(column: Column) -> str:
    """Return the headers that a column may have."""
    if not column.is_vector:
        return f"a header `{column.name}`"
    last = column.width - 1
    return (
        f"headers `{column.name}_0` to `{column.name}_{last}`, or one header `{column.name}` over lists "
        f"[..], or columns: {{{column.name}: [names of {column.width} headers]}}"
    )
