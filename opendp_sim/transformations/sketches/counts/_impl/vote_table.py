"""Count distinct users per item by sorting integer pairs.

Users and items are whole numbers: themselves, their place in a public catalogue, or, for texts, a number
given when they are met, by a dictionary. So no count rests on a hash. Names are canonical plain values
(``domains.cell``): which of two equal objects came first can decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.system.executor import Workers
from opendp_sim.domains.category_codes import NumberPlaces
from opendp_sim.domains.cell import exact, hashes, wholes
from opendp_sim.domains.ids import mix_hashes

Ints = NDArray[np.int64]
_SLACK = 2**20
"""Rows that may pile up before they are made distinct again."""


# --- names and numbers ----------------------------------------------------------------------------


class ItemCodes(Protocol):
    """Names as whole numbers; equal names and no others have equal numbers."""

    def of(self, values: NDArray[Any]) -> Ints:
        """Return each value's number, shape (n,), -1 if ``Listed`` lacks it."""

    def names(self, codes: Ints) -> list[Any]:
        """Return the names of distinct numbers."""


class Integers:
    """Number 64-bit integers by themselves."""

    def of(self, values: NDArray[Any]) -> Ints:
        """Return the values."""
        small = values.dtype.kind == "i" or (values.dtype.kind == "u" and values.dtype.itemsize < 8)
        return values.astype(np.int64, copy=False) if small else wholes(values)

    def names(self, codes: Ints) -> list[Any]:
        """Return the integers."""
        found: list[Any] = codes.tolist()
        return found


@dataclass
class TextCodes:
    """Texts, numbered as they are met."""

    known: dict[Any, int] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    """Two threads would give two texts one number. Which text has which decides nothing."""

    def of(self, values: NDArray[Any]) -> Ints:
        """Return each text's number, giving new ones the next."""
        known = self.known
        cells = exact(values.tolist())
        with self._lock:
            found = (known.setdefault(c, len(known)) for c in cells)
            return np.fromiter(found, np.int64, len(cells))

    def names(self, codes: Ints) -> list[Any]:
        """Return the texts."""
        listed = list(self.known)
        return [listed[code] for code in codes.tolist()]


class Listed:
    """Number a public catalogue's names by their places.

    Args:
        catalogue: distinct names, all texts or all integers unless ``keys``.
        keys: of a category, whose values are places among them.
    """

    def __init__(
        self, catalogue: tuple[str | int, ...], *, keys: tuple[str | int, ...] = ()
    ) -> None:
        self._catalogue = catalogue
        self._place = {name: at for at, name in enumerate(catalogue)}
        self._numbers: NumberPlaces | None = None
        if keys:
            named = {at: self._place.get(key, -1) for at, key in enumerate(keys)}
            self._numbers = NumberPlaces(named)
        elif all(type(name) is int for name in catalogue):
            self._numbers = NumberPlaces({int(name): at for name, at in self._place.items()})

    def of(self, values: NDArray[Any]) -> Ints:
        """Return each name's place; -1 for what is not in the list."""
        if self._numbers is not None:
            return self._numbers.of(Integers().of(values))
        cells = exact(values.tolist())
        return np.fromiter((self._place.get(c, -1) for c in cells), np.int64, len(cells))

    def names(self, codes: Ints) -> list[Any]:
        """Return the names at places."""
        return [self._catalogue[code] for code in codes.tolist()]


# --- what is counted ------------------------------------------------------------------------------


class Pairs:
    """The distinct (user, item) pairs of the blocks so far."""

    def __init__(self) -> None:
        self._users: list[Ints] = []
        self._items: list[Ints] = []
        self._pending = self._kept = 0

    def add(self, users: Ints, items: Ints) -> None:
        """Add a block of votes, given as two equally long arrays."""
        self._users.append(users)
        self._items.append(items)
        self._pending += len(users)
        if self._pending > max(self._kept, _SLACK):
            self.distinct()

    def hold(self, users: Ints, items: Ints) -> None:
        """Add sorted distinct pairs, to be merged at the end."""
        self._users.append(users)
        self._items.append(items)
        self._kept += len(users)

    def taken(self) -> tuple[Ints, Ints]:
        """Return what ``distinct`` does, and keep none of it."""
        found = self.distinct()
        self._users, self._items, self._pending, self._kept = [], [], 0, 0
        return found

    def distinct(self) -> tuple[Ints, Ints]:
        """Return and keep the distinct pairs, sorted by user and item."""
        none = [np.zeros(0, dtype=np.int64)]
        users = np.concatenate(self._users or none)
        items = np.concatenate(self._items or none)
        self._users, self._items = [], []
        if len(users):
            users, items = _packed(users, items, self._kept)
        self._users, self._items, self._pending, self._kept = [users], [items], 0, len(users)
        return users, items


