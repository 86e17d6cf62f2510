"""How votes are counted: by a crew, for one item after another, the votes of a user once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.crew import Crew
from opendp_sim.sketches.counts.parts.vote_table import (
    Codes,
    Integers,
    ItemVotes,
    Listed,
    Pairs,
    Texts,
    bounded,
    by_user,
)
from opendp_sim.spaces.ids import parts_of
from opendp_sim.spaces.records import Column

__all__ = ["Counting", "codes_of", "named"]

Votes = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Items that occur, by number, and their votes."""


@dataclass(frozen=True)
class Counting:
    """Which votes of a dataset count: the columns that they are in, and the parameters of the step."""

    item: Column
    user: Column | None
    universe: int | None
    max_items: int | None
    seed: int
    passes: int

    @property
    def reads(self) -> frozenset[str]:
        """Return the names of the columns."""
        return frozenset(column.name for column in (self.item, self.user) if column is not None)

    def votes(self, crew: Crew, codes: Codes) -> Votes:
        """Return the items that occur, by number, and their votes."""
        if self.user is None:
            return self._of_rows(crew, codes)
        # each pass adds its own users'
        return _added([self._of_users(crew, self.user, codes, at) for at in range(self.passes)])

    def _of_rows(self, crew: Crew, codes: Codes) -> Votes:
        """Count every row as a vote."""

        def vote(state: ItemVotes, block: Any) -> None:
            items = codes.of(np.asarray(block[self.item.name]))
            state.add(items[self._inside(items, codes)])

        return _added([state.total() for state in crew.gather(ItemVotes, vote)])

    def _of_users(self, crew: Crew, user: Column, codes: Codes, part: int) -> Votes:
        """Count the votes of one part of the users, each user's for an item once."""
        users = codes_of(user)

        def pair(state: Pairs, block: Any) -> None:
            items = codes.of(np.asarray(block[self.item.name]))
            kept = self._inside(items, codes)
            who = np.asarray(block[user.name])
            if self.passes > 1:
                kept &= parts_of(who, self.passes) == part
            state.add(users.of(who[kept]), items[kept])

        def votes(pairs: Pairs) -> Votes:
            by, items = pairs.distinct()
            if self.max_items is not None:
                items = bounded(by, items, self.max_items, self.seed, users, codes)
            return _added([(items, np.ones(len(items), dtype=np.int64))])

        return _added(crew.each(votes, by_user(crew.gather(Pairs, pair), crew)))

    def _inside(self, items: NDArray[np.int64], codes: Codes) -> NDArray[np.bool_]:
        """Say which item numbers count: those in the catalogue, or in the universe."""
        if isinstance(codes, Listed):
            return items >= 0
        if self.universe is None:
            return np.ones(len(items), dtype=bool)
        return (items >= 0) & (items < self.universe)


def _added(parts: Sequence[Votes]) -> Votes:
    """Add up votes by item."""
    total = ItemVotes()
    for items, votes in parts:
        total.add(items, votes)
    return total.total()


def named(counted: Votes, codes: Codes, *, text: bool) -> dict[str, NDArray[Any]]:
    """Return items by name, sorted, with their votes."""
    items, votes = counted
    names = codes.names(items)
    order: Any = sorted(range(len(names)), key=names.__getitem__) if text else slice(None)
    found = np.array(names, dtype=object if text else np.int64)
    return {"item": found[order], "votes": votes[order]}


def codes_of(column: Column) -> Codes:
    """Return the numbers for the values of a column."""
    return Texts() if column.dtype == "str" else Integers()
