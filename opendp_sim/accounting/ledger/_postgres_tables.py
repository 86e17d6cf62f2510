"""Store a ledger's rows in PostgreSQL.

Nothing is locked between calls; each call locks the ledger's row. ``ledger: {file:
"postgresql:SERVICE/LEDGER", limit: ...}`` names a service of libpq and a ledger in its database. Laws
and their proofs: ``postgres.md``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from opendp_sim.accounting.ledger._entries import Entry
from opendp_sim.accounting.ledger._refusals import refused, unavailable
from opendp_sim.accounting.ledger.postgres_connection import (
    FailureCause,
    cause_of,
    check_durable,
    connect,
    parse_address,
    psycopg_of,
    tries,
)
from opendp_sim.core.interrupts import signals_blocked

T = TypeVar("T")

_LEFT: list[Any] = []
"""Connections of a parent that a fork must not close."""
_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS opendp_sim;
CREATE TABLE IF NOT EXISTS opendp_sim.ledger (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE, genesis text NOT NULL, head text NOT NULL);
CREATE TABLE IF NOT EXISTS opendp_sim.entry (
  ledger bigint NOT NULL REFERENCES opendp_sim.ledger,
  seq bigint NOT NULL CHECK (seq > 0), token text NOT NULL, body text NOT NULL, hash text NOT NULL,
  PRIMARY KEY (ledger, seq), UNIQUE (ledger, token));
CREATE OR REPLACE FUNCTION opendp_sim.never() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'entries are never changed'; END $$;
CREATE OR REPLACE TRIGGER never BEFORE UPDATE OR DELETE OR TRUNCATE ON opendp_sim.entry
  FOR EACH STATEMENT EXECUTE FUNCTION opendp_sim.never();
"""


class PostgresTables:
    """Store the rows of one ledger in a database.

    For any number of processes on any number of machines. Threads may share the object: their calls
    come one after another. A fork connects anew: what it has of the connection is its parent's.
    """

    keeps = True
    """Rows that were read stay: a trigger refuses their change, and ``verify`` reads them again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begin()

    def _begin(self) -> None:
        """Start with no connection, in this process."""
        self._owner = os.getpid()
        self._db: Any = None
        self._met = False  # whether the server answered a call
        self._number, self._token = 0, ""
        self._turn = threading.RLock()  # one connection and one transaction: threads take turns

    def there(self) -> bool:
        """Return whether the database has tables with the ledger."""
        name, text = parse_address(self.path)[1], "SELECT 1 FROM opendp_sim.ledger WHERE name = %s"
        return self.call(
            lambda: self._has_tables() and self._db.execute(text, (name,)).fetchone() is not None
        )

    def _has_tables(self) -> bool:
        found = self._db.execute("SELECT to_regclass('opendp_sim.entry')").fetchone()[0]
        return found is not None

    def open(self, first: Callable[[], tuple[str, str]] | None, *, forget: bool) -> None:
        """Make tables and ledger as ``FileTables.open`` does; ``forget`` changes nothing."""
        del forget
        if first is None:
            return
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(20)")  # two first runs at once
            if not self._has_tables():
                self._db.execute(_SCHEMA)
            self._db.execute(
                "INSERT INTO opendp_sim.ledger (name, genesis, head) VALUES (%s, %s, %s) "
                "ON CONFLICT (name) DO NOTHING",
                (parse_address(self.path)[1], *first()),
            )

    def close(self) -> None:
        """Close nothing, since no connection is open between calls."""

    def _row(self, lock: str = "") -> tuple[int, str, str]:
        text = "SELECT id, genesis, head FROM opendp_sim.ledger WHERE name = %s"
        row = self._db.execute(text + lock, (parse_address(self.path)[1],)).fetchone()
        if row is None:
            raise refused(
                self.path, "a ledger", "no such name", "`opendp-sim ledger new SPEC` makes it."
            )
        return int(row[0]), str(row[1]), str(row[2])

    def records(self) -> tuple[str, str]:
        """Return the records ``genesis`` and ``head``."""
        return self._row()[1:]

    def rows(self, after: int) -> tuple[str, str, list[tuple[Any, Any, Any]]]:
        """Return genesis, head and later rows in one transaction."""
        with self._db.transaction():
            if not self._number:
                self._db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            number, genesis, head = self._row()
            text = "SELECT seq, body, hash FROM opendp_sim.entry WHERE ledger = %s AND seq > %s"
            rows = self._db.execute(f"{text} ORDER BY seq", (number, after)).fetchall()
        return genesis, head, rows

    @contextmanager
    def writing(self, token: str) -> Iterator[int | None]:
        """Lock the ledger's row until the end of a transaction.

        Gives the number of the entry that ``token`` made before, if the answer to its COMMIT was lost.
        """
        with self._db.transaction():
            self._number, self._token = self._row(" FOR UPDATE")[0], token
            text = "SELECT seq FROM opendp_sim.entry WHERE ledger = %s AND token = %s"
            try:
                found = self._db.execute(text, (self._number, token)).fetchone()
                yield None if found is None else int(found[0])
            finally:
                self._number, self._token = 0, ""

    def put(self, entry: Entry, head: str) -> None:
        """Write an entry and the head, in ``writing``."""
        row = (self._number, entry.seq, self._token, entry.text, entry.hash)
        self._db.execute("INSERT INTO opendp_sim.entry VALUES (%s, %s, %s, %s, %s)", row)
        self._db.execute(
            "UPDATE opendp_sim.ledger SET head = %s WHERE id = %s", (head, self._number)
        )

    def call(self, action: Callable[[], T]) -> T:
        """Run an action under the lock, again after a lost connection.

        Signals are held meanwhile, and end the waiting (``postgres.tries``).

        Raises:
            UnavailableError (OS403): it did not answer in time, or refuses.
        """
        if os.getpid() != self._owner:
            _LEFT.append(self._db)  # of the parent: its end would be told to the server
            self._begin()
        with self._turn:
            if self._db is not None:
                return action()
            with signals_blocked():
                return self._tried(action)

    def _tried(self, action: Callable[[], T]) -> T:
        failed = psycopg_of(self.path).Error
        cause: FailureCause | None = None
        for _ in tries(met=self._met):
            before = cause
            try:
                self._db = connect(self.path)
                check_durable(self.path, self._db)
                self._met = True
                return action()
            except failed as error:
                reached = self._db is not None
                cause = cause_of(self.path, error, connected=reached, met=self._met)
            finally:
                if self._db is not None:
                    self._db.close()
                self._db = None
            if not cause.passes and cause == before:
                break  # a server that has just come back says it once
        assert cause is not None  # noqa: S101 - it was tried
        more = " `opendp-sim ledger show` says what was charged." if self._met else ""
        raise unavailable(self.path, cause.expected, cause.got, f"{cause.hint}.{more}")
