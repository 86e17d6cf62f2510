"""What a certificate says of its ledger, compared with all that follows without the ledger."""

from __future__ import annotations

import json
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.certificate import Certificate
from opendp_sim.accounting.ledger import Terms
from opendp_sim.accounting.totals import Charge, Total, total_of
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.certify import standing
from opendp_sim.dsl.charging import ledger_path
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.same_numbers import ROOM, same

__all__ = ["stated_wrongly"]


def stated_wrongly(
    plan: Plan, terms: Terms, record: Certificate, body: dict[str, Any]
) -> str | None:
    """Return what a certificate cannot have stated of the program's ledger; None if it all can be.

    That the sum is right only the ledger shows. Without it: the ledger is the one that the program
    names, an entry has a number and settles one before it, the sum is one of the ledger's measure, holds
    this run's loss and keeps the limit, and epsilon, text and rest are those of the sum.

    Args:
        plan: the certified program's.
        terms: the ledger's, by the program.
        record: the certificate.
        body: of the entry that it quotes.
    """
    part, charge, path = record.ledger, record.charge, ledger_path(plan)
    if part is None or charge is None or path is None or plan.charge is None:
        return "ledger"
    if part.file != File(path).name:
        return "ledger.file"
    if charge.entry < 1:
        return f"charge: entry {charge.entry}, and the first is 1"
    of = body.get("of")
    if of is not None and not (type(of) is int and 1 <= of < charge.entry):
        return "charge.body.of"
    total = _total(part.spent, terms)
    if total is None:
        return "ledger.spent.loss"
    again = json.loads(json.dumps(standing(total)))
    if not same(part.spent, again["spent"]):
        return "ledger.spent"
    own = total_of((plan.charge,), terms.measure, terms.limit).loss
    if not total.fits or any(
        all_ < one * (1 - ROOM) for all_, one in zip(total.loss, own, strict=True)
    ):
        return "ledger.spent.loss"
    return None if same(part.left, again["left"]) else "ledger.left"


def _total(spent: Any, terms: Terms) -> Total | None:
    """Return the sum of losses that is stated, beside the limit; None if it is no such sum."""
    loss = spent.get("loss") if isinstance(spent, dict) else None
    try:
        found = Charge(terms.measure, tuple(loss) if isinstance(loss, list) else ())
        return total_of((found,), terms.measure, terms.limit)
    except BudgetError:
        return None
