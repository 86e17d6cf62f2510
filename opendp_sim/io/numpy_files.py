"""Read ``.npy`` and ``.npz`` files in slices.

No array is ever in memory as a whole. numpy maps an ``.npy`` file into memory (whose pages count as
the process's own) and unpacks a member of an ``.npz`` as a whole; here both are read as streams of
rows.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import numpy._core as npy_core
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.core.system.npy import header_of
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.arrow import arrow_column, stored_in
from opendp_sim.io.file_spec import FileOptions, reading, same_file
from opendp_sim.io.protocol import PieceSource, Raw

_SLICE = 2**26
"""Bytes of one array that are held at a time, unless one record alone has more."""
_RECORD = 2**30
"""Bytes of one record of one array: a wider one is refused by its header."""
_WHOLE = 2**30
"""Bytes of what can only be read as a whole: objects, and packed columns in Fortran order."""


@dataclass(frozen=True)
class _Stream:
    """An open ``.npy`` stream behind its header."""

    file: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    columns_first: bool = False

    @classmethod
    def open(cls, file: IO[bytes], where: Path, size: int, *, packed: bool = False) -> _Stream:
        """Read a header and ``size`` bytes, ``packed`` if slow to seek."""
        _, shape, columns_first, dtype = header_of(file)
        columns_first = columns_first and len(shape) > 1
        if not shape:
            raise DataError(
                "OS601", str(where), expected="arrays with one row a record",
                got="a single number", hint="save an array.",
            )  # fmt: skip
        whole = dtype.hasobject or (columns_first and packed)
        if (whole and size > _WHOLE) or (dtype.hasobject and (len(shape) > 1 or dtype.names)):
            raise DataError(
                "OS601", str(where),
                expected=f"numbers and texts in C order, or one label a record as objects, "
                f"of at most {_WHOLE:,} bytes",
                got="other objects, or more in Fortran order or as objects",
                hint="save np.ascontiguousarray(array) of a numeric or text dtype.",
            )  # fmt: skip
        if whole and not dtype.hasobject:
            file = io.BytesIO(file.read())
        found = cls(file, shape, dtype, columns_first)
        if found.record > _RECORD:
            raise DataError(
                "OS601", str(where), expected=f"records of at most {_RECORD:,} bytes in each array",
                got="wider ones", hint="save text as an array of its longest entry's width.",
            )  # fmt: skip
        return found

    @property
    def record(self) -> int:
        """Bytes of one record."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def at_once(self, rows: int) -> int:
        """Return a slice's number of records."""
        return max(1, min(rows, _SLICE // max(self.record, 1)))

    def slices(self, rows: int) -> Iterator[NDArray[Any]]:
        labels = _labels(self.file, self.shape[0]) if self.dtype.hasobject else None
        first = self.file.tell() if self.columns_first else 0
        for start in range(0, max(self.shape[0], 1), rows):  # without records too: for their dtype
            count = min(rows, self.shape[0] - start)
            if labels is not None:
                yield labels[start : start + count]
            elif self.columns_first:
                yield self._of_columns(first, start, count)
            else:
                array = np.frombuffer(self._read(count * self.record), dtype=self.dtype)
                yield array.reshape(count, *self.shape[1:])

    def _of_columns(self, first: int, start: int, count: int) -> NDArray[Any]:
        """Return records of an array whose columns lie one after another."""
        size, width = self.dtype.itemsize, math.prod(self.shape[1:])
        found = np.empty((count, width), dtype=self.dtype)
        for at in range(width):
            self.file.seek(first + (at * self.shape[0] + start) * size)
            found[:, at] = np.frombuffer(self._read(count * size), dtype=self.dtype)
        return found.reshape(count, *self.shape[1:], order="F")

    def _read(self, size: int) -> bytes:
        data = self.file.read(size)
        if len(data) < size:
            raise EOFError
        return data


class _LabelsOnly(pickle.Unpickler):
    """Unpickle arrays of texts and numbers alone; no code runs."""

    _known: ClassVar[dict[str, Any]] = {
        "_reconstruct": npy_core.multiarray._reconstruct,  # noqa: SLF001 - as numpy's pickles name it
        "scalar": npy_core.multiarray.scalar,
        "ndarray": np.ndarray,
        "dtype": np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return one of numpy's own parts of an array, or refuse."""
        if module.partition(".")[0] == "numpy" and name in self._known:
            return self._known[name]
        raise pickle.UnpicklingError


def _labels(file: IO[bytes], count: int) -> NDArray[Any]:
    """Return an array of labels, which are objects."""
    found = _LabelsOnly(file).load()
    if type(found) is not np.ndarray or found.dtype != object or found.shape != (count,):
        raise EOFError
    return found


def npz_source(place: FileOptions, records: Records) -> PieceSource:
    """Return a source over an ``.npz`` file, a member a column.

    A vector may have one for each entry. Labels may be objects.

    Raises:
        DataError (OS601): not a readable file of plain arrays. (OS602): a column has no member.
    """

    def opened(stack: ExitStack, raw: IO[bytes]) -> tuple[dict[str, _Stream], dict[str, Any]]:
        archive = stack.enter_context(zipfile.ZipFile(raw))
        known = [name.removesuffix(".npy") for name in archive.namelist()]
        parts = {c.name: stored_in(c, place.stored(c.name, known), known) for c in records.columns}
        streams = {}
        for member in dict.fromkeys(name for names in parts.values() for name in names):
            about = archive.getinfo(f"{member}.npy")
            file = stack.enter_context(archive.open(about))
            streams[member] = _Stream.open(file, place.file, about.file_size, packed=True)
        if len({stream.shape[0] for stream in streams.values()}) > 1:
            raise DataError(
                "OS602", str(place.file), expected="arrays of one length", got="several lengths",
                hint="every column needs one row a record.",
            )  # fmt: skip
        return streams, parts

    def columns(arrays: dict[str, NDArray[Any]], parts: dict[str, Any]) -> Raw:
        return {
            c.name: _column(c, [arrays[name] for name in parts[c.name]]) for c in records.columns
        }

    def pieces(rows: int) -> Iterator[Raw]:
        with (
            reading(place.file, "complete .npz"),
            same_file(place.file, state) as (raw, _),
            ExitStack() as stack,
        ):
            streams, parts = opened(stack, raw)
            count = min((stream.at_once(rows) for stream in streams.values()), default=rows)
            slices = [stream.slices(count) for stream in streams.values()]
            for arrays in zip(*slices, strict=True):
                yield columns(dict(zip(streams, arrays, strict=True)), parts)

    with (
        reading(place.file, "complete .npz"),
        same_file(place.file) as (raw, state),
        ExitStack() as stack,
    ):
        streams, parts = opened(stack, raw)
        empty = {name: np.empty((0, *s.shape[1:]), dtype=s.dtype) for name, s in streams.items()}
        form = columns(empty, parts)
        length = next((s.shape[0] for s in streams.values()), 0)
        weight = sum(length * stream.record for stream in streams.values())
    return PieceSource(records, pieces, length, lambda: form, weight, state[0])


def npy_source(place: FileOptions, records: Records) -> PieceSource:
    """Return a source over one ``.npy`` file.

    A table of fields, or numbers side by side. A structured array gives its fields by name; a plain
    array of shape (n, total width) gives the declared columns in order.

    Raises:
        DataError (OS601): not a readable file of one plain array. (OS602): missing fields, or another
            total width.
    """

    def opened(raw: IO[bytes]) -> _Stream:
        stream = _Stream.open(raw, place.file, place.file.stat().st_size)
        _split(np.empty((0, *stream.shape[1:]), dtype=stream.dtype), place, records)
        return stream

    def pieces(rows: int) -> Iterator[Raw]:
        with reading(place.file, "complete .npy"), same_file(place.file, state) as (raw, _):
            stream = opened(raw)
            for array in stream.slices(stream.at_once(rows)):
                yield _split(array, place, records)

    with reading(place.file, "complete .npy"), same_file(place.file) as (raw, state):
        stream = opened(raw)
        form = _split(np.empty((0, *stream.shape[1:]), dtype=stream.dtype), place, records)
    return PieceSource(records, pieces, stream.shape[0], lambda: form)


def _split(array: NDArray[Any], place: FileOptions, records: Records) -> Raw:
    known = array.dtype.names
    if known is not None:
        parts = {c: stored_in(c, place.stored(c.name, known), known) for c in records.columns}
        return {c.name: _column(c, [array[n] for n in names]) for c, names in parts.items()}
    return stack_columns(array, str(place.file), records)


def _column(column: Column, parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else arrow_column(column, parts)


def stack_columns(array: NDArray[Any], where: str, records: Records) -> Raw:
    """Return an array's declared columns in order, of the right width (OS602)."""
    flat = array.reshape(len(array), math.prod(array.shape[1:]))
    if flat.shape[1] != sum(column.width for column in records.columns):
        raise DataError(
            "OS602", where, expected="as many numbers a row as the columns declare",
            got="another width", hint="declare them in the order of the table, or by name.",
        )  # fmt: skip
    out, start = {}, 0
    for column in records.columns:
        part = flat[:, start : start + column.width]
        out[column.name] = part if column.is_vector else part[:, 0]
        start += column.width
    return out