def by_user(gathered: Sequence[Pairs], crew: Workers) -> Sequence[Pairs]:
    """Regroup the pairs of several threads by user.

    Into as many places; all pairs of a user in one. Users are cut into ranges at the quantiles of the
    largest part; no count depends on where that is. The pairs are handed over: nothing is left in
    ``gathered``.
    """
    if len(gathered) == 1:
        return gathered
    sorted_ = crew.each(lambda pairs: pairs.taken(), gathered)
    largest = max((users for users, _ in sorted_), key=len)
    if not len(largest):
        return gathered[:1]
    ranges = len(gathered)
    at = [len(largest) * k // ranges for k in range(1, ranges)]
    cuts = np.unique(largest[at])  # a range begins with each
    found = [Pairs() for _ in range(len(cuts) + 1)]
    while sorted_:
        users, items = sorted_.pop()
        ends = [0, *np.searchsorted(users, cuts, side="left").tolist(), len(users)]
        for pairs, low, high in zip(found, ends, ends[1:], strict=False):
            pairs.hold(users[low:high], items[low:high])
    return found


def _packed(users: Ints, items: Ints, runs: int) -> tuple[Ints, Ints]:
    """Sort pairs of up to 63 bits as numbers, and drop repetitions.

    The first ``runs`` pairs come in sorted runs, which a stable sort only merges.
    """
    low, first = int(users.min()), int(items.min())
    bits = (int(items.max()) - first).bit_length()
    if (int(users.max()) - low).bit_length() + bits <= 63:
        pairs = (users - low) << bits
        pairs |= items - first
        pairs[runs:].sort()
        pairs.sort(kind="stable")
        pairs = pairs[_starts(pairs)]
        return (pairs >> bits) + low, (pairs & ((1 << bits) - 1)) + first
    order = np.lexsort((items, users))
    users, items = users[order], items[order]
    new = _starts(users) | _starts(items)
    return users[new], items[new]


def _starts(values: Ints) -> NDArray[np.bool_]:
    """Say which entries differ from the one before, shape (n,)."""
    new = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return new


def single_votes(items: Ints) -> tuple[Ints, Ints]:
    """Return the items that occur, sorted by number, and how often."""
    items = np.sort(items)
    first = np.flatnonzero(_starts(items))
    return items[first], np.diff(first, append=len(items))


class ItemVotes:
    """Votes per item number, in memory of the distinct items."""

    def __init__(self) -> None:
        self._items: list[Ints] = []
        self._votes: list[Ints] = []
        self._pending = self._kept = 0

    def add(self, items: Ints, votes: Ints) -> None:
        """Add as many votes for each item as ``votes`` has for it."""
        self._items.append(items)
        self._votes.append(votes)
        self._pending += len(items)
        if self._pending > max(self._kept, _SLACK):
            self.total()

    def total(self) -> tuple[Ints, Ints]:
        """Return the items that occur, sorted by number, and their votes."""
        none = [np.zeros(0, dtype=np.int64)]
        items = np.concatenate(self._items or none)
        votes = np.concatenate(self._votes or none)
        order = np.argsort(items, kind="stable")
        items = items[order]
        first = np.flatnonzero(_starts(items))
        if len(first):
            votes = np.add.reduceat(votes[order], first)
        self._items, self._votes = [items[first]], [votes]
        self._pending, self._kept = 0, len(first)
        return self._items[0], votes


def bounded(
    users: Ints, items: Ints, most: int, seed: int, user_names: ItemCodes, item_names: ItemCodes
) -> Ints:
    """Return the items that are counted, each user for ``most`` at most.

    Pairs are distinct and sorted by user. A user with more keeps those whose hash with the user's name
    is least: a public rule that looks at this user's items alone (Lemma 2 of ``vote_counts.md``). Names
    are what the numbers stand for.
    """
    first = np.flatnonzero(_starts(users)) if len(users) else np.zeros(0, dtype=np.int64)
    sizes = np.diff(first, append=len(users))
    heavy = np.repeat(sizes > most, sizes)
    if not heavy.any():
        return items
    who, what = users[heavy], items[heavy]
    names, place = np.unique(what, return_inverse=True)
    whose = np.repeat(np.arange(np.count_nonzero(sizes > most)), sizes[sizes > most])
    listed = item_names.names(names)
    user_hash = hashes(user_names.names(users[first[sizes > most]]), seed)
    ranks = mix_hashes(user_hash[whose], hashes(listed, seed)[place])
    by = np.lexsort((_places(listed)[place], ranks, who))
    rank = np.arange(len(who)) - np.repeat(*_runs(sizes[sizes > most]))
    return np.concatenate([items[~heavy], what[by][rank < most]])


def _runs(sizes: Ints) -> tuple[Ints, Ints]:
    """Return where each run starts, and how long it is."""
    return np.cumsum(sizes) - sizes, sizes


def _places(names: list[Any]) -> Ints:
    """Return each name's place in sorted order."""
    order = sorted(range(len(names)), key=lambda at: (type(names[at]).__name__, names[at]))
    places = np.empty(len(names), dtype=np.int64)
    places[order] = np.arange(len(names))
    return places
