"""Read a ledger's spending, its rest, and each run's outcome."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from opendp_sim.accounting.composition import Charge, Total, total_of
from opendp_sim.accounting.ledger._entries import (
    Entry,
    Terms,
    counting_entries,
    entry_hash,
    read_birth,
    read_head,
    read_terms,
    stores_of,
)
from opendp_sim.accounting.ledger._refusals import RESTORE, refused
from opendp_sim.core.errors import BudgetError

REFUSALS = 10
"""Runs that the data may refuse in a ledger's life; and as many again that enforce their declaration."""


class LedgerHistory:
    """Read a ledger of two records and a chain of entries."""

    path: Path

    @abstractmethod
    def _meta(self, key: str) -> str:
        """Return the record ``genesis`` or ``head``."""

    @property
    @abstractmethod
    def entries(self) -> tuple[Entry, ...]:
        """Every entry in order."""

    def _upto(self, upto: int | None) -> Sequence[Entry]:
        """Return the entries up to a number; None for all."""
        return self.entries[:upto]

    @property
    def terms(self) -> Terms:
        """Measure, unit and limit of this ledger."""
        return read_terms(self._meta("genesis"), self._broken)

    @property
    def anew(self) -> str | None:
        """Return when this ledger replaced a lost one, or None."""
        return read_birth(self._meta("genesis"), self._broken)[1]

    @property
    def start(self) -> str:
        """Return the hash before the first entry, which identifies this ledger."""
        return entry_hash("", self._meta("genesis"))

    def forgets(self, start: str | None) -> bool:
        """Return whether this ledger replaces one with another first hash.

        ``start`` is a certificate's; None from before ledgers had names of their own.
        """
        name, anew = read_birth(self._meta("genesis"), self._broken)
        return anew is not None and (name is not None if start is None else start != self.start)

    @property
    def head(self) -> str:
        """Return the last hash, which identifies the whole history."""
        return read_head(self._meta("head"), self._broken)[1]

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Return charges and unsettled reserves, in order."""
        return tuple(Charge.read(e.body["loss"]) for e in counting_entries(self.entries))

    def total(self, *more: Charge, upto: int | None = None) -> Total:
        """Return OpenDP's composition of entries ``upto`` one, and of ``more`` losses."""
        spent = [Charge.read(e.body["loss"]) for e in counting_entries(self._upto(upto))]
        return total_of((*spent, *more), self.terms.measure, self.terms.limit)

    def afford(self, charge: Charge) -> None:
        """Raise OS402 unless the limit has room for ``charge``; nothing is recorded."""
        before, after = self.total(), self.total(charge)
        if not after.fits:
            raise BudgetError(
                "OS402", str(self.path), expected=f"a total within {after.limit_text}",
                got=f"requested {charge.text}, spent {before.text}, left {before.left_text}",
                hint="ask for less, or stop: what is spent cannot be had back.",
            )  # fmt: skip

    def refusals(self, *, enforced: bool = False) -> int:
        """Return the number of refused runs, or of those under `ingest: enforce`."""
        found = (entry.body for entry in self.entries if entry.kind == "refusal")
        return sum(not enforced or body.get("ingest") == "enforce" for body in found)

    def may_refuse(self, *, enforced: bool = False) -> None:
        """Raise OS402 where another refusal by the data would reveal too much.

        A run under `ingest: enforce` is refused for a cut file or 2**31 records only, so a ledger whose
        other runs were refused too often still takes it.
        """
        if self.refusals(enforced=enforced) >= REFUSALS:
            hint = (
                "what `ingest: enforce` refuses is a file that is cut short, or 2**31 records; its "
                "owner has to look at it, and to begin another ledger."
                if enforced
                else "use `ingest: enforce`: it clamps and drops by the declared rule, so that a run "
                "says nothing about the data by being refused."
            )
            raise BudgetError(
                "OS402", str(self.path), expected=f"fewer than {REFUSALS} runs that the data refused"
                + " under `ingest: enforce`" * enforced,
                got=f"{REFUSALS} of them", hint=hint,
            )  # fmt: skip

    def settlement_of(self, reserve: Entry) -> Entry | None:
        """Return the entry that settled a reserve; None while it is open."""
        return self._about(reserve, "charge", "refusal", "void")

    def outcome_of(self, charge: Entry) -> Entry | None:
        """Return the outcome of a charge, None for an unfinished run."""
        return self._about(charge, "outcome")

    def _about(self, entry: Entry, *kinds: str) -> Entry | None:
        """Return the first later entry of some kinds about an entry."""
        later = (e for e in self.entries[entry.seq :] if e.kind in kinds)
        return next((e for e in later if e.body.get("of") == entry.seq), None)

    def head_told(self, store: str) -> tuple[int, str, bool] | None:
        """Return the recorded end of a store's chain, and whether it ended."""
        found = [
            (e.body["place"], e.body["head"], bool(e.body.get("ended")))
            for e in self.entries
            if e.kind == "session" and e.body["store"] == store and e.body.get("head")
        ]
        return found[-1] if found else None

    def answered_of(self, charge: Entry) -> int | None:
        """Return the number of answers that a run's ended sessions state.

        None for a run without sessions, and before the first end.
        """
        told = {
            e.body["store"]: e.body["answered"]
            for e in self.entries
            if e.kind == "session" and e.body.get("answered") is not None
        }
        found = [told[store] for store in stores_of(charge.body) if store in told]
        return sum(found) if found else None

    def turn_of(self, store: str) -> str | None:
        """Return a store's last turn, "" if never opened, None if uncharged."""
        entries = self.entries
        told = (e.body for e in reversed(entries) if e.kind == "session")
        last = next((body for body in told if body["store"] == store), None)
        if last is not None:
            return str(last["turn"])
        paid = any(store in stores_of(e.body) for e in counting_entries(entries))
        return "" if paid else None

    def _broken(self, got: str) -> BudgetError:
        return refused(self.path, "an unbroken chain of entries", got, RESTORE)
