"""Who waits for whom: a fit for another process's charge, a fork for another thread's.

A forked child would inherit a lock that another thread holds, and wait for it for ever. So a fork waits
until the charge ends; a child that was made before that refuses to charge.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from functools import cache
from pathlib import Path
from types import TracebackType

from opendp_sim.accounting.ledger import Ledger, Terms
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.on_use import filelock

__all__ = ["HeldOverForks", "open_when_free"]

_PATIENCE = 60.0
"""Seconds that are waited."""
_LOCKS: weakref.WeakSet[HeldOverForks] = weakref.WeakSet()


class HeldOverForks:
    """A lock that a thread may take again; every fork takes it first, and lets it go on both sides."""

    def __init__(self) -> None:
        self._lock, self._usable = threading.RLock(), True
        _watch_forks()
        _LOCKS.add(self)

    def __enter__(self) -> None:
        """Wait for the lock.

        Raises:
            BudgetError (OS403): in a fork that did not get the lock: nobody would let it go.
        """
        if not self._usable:
            raise BudgetError(
                "OS403", "budget", expected="the process that the budget was opened in",
                got="a fork of it, made while another thread was charging",
                hint="start processes before threads, or open the budget's file in this process.",
            )  # fmt: skip
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Let the lock go."""
        self._lock.release()

    def wait(self) -> bool:
        """Take the lock for a fork; say whether it was free in time."""
        return self._lock.acquire(timeout=_PATIENCE)

    def let_go(self) -> None:
        """Let go what ``wait`` took."""
        self._lock.release()

    def give_up(self) -> None:
        """Refuse from now on, in this process."""
        self._usable = False


class _Forking(threading.local):
    """What a forking thread did with each lock: it has it, or another thread still has."""

    def __init__(self) -> None:
        self.taken: list[HeldOverForks] = []
        self.missed: list[HeldOverForks] = []


_forking = _Forking()


def open_when_free(path: Path, terms: Terms | None) -> Ledger:
    """Open a ledger file, waiting for other processes' charges."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return Ledger.open(path, terms)
        except BudgetError as error:
            if "locked" not in str(error.got) or time.monotonic() > until:
                raise
        time.sleep(0.02)


def _before() -> None:
    """Let every charge end before a fork: it would hold the lock, and SQLite's, for ever in the child."""
    for lock in sorted(_LOCKS, key=id):
        (_forking.taken if lock.wait() else _forking.missed).append(lock)


def _in_parent() -> None:
    _forking.missed.clear()
    while _forking.taken:
        _forking.taken.pop().let_go()


def _in_child() -> None:
    for lock in _forking.missed:
        lock.give_up()
    _in_parent()


@cache
def _watch_forks() -> None:
    """Have the locks taken by each fork.

    What is registered last is called first. A charge ends by releasing a lock of `filelock`, which is
    not possible any more once `filelock` was told of the fork: so that has to be registered before.
    """
    filelock.FileLock  # noqa: B018 - imported here if it was not yet
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
