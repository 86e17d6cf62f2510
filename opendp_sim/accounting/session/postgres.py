"""Keep a session's store in PostgreSQL.

The entries, hashes and refusals are those of the file. ``store: "postgresql:SERVICE/STORE"`` names a
service of libpq and a store in its database. Who serves it holds a lock of the server's for as long as
its connection lives, and a *fence*, drawn at each opening, that every commit compares under a row's
lock: a process that lost its connection, and with it the lock, cannot write after another one has
opened the store. Laws and their proofs: ``postgres.md``.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from opendp_sim.accounting.ledger.postgres_connection import (
    FailureCause,
    cause_of,
    check_durable,
    connect,
    is_shared,
    parse_address,
    psycopg_of,
    tries,
)
from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session._encoding import Payload
from opendp_sim.accounting.session._tables import StoredEntry, create_store, write_about
from opendp_sim.accounting.session.identity import LOCKED, Mark, StorePlace, mark_in, store_refusal
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.core.errors import BudgetError, refusing
from opendp_sim.core.interrupts import signals_blocked

# --------------------------------------------------------------------------------------------------
# The tables of a session's store in PostgreSQL: a schema a store, and SQLite's statements.
#
# The statements of a store are plain enough to be both databases' own. What differs is here: how places
# of values are marked, the names of three types, one lock for as long as a connection lives, and what the
# driver says of failures, which may quote values.

_SESSION_POSTGRES_WAITS = (0.02, 0.08, 0.3, 0.6, 0.0)
"""Seconds between the times at which a lock is asked for."""
_TYPES = {"BLOB": "bytea", "INTEGER": "bigint"}
_WANTED = "SELECT relname, relkind FROM pg_class WHERE relnamespace = %s::regnamespace"
_ACTIVE = (
    "SELECT (SELECT count(*) FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE NOT tgisinternal "
    "AND relnamespace = %(schema)s::regnamespace) + (SELECT count(*) FROM pg_rewrite JOIN pg_class c "
    "ON c.oid = ev_class WHERE relnamespace = %(schema)s::regnamespace)"
)


class LostError(BudgetError):
    """Report a server that did not answer the last request."""


_RIGHTS = (
    "the role that made it owns it: `GRANT` that one, or USAGE on its schema and all rights on its "
    "tables; a first run needs CREATE on the database"
)
_OF_STORE = {
    "42501": FailureCause(False, "a role with the rights to a store", "one without", _RIGHTS),
    "42P01": FailureCause(False, "a store that this role sees", "one that it does not", _RIGHTS),
}
"""Causes that a ledger has other words for. Who may not use a schema is told that it has no tables."""


def _failed(cause: FailureCause) -> BudgetError:
    kind = LostError if cause.passes else BudgetError
    return kind(
        "OS407", "session.store", expected=cause.expected, got=cause.got,
        hint=f"{cause.hint}. Nothing was answered; what was kept stands: open the session again.",
    )  # fmt: skip


_STILL_HELD = FailureCause(
    True,
    "the store's lock",
    "a server that keeps it for the connection that was lost",
    "try again when the server has ended that connection",
)


class StoreTables:
    """Connect to one store's tables, with SQLite's interface."""

    def __init__(self, path: Path, *, met: bool = False) -> None:
        self._psycopg, self._path, self._db = psycopg_of(path), path, cast("Any", None)
        self._owner, self._met = os.getpid(), met
        self.schema = schema_of(path)
        self._db = self._safely(lambda: connect(path, f"-c search_path={self.schema}"))
        try:
            self._safely(lambda: check_durable(path, self._db))
        except BudgetError:
            self.close()
            raise

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement with SQLite's marks; raises LostError or OS407."""
        return self._safely(lambda: self._db.execute(statement.replace("?", "%s"), values))

    def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row."""
        for row in rows:
            self.execute(statement, row)

    @property
    def in_transaction(self) -> bool:
        """Return whether the server waits in a transaction of this process."""
        if os.getpid() != self._owner:
            return False
        status = self._psycopg.pq.TransactionStatus
        return self._db.info.transaction_status in (status.INTRANS, status.INERROR)

    def close(self) -> None:
        """Close the connection, which rolls back and releases the lock.

        In a fork, do nothing: it would end the connection of the process that opened it.
        """
        if os.getpid() == self._owner:
            self._db.close()

    def _safely(self, action: Callable[[], Any]) -> Any:
        """Run a statement without passing on the driver's texts."""
        if os.getpid() != self._owner:
            raise store_refusal("the process that opened the session", "a fork of it")
        # A signal that comes meanwhile ends the wait for an answer.
        with refusing(self._refusal, self._psycopg.Error), signals_blocked():
            return action()

    def _refusal(self, error: Any) -> BudgetError:
        cause = cause_of(self._path, error, connected=self._db is not None, met=self._met)
        return _failed(_OF_STORE.get(str(error.sqlstate), cause))


