"""The tables of a session's store: how a new one is filled, and how entries and purses are read back."""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting import _session_chain as chain
from opendp_sim.accounting._session_bytes import LatePayload, Payload, unpacked_arrays
from opendp_sim.accounting.session_mark import damaged

__all__ = ["describe", "filled", "read_entries", "read_purses"]

"""Kinds of entries that hold answers."""


def read_entries(store: sqlite3.Connection) -> list[tuple[str, Payload]]:
    """Return every entry in order; answers are unpacked when they are looked at."""
    rows = store.execute("SELECT kind, payload FROM entry ORDER BY place")
    return [
        (kind, LatePayload(blob) if kind in chain.ANSWERS else unpacked_arrays(blob))
        for kind, blob in rows
    ]


def read_purses(store: sqlite3.Connection) -> NDArray[np.int64]:
    """Return the purses after the last commit: the last full copy, less what was paid since.

    Raises:
        BudgetError (OS407): the store is damaged.
    """
    place, blob = store.execute("SELECT place, units FROM purses").fetchone()
    later = store.execute("SELECT who, units FROM entry WHERE place > ?", (place,))
    try:
        purses = np.frombuffer(blob, dtype="<i8").astype(np.int64)
        for row in later:
            who, paid = (np.frombuffer(part, dtype="<i8") for part in row)
            if who.shape != paid.shape or (who < 0).any():
                raise damaged()
            np.subtract.at(purses, who, paid)
    except (ValueError, TypeError, IndexError):
        raise damaged() from None
    return purses


def filled(new: sqlite3.Connection, about: dict[str, str], name: str) -> None:
    """Write the tables of a new store, and what it belongs to."""
    for statement in chain.TABLES.split(";"):
        new.execute(statement)
    describe(new, {**about, "name": name, "turn": "", "before": ""})
    chain.write(new, "folded", chain.nothing(name))
    chain.write(new, "head", chain.Head(0, chain.start(name)))


def describe(store: sqlite3.Connection, about: dict[str, str]) -> None:
    store.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", list(about.items()))
