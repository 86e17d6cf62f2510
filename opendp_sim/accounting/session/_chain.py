"""Chain a session store's entries by hashes.

Each entry is hashed with the previous one and with the folded part. An entry's hash holds the hash
before it, its kind, payload, charges and the full copy of the purses that was made with it, so a row
that was edited, removed, swapped or renumbered is found, and so is one flipped bit in a purse. Answers
that a mechanism does not need any more are folded: their rows go, their number and the hash of the
chain at that place stay, and the rows before it that stay (references, updates) have a chain of their
own. An opening checks what is in the file, whose size the folding bounds.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import Annotated, Any

from pydantic import Field, RootModel

from opendp_sim.accounting.file_schemas import Digest, Strict

ANSWER_COLUMNS = ("answers", "easy")
"""Kinds of entries that are answers: what a mechanism may not need to look at again."""
REPLAY = "replay"
"""Kind of the entry beside an answer that has its key, so that a retry gets the same answer."""
FOLDABLE = (*ANSWER_COLUMNS, REPLAY)
"""Kinds of entries whose rows go when they are folded."""
KEPT = 4096
"""Entries after the folded part that stay as they are, those that replay others aside."""
DENSE = 64
"""Commits between two full copies of the purses."""
CREATE_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE entry (
  place INTEGER PRIMARY KEY, kind TEXT NOT NULL, payload BLOB NOT NULL, who BLOB, units BLOB,
  answers INTEGER NOT NULL, copy TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TABLE purses (place INTEGER PRIMARY KEY, units BLOB NOT NULL);
"""
SET = "INSERT INTO about VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
"""Set what a store says of itself; these statements are SQLite's and PostgreSQL's alike."""


_LONGEST = 2**24
"""Bytes at most of what a store says of itself."""
_MOST = 2**53
"""Places and answers are below: SQLite holds the number, and a sum of them."""
_MOST_ANSWERS = 2**31
"""Of one entry: with fewer than 2**32 rows, which no file holds, their sum is a number of SQLite too."""
_Number = Annotated[int, Field(ge=0, le=_MOST)]


class Head(Strict):
    """The last place of a chain and its hash."""

    place: _Number
    hash: Digest


class Folded(Strict):
    """What stands for the entries up to ``place``, whose hash is ``hash``.

    They gave ``answers`` answers; ``kept`` is the hash of their rows that are still in the file,
    ``marks`` are hashes at folded places that a ledger knows, by place.
    """

    place: _Number
    hash: Digest
    answers: _Number
    kept: Digest
    marks: dict[str, Digest]


def linked(before: str, row: tuple[Any, ...]) -> str:
    """Return an entry's hash after ``before``."""
    place, kind, payload, who, units, answers, copy = row
    parts = [hashlib.sha256(part or b"").hexdigest() for part in (payload, who, units)]
    text = "\n".join([before, str(place), str(kind), *parts, str(answers), str(copy)])
    return hashlib.sha256(text.encode()).hexdigest()


def start(name: str) -> str:
    """Return the hash before the first entry of a store."""
    return hashlib.sha256(f"opendp_sim/session/3\n{name}".encode()).hexdigest()


def empty_folded(name: str) -> Folded:
    """Return the folded part of a new store."""
    return Folded(place=0, hash=start(name), answers=0, kept=start(name), marks={})


def read_folded(db: sqlite3.Connection) -> Folded:
    """Read the folded part; raises ValueError or TypeError for anything else."""
    return Folded.model_validate_json(_about(db, "folded"))


def read_chain_head(db: sqlite3.Connection) -> Head:
    """Read the head; raises ValueError or TypeError for anything else."""
    return Head.model_validate_json(_about(db, "head"))


def read_recorded_heads(db: sqlite3.Connection) -> list[Head]:
    """Read the heads in a ledger, or raise ValueError or TypeError."""
    text = _about(db, "told")
    return RootModel[list[Head]].model_validate_json(text or "[]", strict=True).root


def hash_at(db: sqlite3.Connection, folded: Folded, place: int) -> str | None:
    """Return the chain's hash at a place, None if unknown or forgotten."""
    if place == 0:
        return start(str(_about(db, "name")))
    if place == folded.place:
        return folded.hash
    if place < folded.place:
        return folded.marks.get(str(place))
    if place > _MOST:  # of a ledger that somebody edited: no number of SQLite
        return None
    row = db.execute("SELECT hash FROM entry WHERE place = ?", (place,)).fetchone()
    return None if row is None else str(row[0])


