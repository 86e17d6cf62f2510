"""The tables of a session's store in PostgreSQL: a schema a store, and SQLite's statements.

The statements of a store are plain enough to be both databases' own. What differs is here: how places
of values are marked, the names of three types, one lock for as long as a connection lives, and what the
driver says of failures, which may quote values.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opendp_sim.accounting._postgres import PATIENCE, losing, named, psycopg_of
from opendp_sim.accounting.session_mark import LOCKED, refused
from opendp_sim.core.errors import BudgetError

__all__ = ["LostError", "Tables", "locked", "made", "opened"]

_WAITS = (0.02, 0.08, 0.3, 0.6, 0.0)
"""Seconds between the times at which a lock is asked for."""
_OPTIONS = "-c lock_timeout=5000 -c idle_in_transaction_session_timeout=10000"
_TYPES = {"BLOB": "bytea", "INTEGER": "bigint"}
_WANTED = "SELECT relname, relkind FROM pg_class WHERE relnamespace = %s::regnamespace"
_ACTIVE = (
    "SELECT (SELECT count(*) FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE NOT tgisinternal "
    "AND relnamespace = %(schema)s::regnamespace) + (SELECT count(*) FROM pg_rewrite JOIN pg_class c "
    "ON c.oid = ev_class WHERE relnamespace = %(schema)s::regnamespace)"
)


class LostError(BudgetError):
    """The server did not answer: what it was asked for last was done, or was not."""


def _lost() -> LostError:
    return LostError(
        "OS407",
        "session.store",
        expected="a database that answers",
        got="none",
        hint="nothing was answered; what the database kept stands. Open the session again when it "
        "answers.",
    )


class Tables:
    """A connection whose statements find one store's tables; it is used as SQLite's is."""

    def __init__(self, path: Path) -> None:
        self._psycopg, service = psycopg_of(path), named(path)[0]
        self._owner = os.getpid()
        self.schema = schema_of(path)
        told = f"{_OPTIONS} -c search_path={self.schema}"
        self._db = self._safely(
            lambda: self._psycopg.connect(
                service=service, options=told, autocommit=True, **PATIENCE
            )
        )
        weak = self._safely(lambda: losing(self._db))
        if weak is not None:
            self.close()
            raise refused(f"a server with {weak[0]}, which keeps what it commits", weak[1])

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement with SQLite's marks of values.

        Raises:
            LostError: the server went away. BudgetError (OS407): it refuses.
        """
        return self._safely(lambda: self._db.execute(statement.replace("?", "%s"), values))

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        for row in rows:
            self.execute(statement, row)

    @property
    def in_transaction(self) -> bool:
        """Whether the server waits for an end of what was begun; a fork has begun nothing."""
        if os.getpid() != self._owner:
            return False
        status = self._psycopg.pq.TransactionStatus
        return self._db.info.transaction_status in (status.INTRANS, status.INERROR)

    def close(self) -> None:
        """Close the connection; the server takes back what was not committed, and the lock.

        In a fork, do nothing: it would end the connection of the process that opened it.
        """
        if os.getpid() == self._owner:
            self._db.close()

    def _safely(self, action: Callable[[], Any]) -> Any:
        """Run, and pass on no text of the driver: it may quote values."""
        if os.getpid() != self._owner:
            raise refused("the process that opened the session", "a fork of it")
        found: Exception
        try:
            return action()
        except self._psycopg.OperationalError:
            found = _lost()
        except self._psycopg.Error:
            found = refused("a database with this store", "one that refuses")
        raise found


def schema_of(path: Path) -> str:
    """Return the schema of a store: its name may be anything, a schema's may not."""
    return "opendp_sim_" + hashlib.sha256(named(path)[1].encode()).hexdigest()[:32]


def opened(path: Path) -> Tables:
    """Connect, or refuse (OS407)."""
    refusal: BudgetError
    try:
        return Tables(path)
    except BudgetError as error:
        if error.code == "OS407":
            raise
        refusal = refused(
            str(error.expected), str(error.got)
        )  # the ledger's: no package, a bad name
    raise refusal


def locked(db: Tables) -> bool:
    """Take the store's lock until the connection ends; False where another connection has it.

    A server ends a connection some moments after its client said goodbye, so it is asked for a second.
    """
    number = "SELECT pg_try_advisory_lock(hashtextextended(?, 20))"
    for wait in _WAITS:
        if db.execute(number, (db.schema,)).fetchone()[0]:
            return True
        time.sleep(wait)
    return False


def made(db: Tables, fill: Callable[[Any], None] | None) -> bool:
    """Say whether a store's tables are there, and nothing else; where nothing is, ``fill`` makes them.

    Raises:
        BudgetError (OS407): the store is open elsewhere, or the schema holds something else.
    """
    if not locked(db):
        raise refused("a store that this process can lock", LOCKED)
    there = db.execute("SELECT to_regnamespace(?)", (db.schema,)).fetchone()[0] is not None
    if not there and fill is None:
        return False
    if not there and fill is not None:
        db.execute("BEGIN")
        db.execute(f"CREATE SCHEMA {db.schema}")
        fill(_Making(db))
        db.execute("COMMIT")
    found = db.execute(_WANTED, (db.schema,)).fetchall()
    tables = {name for name, kind in found if str(kind) not in ("i", "b'i'")}
    active = db._safely(lambda: db._db.execute(_ACTIVE, {"schema": db.schema})).fetchone()[0]  # noqa: SLF001
    if tables != {"about", "entry", "purses"} or active:
        raise refused("a store of a session", "a schema with other tables")
    return True


class _Making:
    """Makes tables in PostgreSQL's types."""

    def __init__(self, db: Tables) -> None:
        self.executemany, self._execute = db.executemany, db.execute

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement."""
        if statement.lstrip().startswith("CREATE TABLE"):
            for ours, theirs in _TYPES.items():
                statement = statement.replace(ours, theirs)
        return self._execute(statement, values) if statement.strip() else None