def schema_of(path: Path) -> str:
    """Return the schema of a store, whatever its name is."""
    return "opendp_sim_" + hashlib.sha256(parse_address(path)[1].encode()).hexdigest()[:32]


def open_connection(path: Path, *, met: bool = False) -> StoreTables:
    """Connect to ``postgresql:SERVICE/STORE``, or refuse (OS407).

    A server that took this client before (``met``) and refuses now may be tried again.
    """
    with refusing(_of_a_store, BudgetError):
        return StoreTables(path, met=met)


def _of_a_store(error: BudgetError) -> BudgetError:
    """Return a ledger's refusal as a store's (OS407)."""
    if error.code == "OS407":
        return error
    return error.restated(code="OS407", where="session.store")


def locked(db: StoreTables) -> bool:
    """Acquire the store's lock for the connection, or return False.

    A server ends a connection some moments after its client said goodbye, so it is asked for a second.
    """
    number = "SELECT pg_try_advisory_lock(hashtextextended(?, 20))"
    for wait in _SESSION_POSTGRES_WAITS:
        if db.execute(number, (db.schema,)).fetchone()[0]:
            return True
        time.sleep(wait)
    return False


def made(db: StoreTables, fill: Callable[[Any], None] | None) -> bool:
    """Return whether a store's tables exist; ``fill`` creates them in nothing.

    Raises:
        BudgetError (OS407): the store is open elsewhere, or the schema holds something else.
    """
    if not locked(db):
        raise store_refusal("a store that this process can lock", LOCKED)
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
        raise store_refusal("a store of a session", "a schema with other tables")
    return True


class _Making:
    """Makes tables in PostgreSQL's types."""

    def __init__(self, db: StoreTables) -> None:
        self.executemany, self._execute = db.executemany, db.execute

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement."""
        if statement.lstrip().startswith("CREATE TABLE"):
            for ours, theirs in _TYPES.items():
                statement = statement.replace(ours, theirs)
        return self._execute(statement, values) if statement.strip() else None


# --------------------------------------------------------------------------------------------------

_T = TypeVar("_T")
_FENCE = "SELECT value FROM about WHERE name = 'fence'"


def store_at(
    path: str | Path,
    identity: str,
    name: str | None = None,
    *,
    forgets: bool = False,
    place: StorePlace | None = None,
) -> SessionStore:
    """Open a store."""
    kind = SharedStore if is_shared(path) else SessionStore
    return kind(path, identity, name, forgets=forgets, place=place)


def place_at(path: str | Path) -> StorePlace:
    """Lock the place of a store, whether or not it exists (OS407)."""
    return SharedPlace(path) if is_shared(path) else StorePlace(path)


def mark_at(path: str | Path) -> Mark | None:
    """Return a closed store's mark, or None without a store (OS407)."""
    if not is_shared(path) and not os.path.exists(path):  # noqa: PTH110 - a name that is too long is no file
        return None
    with place_at(path) as place:
        return place.mark


