"""Counting distinct users per item: blocks in, counts out, memory of distinct items and pairs.

Users and items get whole numbers as they are met, by dictionaries, so no count rests on a hash. They are
canonical plain values (``spaces.cell``): which of two equal objects came first can decide nothing.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.spaces.cell import exact, hashes, tagged

__all__ = ["VoteTable", "codes", "parts_of"]

_ITEM_BITS = 31
_SLACK = 2**20
"""Pairs that may pile up before they are made distinct again."""


@dataclass
class VoteTable:
    """Distinct (user, item) pairs of the blocks so far, each as ``user << 31 | item``."""

    users: dict[Any, int] = field(default_factory=dict)
    items: dict[Any, int] = field(default_factory=dict)
    pairs: list[NDArray[np.int64]] = field(default_factory=list)
    pending: int = 0
    kept: int = 0

    def add(self, users: NDArray[Any], items: NDArray[Any]) -> None:
        """Add a block of votes: two arrays of one length."""
        block = np.unique((codes(users, self.users) << _ITEM_BITS) | codes(items, self.items))
        self.pairs.append(block)
        self.pending += len(block)
        if self.pending > max(self.kept, _SLACK):
            self._distinct()

    def _distinct(self) -> NDArray[np.int64]:
        """Return the distinct pairs, sorted, so that all of one user's stand together."""
        if len(self.pairs) != 1:
            self.pairs = [np.unique(np.concatenate([np.empty(0, np.int64), *self.pairs]))]
        self.pending, self.kept = 0, len(self.pairs[0])
        return self.pairs[0]

    def votes(self, most: int | None, seed: int) -> NDArray[np.int64]:
        """Return the number of users of each item code, each user counted for ``most`` at most.

        A user with more keeps those whose hash with the user's name is least: a public rule that
        looks at this user's items alone (Lemma 2 of ``vote_counts.md``).
        """
        pairs = self._distinct()
        items = pairs & ((1 << _ITEM_BITS) - 1)
        if most is not None and len(pairs):
            users = pairs >> _ITEM_BITS
            mixed = _mixed(hashes(self.users, seed)[users], hashes(self.items, seed)[items])
            by = np.lexsort((_places(list(self.items))[items], mixed, users))
            first = np.flatnonzero(np.diff(users, prepend=-1))
            rank = np.arange(len(pairs)) - np.repeat(first, np.diff([*first, len(pairs)]))
            items = items[by][rank < most]
        return np.bincount(items, minlength=len(self.items)).astype(np.int64)

    def next_part(self) -> None:
        """Forget users and pairs, keep the numbers of the items."""
        self.users, self.pairs, self.pending, self.kept = {}, [], 0, 0


def codes(values: NDArray[Any], known: dict[Any, int]) -> NDArray[np.int64]:
    """Return each value's number, giving new values the next ones. Shape (n,)."""
    if values.dtype.kind in "iu":
        distinct, inverse = np.unique(values, return_inverse=True)
        return _numbers(distinct.tolist(), known)[inverse]
    return _numbers(values.tolist(), known)


def parts_of(users: NDArray[Any], parts: int) -> NDArray[np.int64]:
    """Return the part of the users that each user is in: a public hash, the same in every process."""
    if users.dtype.kind in "iu":
        word = users.astype(np.uint64)
        return (_mixed(word, np.zeros_like(word)) % np.uint64(parts)).astype(np.int64)
    found = (zlib.crc32(tagged(user)) % parts for user in exact(users.tolist()))
    return np.fromiter(found, np.int64, len(users))


def _numbers(values: list[Any], known: dict[Any, int]) -> NDArray[np.int64]:
    values = exact(values)
    return np.fromiter(
        (known.setdefault(value, len(known)) for value in values), np.int64, len(values)
    )


def _places(names: list[Any]) -> NDArray[np.int64]:
    """Return each name's place in sorted order: settles equal hashes whatever was met first."""
    order = sorted(range(len(names)), key=lambda at: (type(names[at]).__name__, names[at]))
    places = np.empty(len(names), dtype=np.int64)
    places[order] = np.arange(len(names))
    return places


def _mixed(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix two hashes into one (the finaliser of splitmix64)."""
    word = left + right * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    mixed: NDArray[np.uint64] = word ^ (word >> np.uint64(31))
    return mixed
