"""Whose each row is, and where a public hash puts it among that person's rows.

The proof that needs these functions is ``bound_contributions.md``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.randomness import public_generator
from opendp_sim.core.space import Domain
from opendp_sim.spaces.ids import persons
from opendp_sim.spaces.records import Records

__all__ = ["Ranks", "digests", "least_of_each"]

_DIGEST = 32
"""Bytes of a digest: two different contents with one digest would be a collision of BLAKE2b-256."""
_CELLS = 2**20
"""Cells hashed at a time, so that they stay in the cache."""


class Ranks:
    """The public hash of one survey, and the persons it has met, numbered as they came."""

    def __init__(self, seed: int, domain: Domain, column: str) -> None:
        self.seed, self.domain, self.column = seed, domain, column
        self.persons: dict[Any, int] = {}
        self._keys: dict[int, NDArray[np.uint64]] = {}

    def numbers(self, block: Any, *, meet: bool) -> NDArray[np.int64]:
        """Return each row's person: a number from 0 up, or -1 for one who is not to be met now."""
        ids = np.asarray(block[self.column] if isinstance(self.domain, Records) else block.ids)
        whole = ids.dtype.kind in "iu"
        found, inverse = np.unique(ids, return_inverse=True) if whole else (ids, None)
        names = persons(found)
        known = self.persons
        if meet:
            for name in names:
                if name not in known:
                    known[name] = len(known)
        numbers = np.fromiter(map(known.get, names, repeat(-1)), np.int64, len(names))
        return numbers if inverse is None else numbers[inverse]

    def contents(self, block: Any) -> list[NDArray[np.uint64]]:
        """Return every row's content but its person, as words: arrays of shape (n, words)."""
        if isinstance(self.domain, Records):
            columns = [c for c in self.domain.columns if c.name != self.column]
            return [_words(block[c.name], c.numpy_dtype) for c in columns]
        parts = [_words(block.values, np.dtype(np.float64))]
        return parts if block.labels is None else [*parts, _words(block.labels, np.dtype(np.int64))]

    def hashes(self, contents: list[NDArray[np.uint64]], rows: int) -> NDArray[np.uint64]:
        """Return a hash of each row's content, shape (n,): equal contents have equal hashes.

        Two multilinear hashes of the 32-bit halves ``h_j``, ``(b + sum_j a_j h_j mod 2**64) >> 32``,
        each strongly universal, side by side; then a bijection, so that the hashes of contents in
        arithmetic progression are in no order.
        """
        width = sum(part.shape[1] for part in contents)
        keys = self._keys_of(width)
        out = np.empty(rows, dtype=np.uint64)
        step = max(1, _CELLS // max(width, 1))
        for start in range(0, rows, step):
            some = slice(start, start + step)
            sums = np.repeat(keys[:, :1], len(out[some]), axis=1)
            place = 1
            for column in _columns(contents, some):
                for half in (column & np.uint64(2**32 - 1), column >> np.uint64(32)):
                    sums[0] += half * keys[0, place]
                    sums[1] += half * keys[1, place]
                    place += 1
            out[some] = _mixed(sums[0] & np.uint64(2**64 - 2**32) | sums[1] >> np.uint64(32))
        return out

    def _keys_of(self, width: int) -> NDArray[np.uint64]:
        if width not in self._keys:
            generator = public_generator(self.seed, "bound_contributions")
            bits = generator.integers(0, 2**64, size=(2 * width + 1, 2), dtype=np.uint64)
            self._keys[width] = np.ascontiguousarray(bits.T)
        return self._keys[width]


def digests(contents: list[NDArray[np.uint64]], rows: NDArray[np.int64]) -> list[bytes]:
    """Return digests of the contents of some rows; no two different contents share one."""
    parts = [np.zeros((len(rows), 0), np.uint64), *(part[rows] for part in contents)]
    words = np.concatenate(parts, axis=1).astype("<u8")
    width, data = 8 * words.shape[1], words.tobytes()
    return [
        hashlib.blake2b(data[i * width : (i + 1) * width], digest_size=_DIGEST).digest()
        for i in range(len(rows))
    ]


def _columns(contents: list[NDArray[np.uint64]], rows: slice) -> Iterator[NDArray[np.uint64]]:
    for part in contents:
        yield from np.ascontiguousarray(part[rows].T)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply SplitMix64's finaliser, a bijection of 64-bit words."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words


def _words(column: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.uint64]:
    """Return each record's entry as 64-bit words, shape (n, words): one rendering for equal entries."""
    if dtype.kind == "O":
        texts = column.tolist()
        known = {text: _text_digest(text) for text in set(texts)}
        data = b"".join(known[text] for text in texts)
        return np.frombuffer(data, dtype="<u8").reshape(len(texts), _DIGEST // 8).astype(np.uint64)
    # The widest type of its kind, so the rendering does not depend on how a block came to be held;
    # adding zero makes the two zeros one.
    wide = np.asarray(column, dtype=np.float64 if dtype.kind == "f" else np.int64) + 0
    flat = np.ascontiguousarray(wide.reshape(len(wide), math.prod(wide.shape[1:])))
    return flat.view(np.uint64)


def _text_digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()


def least_of_each(
    parts: Iterable[tuple[NDArray[np.int64], NDArray[np.uint64]]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return every person's ``most`` least hashes, sorted by person and hash.

    Memory: twice the result, or one part; what is too much is dropped whenever it has doubled.
    """
    held: list[tuple[NDArray[np.int64], NDArray[np.uint64]]] = []
    size = settled = 0
    for part in parts:
        held.append(part)
        size += len(part[0])
        if size > max(2 * settled, 2**18):
            held = [_least(held, most)]
            size = settled = len(held[0][0])
    return _least(held, most)


def _least(
    held: list[tuple[NDArray[np.int64], NDArray[np.uint64]]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    if not held:
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    persons = np.concatenate([part[0] for part in held])
    hashes = np.concatenate([part[1] for part in held])
    order = np.lexsort((hashes, persons))
    persons, hashes = persons[order], hashes[order]
    # Kept unless the one `most` places before it is of the same person.
    keep = np.ones(len(persons), dtype=bool)
    keep[most:] = persons[most:] != persons[:-most]
    return persons[keep], hashes[keep]
