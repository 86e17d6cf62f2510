"""A ledger for many machines: the entries and hashes of the file ledger, in PostgreSQL.

``ledger: {file: "postgresql:SERVICE/LEDGER", limit: ...}`` names a service of libpq and a ledger in its
database. Nothing is locked between calls: each one decides and writes in one transaction that holds the
ledger's row.
Laws and their proofs: ``postgres.md``.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger._entries import (
    Entry,
    Terms,
    canonical,
    chained,
    read_entry,
    read_head,
)
from opendp_sim.accounting.ledger._file import NO_ANSWER, RESTORE, refused
from opendp_sim.accounting.ledger._postgres_tables import (
    connected,
    held,
    is_shared,
    make,
    named,
    psycopg_of,
)
from opendp_sim.accounting.ledger.history import REFUSALS
from opendp_sim.accounting.ledger.ledger import Ledger

__all__ = ["SharedLedger", "is_shared", "is_there"]

T = TypeVar("T")
_TRIES = 3
_LEFT: list[Any] = []
"""Connections of a parent that a fork must not close."""


def is_there(path: str | Path) -> bool:
    """Say whether a ledger is there, in a file or a database; nothing is written.

    Raises:
        BudgetError (OS403): no database, or one that refuses.
    """
    return SharedLedger(Path(path)).is_there() if is_shared(path) else Path(path).exists()


class SharedLedger(Ledger):
    """One ledger of a database, for any number of processes on any number of machines.

    Threads may share the object: their calls come one after another. A fork connects anew: what it has of
    the connection is its parent's.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, None)
        self._known: list[Entry] = []  # what this process has verified
        self._begin()

    def _begin(self) -> None:
        """Start with no connection, in this process."""
        self._owner = os.getpid()
        self._db: Any = None
        self._token, self._held = "", False
        self._turn = threading.RLock()  # one connection and one transaction: threads take turns

    @classmethod
    def open(
        cls, path: str | Path, terms: Terms | None = None, *, forget: bool = False
    ) -> SharedLedger:
        """Open a ledger; with ``terms``, make it when it does not exist.

        ``forget`` changes nothing: nothing beside a database tells of a ledger that it lost.

        Raises:
            BudgetError (OS403): no database, no such ledger, broken, or made with other terms.
        """
        if terms is not None:
            terms.limit.check(terms.measure, "ledger.limit")
        del forget
        ledger = cls(Path(path))

        def start() -> None:
            if terms is not None:
                make(ledger._db, named(ledger.path)[1], terms)
            ledger.verify()
            ledger._check_terms(terms)

        ledger._tried(start)
        return ledger

    # --- reading ----------------------------------------------------------------------------------

    def is_there(self) -> bool:
        """Say whether the database has it; in a new database there are no tables yet."""

        def look() -> bool:
            found = self._db.execute("SELECT to_regclass('opendp_sim.entry')").fetchone()[0]
            name = named(self.path)[1]
            text = "SELECT 1 FROM opendp_sim.ledger WHERE name = %s"
            return found is not None and self._db.execute(text, (name,)).fetchone() is not None

        return self._tried(look)

    def _row(self) -> tuple[int, str, str]:
        row = self._db.execute(
            "SELECT id, genesis, head FROM opendp_sim.ledger WHERE name = %s",
            (named(self.path)[1],),
        ).fetchone()
        if row is None:
            raise refused(self.path, "a ledger", "no such name", "the first `apply` makes it.")
        return int(row[0]), str(row[1]), str(row[2])

    def _meta(self, key: str) -> str:
        _, genesis, head = self._tried(self._row)
        return genesis if key == "genesis" else head

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every entry in order, the new ones verified against those this process knows and the head."""
        return self._tried(self._read)

    def _read(self) -> tuple[Entry, ...]:
        with self._db.transaction():
            self._db.execute(
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
            ) if not self._held else None
            number, genesis, head = self._row()
            last = self._known[-1].hash if self._known else chained("", genesis)
            rows = self._db.execute(
                "SELECT seq, body, hash FROM opendp_sim.entry WHERE ledger = %s AND seq > %s "
                "ORDER BY seq",
                (number, len(self._known)),
            ).fetchall()
        found = list(self._known)
        for seq, body, digest in rows:
            if seq != len(found) + 1 or digest != chained(last, body):
                raise self._broken(f"a break at entry {len(found) + 1}")
            found.append(read_entry(seq, body, last, self._broken))
            last = digest
        if read_head(head, self._broken) != (len(found), last):
            raise refused(self.path, "the head that was recorded", "a cut or changed tail", RESTORE)
        self._known = found
        return tuple(found)

    def verify(self, head: str | None = None) -> int:
        """Check every link from the first one; return the number of entries.

        The entries and the head that was recorded are read together: others may write between two calls.
        """

        def run() -> int:
            self._known = []
            return self._checked(self._read(), head)

        return self._tried(run)

    # --- writing ----------------------------------------------------------------------------------

    def charge(self, charge: Charge, about: dict[str, Any]) -> Entry:
        """Record a charge, durably, if the limit allows it."""
        return self._once(lambda: super(SharedLedger, self).charge(charge, about))

    def reserve(self, charge: Charge, about: dict[str, Any]) -> Entry:
        """Record a loss before the data is looked at; it counts as spent until it is settled."""
        return self._once(lambda: super(SharedLedger, self).reserve(charge, about))

    def settle(
        self, reserve: Entry, kind: Literal["charge", "refusal", "void"], about: dict[str, Any]
    ) -> Entry:
        """Say what became of a reserve, once; a refusal beyond the allowed ones stays a charge."""

        def decided() -> Entry:
            refusals = self.refusals(enforced=about.get("ingest") == "enforce")
            open_ = self.settlement_of(reserve) is None
            if kind == "refusal" and open_ and refusals >= REFUSALS:
                return reserve  # others were refused meanwhile: this one is paid for
            return super(SharedLedger, self).settle(reserve, kind, about)

        return self._once(decided)

    def refusal(self, about: dict[str, Any]) -> Entry:
        """Record that the data refused a run."""
        return self._once(lambda: super(SharedLedger, self).refusal(about))

    def opened(
        self, store: str, turn: str, head: tuple[int, str] | None = None, *, ended: bool = False
    ) -> Entry:
        """Record that the store of a session was opened, or has ended, and its head."""
        return self._once(lambda: super(SharedLedger, self).opened(store, turn, head, ended=ended))

    def outcome(self, of: Entry, about: dict[str, Any]) -> Entry:
        """Record what became of a charge."""
        return self._once(lambda: super(SharedLedger, self).outcome(of, about))

    def _once(self, decide: Callable[[], Entry]) -> Entry:
        """Decide and write under the ledger's row; if the answer to COMMIT was lost, the token tells."""
        token = secrets.token_hex(16)

        def run() -> Entry:
            with held(self.path, self._db) as number, self._writing(token):
                found = self._db.execute(
                    "SELECT seq FROM opendp_sim.entry WHERE ledger = %s AND token = %s",
                    (number, token),
                ).fetchone()
                return self.entries[found[0] - 1] if found is not None else decide()

        return self._tried(run)

    @contextmanager
    def _writing(self, token: str) -> Iterator[None]:
        known = list(self._known)
        self._token, self._held = token, True
        try:
            yield
        except BaseException:
            self._known = known  # what was not committed is not known
            raise
        finally:
            self._token, self._held = "", False

    def _append(self, body: dict[str, Any]) -> Entry:
        entries = self.entries
        last = entries[-1].hash if entries else chained("", self._meta("genesis"))
        text = canonical({**body, "time": datetime.now(UTC).isoformat(timespec="seconds")})
        entry = read_entry(len(entries) + 1, text, last, self._broken)
        number = self._row()[0]
        self._db.execute(
            "INSERT INTO opendp_sim.entry VALUES (%s, %s, %s, %s, %s)",
            (number, entry.seq, self._token, text, entry.hash),
        )
        self._db.execute(
            "UPDATE opendp_sim.ledger SET head = %s WHERE id = %s",
            (canonical({"count": entry.seq, "hash": entry.hash}), number),
        )
        return entry

    def _tried(self, action: Callable[[], T]) -> T:
        """Run on a connection, one thread after another, so that no one sees another's transaction."""
        if os.getpid() != self._owner:
            _LEFT.append(
                self._db
            )  # of another thread of the parent: its end would be told to the server
            self._begin()
        with self._turn:
            return self._again(action)

    def _again(self, action: Callable[[], T]) -> T:
        """Run on a connection; again where the server went away, since no answer is no refusal."""
        if self._db is not None:
            return action()
        lost = psycopg_of(self.path).OperationalError
        for _ in range(_TRIES):
            try:
                with connected(self.path) as self._db:
                    return action()
            except lost:
                continue
            finally:
                self._db = None
        raise refused(
            self.path, "a database that answers", NO_ANSWER,
            "try again when it does; what it recorded stands, so nothing is charged twice.",
        )  # fmt: skip
