"""Create a session store's tables, and read entries and purses."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session._encoding import (
    LatePayload,
    Payload,
    packed_arrays,
    unpacked_arrays,
)
from opendp_sim.accounting.session.identity import damaged


def read_entries(store: sqlite3.Connection) -> list[tuple[str, Payload]]:
    """Return every entry in order, with answers unpacked at first use."""
    rows = store.execute("SELECT kind, payload FROM entry ORDER BY place")
    return [
        (kind, LatePayload(blob) if kind in chain.ANSWER_COLUMNS else unpacked_arrays(blob))
        for kind, blob in rows
    ]


def read_purses(store: sqlite3.Connection) -> NDArray[np.int64]:
    """Return the last copy of the purses, less payments since (OS407)."""
    place, blob = store.execute("SELECT place, units FROM purses").fetchone()
    later = store.execute("SELECT who, units FROM entry WHERE place > ?", (place,))
    try:
        purses = np.frombuffer(blob, dtype="<i8").astype(np.int64)
        for row in later:
            who, paid = (np.frombuffer(part, dtype="<i8") for part in row)
            if who.shape != paid.shape or (who < 0).any() or (paid < 0).any():
                raise damaged()
            np.subtract.at(purses, who, paid)
    except (ValueError, TypeError, IndexError):
        raise damaged() from None
    return purses


def create_store(new: sqlite3.Connection, about: dict[str, str], name: str) -> None:
    """Write the tables of a new store, and what it belongs to."""
    for statement in chain.CREATE_TABLES.split(";"):
        new.execute(statement)
    write_about(new, {**about, "name": name, "turn": "", "before": ""})
    chain.write_value(new, "folded", chain.empty_folded(name))
    chain.write_value(new, "head", chain.Head(0, chain.start(name)))


def write_about(store: Any, about: dict[str, str]) -> None:
    store.executemany(chain.SET, list(about.items()))


def write_entry(
    store: sqlite3.Connection,
    after: tuple[chain.Head, chain.Folded, list[chain.Head] | None],
    kind: str,
    payload: Payload,
    paid: tuple[bytes | None, bytes | None],
    copy: bytes | None,
) -> tuple[chain.Head, chain.Folded]:
    """Write an entry in the caller's transaction; return head and folded part.

    ``after`` is the head that it follows, what is folded, and, where more may be, the heads that a ledger
    has. ``paid`` is who paid how much; ``copy`` has all purses after the entry instead.
    """
    head, folded, told = after
    place = head.place + 1
    if copy is not None:
        store.execute("DELETE FROM purses")
        store.execute("INSERT INTO purses VALUES (?, ?)", (place, copy))
        if told is not None and place - folded.place > chain.KEPT + chain.DENSE:
            folded = chain.fold(store, folded, place - chain.KEPT, told)
    count = len(payload["labels"]) if kind in chain.ANSWER_COLUMNS else 0
    bound = "" if copy is None else chain.copy_hash(copy, folded)
    row = (place, kind, packed_arrays(payload), *paid, count, bound)
    new = chain.Head(place, chain.linked(head.hash, row))
    store.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, new.hash))
    chain.write_value(store, "head", new)
    return new, folded
