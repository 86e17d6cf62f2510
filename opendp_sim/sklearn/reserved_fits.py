"""Fits that are reserved in a ledger and not used yet: which there are, and what they pay for."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from opendp_sim.accounting.ledger import Entry, Ledger
from opendp_sim.accounting.totals import Charge
from opendp_sim.core.errors import BudgetError

__all__ = ["charges_of", "new_token", "not_covered", "pay", "unused"]

_RESERVED = "estimator-"
"""How the tokens of reserved fits begin."""


def charges_of(given: Any, where: str) -> list[Charge]:
    """Return the losses of a cost, a list or anything that yields them, or refuse (OS401)."""
    given = getattr(given, "charges", given)
    found = list(given) if isinstance(given, Iterable) else [given]
    losses = [each for each in found if isinstance(each, Charge)]
    if len(losses) < len(found):
        raise BudgetError(
            "OS401",
            where,
            expected="losses of fits",
            got="something else",
            hint="budget.reserve(cost_of(search).charges), all of them or none.",
        )
    return losses


def new_token() -> str:
    """Return a token for a fit that is reserved."""
    return _RESERVED + secrets.token_hex(4)


def unused(ledger: Ledger) -> list[Entry]:
    """Return the reserved fits that are still open, cheapest first."""
    entries = ledger.entries
    settled = {e.body.get("of") for e in entries if e.kind in ("charge", "refusal", "void")}
    found = [e for e in entries if e.kind == "reserve" and _is_fit(e) and e.seq not in settled]
    return sorted(found, key=lambda e: Charge.read(e.body["loss"]).loss)


def not_covered(ledger: Ledger, charges: Sequence[Charge]) -> list[Charge]:
    """Return the charges that are left when each takes the cheapest open reserve that pays for it.

    Losses of one measure are one number here, so whoever takes the cheapest that is enough takes it from
    nobody who has no other: fits that come in another order find as many.
    """
    open_ = [Charge.read(entry.body["loss"]) for entry in unused(ledger)]
    left = []
    for charge in charges:
        at = next((i for i, reserved in enumerate(open_) if _covers(reserved, charge)), None)
        if at is None:
            left.append(charge)
        else:
            del open_[at]
    return left


def pay(ledger: Ledger, charge: Charge, about: dict[str, str], where: str) -> Entry:
    """Charge a fit: the cheapest reserve that pays for it is used, and without one it is charged anew.

    Raises:
        BudgetError (OS402): the limit would be passed; nothing was charged.
    """
    for entry in unused(ledger):
        if _covers(Charge.read(entry.body["loss"]), charge):
            return ledger.settle(entry, "charge", about)
    try:
        return ledger.charge(charge, about)
    except BudgetError as error:
        if error.code != "OS402":
            raise
        raise BudgetError(
            "OS402",
            where,
            expected=error.expected,
            got=error.got,
            hint="lower its epsilon, or raise the limit of a new budget. Before a search or "
            "cross-validation budget.reserve(cost_of(search).charges) takes all fits, or none.",
        ) from None


def _covers(reserved: Charge, charge: Charge) -> bool:
    """Say whether a reserved loss pays for another: of the same measure, and no smaller in any part."""
    return reserved.measure == charge.measure and all(
        have >= need for have, need in zip(reserved.loss, charge.loss, strict=True)
    )


def _is_fit(entry: Entry) -> bool:
    return str(entry.body.get("token")).startswith(_RESERVED)
