"""Distinguish a session's store from its copies, and name refusals."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from opendp_sim.accounting.ledger._durable import SIDES, claimed, has_tables
from opendp_sim.accounting.session._chain import CREATE_TABLES, read_about
from opendp_sim.core.errors import BudgetError

LOCKED, UNWRITABLE = "a locked or foreign file", "one that cannot be written"
"""What a refusal says that has nothing to do with the records."""


@dataclass(frozen=True)
class Mark:
    """What tells a store from its copies. Public.

    Attributes:
        name: drawn when the store was made; a copy has it too.
        turn: drawn when it was last opened under a ledger. before: the turn that the ledger knew then.
        ledger: the name of that ledger's file.
    """

    name: str
    turn: str
    before: str
    ledger: str = ""


class StorePlace:
    """Lock the place of a store before its kind is known.

    Who opens a new store holds its place from before the charge: of two processes that open one new
    store the second is refused before anything is charged.

    Attributes:
        path: the file, or what names a store on a server.
        mark: of the store that lies there; None where there is none.

    Raises:
        BudgetError (OS407): a store there is open, damaged or no store.
    """

    mark: Mark | None

    def __init__(self, path: str | Path) -> None:
        self.path, self.mark = Path(path), None
        with suppress(sqlite3.Error, OSError, ValueError, TypeError), ExitStack() as undo:
            undo.callback(claimed(self.path).release)
            if os.path.exists(self.path):  # noqa: PTH110 - a name that is too long is no file
                with closing(sqlite3.connect(self.path, isolation_level=None, timeout=0.2)) as db:
                    if not has_tables(db, CREATE_TABLES.split(";")):
                        raise ValueError("other tables")
                    self.mark = mark_in(read_about(db))
            self._lock = undo.pop_all()
            return
        raise store_refusal("a store that this process can lock", LOCKED)

    def take(self) -> ExitStack:
        """Return the lock, whose new owner closes it with the store."""
        found, self._lock = self._lock, ExitStack()
        return found

    def clear(self) -> None:
        """Remove the store and SQLite's files beside it, except the lock."""
        for side in ("", *SIDES):
            Path(f"{self.path}{side}").unlink(missing_ok=True)
        self.mark = None

    def __enter__(self) -> Self:
        """Return the place."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the lock, unless it was handed over."""
        self._lock.close()


def mark_in(about: Mapping[str, str]) -> Mark:
    """Return the mark that a store holds (ValueError for none)."""
    if not {"name", "turn", "before"} <= set(about):
        raise ValueError("no mark")
    return Mark(about["name"], about["turn"], about["before"], about.get("ledger", ""))


def beside_ledger(ledger: Path, name: str, ending: str = "") -> Path:
    """Return a store's own path beside a ledger, whatever its name."""
    real, digest = ledger.resolve(), hashlib.sha256(str(name).encode()).hexdigest()[:32]
    return real.with_name(f"{real.name}.{digest}{ending}")


def claimed_name(ledger: Path, name: str) -> Callable[[], None]:
    """Lock a store's name under a ledger's file; return the lock's release.

    A store and its copies share a name, and not a file: so of all of them one is served at a time, on
    one machine, until the process ends. The lock's file lies beside the ledger and is named after a
    digest of the name, which comes out of somebody's file.

    Raises:
        BudgetError (OS407): a store of this name is being served.
    """
    with suppress(sqlite3.Error, OSError, UnicodeDecodeError):
        return claimed(beside_ledger(ledger, name)).release
    raise store_refusal("a store of which no copy is served", LOCKED)


def store_refusal(expected: str, got: str) -> BudgetError:
    """Return the refusal of a store (OS407)."""
    return BudgetError(
        "OS407", "session.store", expected=expected, got=got,
        hint="close the other process, or open it with the spec and data it was started with; "
        "another `--store` starts afresh and costs the budget again.",
    )  # fmt: skip


FAILURES = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What a file fails with: SQLite quotes a damaged schema, which may be no text."""
_STORAGE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")


def unusable(error: sqlite3.Error | OSError | UnicodeDecodeError) -> BudgetError:
    """Return the refusal of a file, without the system's text."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if isinstance(error, OSError) or name.startswith(_STORAGE):
        return BudgetError(
            "OS407", "session.store", expected="a file that can be written", got=UNWRITABLE,
            hint="nothing was answered; make room on the disk, or restore the right to write, "
            "close the session and open it again.",
        )  # fmt: skip
    return store_refusal("a store that this process can lock", LOCKED)


def damaged(_error: object = None) -> BudgetError:
    """Return the refusal of a store whose bytes changed."""
    return store_refusal("every entry, and the purses after them", "a damaged store")
