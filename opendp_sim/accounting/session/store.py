"""Store a session's charges durably before each answer leaves.

One SQLite file in write-ahead mode, checkpointed after every commit and locked by the process that
has it open. Each commit holds an entry (a public answer, or an update by the curator) together with
the charges that paid for it, both or neither. The file is as secret as the data: it holds what every
person has left.
Proof: ``store.md``, beside this file.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NoReturn, TypeVar

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
from opendp_sim.accounting.session import _chain as chain
from opendp_sim.accounting.session._encoding import Payload, PurseCharge, packed_charges
from opendp_sim.accounting.session._tables import (
    StoredEntry,
    create_store,
    read_entries,
    read_keys,
    read_purses,
    read_replay,
    stored_entry,
    write_about,
    write_entry,
)
from opendp_sim.accounting.session.identity import (
    FAILURES,
    StorePlace,
    damaged,
    store_refusal,
    unusable,
)
from opendp_sim.core.errors import refusing

# --------------------------------------------------------------------------------------------------
# What a session's store says: its entries, its purses, and the head of its chain.
#
# Nothing is written or locked here: ``session_store`` does that, ``shared_store`` in a database.

_PUBLIC = ("reference", "answers", "means", "easy")

_T = TypeVar("_T")


class SessionHistory:
    """Read a store's history; who opens one sets tables and folded part."""

    _db: Any
    _folded: chain.Folded

    def entries(self) -> list[tuple[str, Payload]]:
        """Return every committed entry, in order, with the curator's secret updates.

        Those that replay an answer of another entry aside.
        """
        return read_entries(self._db)

    def transcript(self) -> list[tuple[str, Payload]]:
        """Return the public reference queries, and queries with answers."""
        return [(kind, payload) for kind, payload in self.entries() if kind in _PUBLIC]

    def purses(self) -> NDArray[np.int64] | None:
        """Return every purse after the last commit (secret), None if new (OS407)."""
        if not self._count():
            return None
        return read_purses(self._db)

    @property
    def answered(self) -> int:
        """Return the number of answers, which is public."""
        rows = "SELECT coalesce(sum(answers), 0) FROM entry"
        return int(self._db.execute(rows).fetchone()[0]) + self._folded.answers

    @property
    def head(self) -> tuple[int, str]:
        """Return the chain's last place and hash, for a ledger."""
        head = self._read(chain.read_chain_head)
        return head.place, head.hash

    def check_head(self, place: int, digest: str, ended: bool = False) -> None:
        """Refuse a store whose chain contradicts its ledger's last entry (OS407).

        It is an older copy or another history; where a session ended, no entry may follow.
        """
        if ended and self.head != (place, digest):
            raise store_refusal("the history that its ledger records, up to its end", "another one")
        if chain.hash_at(self._db, self._folded, place) != digest:
            raise store_refusal("the history that its ledger records", "an older or another one")

    def _read(self, reader: Callable[[sqlite3.Connection], _T]) -> _T:
        with refusing(damaged, TypeError, ValueError):
            return reader(self._db)

    def _count(self) -> int:
        """Return the number of entries, folded ones included."""
        return self._read(chain.read_chain_head).place


# --------------------------------------------------------------------------------------------------

_FORMAT = "opendp_sim/session/4"


