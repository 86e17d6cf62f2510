"""Read a session store's public standing."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

from opendp_sim.accounting.ledger._durable import claimed, has_tables
from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session.identity import (
    FAILURES,
    LOCKED,
    Mark,
    damaged,
    mark_in,
    store_refusal,
)
from opendp_sim.core.errors import refusing


@dataclass(frozen=True)
class SessionStanding:
    """Hold a store's checked public part, without purse, update or answer.

    Attributes:
        mark: which store it is, and under which ledger.
        answered: how many questions it answered. place: the last entry of its chain. head: its hash.
    """

    mark: Mark
    answered: int
    place: int
    head: str


def standing_of(file: Path) -> SessionStanding | None:
    """Return a closed store's standing by its whole chain, or None (OS407)."""
    if not file.is_file():  # SQLite would make one
        return None
    held = store_refusal("a store that nobody has open", LOCKED)
    with (
        refusing(damaged, ValueError, TypeError, KeyError),
        suppress(*FAILURES),
        refusing(lambda _: held, sqlite3.OperationalError),
        ExitStack() as undo,
    ):
        undo.callback(claimed(file).release)
        db = undo.enter_context(closing(sqlite3.connect(file, isolation_level=None, timeout=0.2)))
        return _read(db) if has_tables(db, chain.CREATE_TABLES.split(";")) else None
    return None


def _read(db: sqlite3.Connection) -> SessionStanding:
    about, folded = chain.read_about(db), chain.read_folded(db)
    last = chain.check_chain(db, folded)
    if last != chain.read_chain_head(db):
        raise ValueError("the head")
    later = db.execute("SELECT coalesce(sum(answers), 0) FROM entry").fetchone()[0]
    return SessionStanding(mark_in(about), int(later) + folded.answers, last.place, last.hash)
