"""The file of a ledger: how it is made, written to, and what its errors are called."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from opendp_sim.accounting.ledger._durable import LOCK, SIDES, create
from opendp_sim.accounting.ledger._entries import FORMAT, Terms, canonical, chained
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.system.file_kinds import kind_of_file

TABLES = (
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
)
LONGEST = 2**20
"""Bytes of a row at most: a run of 400 outputs has some 90,000. SQLite does not read a longer one."""
BUSY, UNREADABLE = "locked by another process", "not readable or not writable"
NO_ANSWER = "no answer"
"""What a refusal says that has nothing to do with what is in the ledger."""
RESTORE = "restore the ledger from a backup; until then treat the budget as spent."


FORGET = (
    "restore it from a backup, or name where it is now; if it is gone for good, `opendp-sim ledger "
    "new SPEC --forget` begins another one, which says that it forgets what was charged before."
)


def was_opened(file: Path) -> bool:
    """Say whether the ledger of this path was open at some time: the files of its locks stay.

    Ask before looking for the ledger itself: it is made before its lock, so that somebody else's first
    run, at this moment, is not taken for a loss.
    """
    real = file.resolve()
    lock = re.compile(re.escape(real.name) + r"(\.[0-9a-f]{32})?" + re.escape(LOCK))
    with suppress(OSError):
        return any(lock.fullmatch(found.name) for found in real.parent.iterdir())
    return False


def lost(file: Path, trace: str) -> BudgetError:
    """Return the refusal to begin at nothing where a ledger was (OS407).

    Args:
        file: where it was.
        trace: what still knows of it.
    """
    return BudgetError(
        "OS407", str(file), expected="the ledger that was charged here before",
        got=f"no such file, and {trace}", hint=FORGET,
    )  # fmt: skip


def make(file: Path, terms: Terms | None, *, anew: bool = False) -> None:
    """Make a ledger with no entry yet.

    Args:
        file: where.
        terms: its measure, unit and limit.
        anew: record that it takes the place of one that is lost, whose charges are forgotten.
    """
    if any(file.with_name(file.name + side).exists() for side in SIDES):
        raise refused(file, "a ledger", "only the files that SQLite keeps beside one", RESTORE)
    if terms is None:
        raise refused(file, "a ledger", "no such file", "the first `apply` makes it.")
    genesis = canonical({"format": FORMAT, **terms.plain(), **_since(anew=anew)})

    def fill(connection: sqlite3.Connection) -> None:
        for table in TABLES:
            connection.execute(table)
        put(connection, "genesis", genesis)
        put(connection, "head", canonical({"count": 0, "hash": chained("", genesis)}))

    file.parent.mkdir(parents=True, exist_ok=True)
    create(file, fill)


def _since(*, anew: bool) -> dict[str, str]:
    return {"anew": datetime.now(UTC).isoformat(timespec="seconds")} if anew else {}


def put(connection: sqlite3.Connection, key: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def refused(path: Path, expected: str, got: str, hint: str) -> BudgetError:
    return BudgetError("OS403", str(path), expected=expected, got=got, hint=hint)


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors into OS403."""
    try:
        yield
    except sqlite3.OperationalError as error:
        locked = "locked" in str(error) or "busy" in str(error)
        got = BUSY if locked else UNREADABLE
        raise refused(
            path, "a ledger that this process can lock", got,
            "wait for the other run to end." if locked else "make room on the disk, and check the path "
            "and its permissions; what was recorded stands.",
        ) from None  # fmt: skip
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # SQLite quotes a schema that is no text
        found = kind_of_file(path)
        own = found.name in ("ledger", "database", "bytes", "empty")
        hint = RESTORE if own else f"name the ledger; {found.then or 'this is another file'}."
        raise refused(path, "a ledger", found.said, hint) from None
    except OSError:
        raise refused(
            path, "a ledger that can be read and written", UNREADABLE,
            "make room on the disk, and check the path and its permissions.",
        ) from None  # fmt: skip
