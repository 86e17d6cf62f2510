"""Store a ledger's rows in one SQLite file, locked while open."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from opendp_sim.accounting.ledger._durable import (
    LOCK,
    SIDES,
    OpenFile,
    Owned,
    checkpoint,
    claimed,
    create,
    has_tables,
    hold,
    transaction,
)
from opendp_sim.accounting.ledger._entries import Entry
from opendp_sim.accounting.ledger._refusals import RESTORE, lost, refused, unavailable
from opendp_sim.core.errors import BudgetError, refusing
from opendp_sim.core.system.file_kinds import kind_of_file

T = TypeVar("T")

LEDGER_TABLES = (
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
)
LONGEST_ENTRY = 2**20
"""Bytes of a row at most: a run of 400 outputs has some 90,000. SQLite does not read a longer one."""
_BESIDE = 2**10
"""Bytes of a row beside its entry's text: a number and a hash."""
_PUT = "INSERT OR REPLACE INTO meta VALUES (?, ?)"


def check_length(path: Path, text: str) -> None:
    """Refuse an entry that no ledger reads again (OS403)."""
    if len(text.encode("utf-8")) > LONGEST_ENTRY - _BESIDE:
        raise refused(
            path,
            f"an entry of at most {LONGEST_ENTRY - _BESIDE:,} bytes",
            "a longer one; nothing was recorded",
            "an entry names every output of its run, with the digests of its files: write fewer "
            "outputs in one spec, or shorter names.",
        )


class FileTables:
    """The rows of one file; no other process can open it.

    Threads may share the object: their calls come one after another.
    """

    keeps = False
    """Whether rows that were read stay as they were: a file can be edited under its lock."""

    def __init__(self, path: Path) -> None:
        self.path, self._owner = path, os.getpid()
        self._open = ExitStack()  # what `close` undoes
        self._db: Any = None
        self._turn = threading.RLock()  # one connection and one transaction: threads take turns

    def there(self) -> bool:
        """Say whether the file is there."""
        return self.path.exists()

    def open(self, first: Callable[[], tuple[str, str]] | None, *, forget: bool) -> None:
        """Lock the file; make it where it is not there.

        ``first`` returns a new one's records ``genesis`` and ``head``; None refuses to make it.
        ``forget`` makes it also where one was lost.
        """
        if self.path.is_symlink() and not self.path.exists():
            raise refused(self.path, "a ledger", "a link to a file that is not there",
                          "restore that file, or name the file itself.")  # fmt: skip
        before = was_opened(self.path)
        if not self.path.exists():
            if before and not forget:
                raise lost(self.path, "the file of its lock is there still")
            self._make(first)
        self._open.callback(claimed(self.path).release)
        self._place = OpenFile(self.path)
        self._db = sqlite3.connect(
            self.path, timeout=0.0, isolation_level=None, factory=Owned, check_same_thread=False
        )
        self._open.callback(self._db.close)
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_ENTRY)
        if not has_tables(self._db, LEDGER_TABLES):
            raise refused(self.path, "a ledger", "a file with other tables", RESTORE)
        hold(self._db)

    def _make(self, first: Callable[[], tuple[str, str]] | None) -> None:
        if any(self.path.with_name(self.path.name + side).exists() for side in SIDES):
            raise refused(
                self.path, "a ledger", "only the files that SQLite keeps beside one", RESTORE
            )
        if first is None:
            raise refused(
                self.path, "a ledger", "no such file", "`opendp-sim ledger new SPEC` makes it."
            )
        records = list(zip(("genesis", "head"), first(), strict=True))

        def fill(connection: sqlite3.Connection) -> None:
            for table in LEDGER_TABLES:
                connection.execute(table)
            connection.executemany(_PUT, records)

        self.path.parent.mkdir(parents=True, exist_ok=True)
        create(self.path, fill)

    def close(self) -> None:
        """Close and unlock; in a fork, do nothing."""
        if os.getpid() == self._owner:
            with self._turn:
                self._open.close()

    def call(self, action: Callable[[], T]) -> T:
        """Run an action under the lock; errors become OS403.

        A fork takes no turn: another thread of the parent may have it, and SQLite refuses a fork anyway.
        """
        refusal = partial(_refusal_of, self.path)
        with refusing(refusal, sqlite3.Error, OSError, UnicodeDecodeError), ExitStack() as turn:
            if os.getpid() == self._owner:
                turn.enter_context(self._turn)
            return action()

    def _record(self, key: str) -> str:
        row = self._db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        if row is None or not isinstance(row[0], str):
            raise refused(self.path, "a ledger", "a file without its records", RESTORE)
        return row[0]

    def records(self) -> tuple[str, str]:
        """Return the records ``genesis`` and ``head``."""
        return self._record("genesis"), self._record("head")

    def rows(self, after: int) -> tuple[str, str, list[tuple[Any, Any, Any]]]:
        """Return genesis, head and later rows in one transaction."""
        text = "SELECT seq, body, hash FROM entries WHERE seq > ? ORDER BY seq"
        # A cursor that is not read to its end would keep the file locked.
        with closing(self._db.execute(text, (after,))) as found:
            return *self.records(), found.fetchall()

    @contextmanager
    def writing(self, token: str) -> Iterator[int | None]:
        """Write durably, and yield the earlier entry's number with ``token``, or None."""
        del token  # one process writes: it knows what it wrote
        if os.getpid() != self._owner:
            raise refused(self.path, "the process that opened the ledger", "a fork of it",
                          "open the ledger in the process that charges it.")  # fmt: skip
        trouble = self._place.trouble()
        if trouble is not None:
            raise refused(self.path, *trouble, RESTORE + " A file with two names: copy it to a new one, "
                          "and put that in its place.")  # fmt: skip
        self._put: str | None = None
        with transaction(self._db):
            yield None
        checkpoint(self._db)
        if self._put not in (None, self._record("head")):
            raise refused(self.path, "an unbroken chain of entries",
                          "a file that does not keep what is written", RESTORE)  # fmt: skip

    def put(self, entry: Entry, head: str) -> None:
        """Write an entry and the head, in ``writing``."""
        self._db.execute(
            "INSERT INTO entries VALUES (?, ?, ?)", (entry.seq, entry.text, entry.hash)
        )
        self._db.execute(_PUT, ("head", head))
        self._put = head


