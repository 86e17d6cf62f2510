"""What a session's store says: its entries, its purses, and the head of its chain.

Nothing is written or locked here: ``session_store`` does that, ``shared_store`` in a database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting import _session_chain as chain
from opendp_sim.accounting._session_bytes import Payload
from opendp_sim.accounting._session_tables import read_entries, read_purses
from opendp_sim.accounting.session_mark import damaged, refused

__all__ = ["SessionHistory"]

_PUBLIC = ("reference", "answers", "means", "easy")

_T = TypeVar("_T")


class SessionHistory:
    """The reading side of a store; who opens one sets its tables, and the part that was folded."""

    _db: Any
    _folded: chain.Folded

    def entries(self) -> list[tuple[str, Payload]]:
        """Return everything that was committed, in order. Secret: it holds the curator's updates."""
        return read_entries(self._db)

    def transcript(self) -> list[tuple[str, Payload]]:
        """Return the public part: reference queries, and queries with their answers."""
        return [(kind, payload) for kind, payload in self.entries() if kind in _PUBLIC]

    def purses(self) -> NDArray[np.int64] | None:
        """Return what every purse holds after the last commit; None for a new store. Secret.

        Raises:
            BudgetError (OS407): the store is damaged.
        """
        if not self._count():
            return None
        return read_purses(self._db)

    @property
    def answered(self) -> int:
        """How many answers the store gave: public."""
        rows = "SELECT coalesce(sum(answers), 0) FROM entry"
        return int(self._db.execute(rows).fetchone()[0]) + self._folded.answers

    @property
    def head(self) -> tuple[int, str]:
        """The last place of the chain and its hash: what a ledger keeps."""
        head = self._read(chain.read_head)
        return head.place, head.hash

    def check_head(self, place: int, digest: str, ended: bool = False) -> None:
        """Refuse a store whose chain does not hold what a ledger was told of it (OS407).

        Args:
            place: of the entry that the ledger was told of.
            digest: its hash.
            ended: whether a session ended there, so that no entry may follow.

        Raises:
            BudgetError (OS407): an older copy, or another history.
        """
        if ended and self.head != (place, digest):
            raise refused("the history that the ledger was told of, up to its end", "another one")
        if chain.hash_at(self._db, self._folded, place) != digest:
            raise refused("the history that the ledger was told of", "an older or another one")

    def _read(self, reader: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            return reader(self._db)
        except (TypeError, ValueError):
            pass
        raise damaged()

    def _count(self) -> int:
        """Return the number of entries, folded ones included."""
        return self._read(chain.read_head).place
