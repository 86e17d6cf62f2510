"""Store a stream's open sums and nodes, a period at once.

One SQLite file, locked by the process that has it open. It is as secret as the data: it holds exact sums.
A node is released from here only, so it has one noise, whatever dies when (``continual.md``, Lemma 5).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.ledger._durable import (
    Closing,
    OpenFile,
    Owned,
    checkpoint,
    claimed,
    create,
    has_tables,
    hold,
    transaction,
)
from opendp_sim.accounting.release.continual import Node, PeriodTree, no_sums
from opendp_sim.accounting.session.identity import FAILURES, LOCKED, UNWRITABLE, Mark, unusable
from opendp_sim.core.errors import BudgetError, refusing

_FORMAT = "opendp_sim/stream/1"
_CELL = np.dtype("<i8")
_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE level (place INTEGER PRIMARY KEY, cells BLOB NOT NULL);
CREATE TABLE node (first INTEGER, last INTEGER, cells BLOB NOT NULL, PRIMARY KEY (first, last));
"""


class PeriodStore(Closing):
    """Keep what a stream goes on from.

    Args:
        path: the file; made readable by its owner only when it does not exist.
        identity: program, tree, noise and public matrices; a store never serves another one.
        tree: the nodes. cells: of one sketch.

    Attributes:
        mark: what tells it from its copies. period: the periods that are over.

    Raises:
        BudgetError (OS407): open elsewhere, damaged, of another stream, or not to be written.
    """

    def __init__(self, path: Path, identity: str, tree: PeriodTree, cells: int) -> None:
        self.path, self._tree, self._cells = path, tree, cells
        self._owner = os.getpid()
        about = {"format": _FORMAT, "identity": hashlib.sha256(identity.encode()).hexdigest()}
        with refusing(_unusable, *FAILURES), ExitStack() as undo:
            undo.callback(claimed(path).release)
            first = no_sums(tree, cells)
            create(path, lambda new: _fill(new, about, first))
            self._place = OpenFile(path)
            self._db = sqlite3.connect(
                path, isolation_level=None, timeout=0.2, factory=Owned, check_same_thread=False
            )
            undo.callback(self._db.close)
            if not has_tables(self._db, _TABLES.split(";")):
                raise stream_refusal("a store of a stream", "a file with other tables")
            hold(self._db)
            self._read(about)
            self._open = undo.pop_all()

    def _read(self, about: Mapping[str, str]) -> None:
        """Read marks and open sums, and check them against the digests."""
        found = dict(self._db.execute("SELECT name, value FROM about").fetchall())
        if {name: found.get(name) for name in about} != about:
            raise stream_refusal(
                "the stream that this plan began", "another plan's, or another form"
            )
        try:
            self.mark = Mark(*(found[name] for name in ("name", "turn", "before", "ledger")))
            self.period = int(found["period"])
            rows = self._db.execute("SELECT cells FROM level ORDER BY place").fetchall()
            sums = [np.frombuffer(row, dtype=_CELL) for (row,) in rows]
            self.sums = np.array(sums, np.int64).reshape(self._tree.levels - 1, self._cells)
            self._nodes = found["nodes"]
            whole = _digest(self._db) == found["digest"] and self._chained() == self._nodes
        except (KeyError, ValueError, TypeError):
            whole = False
        if not whole:
            raise stream_refusal("every node, and the sums after them", "a damaged store")

    def _chained(self) -> str | None:
        """Return the chain of all nodes, None where one is missing."""
        rows = iter(
            self._db.execute("SELECT first, last, cells FROM node ORDER BY last, first DESC")
        )
        chain = ""
        for period in range(1, self.period + 1):
            ending = self._tree.ending(period)
            found = [row for _, row in zip(ending, rows, strict=False)]
            if tuple(row[:2] for row in found) != ending:
                return None
            chain = _chain(chain, found)
        return chain if next(rows, None) is None else None

    def commit(
        self, nodes: Mapping[Node, NDArray[np.int64]], sums: NDArray[np.int64], ledger: str = ""
    ) -> None:
        """Make a period's noisy nodes and open sums durable, all or nothing.

        The nodes may leave when it has returned, and not before. ``ledger`` names the ledger's file.

        Raises:
            BudgetError (OS407): a fork, or a file that was moved, exchanged or cannot be written. Whether
                the period was kept is known when the stream is opened again.
        """
        if os.getpid() != self._owner:
            raise stream_refusal("the process that opened the stream", "a fork of it")
        if (trouble := self._place.trouble()) is not None:
            raise stream_refusal(*trouble)
        after = Mark(self.mark.name, secrets.token_hex(16), self.mark.turn, ledger)
        rows = [(first, last, _bytes(cells)) for (first, last), cells in nodes.items()]
        chain = _chain(self._nodes, rows)
        with refusing(_unusable, *FAILURES):
            with transaction(self._db):
                self._db.executemany("INSERT INTO node VALUES (?, ?, ?)", rows)
                _write_sums(self._db, sums)
                told = {"period": str(self.period + 1), "nodes": chain, "ledger": ledger}
                _write(self._db, {**told, "turn": after.turn, "before": after.before})
                _write(self._db, {"digest": _digest(self._db)})
            checkpoint(self._db)
        self.mark, self.period, self.sums, self._nodes = after, self.period + 1, sums, chain

    def node(self, node: Node) -> NDArray[np.int64]:
        """Return a released node's noisy cells."""
        (row,) = self._db.execute(
            "SELECT cells FROM node WHERE first = ? AND last = ?", node
        ).fetchone()
        return np.frombuffer(row, dtype=_CELL).astype(np.int64)

    def __repr__(self) -> str:
        """The place, and nothing that is inside."""
        return f"PeriodStore({str(self.path)!r})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse copies and pickles (OS407)."""
        raise stream_refusal("one open stream", "a copy of it")

    def close(self) -> None:
        """Close the file, then release the lock; in a fork, do nothing."""
        if os.getpid() == self._owner:
            self._open.close()