def read_about(db: sqlite3.Connection) -> dict[str, str]:
    """Read a store's own description, or raise ValueError or TypeError."""
    limit = getattr(db, "setlimit", None)  # a server bounds what it holds by itself
    before = limit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST) if limit else 0
    try:
        found = db.execute("SELECT name, value FROM about LIMIT 20").fetchall()
    except sqlite3.DataError:
        raise ValueError("a text of a session's store that is too long") from None
    finally:
        if limit:
            limit(sqlite3.SQLITE_LIMIT_LENGTH, before)
    return RootModel[dict[str, str]].model_validate(dict(found), strict=True).root


def _about(db: sqlite3.Connection, name: str) -> Any:
    row = db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def write_value(db: sqlite3.Connection, name: str, value: Folded | Head | list[Head]) -> None:
    """Keep heads or the folded part; part of the caller's transaction."""
    plain = [head.model_dump() for head in value] if isinstance(value, list) else value.model_dump()
    text = json.dumps(plain, sort_keys=True)
    db.execute(SET, (name, text))


_ROWS = "SELECT place, kind, payload, who, units, answers, copy, hash FROM entry "


def check_chain(db: sqlite3.Connection, folded: Folded) -> Head:
    """Check every row and the budgets' copy, and return the head (ValueError)."""
    kept = start(str(_about(db, "name")))
    for *row, _ in db.execute(_ROWS + "WHERE place <= ? ORDER BY place", (folded.place,)):
        _check_row(*row)
        kept = linked(kept, tuple(row))
    if kept != folded.kept:
        raise ValueError("the folded part")
    place, last, copies = folded.place, folded.hash, {}
    for *row, stated in db.execute(_ROWS + "WHERE place > ? ORDER BY place", (folded.place,)):
        _check_row(*row)
        place, last = place + 1, linked(last, tuple(row))
        if (row[0], stated) != (place, last):
            raise ValueError("the chain")
        if row[6]:
            copies = {row[0]: row[6]}
    found = {
        place: copy_hash(units, folded)
        for place, units in db.execute("SELECT place, units FROM purses")
    }
    if found != copies or (place and not copies):
        raise ValueError("the purses, or the folded part")
    return Head(place=place, hash=last)


def _check_row(
    place: Any, kind: Any, payload: Any, who: Any, units: Any, answers: Any, copy: Any
) -> None:
    """Refuse a value of an unexpected type (ValueError)."""
    paid = (who is units is None) or (isinstance(who, bytes) and isinstance(units, bytes))
    typed = isinstance(payload, bytes) and all(isinstance(text, str) for text in (kind, copy))
    most = _MOST_ANSWERS if kind in ANSWER_COLUMNS else 0
    if not (typed and paid and isinstance(answers, int) and 0 <= answers <= most):
        raise ValueError(f"entry {place}")


def copy_hash(units: bytes, folded: Folded) -> str:
    """Return an entry hash's part for a full copy of the purses."""
    text = json.dumps(folded.model_dump(), sort_keys=True)
    return hashlib.sha256(hashlib.sha256(units).digest() + text.encode()).hexdigest()


def fold(db: sqlite3.Connection, folded: Folded, upto: int, told: list[Head]) -> Folded:
    """Fold entries up to ``upto`` in the caller's transaction.

    A full copy of the purses lies after it. ``told`` are the last heads that a ledger has, or may have.
    """
    where = "WHERE place > ? AND place <= ? ORDER BY place"
    found = folded
    for *row, stated in db.execute(_ROWS + where, (folded.place, upto)).fetchall():
        answers = row[5] if row[1] in ANSWER_COLUMNS else 0
        kept = found.kept if row[1] in FOLDABLE else linked(found.kept, tuple(row))
        part = {"place": row[0], "hash": stated, "answers": found.answers + answers, "kept": kept}
        found = found.model_copy(update=part)
    found = found.model_copy(update={"marks": {str(head.place): head.hash for head in told}})
    db.execute(
        "DELETE FROM entry WHERE place > ? AND place <= ? AND kind IN (?, ?, ?)",
        (folded.place, upto, *FOLDABLE),
    )
    write_value(db, "folded", found)
    return found


_BACK = "SELECT place FROM entry WHERE place > ? AND kind <> ? ORDER BY place DESC LIMIT 1 OFFSET ?"


def fold_place(db: sqlite3.Connection, folded: Folded, place: int) -> int | None:
    """Return the last place to fold, or None.

    Of a store before its entry at ``place``: ``KEPT`` entries stay, that one included; folding
    waits until there are ``DENSE`` more.
    """
    if place - folded.place <= KEPT + DENSE:
        return None

    def back(count: int) -> int | None:
        row = db.execute(_BACK, (folded.place, REPLAY, count - 1)).fetchone()
        return None if row is None else int(row[0])

    return None if back(KEPT + DENSE) is None else back(KEPT)
