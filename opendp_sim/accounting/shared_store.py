"""A session's store in PostgreSQL: the entries, hashes and refusals of the file, kept by a server.

``store: "postgresql:SERVICE/STORE"`` names a service of libpq and a store in its database. Who serves it
holds a lock of the server's for as long as its connection lives, and a *fence*, drawn at each opening,
that every commit compares under a row's lock: a process that lost its connection, and with it the lock,
cannot write after another one has opened the store.
Laws and their proofs: ``shared_store.md``.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting import _session_chain as chain
from opendp_sim.accounting._postgres import is_shared
from opendp_sim.accounting._session_bytes import Charge, Payload
from opendp_sim.accounting._session_postgres import LostError, locked, made, opened
from opendp_sim.accounting._session_tables import describe, filled
from opendp_sim.accounting.session_mark import LOCKED, Mark, mark_of, refused
from opendp_sim.accounting.session_store import SessionStore

__all__ = ["SharedStore", "mark_at", "store_at"]

_WAITS = (0.0, 0.05, 0.5, 2.0)
"""Seconds before each try: a server takes a moment to start, and to miss a client."""
_FENCE = "SELECT value FROM about WHERE name = 'fence' FOR UPDATE"


def store_at(
    path: str | Path, identity: str, name: str | None = None, *, forgets: bool = False
) -> SessionStore:
    """Open the store at a place: a file, or ``postgresql:SERVICE/STORE``."""
    kind = SharedStore if is_shared(path) else SessionStore
    return kind(path, identity, name, forgets=forgets)


def mark_at(path: str | Path) -> Mark | None:
    """Return the mark of a store that nobody has open; None where there is none.

    Raises:
        BudgetError (OS407): it is open, damaged or no store, or its server does not answer.
    """
    if not is_shared(path):
        return mark_of(path)
    db = opened(Path(path))
    found: dict[str, str] = {}
    try:
        if not made(db, None):
            return None
        with suppress(ValueError, TypeError):
            found = chain.read_about(cast("sqlite3.Connection", db))
    finally:
        db.close()
    if not {"name", "turn", "before"} <= set(found):
        raise refused("a store that this process can lock", LOCKED)
    return Mark(found["name"], found["turn"], found["before"], found.get("ledger", ""))


class SharedStore(SessionStore):
    """What a session remembers, on a server. As the file's, but for a lost connection.

    Args:
        path: ``postgresql:SERVICE/STORE``.
        identity: as the file's. name: as the file's. forgets: as the file's.

    Raises:
        BudgetError (OS407): open elsewhere, damaged, started with something else, or a server that is
            away or may lose what it commits.
    """

    _begin = "BEGIN"
    _fence = ""

    def _connect(self, undo: ExitStack, about: dict[str, str], name: str) -> Any:
        self._db: Any = opened(self._path)
        undo.callback(self._let_go)
        fence = secrets.token_hex(16)
        made(self._db, lambda new: filled(new, {**about, "fence": ""}, name))
        with super()._transaction():
            self._db.execute(_FENCE)
            describe(self._db, {"fence": fence})
        self._fence = fence
        return self._db

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with super()._transaction():
            found = self._db.execute(_FENCE).fetchone()
            if found is None or found[0] != self._fence:
                raise refused("the process that opened the store last", "an earlier one")
            yield

    def _settle(self) -> None:
        """Nothing: COMMIT is durable, which was looked at when the connection was made."""

    def _trouble(self) -> tuple[str, str] | None:
        return None

    def _commit(
        self,
        kind: str,
        payload: Payload,
        charges: Sequence[Charge],
        snapshot: Callable[[], NDArray[np.int64]],
    ) -> None:
        """Commit; again where the answer was lost: the head tells whether the first try was kept."""
        for at, wait in enumerate(_WAITS):
            try:
                if at:
                    time.sleep(wait)
                    self._come_back()
                super()._commit(kind, payload, charges, snapshot)
            except LostError as error:
                lost = error.with_traceback(None)
            else:
                return
        raise lost

    def _let_go(self) -> None:
        self._db.close()

    def _come_back(self) -> None:
        """Connect anew and take the lock again; whether another one had it meanwhile the fence tells."""
        self._db.close()
        self._db = opened(self._path)
        if not locked(self._db):
            raise refused("a store that this process can lock", LOCKED)
