"""Create and commit SQLite files durably.

A file is created whole or not at all, and is whole again after every commit. Write-ahead mode keeps a
commit in a second file until a checkpoint. A copy of the main file alone would then be an older, valid
file. So every commit is followed by a checkpoint that empties the second file, and a new file appears
under its name only when its tables and first records are in it: a file that is there and holds none
was damaged.

SQLite's lock is the process's, and POSIX drops it as soon as the process closes any descriptor of the
file: a checksum or a copy made by the same program would let another one in. So who opens a file holds
a second lock, on a file beside it that nobody has a reason to open.
"""

from __future__ import annotations

import ctypes
import os
import re
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from opendp_sim.accounting.atomic_files import sync_folder
from opendp_sim.core.system.lazy_import import filelock
from opendp_sim.core.system.regular_files import is_odd

if TYPE_CHECKING:
    from filelock import FileLock


SIDES = ("-wal", "-shm", "-journal")
"""What SQLite appends to the names of the files that it keeps beside the main one."""
_LONG_AGO = 3600.0
"""Seconds after which a file that is still being made has no maker any more; making takes under one."""
_MAGIC = b"SQLite format 3\0"
LOCK = ".lock"
"""What is appended to the name of the file whose lock stands for the main one."""


class Closing:
    """Close at the end of a ``with`` block."""

    def close(self) -> None:
        """Release what was opened."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Return it, open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def claimed(path: Path) -> FileLock:
    """Lock a file until the release or the process's end.

    Raises:
        sqlite3.OperationalError: somebody else has it, in this process or another.
        sqlite3.DatabaseError: no file, but a pipe or a device; or a file of another kind, beside which
            no lock is made; or a lock's name is that of somebody else's file.
    """
    if is_odd(path):
        raise sqlite3.DatabaseError("a pipe or a device")
    real = path.resolve()  # one lock, whatever links lead to the file
    beside = real.with_name(real.name + LOCK)
    if not _is_lock(beside):  # then nobody has it open
        _check_kind(real)
    lock: FileLock = filelock.FileLock(beside, timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise sqlite3.OperationalError("database is locked") from None
    return lock


def _is_lock(path: Path) -> bool:
    """Return whether a lock is there; other content or links are refused."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode) or found.st_size:
        raise sqlite3.DatabaseError("the lock's name is another file's")
    return True


def _check_kind(path: Path) -> None:
    """Refuse a file that SQLite did not write."""
    try:
        with path.open("rb") as stream:
            known = stream.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        return
    if not known:
        raise sqlite3.DatabaseError("no database")


def has_tables(connection: sqlite3.Connection, statements: Iterable[str]) -> bool:
    """Return whether a file has exactly these tables.

    A trigger would change what is written, and a view is a program that runs when it is read. This is
    the first look at a file: locked from here on, so that SQLite keeps no shared memory beside it. Of
    a file without the right to write that would be left, and refuse the next process too.
    """
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("PRAGMA trusted_schema=OFF")
    wanted = {" ".join(text.split()) for text in statements if text.strip()}
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master LIMIT 50").fetchall()
    own = [row for row in rows if not (row[0] == "index" and row[2] is None)]
    found = [" ".join(str(sql).split()) for _, _, sql in own]
    return all(kind == "table" for kind, _, _ in own) and sorted(found) == sorted(wanted)


class Owned(sqlite3.Connection):
    """A connection that only the process uses and closes which opened it.

    What SQLite knows of a file's locks and of its write-ahead file is in memory. A fork has a copy of
    that: when it writes or closes the file, at its own end too, the opener's file is damaged.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._owner = os.getpid()
        _OPEN.add(self)

    def execute(self, *given: Any) -> sqlite3.Cursor:
        """Run a statement, except in a fork."""
        if os.getpid() != self._owner:
            raise sqlite3.OperationalError("database is locked")
        return super().execute(*given)

    def close(self) -> None:
        """Close the file; in a fork, do nothing."""
        if os.getpid() == self._owner:
            super().close()


_OPEN: WeakSet[Owned] = WeakSet()


def _never_closed() -> None:
    """Keep a fork's copies of connections open for ever."""
    for connection in list(_OPEN):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_never_closed)


class OpenFile:
    """Hold an open, locked file under its name."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # the current folder may change
        self._file = _identity(self._path)
        if self._file is not None and self._file[2] > 1:
            _sweep(self._path)  # who made it may have died before its first name was removed

    def trouble(self) -> tuple[str, str] | None:
        """Return the expected one name and a changed file's state."""
        found = _identity(self._path)
        if found is None or found[:2] != (self._file or ())[:2]:
            return "the file that was opened", "another one, or none"
        if found[2] > 1:
            return "a file with one name", "one with a second (a hard link)"
        return None


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return a file's device, number and link count, or None."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_nlink


def create(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create a file filled by ``fill`` unless it exists.

    Readable by its owner only. A file that is there is not opened: closing it would drop the POSIX
    locks that a connection of this process may hold on it.
    """
    if path.is_symlink() and not path.exists():  # SQLite would make the file it names, and empty
        raise sqlite3.OperationalError("a link to no file")
    _sweep(path)
    if path.exists():
        return
    handle, name = tempfile.mkstemp(prefix=path.name + ".", suffix=".new", dir=path.parent)
    os.close(handle)
    try:
        connection = sqlite3.connect(name, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous=EXTRA")
            connection.execute("BEGIN EXCLUSIVE")
            fill(connection)
            connection.execute("COMMIT")
        finally:
            connection.close()
        with suppress(FileExistsError):
            os.link(name, path)  # a rename would replace what another process made meanwhile
        sync_folder(path.parent)
    finally:
        Path(name).unlink(missing_ok=True)


def _sweep(path: Path) -> None:
    """Remove leftovers of a process that died while creating it."""
    known = _identity(path)
    left = re.compile(re.escape(path.name) + r"\.[a-z0-9_]{8}\.new(-journal)?")
    with suppress(OSError):
        for found in list(os.scandir(path.parent)):
            if left.fullmatch(found.name) is None or not found.is_file(follow_symlinks=False):
                continue
            one = found.stat(follow_symlinks=False)
            second = known is not None and (one.st_dev, one.st_ino) == known[:2]
            if second or time.time() - one.st_mtime > _LONG_AGO:
                Path(found.path).unlink(missing_ok=True)


def hold(connection: sqlite3.Connection) -> None:
    """Lock the file in write-ahead mode until the connection closes.

    Raises:
        sqlite3.OperationalError: another connection has it, or there is no such file.
    """
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("COMMIT")
    checkpoint(connection)


@contextmanager
def transaction(connection: Any, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Write all or nothing."""
    try:
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def checkpoint(connection: sqlite3.Connection) -> None:
    """Move every commit into the main file, durably, or raise OperationalError."""
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        raise sqlite3.OperationalError("database is locked")
