"""The ledger of a dataset: every charge, durable before anything runs, chained by hashes.

One SQLite file in write-ahead mode with full synchronisation, checkpointed after every entry, so that
the file alone is always the whole ledger. Each entry holds the hash of the one before it, and a head
record holds the number of entries and the last hash, so an edit, a deletion, a swap or a cut tail is
found by ``verify``. What no file can show is a whole older copy put in its
place, or a rewrite by somebody who recomputes every hash: certificates carry the head at the time of
their charge, so ``verify(head=...)`` finds those as long as one certificate is kept elsewhere.

One process writes at a time: the file stays locked from ``open`` to ``close`` (OS403 for the second).
A crash between a charge and its answer leaves the charge: it costs budget, never privacy.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from opendp_sim.accounting._durable import SIDES, checkpoint, claimed, create, hold
from opendp_sim.accounting._entries import Entry, Terms, canonical, chained
from opendp_sim.accounting.budget import Budget
from opendp_sim.accounting.totals import Charge, Total, total_of
from opendp_sim.core.errors import BudgetError

__all__ = ["REFUSALS", "Entry", "Ledger", "Terms", "head_of"]

FORMAT = "opendp_sim/ledger/1"
REFUSALS = 10
"""Runs that the data may refuse in a ledger's life, unless they enforce their declaration."""
_TABLES = (
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


class Ledger:
    """An open ledger; a context manager that keeps the file locked."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._open = ExitStack()  # what `close` undoes
        self._owner = os.getpid()

    # --- opening --------------------------------------------------------------------------------

    @classmethod
    def open(cls, path: str | Path, terms: Terms | None = None) -> Ledger:
        """Open a ledger and lock it; with ``terms``, make it when it does not exist.

        Raises:
            BudgetError (OS403): missing, locked, foreign, broken, or made with other terms.
        """
        file = Path(path)
        with _sqlite(file), ExitStack() as undo:
            if not file.exists():
                _new(file, terms)
            undo.callback(claimed(file).release)
            connection = sqlite3.connect(file, timeout=0.0, isolation_level=None)
            undo.callback(connection.close)
            ledger = cls(file, connection)
            ledger._start(terms)
            ledger._open = undo.pop_all()
        return ledger

    def _start(self, terms: Terms | None) -> None:
        tables = self._connection.execute("SELECT name FROM sqlite_master").fetchall()
        if ("meta",) not in tables:
            raise _refuse(self.path, "a ledger", "a file without its records", _RESTORE)
        hold(self._connection)
        self.verify()
        if terms is not None and terms != self.terms:
            raise _refuse(
                self.path, f"the terms it was made with: {canonical(self.terms.plain())}",
                canonical(terms.plain()),
                "state the same measure, unit and limit, or charge another ledger.",
            )  # fmt: skip

    def close(self) -> None:
        """Close and unlock."""
        self._open.close()

    def __enter__(self) -> Self:
        """Enter."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close and unlock."""
        self.close()

    # --- reading --------------------------------------------------------------------------------

    def _meta(self, key: str) -> Any:
        row = self._connection.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        if row is None:
            raise _refuse(self.path, "a ledger", "a file without its records", _RESTORE)
        return json.loads(row[0])

    @property
    def terms(self) -> Terms:
        """Measure, unit and limit of this ledger."""
        found = self._meta("genesis")
        limit = dict(found["limit"])
        reserve = limit.pop("reserve", {}).get("mechanisms")
        return Terms(found["measure"], found["unit"], Budget(**limit, reserve_mechanisms=reserve))

    @property
    def head(self) -> str:
        """The last hash: it names the whole history."""
        return str(self._meta("head")["hash"])

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every entry in order."""
        rows = self._connection.execute("SELECT seq, body, hash FROM entries ORDER BY seq")
        return tuple(Entry(seq, json.loads(body), digest) for seq, body, digest in rows)

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Every charge in order."""
        return tuple(Charge.read(e.body["loss"]) for e in self.entries if e.kind == "charge")

    def total(self, *more: Charge) -> Total:
        """Return what was spent, with ``more`` on top, by OpenDP's composition."""
        return total_of((*self.charges, *more), self.terms.measure, self.terms.limit)

    def verify(self, head: str | None = None) -> int:
        """Check the chain from the first entry to the head; return the number of entries.

        Args:
            head: a hash that must occur in the chain: the head that a certificate recorded.

        Raises:
            BudgetError (OS403): an edited, missing, swapped or cut entry, or ``head`` is not there.
        """
        with _sqlite(self.path):
            genesis = self._connection.execute(
                "SELECT value FROM meta WHERE key='genesis'"
            ).fetchone()
            if genesis is None:
                raise _refuse(self.path, "a ledger", "a file without its records", _RESTORE)
            last, seen = chained("", genesis[0]), set()
            seen.add(last)
            rows = self._connection.execute("SELECT seq, body, hash FROM entries ORDER BY seq")
            count = 0
            for seq, body, digest in rows:
                count += 1
                last = chained(last, body)
                seen.add(last)
                if seq != count or digest != last:
                    raise _refuse(
                        self.path, "an unbroken chain", f"a break at entry {count}", _RESTORE
                    )
            stated = self._meta("head")
        if stated != {"count": count, "hash": last}:
            raise _refuse(
                self.path, "the head that was recorded", "a cut or changed tail", _RESTORE
            )
        if head is not None and head not in seen:
            raise _refuse(
                self.path, "a history that holds the given head", "another history",
                "this is not the ledger that the certificate was charged to, or an old copy of it.",
            )  # fmt: skip
        return count

    # --- writing --------------------------------------------------------------------------------

    def afford(self, charge: Charge) -> None:
        """Raise OS402 unless the limit has room for ``charge``; nothing is recorded."""
        before, after = self.total(), self.total(charge)
        if not after.fits:
            raise BudgetError(
                "OS402", str(self.path), expected=f"a total within {after.limit_text}",
                got=f"requested {charge.text}, spent {before.text}, left {before.left_text}",
                hint="ask for less, or stop: what is spent cannot be had back.",
            )  # fmt: skip

    def may_refuse(self) -> None:
        """Raise OS402 when so many runs were refused by the data that another would tell too much."""
        if sum(entry.kind == "refusal" for entry in self.entries) >= REFUSALS:
            raise BudgetError(
                "OS402", str(self.path), expected=f"fewer than {REFUSALS} runs that the data refused",
                got=f"{REFUSALS} of them", hint="use `ingest: enforce`: it clamps and drops by the "
                "declared rule, so that a run says nothing about the data by being refused.",
            )  # fmt: skip

    def refusal(self, about: dict[str, Any]) -> Entry:
        """Record that the data refused a run: nothing is charged, but it counts (``ingest.md``)."""
        return self._append({"kind": "refusal", **about})

    def charge(self, charge: Charge, about: dict[str, Any]) -> Entry:
        """Record a charge, durably, if the limit allows it.

        Raises:
            BudgetError (OS402): the limit would be passed; nothing is recorded.
        """
        self.afford(charge)
        return self._append({"kind": "charge", "loss": charge.plain(), **about})

    def opened(self, store: str, turn: str) -> Entry:
        """Record that the store of a session was opened, before it answers: older copies are refused."""
        return self._append({"kind": "session", "store": store, "turn": turn})

    def turn_of(self, store: str) -> str | None:
        """Return the turn in which a store was last opened, "" if never; None if it is not charged."""
        found = [e.body.get("turn", "") for e in self.entries if e.body.get("store") == store]
        return found[-1] if found else None

    def outcome(self, of: Entry, about: dict[str, Any]) -> Entry:
        """Record what became of a charge; its absence says that the run did not finish."""
        return self._append({"kind": "outcome", "of": of.seq, **about})

    def _append(self, body: dict[str, Any]) -> Entry:
        if os.getpid() != self._owner:
            raise _refuse(self.path, "the process that opened the ledger", "a fork of it",
                          "open the ledger in the process that charges it.")  # fmt: skip
        run = self._connection.execute
        with _sqlite(self.path):
            run("BEGIN IMMEDIATE")
            try:
                head = self._meta("head")
                text = canonical({**body, "time": datetime.now(UTC).isoformat(timespec="seconds")})
                seq, digest = head["count"] + 1, chained(head["hash"], text)
                run("INSERT INTO entries VALUES (?, ?, ?)", (seq, text, digest))
                _put(self._connection, "head", canonical({"count": seq, "hash": digest}))
                run("COMMIT")
            except BaseException:
                run("ROLLBACK")
                raise
            checkpoint(self._connection)
        return Entry(seq, json.loads(text), digest)


_RESTORE = "restore the ledger from a backup; until then treat the budget as spent."


def _new(file: Path, terms: Terms | None) -> None:
    """Make a ledger with no entry yet."""
    if any(file.with_name(file.name + side).exists() for side in SIDES):
        raise _refuse(file, "a ledger", "only the files that SQLite keeps beside one", _RESTORE)
    if terms is None:
        raise _refuse(file, "a ledger", "no such file", "the first `apply` makes it.")
    genesis = canonical({"format": FORMAT, **terms.plain()})

    def fill(connection: sqlite3.Connection) -> None:
        for table in _TABLES:
            connection.execute(table)
        _put(connection, "genesis", genesis)
        _put(connection, "head", canonical({"count": 0, "hash": chained("", genesis)}))

    file.parent.mkdir(parents=True, exist_ok=True)
    create(file, fill)


def _put(connection: sqlite3.Connection, key: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def head_of(path: str | Path) -> str | None:
    """Return the head of the ledger at ``path``, or None when there is no ledger yet."""
    if not Path(path).exists():
        return None
    with Ledger.open(path) as ledger:
        return ledger.head


def _refuse(path: Path, expected: str, got: str, hint: str) -> BudgetError:
    return BudgetError("OS403", str(path), expected=expected, got=got, hint=hint)


@contextmanager
def _sqlite(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into OS403."""
    try:
        yield
    except sqlite3.OperationalError as error:
        locked = "locked" in str(error) or "busy" in str(error)
        got = "locked by another process" if locked else "not readable or not writable"
        raise _refuse(
            path, "a ledger that this process can lock", got,
            "wait for the other run to end." if locked else "check the path and its permissions.",
        ) from None  # fmt: skip
    except sqlite3.DatabaseError:
        raise _refuse(path, "a ledger", "a file that is none", _RESTORE) from None
