"""Two doors to randomness that are never the same door.

Public randomness (hash functions, projections) is a pinned stream of a seed that is written into
every release; it protects nothing. Private randomness (noise) comes from OpenDP's own
cryptographic generator; it has no seed and no state here.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.bridge import fill_bytes
from opendp_sim.core.errors import InternalError


def public_generator(seed: int, *purpose: str) -> np.random.Generator:
    """Return the public stream of ``(seed, purpose)``.

    The bit generator is named (Philox, counter based, stable across numpy versions by numpy's own
    policy) and its key is a hash of the seed and the purpose, so two matrices of one mechanism never
    share a stream. What numpy draws *from* the bits may change between its versions, so every
    matrix's ``fingerprint`` is stored in a release and checked when it is loaded.
    """
    text = "\x1f".join(("opendp_sim/1", str(seed), *purpose))
    key = hashlib.sha256(text.encode()).digest()[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))


def fingerprint(arrays: Sequence[NDArray[np.generic]]) -> str:
    """Return the sha256 of arrays' dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for array in arrays:
        fixed = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{fixed.dtype.str}{fixed.shape}".encode())
        digest.update(fixed.reshape(-1).view(np.uint8).data)  # its bytes, without a copy of them
    return digest.hexdigest()


def private_bytes(count: int) -> NDArray[np.uint8]:
    """Return ``count`` fresh bytes from OpenDP's cryptographic generator."""
    out = np.empty(count, dtype=np.uint8)
    if count and not fill_bytes(out.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)), count):
        raise InternalError(
            "OS903", "core.randomness", expected="random bytes",
            got="a refusal from the operating system",
            hint="the entropy source failed; nothing was released.",
        )  # fmt: skip
    return out
