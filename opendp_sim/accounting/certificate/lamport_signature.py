"""Seal a text with Lamport's one-time signature.

One process can seal once; who reads its ledger can check the seal. Before a run its ledger gets a
digest of 512 secrets that only the process's memory holds. When the files of the run are complete, one
secret of each pair is written beside them, chosen by the bits of the files' digest. Whoever changes a
file later needs a secret of the other side of some pair, which went with the process. There is no key
to keep, and no package is needed. Proof: ``dsl/run/charge.md``, Lemma 6.

L. Lamport, Constructing digital signatures from a one-way function, SRI report CSL-98, 1979.
"""

from __future__ import annotations

import hashlib
import secrets
from itertools import chain
from typing import NoReturn

_BITS = 256
_SIZE = 32
"""Bytes of a secret and of a digest."""


class Seal:
    """Hold one run's secrets, whose ``public`` digest is recorded first."""

    def __init__(self) -> None:
        self._pairs = [
            (secrets.token_bytes(_SIZE), secrets.token_bytes(_SIZE)) for _ in range(_BITS)
        ]
        self.public = _digest(*(_digest(secret) for secret in chain(*self._pairs))).hex()

    def __repr__(self) -> str:
        """Nothing of the secrets."""
        return "Seal(secret)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse copies and pickles, as two uses would reveal the secrets."""
        raise TypeError("a seal is used once, by the process that made it")

    def close(self, text: bytes) -> bytes:
        """Return the seal of a text, once."""
        pairs, self._pairs = self._pairs, []
        if not pairs:
            raise RuntimeError("this seal was used")
        return b"".join(
            pair[bit] + _digest(pair[1 - bit]) for pair, bit in zip(pairs, _bits(text), strict=True)
        )


def closed_by(public: str, text: bytes, shown: bytes) -> bool:
    """Say whether whoever recorded ``public`` sealed this text with ``shown``."""
    if len(shown) != 2 * _SIZE * _BITS:
        return False
    parts = [shown[at : at + _SIZE] for at in range(0, len(shown), _SIZE)]
    digests = []
    for (secret, other), bit in zip(
        zip(parts[::2], parts[1::2], strict=True), _bits(text), strict=True
    ):
        digests += [other, _digest(secret)] if bit else [_digest(secret), other]
    return secrets.compare_digest(_digest(*digests).hex(), public)


def _bits(text: bytes) -> list[int]:
    number = int.from_bytes(_digest(text))
    return [number >> place & 1 for place in range(_BITS)]


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()
