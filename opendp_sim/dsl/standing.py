"""Where a plan stands with its ledger: what is spent, what it would take, what would be left."""

from __future__ import annotations

from typing import Any

from opendp_sim.accounting.ledger import Ledger
from opendp_sim.accounting.shared_ledger import is_shared
from opendp_sim.accounting.totals import total_of
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.charging import ledger_path, terms_of
from opendp_sim.dsl.lost_ledger import refuse_lost
from opendp_sim.dsl.plan import Plan

__all__ = ["standing"]


def standing(plan: Plan) -> dict[str, Any] | None:
    """Return the ledger's file, unit, limit, and what is spent, taken and left; None without one.

    Nothing is written. A ledger that cannot be read has ``refused`` instead: why not.
    """
    terms, path = terms_of(plan), ledger_path(plan)
    if terms is None or path is None or plan.charge is None:
        return None
    about: dict[str, Any] = {"file": str(path), "unit": terms.unit, "takes": plan.charge.text}
    try:
        if is_shared(path) or path.exists():
            with Ledger.open(path, terms) as ledger:
                spent, after = ledger.total(), ledger.total(plan.charge)
        else:
            refuse_lost(plan, path)
            spent, after = (
                total_of(charges, terms.measure, terms.limit) for charges in ((), (plan.charge,))
            )
    except BudgetError as error:
        return about | {"refused": f"expected {error.expected}; got {error.got}"}
    return about | {
        "limit": after.limit_text,
        "spent": spent.text,
        "left": after.left_text,
        "fits": after.fits,
        "new": not is_shared(path) and not path.exists(),
    }
