"""Encode session entries as integers and plain arrays, without pickle."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.session.identity import damaged
from opendp_sim.core.errors import refusing
from opendp_sim.core.system.npy import arrays_of, header_of

Payload = Mapping[str, NDArray[Any]]
_RECORD, _SMALL = b"\x93NUMPY", 2**20
"""How a record begins; bytes up to which arrays are one."""
PurseCharge = tuple[NDArray[np.int64], NDArray[np.int64]]


def packed_charges(charges: Sequence[PurseCharge]) -> tuple[bytes, bytes]:
    """Add up the charges of each person."""
    if not charges:
        return b"", b""
    if len(charges) == 1 and (np.diff(charges[0][0]) > 0).all():  # as of one question
        return tuple(part.astype("<i8").tobytes() for part in charges[0])  # type: ignore[return-value]
    who, place = np.unique(np.concatenate([c[0] for c in charges]), return_inverse=True)
    units = np.zeros(len(who), dtype=np.int64)
    np.add.at(units, place, np.concatenate([c[1] for c in charges]))
    return who.astype("<i8").tobytes(), units.astype("<i8").tobytes()


class LatePayload(Mapping[str, NDArray[Any]]):
    """Hold a payload that is unpacked at first use, if ever."""

    def __init__(self, blob: bytes) -> None:
        self._blob = blob

    @cached_property
    def _arrays(self) -> Payload:
        return unpacked_arrays(self._blob)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return one array."""
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._arrays)

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._arrays)


def packed_arrays(payload: Payload) -> bytes:
    """Return arrays as bytes, small ones as one record.

    That takes a seventh of the time of an archive, which others are.
    """
    sizes = [array.nbytes for array in payload.values()]
    with io.BytesIO() as out:
        if sizes and min(sizes) > 0 and sum(sizes) <= _SMALL:
            kind = np.dtype([(name, array.dtype, array.shape) for name, array in payload.items()])
            record = np.empty((), dtype=kind)
            for name, array in payload.items():
                record[name] = array
            np.save(out, record, allow_pickle=False)
        else:
            np.savez(out, allow_pickle=False, **payload)
        return out.getvalue()


def _of_record(blob: bytes) -> Payload:
    stream = io.BytesIO(blob)
    version, shape, _, kind = header_of(stream)
    rest = stream.read()
    if version != (1, 0) or shape != () or not kind.names or kind.hasobject:
        raise ValueError("a record")
    if len(rest) != kind.itemsize:
        raise ValueError("its length")
    record = np.frombuffer(rest, dtype=kind)[0]
    return {name: np.array(record[name]) for name in kind.names}


def unpacked_arrays(blob: bytes) -> Payload:
    """Return an entry's uncompressed arrays, no longer than the entry (OS407)."""
    with refusing(damaged, Exception):  # a damaged archive fails in many ways
        if blob.startswith(_RECORD):
            return _of_record(blob)
        with ZipFile(io.BytesIO(blob)) as archive:
            if sum(member.file_size for member in archive.infolist()) > len(blob):
                raise damaged()
        return arrays_of(io.BytesIO(blob))
