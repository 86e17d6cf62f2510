"""Pack tasks' messages as bytes.

Bytes name their tasks, and nothing else about themselves. No pickle, no engine's own types: blocks of
records and partial results are arrays in numpy's format, and texts are UTF-8 with their lengths. So no
engine compares, casts or hashes a private value.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.system.npy import arrays_of


@dataclass(frozen=True)
class Message:
    """One result.

    Attributes:
        job: the token of the job; a result of another one is refused.
        kind: ``sum`` (a partial result) or ``rows`` (of one bucket, from one task).
        parts: numbers of the tasks (of the buckets, for sums of buckets) that it holds, sorted.
        bucket: which bucket the rows are for.
        code: 0, or the number of an error code; then there is no payload.
        gate: whether the data gate refused: nothing else may be settled as a refusal.
        payload: bytes.
        told: the text of a failure, in a job over public data only.
    """

    job: str
    kind: str
    parts: tuple[int, ...]
    payload: bytes = b""
    bucket: int = -1
    code: int = 0
    gate: bool = False
    told: str = ""

    def bytes(self) -> bytes:
        """Return the message as bytes."""
        head = {
            "job": self.job,
            "kind": self.kind,
            "parts": self.parts,
            "bucket": self.bucket,
            "code": self.code,
            "gate": self.gate,
            "told": self.told,
        }
        return json.dumps(head).encode() + b"\n" + self.payload


def read_message(data: bytes) -> Message:
    """Return the message that bytes hold."""
    head, _, payload = bytes(data).partition(b"\n")
    found = json.loads(head)
    return Message(**found | {"parts": tuple(found["parts"])}, payload=payload)


# --- arrays ---------------------------------------------------------------------------------------


def pack(value: NDArray[np.int64] | Mapping[str, NDArray[Any]]) -> bytes:
    """Return arrays as bytes, int64 in the narrowest type."""
    if isinstance(value, np.ndarray):
        value = {"": value.astype(np.int64, copy=False)}
    names: list[str] = []
    held: dict[str, Any] = {}
    for at, (name, array) in enumerate(value.items()):
        names.append(name)
        if array.dtype.kind == "O":
            texts = [cell.encode("utf-8", "surrogatepass") for cell in array.tolist()]
            held[f"n{at}"] = np.fromiter(map(len, texts), np.int64, len(texts))
            held[f"b{at}"] = np.frombuffer(b"".join(texts), dtype=np.uint8)
        elif array.dtype == np.int64:
            held[f"i{at}"] = _narrow(array)
        else:
            held[f"a{at}"] = array
    out = io.BytesIO()
    np.savez(out, names=np.frombuffer(json.dumps(names).encode(), dtype=np.uint8), **held)
    return out.getvalue()


def unpack(data: bytes) -> Any:
    """Return a packed int64 vector, or named arrays."""
    held = arrays_of(io.BytesIO(data))
    names = json.loads(held["names"].tobytes())
    found = {name: _array(held, at) for at, name in enumerate(names)}
    return found[""] if names == [""] else found


def _array(held: Mapping[str, NDArray[Any]], at: int) -> NDArray[Any]:
    if f"i{at}" in held:
        return np.asarray(held[f"i{at}"], dtype=np.int64)
    if f"a{at}" in held:
        return held[f"a{at}"]
    ends = np.cumsum(held[f"n{at}"]).tolist()
    raw = held[f"b{at}"].tobytes()
    out = np.empty(len(ends), dtype=object)
    for row, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        out[row] = raw[start:end].decode("utf-8", "surrogatepass")
    return out


def _narrow(values: NDArray[np.int64]) -> NDArray[Any]:
    if not values.size:
        return values
    least, most = int(values.min()), int(values.max())
    for kind in ("i1", "i2", "i4"):
        limit = np.iinfo(kind)
        if limit.min <= least and most <= limit.max:
            return values.astype(kind)
    return values
