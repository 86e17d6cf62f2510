"""Create a session store's tables, and read entries and purses."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

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
    rows = store.execute(
        "SELECT kind, payload FROM entry WHERE kind <> ? ORDER BY place", (chain.REPLAY,)
    )
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
    chain.write_value(new, "head", chain.Head(place=0, hash=chain.start(name)))


def write_about(store: Any, about: dict[str, str]) -> None:
    store.executemany(chain.SET, list(about.items()))


class StoredEntry(NamedTuple):
    """An entry as it is written, but its place and hashes.

    ``paid`` is who paid how much; ``copy`` has all purses after the entry instead.
    """

    kind: str
    payload: bytes
    answers: int
    paid: tuple[bytes | None, bytes | None]
    copy: bytes | None


def stored_entry(
    kind: str, payload: Payload, paid: tuple[bytes | None, bytes | None], copy: bytes | None
) -> StoredEntry:
    """Return an entry of plain arrays, packed."""
    answers = len(payload["labels"]) if kind in chain.ANSWER_COLUMNS else 0
    return StoredEntry(kind, packed_arrays(payload), answers, paid, copy)


def write_entry(
    store: sqlite3.Connection,
    after: tuple[chain.Head, chain.Folded, list[chain.Head] | None],
    entry: StoredEntry,
) -> tuple[chain.Head, chain.Folded]:
    """Write an entry in the caller's transaction; return head and folded part.

    ``after`` is the head that it follows, what is folded, and, where more may be, the heads that a ledger
    has.
    """
    head, folded, told = after
    place, copy = head.place + 1, entry.copy
    if copy is not None:
        store.execute("DELETE FROM purses")
        store.execute("INSERT INTO purses VALUES (?, ?)", (place, copy))
        upto = None if told is None else chain.fold_place(store, folded, place)
        if told is not None and upto is not None:
            folded = chain.fold(store, folded, upto, told)
    bound = "" if copy is None else chain.copy_hash(copy, folded)
    row = (place, entry.kind, entry.payload, *entry.paid, entry.answers, bound)
    new = chain.Head(place=place, hash=chain.linked(head.hash, row))
    store.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, new.hash))
    chain.write_value(store, "head", new)
    return new, folded


def read_keys(store: sqlite3.Connection) -> dict[bytes, int]:
    """Return the places of published answers by key (OS407)."""
    rows = store.execute(
        "SELECT place, payload FROM entry WHERE kind = ? ORDER BY place", (chain.REPLAY,)
    )
    return {key: int(place) for place, blob in rows for key, _, _ in [_replay_of(blob)]}


def read_replay(store: sqlite3.Connection, place: int) -> tuple[bytes, Payload] | None:
    """Return a question's digest and answer, or None if folded."""
    found = store.execute(
        "SELECT payload FROM entry WHERE place = ? AND kind = ?", (place, chain.REPLAY)
    ).fetchone()
    return None if found is None else _replay_of(found[0])[1:]


def _replay_of(blob: bytes) -> tuple[bytes, bytes, Payload]:
    answer = dict(unpacked_arrays(blob))
    key, question = (np.asarray(answer.pop(name, 0)) for name in ("key", "question"))
    if any(part.shape != (32,) or part.dtype != np.uint8 for part in (key, question)):
        raise damaged()
    return key.tobytes(), question.tobytes(), answer
