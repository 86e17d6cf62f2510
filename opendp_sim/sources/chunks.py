"""Text files in chunks of whole lines: pyarrow reads regular ones, the csv module the odd ones.

Both give the same cells (``tests/sources/test_csv_chunks.py`` puts odd ones to both). A chunk without
quotes, lone carriage returns and zero bytes is the same to every reader: lines are cut at their ends,
and cells at the delimiter. pyarrow then makes numbers of it in one go. A number that pyarrow refuses or
reads as none that is finite, or that is longer than a number may be, is read as a cell of text by
``spaces.cell``, with its whole column; a line with another number of cells gives the whole chunk to the
csv module. No odd cell is pyarrow's.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.sources.conform import ANY
from opendp_sim.sources.lines import ShortLines, good_lines
from opendp_sim.spaces.cell import DIGITS, boxed, reals, wholes

__all__ = ["CHUNK", "Chunks", "fast_cells"]

CHUNK = 2**20
"""Bytes read at a time."""
_DELIMITERS = ",;\t|"
_BOM = b"\xef\xbb\xbf"


class Chunks:
    """A file's bytes as chunks of whole lines; the first chunk is the first line alone.

    A line that is longer than ``size`` comes in several chunks, of which ``regular`` is false.
    """

    def __init__(self, raw: IO[bytes], delimiter: str, size: int = CHUNK) -> None:
        self._raw, self._delimiter, self._size = raw, delimiter, size
        self._rest, self._first, self._ended = b"", True, False
        self._decoder = codecs.getincrementaldecoder("utf-8")(ANY)

    def __iter__(self) -> Iterator[bytes]:
        """Return itself."""
        return self

    def __next__(self) -> bytes:
        """Return the next lines; the last chunk of a file may end without a line's end."""
        if self._first:
            self._first = False
            found = self._raw.readline(self._size).removeprefix(_BOM)
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
        """Say whether lines and cells of a chunk are the same to every reader."""
        return (
            self._delimiter in _DELIMITERS
            and not chunk.startswith(_BOM)  # pyarrow would leave it out
            and b'"' not in chunk
            and b"\x00" not in chunk
            and chunk.count(b"\r") == chunk.count(b"\r\n")
            and (chunk.endswith(b"\n") or self._ended)
        )

    def lines(self, chunk: bytes) -> Iterator[list[str]]:
        """Yield the records that begin in ``chunk``, by the csv module; takes more if one goes on."""
        text = _Text(io.StringIO(self._decoder.decode(chunk), newline=""), self._more)
        short = ShortLines(text, self._delimiter)
        text.within = lambda: short.within
        return good_lines(csv.reader(short, delimiter=self._delimiter, strict=True), short)

    def _more(self) -> str:
        chunk = next(self, None)
        return self._decoder.decode(chunk or b"", chunk is None)


@dataclass
class _Text:
    """Lines of one chunk, and of the next ones as long as a record is not complete."""

    held: io.StringIO
    more: Callable[[], str]
    within: Callable[[], bool] = bool

    def readline(self, size: int) -> str:
        """Return the next line, up to ``size`` characters."""
        line = self.held.readline(size)
        while len(line) < size and not line.endswith(("\n", "\r")) and (line or self.within()):
            more = self.more()
            if not more:
                break
            self.held = io.StringIO(more, newline="")
            line += self.held.readline(size - len(line))
        return line


# --- by pyarrow -----------------------------------------------------------------------------------


def fast_cells(
    chunk: bytes, delimiter: str, cells: int, kinds: dict[int, str]
) -> dict[int, NDArray[Any]] | None:
    """Return the cells of a regular chunk, by place in the line; None where a line is odd.

    Args:
        chunk: whole lines.
        delimiter: between cells.
        cells: a line's.
        kinds: place to what is read there: ``text``, ``real`` or ``whole``.

    Returns:
        Per place shape (n,): float64, int64, or text as objects, as the csv module gives them.
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
    """Say whether a cell has more bytes than a number may have characters."""
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
    """Return a column as it was read; None for a number that is none that is finite."""
    if kind == "text" or str(column.type) == "string":
        cells = column.to_pylist()
        return boxed(cells) if kind == "text" else wholes(cells)
    numbers: NDArray[Any] = column.to_numpy()
    return numbers if kind == "whole" or np.isfinite(numbers).all() else None


def _cells(column: Any, kind: str, *, plain: bool) -> NDArray[Any]:
    """Return a column of text in its kind; odd columns are read cell by cell."""
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
    return boxed(cells) if kind == "text" else (reals if kind == "real" else wholes)(cells)
