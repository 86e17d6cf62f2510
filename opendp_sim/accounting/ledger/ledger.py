"""The ledger of a dataset: every loss, durable before the data is looked at, chained by hashes.

One SQLite file in write-ahead mode with full synchronisation, checkpointed after every entry, so that
the file alone is always the whole ledger. Each entry holds the hash of the one before it, and a head
record holds the number of entries and the last hash, so an edit, a deletion, a swap or a cut tail is
found by ``verify``. What no file can show is a whole older copy put in its
place, or a rewrite by somebody who recomputes every hash: certificates carry their entry of the chain,
so ``verify(head=...)`` finds those as long as one certificate is kept elsewhere.

A run *reserves* its loss before it looks at a record, and *settles* it as a charge, as a refusal by the
data gate, or as void where no record could be looked at. A reserve that was never settled counts as
spent (``dsl/run/charge.md`` has the proof).

One process writes at a time: the file stays locked from ``open`` to ``close`` (OS403 for the second).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.ledger._durable import Held, Owned, checkpoint, claimed, has_tables, hold
from opendp_sim.accounting.ledger._entries import (
    Entry,
    Terms,
    canonical,
    chained,
    read_entry,
    read_head,
    read_terms,
)
from opendp_sim.accounting.ledger._file import (
    LONGEST,
    RESTORE,
    TABLES,
    lost,
    make,
    put,
    refused,
    system_errors,
    was_opened,
)
from opendp_sim.accounting.ledger.history import REFUSALS, LedgerHistory

__all__ = ["REFUSALS", "Entry", "Ledger", "Terms", "head_of"]


class Ledger(LedgerHistory):
    """An open ledger; a context manager that keeps the file locked.

    What its entries say is in ``ledger_history``; here are opening, locking and appending.
    """

    def __init__(self, path: Path, connection: Any) -> None:
        self.path, self._connection = path, connection
        self._open = ExitStack()  # what `close` undoes
        self._owner = os.getpid()
        self._place = Held(path)
        self._known: list[Entry] = []  # what this process has read and verified

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be copied or pickled: the lock belongs to one object (OS403)."""
        raise refused(self.path, "one open ledger", "a copy of it", "open the file again.")

    @classmethod
    def open(cls, path: str | Path, terms: Terms | None = None, *, forget: bool = False) -> Ledger:
        """Open a ledger and lock it; with ``terms``, make it when it does not exist.

        Args:
            path: its file, or ``postgresql:SERVICE/LEDGER``.
            terms: measure, unit and limit.
            forget: begin another ledger where one was and is lost. It records that it does: whatever was
                charged to the lost one is in no total any more.

        Raises:
            BudgetError (OS403): missing, locked, foreign, broken, or made with other terms. (OS401):
                the terms' limit is none. (OS407): it was here before, and is gone.
        """
        if str(path).startswith("postgresql:"):
            from opendp_sim.accounting.ledger.postgres import SharedLedger  # noqa: PLC0415 - its own

            return SharedLedger.open(path, terms)
        file = Path(path)
        if terms is not None:
            terms.limit.check(terms.measure, "ledger.limit")
        with system_errors(file), ExitStack() as undo:
            if file.is_symlink() and not file.exists():
                raise refused(file, "a ledger", "a link to a file that is not there",
                              "restore that file, or name the file itself.")  # fmt: skip
            before = was_opened(file)
            if not file.exists():
                if before and not forget:
                    raise lost(file, "the file of its lock is there still")
                make(file, terms, anew=forget)
            undo.callback(claimed(file).release)
            connection = sqlite3.connect(file, timeout=0.0, isolation_level=None, factory=Owned)
            undo.callback(connection.close)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            ledger = cls(file, connection)
            ledger._start(terms)
            ledger._open = undo.pop_all()
        return ledger

    def _start(self, terms: Terms | None) -> None:
        if not has_tables(self._connection, TABLES):
            raise refused(self.path, "a ledger", "a file with other tables", RESTORE)
        hold(self._connection)
        self.verify()
        self._check_terms(terms)

    def _check_place(self) -> None:
        """Refuse a file that went, was exchanged, or has a second name: its lock is by its name."""
        trouble = self._place.trouble()
        if trouble is not None:
            raise refused(self.path, *trouble, RESTORE + " A file with two names: copy it to a new one, "
                          "and put that in its place.")  # fmt: skip

    def _check_terms(self, terms: Terms | None) -> None:
        if terms is not None and terms != self.terms:
            raise refused(
                self.path,
                f"the terms it was made with: {canonical(self.terms.plain())}",
                canonical(terms.plain()),
                "state the same measure, unit and limit, or charge another ledger.",
            )

    def close(self) -> None:
        """Close and unlock; in a fork, do nothing."""
        if os.getpid() == self._owner:
            self._open.close()

    def __enter__(self) -> Self:
        """Enter."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close and unlock."""
        self.close()

    def _meta(self, key: str) -> str:
        with system_errors(self.path):
            row = self._connection.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        if row is None or not isinstance(row[0], str):
            raise refused(self.path, "a ledger", "a file without its records", RESTORE)
        return row[0]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every entry in order."""
        found: list[Entry] = []
        last = chained("", self._meta("genesis"))
        with system_errors(self.path):
            rows = self._connection.execute("SELECT seq, body, hash FROM entries ORDER BY seq")
            # A cursor that is not read to its end would keep the file locked.
            with closing(rows):
                for row in rows:
                    known = self._known[len(found)] if len(found) < len(self._known) else None
                    same = known is not None and known.is_row(row, last)
                    found.append(known if known and same else self._entry(row, found, last))
                    last = found[-1].hash
        self._known = found
        return tuple(found)

    def _entry(self, row: tuple[Any, Any, Any], before: list[Entry], last: str) -> Entry:
        """Return the entry of a row that has not been read before."""
        seq, body, digest = row
        if seq != len(before) + 1 or not isinstance(body, str) or digest != chained(last, body):
            raise self._broken(f"a break at entry {len(before) + 1}")
        return read_entry(seq, body, last, self._broken)

    def verify(self, head: str | None = None) -> int:
        """Check every link; return the number of entries.

        Args:
            head: a hash that must occur in the chain: the head that a certificate recorded.

        Raises:
            BudgetError (OS403): an edited, missing, swapped or cut entry, or ``head`` is not there.
        """
        entries, first = self.entries, chained("", self._meta("genesis"))
        last = entries[-1].hash if entries else first
        if read_head(self._meta("head"), self._broken) != (len(entries), last):
            raise refused(self.path, "the head that was recorded", "a cut or changed tail", RESTORE)
        return self._checked(entries, head)

    def _checked(self, entries: tuple[Entry, ...], head: str | None) -> int:
        """Check the terms of a chain whose links hold, and that it has a head; return its length."""
        genesis = self._meta("genesis")
        read_terms(genesis, self._broken)
        seen = [chained("", genesis), *(entry.hash for entry in entries)]
        if head is not None and head not in seen:
            raise refused(
                self.path, "a history that holds the given head", "another history",
                "this is not the ledger that the certificate was charged to, or an old copy of it.",
            )  # fmt: skip
        return len(entries)

    def refusal(self, about: dict[str, Any]) -> Entry:
        """Record that the data refused a run: nothing is charged, but it counts (``ingest.md``)."""
        return self._append({"kind": "refusal", **about})

    def charge(self, charge: Charge, about: dict[str, Any]) -> Entry:
        """Record a charge, durably, if the limit allows it.

        Raises:
            BudgetError (OS402): the limit would be passed; nothing is recorded. (OS405): no loss that
                adds up in the ledger's own measure; nothing is recorded.
        """
        self.afford(charge)
        return self._append({"kind": "charge", "loss": charge.plain(), **about})

    def reserve(self, charge: Charge, about: dict[str, Any]) -> Entry:
        """Record a loss before the data is looked at; it counts as spent until it is settled.

        Raises:
            BudgetError (OS402): the limit would be passed; nothing is recorded.
        """
        self.afford(charge)
        return self._append({"kind": "reserve", "loss": charge.plain(), **about})

    def settle(
        self, reserve: Entry, kind: Literal["charge", "refusal", "void"], about: dict[str, Any]
    ) -> Entry:
        """Say what became of a reserve: once, and again only if it is the same.

        Args:
            reserve: what ``reserve`` returned.
            kind: ``charge``; ``refusal`` by the data gate; ``void`` where no record was looked at.
            about: more to record: a code for a refusal, the digests of files for a charge.

        Raises:
            BudgetError (OS403): it was settled otherwise.
        """
        settled = self.settlement_of(reserve)
        if settled is not None and settled.kind != kind:
            raise self._broken(f"entry {reserve.seq}, settled as a {settled.kind}")
        keep = ("token", "name", "program", "dataset", "unit", "store", "loss")
        known = {name: reserve.body[name] for name in keep if name in reserve.body}
        if kind != "charge":
            known.pop("loss")
        return settled or self._append({"kind": kind, "of": reserve.seq, **known, **about})

    def opened(
        self, store: str, turn: str, head: tuple[int, str] | None = None, *, ended: bool = False
    ) -> Entry:
        """Record that a session's store was opened, before it answers, or has ended, and its head."""
        told: dict[str, Any] = {} if head is None else {"place": head[0], "head": head[1]}
        told |= {"ended": True} if ended else {}
        return self._append({"kind": "session", "store": store, "turn": turn, **told})

    def outcome(self, of: Entry, about: dict[str, Any]) -> Entry:
        """Record what became of a charge; its absence says that the run did not finish."""
        return self._append({"kind": "outcome", "of": of.seq, **about})

    def _append(self, body: dict[str, Any]) -> Entry:
        if os.getpid() != self._owner:
            raise refused(self.path, "the process that opened the ledger", "a fork of it",
                          "open the ledger in the process that charges it.")  # fmt: skip
        self._check_place()
        run = self._connection.execute
        with system_errors(self.path):
            run("BEGIN IMMEDIATE")
            try:
                count, last = read_head(self._meta("head"), self._broken)
                text = canonical({**body, "time": datetime.now(UTC).isoformat(timespec="seconds")})
                entry = read_entry(count + 1, text, last, self._broken)
                run("INSERT INTO entries VALUES (?, ?, ?)", (entry.seq, text, entry.hash))
                head = canonical({"count": entry.seq, "hash": entry.hash})
                put(self._connection, "head", head)
                run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    run("ROLLBACK")
                raise
            checkpoint(self._connection)
        if self.head != entry.hash:
            raise self._broken("a file that keeps something else than it is told")
        return entry


def head_of(path: str | Path) -> str | None:
    """Return the head of the ledger at ``path``, or None when there is no ledger yet."""
    from opendp_sim.accounting.ledger.postgres import is_there  # noqa: PLC0415 - it is made of this one

    if not is_there(path):
        return None
    with Ledger.open(path) as ledger:
        return ledger.head
