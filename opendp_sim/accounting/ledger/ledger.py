"""Record every loss durably before the data is read.

Entries are chained by hashes. Its rows are in one SQLite file (``_file.py``: locked from ``open`` to
``close``, OS403 for a second process; checkpointed after every entry, so that the file alone is always
the whole ledger) or in a database (``_postgres_tables.py``: any number of processes, each call in a
transaction that holds the ledger's row). Each entry holds the hash of the one before it, and a head
record holds the number of entries and the last hash, so an edit, a deletion, a swap or a cut tail is
found by ``verify``. What no ledger can show is a whole older copy put in its place, or a rewrite by
somebody who recomputes every hash: certificates carry their entry of the chain, so
``verify(head=...)`` finds those as long as one certificate is kept elsewhere.

A run *reserves* its loss before it looks at a record, and *settles* it as a charge, as a refusal by the
data gate, or as void where no record could be looked at. A reserve that was never settled counts as
spent (``dsl/run/charge.md`` has the proof).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

from opendp_sim.accounting.claim_text import (
    ProtectedUnit,
    Statement,
    html_card,
    odds_statement,
    unit_statement,
)
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.file_schemas import time_now
from opendp_sim.accounting.ledger._durable import Closing
from opendp_sim.accounting.ledger._entries import (
    LEDGER_FORMAT,
    Entry,
    Terms,
    canonical_json,
    entry_hash,
    read_entry,
    read_head,
    read_terms,
)
from opendp_sim.accounting.ledger._file import FileTables, check_length
from opendp_sim.accounting.ledger._postgres_tables import PostgresTables
from opendp_sim.accounting.ledger._refusals import RESTORE, another_head, refused
from opendp_sim.accounting.ledger.history import REFUSALS, LedgerHistory
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.system.event_log import log_event

__all__ = ["REFUSALS", "Entry", "Ledger", "Terms", "head_of", "is_there"]


def _tables(path: str | Path) -> FileTables | PostgresTables:
    return PostgresTables(Path(path)) if is_shared(path) else FileTables(Path(path))


class Ledger(LedgerHistory, Closing):
    """Charge and read an open ledger.

    In a file or a database. A context manager; threads may share it. What its entries say is in
    ``history``; here is what is decided and written, in one transaction.
    """

    def __init__(
        self, tables: FileTables | PostgresTables, known: LedgerHistory | None = None
    ) -> None:
        self.path, self._tables = tables.path, tables
        self._genesis = ""  # as it was read first: it never changes
        self._known: list[Entry] = []  # what this process has read and verified
        self._keeps = isinstance(known, Ledger) and known.path == tables.path
        if self._keeps:  # that stays, though rows of a file could be edited
            vars(self).update({name: vars(known)[name] for name in ("_genesis", "_known")})

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse copies and pickles (OS403), as the lock belongs to one object."""
        raise refused(self.path, "one open ledger", "a copy of it", "open the file again.")

    @classmethod
    def open(
        cls,
        path: str | Path,
        terms: Terms | None = None,
        *,
        forget: bool = False,
        known: Ledger | None = None,
    ) -> Self:
        """Open a ledger; with ``terms``, make it when it does not exist.

        Args:
            path: its file, which stays locked until ``close``; or ``postgresql:SERVICE/LEDGER``.
            terms: measure, unit and limit.
            forget: begin another ledger where one was and is lost. It records that it does: whatever was
                charged to the lost one is in no total any more.
            known: this ledger as this process had it open before. Entries that it verified are kept, and
                only later ones are read: another history, or a cut one, does not follow them.

        Raises:
            BudgetError (OS403): missing, locked, foreign, broken, or made with other terms; no database.
                (OS401): the terms' limit is none. (OS407): it was here before, and is gone.
        """
        if terms is not None:
            terms.limit.check(terms.measure, "ledger.limit")
        ledger = cls(_tables(path), known)
        born = {"name": secrets.token_hex(16)}
        if forget and not is_shared(path):
            born["anew"] = time_now()

        def first() -> tuple[str, str]:
            plain = {} if terms is None else terms.plain()
            genesis = canonical_json({"format": LEDGER_FORMAT, **plain, **born})
            return genesis, canonical_json({"count": 0, "hash": entry_hash("", genesis)})

        def start() -> None:
            ledger._tables.open(None if terms is None else first, forget=forget)
            if ledger._keeps:
                ledger._read()
            else:
                ledger.verify()
            ledger._check_terms(terms)

        try:
            ledger._tables.call(start)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _repr_html_(self) -> str:
        """Return who is protected, the odds, and the budget, for a notebook."""
        total, unit = self.total(), ProtectedUnit.of_text(str(self.terms.unit))
        spent = (
            Statement("spent", "", f"{total.text}, of {total.limit_text}"),
            Statement("left", "", total.left_text),
        )
        odds = odds_statement(attacker_of(total.measure, total.loss), unit, several=False)
        runs = len(self.charges)
        title = f"ledger of {runs} run{'' if runs == 1 else 's'}"
        return html_card(title, [unit_statement(unit), odds, *spent])

    def _check_terms(self, terms: Terms | None) -> None:
        if terms is not None and terms != self.terms:
            own, others = self.terms.words, terms.words
            names = [name for name in own if getattr(self.terms, name) != getattr(terms, name)]
            raise refused(
                self.path,
                ", ".join(f"{name} {own[name]}" for name in names),
                ", ".join(f"{name} {others[name]}" for name in names),
                f"the ledger's {' and '.join(names)} stay as it was made with: put them back, or "
                "charge another ledger.",
            )

    def close(self) -> None:
        """Close and unlock; in a fork, do nothing."""
        self._tables.close()

    # --- reading ----------------------------------------------------------------------------------

    def _meta(self, key: str) -> str:
        return self._genesis if key == "genesis" else self._tables.call(self._tables.records)[1]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return every entry in order, verified, with the head where new."""
        return self._tables.call(self._read)

    def _upto(self, upto: int | None) -> Sequence[Entry]:
        """Return the entries up to a number."""
        known = self._known  # once: another thread may exchange the list
        if upto is not None and (self._tables.keeps or self._keeps) and upto <= len(known):
            return known[:upto]
        return super()._upto(upto)

    def _read(self, *, afresh: bool = False) -> tuple[Entry, ...]:
        before = [] if afresh else self._known
        found = list(before) if self._tables.keeps or self._keeps else []
        genesis, head, rows = self._tables.rows(len(found))
        if genesis != (self._genesis or genesis):
            raise self._broken("other terms than before")
        last = found[-1].hash if found else entry_hash("", genesis)
        for row in rows:
            known = before[len(found)] if len(found) < len(before) else None
            same = known is not None and known.is_row(row, last)
            found.append(known if known and same else self._entry(row, len(found), last))
            last = found[-1].hash
        if read_head(head, self._broken) != (len(found), last):
            raise refused(self.path, "the head that was recorded", "a cut or changed tail", RESTORE)
        self._known, self._genesis = found, genesis
        return tuple(found)

    def _entry(self, row: tuple[Any, Any, Any], before: int, last: str) -> Entry:
        """Return the entry of a row that has not been read before."""
        seq, body, digest = row
        if seq != before + 1 or not isinstance(body, str) or digest != entry_hash(last, body):
            raise self._broken(f"a break at entry {before + 1}")
        return read_entry(seq, body, last, self._broken)

    def verify(self, head: str | None = None) -> int:
        """Check every link from the first one; return the number of entries.

        Args:
            head: a hash that must occur in the chain: the head that a certificate recorded.

        Raises:
            BudgetError (OS403): an edited, missing, swapped or cut entry, or ``head`` is not there.
        """

        def run() -> int:
            entries = self._read(afresh=True)
            read_terms(self._genesis, self._broken)
            seen = [entry_hash("", self._genesis), *(entry.hash for entry in entries)]
            if head is not None and head not in seen:
                raise refused(
                    self.path, "a history that holds the given head", "another history",
                    "this is not the ledger that the certificate was charged to, or an old copy of it.",
                )  # fmt: skip
            return len(entries)

        return self._tables.call(run)

    # --- writing ----------------------------------------------------------------------------------

    def refusal(self, about: dict[str, Any]) -> Entry:
        """Record that the data refused a run, which counts and charges nothing."""
        return self._once(lambda: self._append({"kind": "refusal", **about}))

    def charge(self, charge: Charge, about: dict[str, Any]) -> Entry:
        """Record a charge, durably, if the limit allows it.

        Raises:
            BudgetError (OS402): the limit would be passed; nothing is recorded. (OS405): no loss that
                adds up in the ledger's own measure; nothing is recorded.
        """
        return self._spend("charge", charge, about)

    def reserve(self, charge: Charge, about: dict[str, Any], head: str | None = None) -> Entry:
        """Record a loss before the data is read.

        It counts as spent until it is settled.

        Args:
            charge: the loss.
            about: what the entry says of its run.
            head: the hash that the entry has to follow (``check_head``), None for any.

        Raises:
            BudgetError (OS402): the limit would be passed; nothing is recorded. (OS409): another head;
                nothing is recorded.
        """
        return self._spend("reserve", charge, about, head)

    def check_head(self, head: str) -> None:
        """Refuse a ledger with another head (OS409).

        ``""`` is the head of a ledger that was not made yet, and of one without entries.
        """
        entries = self.entries
        last = entries[-1].hash if entries else entry_hash("", self._genesis)
        if head != last and (head or entries):
            raise another_head(self.path)

    def check_entry(self, charge: Charge, about: dict[str, Any]) -> None:
        """Refuse a charge whose body is too long for an entry (OS403).

        ``about`` is what a reserve and its settlement will record beside it, or as much.
        """
        whole = {
            "kind": "charge",
            "loss": charge.plain(),
            "of": 10**15,
            "time": time_now(),
            **about,
        }
        check_length(self.path, canonical_json(whole))

    def _spend(
        self, kind: str, charge: Charge, about: dict[str, Any], head: str | None = None
    ) -> Entry:
        def decided() -> Entry:
            if head is not None:
                self.check_head(head)  # in the transaction that writes
            self.afford(charge)
            return self._append({"kind": kind, "loss": charge.plain(), **about})

        made = self._once(decided)
        log_event("charged %s to %s as entry %s", charge.text, self.path, made.seq)
        return made

    def settle(
        self, reserve: Entry, kind: Literal["charge", "refusal", "void"], about: dict[str, Any]
    ) -> Entry:
        """Record a reserve's outcome once.

        Again only if it is the same.

        Args:
            reserve: what ``reserve`` returned.
            kind: ``charge``; ``refusal`` by the data gate; ``void`` where no record was looked at.
            about: more to record: a code for a refusal, the digests of files for a charge.

        Returns:
            The settlement; or the reserve itself, which stands as a charge, where ``REFUSALS`` runs were
            refused before.

        Raises:
            BudgetError (OS403): it was settled otherwise.
        """

        def decided() -> Entry:
            settled = self.settlement_of(reserve)
            if settled is not None and settled.kind != kind:
                raise refused(
                    self.path, f"entry {reserve.seq} open, or settled as a {kind}",
                    f"one settled as a {settled.kind}",
                    "somebody else settled this run; `opendp-sim ledger show` says what stands.",
                )  # fmt: skip
            if settled is not None:
                return settled
            enforced = about.get("ingest") == "enforce"
            if kind == "refusal" and self.refusals(enforced=enforced) >= REFUSALS:
                return reserve  # others were refused meanwhile: this one is paid for
            keep = ("token", "name", "program", "dataset", "unit", "store", "stores", "loss")
            known = {name: reserve.body[name] for name in keep if name in reserve.body}
            if kind != "charge":
                known.pop("loss")
            return self._append({"kind": kind, "of": reserve.seq, **known, **about})

        return self._once(decided)

    def opened(
        self,
        store: str,
        turn: str,
        head: tuple[int, str] | None = None,
        *,
        answered: int | None = None,
        after: str | None = None,
    ) -> Entry:
        """Record that a session's store was opened or ended, with its head.

        Args:
            store: its name.
            turn: the mark of this opening.
            head: place and hash of its last entry.
            answered: at its end, the questions that it has answered in all.
            after: the turn that the ledger has to know, in the transaction that writes; None for any.

        Raises:
            BudgetError (OS407): the ledger knows another turn, and nothing is recorded.
        """
        told: dict[str, Any] = {} if head is None else {"place": head[0], "head": head[1]}
        told |= {} if answered is None else {"ended": True, "answered": answered}

        def decided() -> Entry:
            if after is not None and self.turn_of(store) != after:
                raise BudgetError(
                    "OS407", str(self.path), expected="the turn that the store went on from",
                    got="a later one: a copy of the store goes on elsewhere",
                    hint="keep the copy that went on first, and open no other.",
                )  # fmt: skip
            return self._append({"kind": "session", "store": store, "turn": turn, **told})

        return self._once(decided)

    def outcome(self, of: Entry, about: dict[str, Any]) -> Entry:
        """Record that a charge's run finished."""
        return self._once(lambda: self._append({"kind": "outcome", "of": of.seq, **about}))

    def _once(self, decide: Callable[[], Entry]) -> Entry:
        """Decide and write in one transaction, at most once."""
        token = secrets.token_hex(16)

        def run() -> Entry:
            with self._tables.writing(token) as made:
                entry = decide() if made is None else self._read()[made - 1]
            if entry.seq == len(self._known) + 1:
                self._known.append(entry)
            return entry

        return self._tables.call(run)

    def _append(self, body: dict[str, Any]) -> Entry:
        entries = self._read()
        last = entries[-1].hash if entries else entry_hash("", self._genesis)
        text = canonical_json({**body, "time": time_now()})
        check_length(self.path, text)
        entry = read_entry(len(entries) + 1, text, last, self._broken)
        self._tables.put(entry, canonical_json({"count": entry.seq, "hash": entry.hash}))
        return entry


def is_there(path: str | Path) -> bool:
    """Return whether a ledger exists, in a file or a database (OS403)."""
    return _tables(path).there()


def head_of(path: str | Path) -> str | None:
    """Return the head of the ledger at ``path``, None without an entry."""
    if not is_there(path):
        return None
    with Ledger.open(path) as ledger:
        return ledger.head if ledger.entries else None