class SessionStore(SessionHistory, Closing):
    """Store a session across processes.

    A context manager; nobody else can open it. What it says is in ``session_history``; here are
    opening, locking and committing.

    Args:
        path: the file; made readable by its owner only when it does not exist.
        identity: what the session was started with (mechanism, space, fingerprint of the data); a
            store never serves another one.
        name: what a new store is called in a ledger; drawn when left out.
        forgets: whether answers that lie far back may be folded to their number; the mechanism does
            not look at them again.
        place: its place, where that is locked already.

    Raises:
        BudgetError (OS407): open elsewhere, damaged, or started with something else.
    """

    _begin = "BEGIN IMMEDIATE"

    def __init__(
        self,
        path: str | Path,
        identity: str,
        name: str | None = None,
        *,
        forgets: bool = False,
        place: StorePlace | None = None,
    ) -> None:
        self._path, self._forgets = Path(path), forgets
        self._owner = os.getpid()
        self._folded = chain.empty_folded("")
        self._since = chain.DENSE
        self._meant: tuple[chain.Head, chain.Folded] | None = None
        self._waiting: list[StoredEntry] = []
        self._held = False
        self._keys: dict[bytes, int] | None = None
        about = {"format": _FORMAT, "identity": hashlib.sha256(identity.encode()).hexdigest()}
        with refusing(unusable, *FAILURES), ExitStack() as undo:
            self._db = self._connect(undo, about, name or secrets.token_hex(16), place)
            self._prepare(about)
            self._open = undo.pop_all()  # what `close` undoes

    def _connect(
        self, undo: ExitStack, about: dict[str, str], name: str, place: StorePlace | None
    ) -> Any:
        """Lock and open the file, creating it if absent."""
        if place is None:
            undo.callback(claimed(self._path).release)
        else:
            undo.push(place.take())
        create(self._path, lambda new: create_store(new, about, name))
        self._place = OpenFile(self._path)
        found = sqlite3.connect(
            self._path, isolation_level=None, timeout=0.2, factory=Owned, check_same_thread=False
        )
        undo.callback(found.close)
        if not has_tables(found, chain.CREATE_TABLES.split(";")):
            raise store_refusal("a store of a session", "a file with other tables")
        hold(found)
        return found

    def _transaction(self) -> AbstractContextManager[None]:
        """Write all or nothing; durable at the end."""
        return transaction(self._db, self._begin)

    def _settle(self) -> None:
        """Leave the main file whole after a transaction."""
        checkpoint(self._db)

    def _trouble(self) -> tuple[str, str] | None:
        """Return the expected and the found state of a lost place."""
        return self._place.trouble()

    def __repr__(self) -> str:
        """The place, and nothing that is inside."""
        return f"SessionStore({str(self._path)!r})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse copies and pickles (OS407)."""
        raise store_refusal("one open store", "a copy of it")

    def close(self) -> None:
        """Close the file, then release the lock; in a fork, do nothing."""
        if os.getpid() == self._owner:
            self._open.close()

    def keep(self, release: Callable[[], None]) -> None:
        """Release a further resource after the store's file and lock."""
        file, self._open = self._open, ExitStack()
        self._open.callback(release)
        self._open.callback(file.close)

    def take_turn(self, name: str, last: str, ledger: str = "") -> str:
        """Draw a turn, and keep it beside the ledger's ``last``.

        A process that ends here can open the store again. ``name`` is the store's in ``ledger``'s file.

        Raises:
            BudgetError (OS407): the file cannot be written, or was exchanged since its mark was read.
        """
        turn = secrets.token_hex(16)
        with refusing(unusable, *FAILURES):
            found = self._read(chain.read_about)
            exchanged = last and last not in (found.get("turn"), found.get("before"))
            if found.get("name") != name or exchanged:
                raise store_refusal("the file whose mark was read", "another file under its name")
            with self._transaction():
                write_about(self._db, {"turn": turn, "before": last, "ledger": ledger})
            self._settle()
        return turn

    def commit(
        self,
        kind: str,
        payload: Payload,
        charges: Sequence[PurseCharge],
        snapshot: Callable[[], NDArray[np.int64]],
    ) -> None:
        """Make an entry and its charges durable, both or neither.

        ``kind`` is ``answers``, ``easy``, ``means`` or ``reference`` (public), or an update or failure
        (secret). A person may occur in several ``charges``; ``snapshot`` returns all purses after them.

        Raises:
            BudgetError (OS407): a fork, a file that was moved, linked or exchanged, or that cannot be
                written. What was asked for has not been kept, or has been kept without anybody knowing:
                either way nothing may leave.
        """
        self._check_place()
        entry = self._entry(kind, payload, charges, snapshot)
        self._waiting.append(entry)
        if not (self._held and kind in chain.ANSWER_COLUMNS):
            self._write()

    def hold(self) -> None:
        """Keep the next answers in memory until ``publish``.

        None may leave before it.
        """
        self._held = True

    def publish(self, key: bytes, question: bytes, answer: Payload) -> None:
        """Make the waiting answers, their charges and key durable.

        All or nothing. ``key`` and ``question`` are digests of 32 bytes.

        Raises:
            BudgetError (OS407): as ``commit``.
        """
        self._check_place()
        if not self._waiting:  # nothing was charged
            return
        marks = {"key": key, "question": question}
        payload = {n: np.frombuffer(mark, np.uint8) for n, mark in marks.items()} | dict(answer)
        self._waiting.append(stored_entry(chain.REPLAY, payload, (b"", b""), None))
        self._write()
        if self._keys is not None and self._meant is not None:
            self._keys[key] = self._meant[0].place

    def let_go(self) -> bool:
        """End ``hold``; discard what still waits, and return whether there was anything."""
        waited, self._waiting, self._held = bool(self._waiting), [], False
        if waited:
            self._since = chain.DENSE
        return waited

    def published(self, key: bytes) -> tuple[bytes, Payload] | None:
        """Return the digest and the answer of a key's question, or None.

        A folded one is None too (``store.md``, Lemma 7).

        Raises:
            BudgetError (OS407): the store cannot be read, or is damaged.
        """
        with refusing(unusable, *FAILURES):
            if self._keys is None:
                self._keys = read_keys(self._db)
            place = self._keys.get(key)
            found = None if place is None else read_replay(self._db, place)
        if found is None:
            self._keys.pop(key, None)
        return found

    def _check_place(self) -> None:
        if os.getpid() != self._owner:
            raise store_refusal("the process that opened the session", "a fork of it")
        trouble = self._trouble()
        if trouble is not None:
            raise store_refusal(*trouble)

    def _entry(
        self,
        kind: str,
        payload: Payload,
        charges: Sequence[PurseCharge],
        snapshot: Callable[[], NDArray[np.int64]],
    ) -> StoredEntry:
        """Return an entry with charges or a copy of all purses."""
        dense = kind not in chain.ANSWER_COLUMNS or self._since >= chain.DENSE
        self._since = 0 if dense else self._since + 1
        if dense:
            return stored_entry(kind, payload, (None, None), snapshot().astype("<i8").tobytes())
        return stored_entry(kind, payload, packed_charges(charges), None)

    def _write(self) -> None:
        """Commit what waits, all or nothing."""
        entries, self._waiting = self._waiting, []
        self._meant, since = None, self._since
        self._since = chain.DENSE  # until these are kept
        with refusing(unusable, *FAILURES):
            self._commit(entries)
        self._since = since

    def _commit(self, entries: Sequence[StoredEntry]) -> None:
        with self._transaction():
            # Read from the file: an earlier commit may have failed after it was kept.
            head = self._read(chain.read_chain_head)
            if self._meant is None or head != self._meant[0]:
                folded = self._folded
                for entry in entries:
                    more = self._forgets and entry.copy is not None
                    told = self._read(chain.read_recorded_heads) if more else None
                    self._meant = write_entry(self._db, (head, folded, told), entry)
                    head, folded = self._meant
        if self._meant is not None:
            self._folded = self._meant[1]
        self._settle()

    def _prepare(self, about: dict[str, str]) -> None:
        found = self._read(chain.read_about)
        if {key: found.get(key) for key in about} != about:
            raise store_refusal(
                "the mechanism, the space and the data that the session was started with",
                "something else",
            )
        self._folded = self._read(chain.read_folded)
        if self._read(lambda db: chain.check_chain(db, self._folded)) != self._read(
            chain.read_chain_head
        ):
            raise damaged()
        # The first commit of a process writes all purses, so that charges never need an older base.
        self._since = chain.DENSE

    def tell(self) -> tuple[int, str]:
        """Return the head for a ledger, and keep it unfolded (OS407)."""
        with refusing(unusable, *FAILURES):
            head = self._read(chain.read_chain_head)
            with self._transaction():
                chain.write_value(
                    self._db, "told", [*self._read(chain.read_recorded_heads), head][-4:]
                )
            self._settle()
        return head.place, head.hash