class SharedPlace(StorePlace):
    """Lock the name of a store on a server by its connection."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.mark = Path(path), None
        with ExitStack() as undo:
            self.db = open_connection(self.path)
            undo.callback(self.db.close)
            if made(self.db, None):
                self.mark = self._read()
            else:  # now, and not when the store is paid for
                for statement in ("BEGIN", f"CREATE SCHEMA {self.db.schema}", "ROLLBACK"):
                    self.db.execute(statement)
            self._lock = undo.pop_all()

    def _read(self) -> Mark:
        with suppress(ValueError, TypeError):
            return mark_in(chain.read_about(cast("sqlite3.Connection", self.db)))
        raise store_refusal("a store that this process can lock", LOCKED)


def _until_answered(action: Callable[[], _T], again: Callable[[], None]) -> _T:
    """Repeat an action after each lost answer, behind ``again``."""
    lost: LostError | None = None
    for _ in tries():
        try:
            if lost is not None:
                again()
            return action()
        except LostError as error:
            lost = error.with_traceback(None)
    assert lost is not None  # noqa: S101 - it was tried
    raise lost


class SharedStore(SessionStore):
    """Keep a session on a server, as files do.

    Raises:
        BudgetError (OS407): open elsewhere, damaged, started with something else, or a server that is
            away or may lose what it commits.
    """

    _begin = "BEGIN"
    _fence = ""

    def _connect(
        self, undo: ExitStack, about: dict[str, str], name: str, place: StorePlace | None
    ) -> Any:
        if isinstance(place, SharedPlace):
            place.take().pop_all()  # the connection itself is handed over
            self._db: Any = place.db
        else:
            self._db = open_connection(self._path)
        undo.callback(self._let_go)

        def again() -> None:
            self._reconnect()
            if not locked(self._db):
                raise _failed(_STILL_HELD)

        if place is None:
            self._make(about, name)
        else:  # the run is charged, perhaps long after its place was locked
            _until_answered(lambda: self._make(about, name), again)
        return self._db

    def _make(self, about: dict[str, str], name: str) -> None:
        """Find or create the store, and draw a fence."""
        fence = secrets.token_hex(16)
        made(self._db, lambda new: create_store(new, {**about, "fence": ""}, name))
        with super()._transaction():
            self._db.execute(f"{_FENCE} FOR UPDATE")
            write_about(self._db, {"fence": fence})
        self._fence = fence

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with super()._transaction():
            self._check_fence(f"{_FENCE} FOR UPDATE")
            yield

    def _settle(self) -> None:
        """Do nothing, as COMMIT is durable."""

    def _trouble(self) -> tuple[str, str] | None:
        return None

    def _commit(self, entries: Sequence[StoredEntry]) -> None:
        """Commit, again if the answer was lost."""
        commit = super()._commit
        _until_answered(lambda: commit(entries), self._come_back)

    def published(self, key: bytes) -> tuple[bytes, Payload] | None:
        """Return a key's question and answer, again after a lost answer."""
        found = super().published
        return _until_answered(lambda: found(key), self._come_back)

    def take_turn(self, name: str, last: str, ledger: str = "") -> str:
        """Draw a turn, again after a lost answer."""
        take = super().take_turn
        return _until_answered(lambda: take(name, last, ledger), self._come_back)

    def tell(self) -> tuple[int, str]:
        """Return the head, again after a lost answer."""
        return _until_answered(super().tell, self._come_back)

    def _let_go(self) -> None:
        self._db.close()

    def _reconnect(self) -> None:
        self._db.close()
        self._db = open_connection(self._path, met=True)

    def _come_back(self) -> None:
        """Connect again and acquire the lock."""
        self._reconnect()
        self._check_fence(_FENCE)
        if not locked(self._db):
            raise _failed(_STILL_HELD)

    def _check_fence(self, statement: str) -> None:
        found = self._db.execute(statement).fetchone()
        if found is None or found[0] != self._fence:
            raise store_refusal("the process that opened the store last", "an earlier one")
