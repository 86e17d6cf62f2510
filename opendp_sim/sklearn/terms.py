"""The terms of a budget that estimators share: its measure, its unit and its limit, or a refusal."""

from __future__ import annotations

from typing import Any

from opendp_sim.accounting.budget import Budget as Limit
from opendp_sim.accounting.ledger import Terms
from opendp_sim.core.errors import BudgetError

__all__ = ["terms_of", "unit_of"]


def terms_of(measure: Any, unit: str, limit: Limit) -> Terms:
    """Return the terms, or refuse a measure that is none and a limit that is none of it (OS401)."""
    limit.check(measure if isinstance(measure, str) else "none", "budget")  # type: ignore[arg-type]
    return Terms(measure, unit_of(unit), limit)


def unit_of(word: str) -> str:
    """Return a unit as ledgers state it, or refuse another word (OS401)."""
    if word not in ("row", "groups"):
        raise BudgetError(
            "OS401",
            "budget.unit",
            expected="row or groups",
            got=f"{word!r:.30}",
            hint="`row` protects records, `groups` the persons that fit(..., groups=ids) names.",
        )
    return f"add_remove 1 of {word}"
