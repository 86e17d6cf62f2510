"""State a ledger before and after one run, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opendp_sim.accounting.composition import Charge, Total, total_of
from opendp_sim.accounting.ledger._entries import Entry, Terms, counting_entries
from opendp_sim.accounting.ledger.ledger import Ledger, is_there


@dataclass(frozen=True)
class LedgerStanding:
    """Hold a ledger's sum, limit and head around one run.

    Attributes:
        file: its path, or its place in a database.
        unit: what it protects.
        cost: the loss of the run.
        refused: why it cannot be read, in words; then nothing else is known.
        head: the hash of its last entry, empty where there is no ledger yet; what
            ``apply(expected_head=...)`` compares.
        runs: the entries whose losses count.
        before: the sum of these losses, beside the limit.
        after: the same with one run more.
        room: how many such runs fit, at most 1,000.
        mend: what to do about ``refused``.
    """

    file: str
    unit: str
    cost: Charge
    refused: str = ""
    head: str = ""
    runs: tuple[Entry, ...] = ()
    before: Total | None = None
    after: Total | None = None
    room: int = 0
    mend: str = ""

    @property
    def fits(self) -> bool:
        """Whether one run is within the limit."""
        return self.after is not None and self.after.fits

    @property
    def limit(self) -> str:
        """The limit, in words."""
        return "" if self.after is None else self.after.limit_text

    @property
    def left(self) -> str:
        """Return the budget after one run, in words."""
        return "" if self.after is None else self.after.left_text

    @property
    def share_before(self) -> float:
        """Return the used share of the limit, from 0 to 1."""
        return 0.0 if self.before is None or not any(self.before.exact) else self.before.share

    @property
    def share_after(self) -> float:
        """Return the used share after one run, at most 1."""
        return 0.0 if self.after is None else self.after.share

    def plain(self) -> dict[str, Any]:
        """Return the standing as plain JSON."""
        about: dict[str, Any] = {"file": self.file, "unit": self.unit, "takes": self.cost.text}
        if self.before is None:
            return about | {"refused": self.refused}
        return about | {
            "head": self.head or None,
            "limit": self.limit,
            "spent": self.before.text,
            "measure": self.before.measure,
            "loss": list(self.before.loss),
            "share_before": self.share_before,
            "share_after": self.share_after,
            "runs": len(self.runs),
            "left": self.left,
            "fits": self.fits,
            "room": self.room,
            "new": not self.head,
        }


def standing_of_ledger(path: Path, terms: Terms, cost: Charge) -> LedgerStanding:
    """Return a ledger's standing around a loss; nothing is written.

    Raises:
        BudgetError: the ledger cannot be read, or a sum cannot be converted.
    """
    head = ""
    runs: tuple[Entry, ...] = ()
    before = total_of((), terms.measure, terms.limit)
    if is_there(path):
        with Ledger.open(path, terms) as ledger:
            head, runs = ledger.head, tuple(counting_entries(ledger.entries))
            before = ledger.total()
    spent = Charge(terms.measure, before.exact)
    after = total_of((spent, cost), terms.measure, terms.limit)
    return LedgerStanding(
        str(path), terms.unit, cost, "", head, runs, before, after, before.room(cost)
    )
