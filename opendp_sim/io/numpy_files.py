"""Read ``.npy`` and ``.npz`` files in slices.

No array is ever in memory as a whole.

numpy maps an ``.npy`` file into memory (whose pages count as the process's own) and unpacks a member
of an ``.npz`` as a whole; here both are read as streams of rows.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.core.system.npy import header_of
from opendp_sim.domains.records import Records
from opendp_sim.io.conform import missing_column
from opendp_sim.io.file_spec import FileOptions, reading, same_file
from opendp_sim.io.protocol import PieceSource, Raw

_SLICE = 2**26
"""Bytes of one array that are held at a time, unless one record alone has more."""
_RECORD = 2**30
"""Bytes of one record of one array: a wider one is refused by its header."""


@dataclass(frozen=True)
class _Stream:
    """An open ``.npy`` stream behind its header."""

    file: IO[bytes]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def open(cls, file: IO[bytes], where: Path) -> _Stream:
        _, shape, columns_first, dtype = header_of(file)
        if dtype.hasobject or columns_first or not shape:
            raise DataError(
                "OS601", str(where), expected="a plain array in C order, one row a record",
                got="pickled objects, Fortran order or a single number",
                hint="save np.ascontiguousarray(array) of a numeric or text dtype.",
            )  # fmt: skip
        found = cls(file, shape, dtype)
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
        for start in range(0, max(self.shape[0], 1), rows):  # without records too: for their dtype
            count = min(rows, self.shape[0] - start)
            size = count * self.record
            data = self.file.read(size)
            if len(data) < size:
                raise EOFError
            yield np.frombuffer(data, dtype=self.dtype).reshape(count, *self.shape[1:])


def npz_source(place: FileOptions, records: Records) -> PieceSource:
    """Return a source over an ``.npz`` file.

    One member for each declared column.

    Raises:
        DataError (OS601): not a readable file of plain arrays. (OS602): a column has no member.
    """
    members = {column.name: str(place.stored(column.name)) for column in records.columns}

    def opened(stack: ExitStack, raw: IO[bytes]) -> dict[str, _Stream]:
        archive = stack.enter_context(zipfile.ZipFile(raw))
        known = set(archive.namelist())
        streams = {}
        for name, member in members.items():
            if f"{member}.npy" not in known:
                raise missing_column(name)
            file = stack.enter_context(archive.open(f"{member}.npy"))
            streams[name] = _Stream.open(file, place.file)
        if len({stream.shape[0] for stream in streams.values()}) > 1:
            raise DataError(
                "OS602", str(place.file), expected="arrays of one length", got="several lengths",
                hint="every column needs one row a record.",
            )  # fmt: skip
        return streams

    def pieces(rows: int) -> Iterator[Raw]:
        with (
            reading(place.file, "complete .npz"),
            same_file(place.file, state) as (raw, _),
            ExitStack() as stack,
        ):
            streams = opened(stack, raw)
            count = min((stream.at_once(rows) for stream in streams.values()), default=rows)
            slices = [stream.slices(count) for stream in streams.values()]
            for arrays in zip(*slices, strict=True):
                yield dict(zip(streams, arrays, strict=True))

    with (
        reading(place.file, "complete .npz"),
        same_file(place.file) as (raw, state),
        ExitStack() as stack,
    ):
        streams = opened(stack, raw)
        form = {name: np.empty((0, *s.shape[1:]), dtype=s.dtype) for name, s in streams.items()}
        length = next((s.shape[0] for s in streams.values()), 0)
        weight = sum(length * stream.record for stream in streams.values())
    return PieceSource(records, pieces, length, lambda: form, weight, state[0])


def npy_source(place: FileOptions, records: Records) -> PieceSource:
    """Return a source over one ``.npy`` file.

    A table of fields, or numbers side by side.

    A structured array gives its fields by name; a plain array of shape (n, total width) gives the
    declared columns in order.

    Raises:
        DataError (OS601): not a readable file of one plain array. (OS602): missing fields, or another
            total width.
    """

    def opened(raw: IO[bytes]) -> _Stream:
        stream = _Stream.open(raw, place.file)
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
    if array.dtype.names is not None:
        fields = {column.name: str(place.stored(column.name)) for column in records.columns}
        for name, field in fields.items():
            if field not in array.dtype.names:
                raise missing_column(name)
        return {name: array[field] for name, field in fields.items()}
    return stack_columns(array, str(place.file), records)


def stack_columns(array: NDArray[Any], where: str, records: Records) -> Raw:
    """Return the columns of an array (n, total width).

    The declared columns, in order.

    Raises:
        DataError (OS602): another total width.
    """
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