def _fill(db: sqlite3.Connection, about: Mapping[str, str], sums: NDArray[np.int64]) -> None:
    """Make the tables of a stream before its first period."""
    for statement in filter(str.strip, _TABLES.split(";")):
        db.execute(statement)
    first = {"name": secrets.token_hex(16), "turn": "", "before": "", "ledger": ""}
    _write(db, {**about, **first, "period": "0", "nodes": ""})
    _write_sums(db, sums)
    _write(db, {"digest": _digest(db)})


def _write(db: sqlite3.Connection, about: Mapping[str, str]) -> None:
    db.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", about.items())


def _write_sums(db: sqlite3.Connection, sums: NDArray[np.int64]) -> None:
    rows = [(place, _bytes(cells)) for place, cells in enumerate(sums)]
    db.executemany("INSERT OR REPLACE INTO level VALUES (?, ?)", rows)


def _bytes(cells: NDArray[np.int64]) -> bytes:
    return cells.astype(_CELL, copy=False).tobytes()


def _digest(db: sqlite3.Connection) -> str:
    """Return a hash of marks, chain of nodes and open sums."""
    digest = hashlib.sha256()
    for row in db.execute("SELECT name, value FROM about WHERE name != 'digest' ORDER BY name"):
        _add(digest, row)
    for row in db.execute("SELECT place, cells FROM level ORDER BY place"):
        _add(digest, row)
    return digest.hexdigest()


def _chain(before: str, nodes: Iterable[tuple[int, int, bytes]]) -> str:
    """Return the hash of nodes and of the hash before."""
    digest = hashlib.sha256(before.encode())
    for row in nodes:
        _add(digest, row)
    return digest.hexdigest()


def _add(digest: Any, row: tuple[Any, ...]) -> None:
    for part in row:
        raw = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)


def stream_refusal(expected: str, got: str) -> BudgetError:
    """Return the refusal of a stream (OS407)."""
    return BudgetError(
        "OS407", "stream", expected=expected, got=got,
        hint="close the other process, or open it with the plan and folder that it was begun with; a "
        "stream in another folder costs the budget again.",
    )  # fmt: skip


def _unusable(error: sqlite3.Error | OSError | UnicodeDecodeError) -> BudgetError:
    """Return the refusal of a file, without the system's text."""
    if unusable(error).got == UNWRITABLE:
        return stream_refusal("a file that can be written", UNWRITABLE)
    return stream_refusal("a store that this process can lock", LOCKED)