def was_opened(file: Path) -> bool:
    """Return whether the ledger at this path was ever open.

    The files of its locks remain. Ask before looking for the ledger itself: it is made before its
    lock, so that somebody else's first run, at this moment, is not taken for a loss.
    """
    real = file.resolve()
    lock = re.compile(re.escape(real.name) + r"(\.[0-9a-f]{32})?" + re.escape(LOCK))
    with suppress(OSError):
        return any(lock.fullmatch(found.name) for found in real.parent.iterdir())
    return False


def _refusal_of(path: Path, error: Exception) -> BudgetError:
    """Return a ledger's refusal for an error of the system (OS403)."""
    if isinstance(error, sqlite3.OperationalError):
        if "locked" in str(error) or "busy" in str(error):
            return unavailable(
                path,
                "a ledger that this process can lock",
                "locked by another process",
                "wait for the other run to end.",
            )
        return unavailable(
            path,
            "a ledger that this process can lock",
            "not readable or not writable",
            "make room on the disk, and check the path and its permissions; what was recorded stands.",
        )
    if isinstance(
        error, sqlite3.ProgrammingError | sqlite3.InterfaceError
    ):  # nothing about the file
        return refused(path, "an open ledger", "one that was closed", "open the ledger again.")
    if isinstance(error, OSError):
        return unavailable(
            path,
            "a ledger that can be read and written",
            "not readable or not writable",
            "make room on the disk, and check the path and its permissions.",
        )
    found = kind_of_file(path)  # SQLite quotes a schema that is no text: a UnicodeDecodeError
    own = found.name in ("ledger", "database", "bytes", "empty")
    hint = RESTORE if own else f"name the ledger; {found.then or 'this is another file'}."
    return refused(path, "a ledger", found.instead_of("ledger"), hint)
