"""State a privacy claim in one sentence.

How much, for whom, and under which measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from opendp_sim.accounting.composition import loss_text
from opendp_sim.core.arithmetic.rounding import up_text


def claim_sentence(privacy: Mapping[str, Any]) -> str:
    """Return the claim of a release's header or of a plan.

    Args:
        privacy: ``unit``, ``measure``, ``total`` and ``claim`` as a certificate holds them; whatever
            is missing is left out.
    """
    if privacy.get("public"):
        return "public data: nothing is protected and nothing is spent"
    parts = []
    claim, measure, total = (privacy.get(name) for name in ("claim", "measure", "total"))
    loss = loss_text(measure, tuple(total)) if measure and total is not None else ""
    if claim:
        parts.append(f"({', '.join(up_text(part) for part in claim)})-DP")
        parts.append(f"[{loss}]" if loss else "")
    elif loss:
        parts.append(loss)
    unit = privacy.get("unit")
    if isinstance(unit, Mapping):
        parts.append(f"for {who(unit)}")
    return " ".join(part for part in parts if part) or "no claim is stated"


def who(unit: Mapping[str, Any]) -> str:
    """Return whom a unit protects, and how many."""
    of = str(unit.get("of", "row"))
    kind = "replace" if "replace" in unit else "add_remove"
    number = unit.get(kind, 1)
    done = "replaced" if kind == "replace" else "added or removed"
    if of == "row":
        return f"one record {done}" if number == 1 else f"up to {number} records {done}"
    return f"one person (column `{of}`) {done}" if number == 1 else f"up to {number} persons {done}"


def belief(epsilon: float) -> float:
    """Return what a suspicion of one half can rise to, ``e**epsilon / (1 + e**epsilon)``.

    Under pure DP alone: with a delta, or under a curve, no number below 1 bounds it.
    """
    return 1.0 if epsilon > 700 else math.exp(epsilon) / (1 + math.exp(epsilon))
