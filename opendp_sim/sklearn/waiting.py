"""Who waits for whom: a fit for another process's charge, a fork for another thread's.

A forked child would inherit a lock that another thread holds, and wait for it for ever.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from opendp_sim.accounting.ledger import Ledger, Terms
from opendp_sim.core.errors import BudgetError

__all__ = ["hold_over_forks", "open_when_free"]

_PATIENCE = 60.0
"""Seconds that are waited."""
_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()


class _Taken(threading.local):
    """The locks that a forking thread took."""

    def __init__(self) -> None:
        self.locks: list[Any] = []


_taken = _Taken()


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


def hold_over_forks(lock: Any) -> Any:
    """Return a lock that every fork takes first, and lets go on both sides."""
    _LOCKS.add(lock)
    return lock


def _take_all() -> None:
    """Let every charge end before a fork: it would hold the lock, and SQLite's, for ever in the child."""
    for lock in sorted(_LOCKS, key=id):
        if lock.acquire(timeout=_PATIENCE):
            _taken.locks.append(lock)


def _let_go() -> None:
    while _taken.locks:
        _taken.locks.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_take_all, after_in_parent=_let_go, after_in_child=_let_go)
