"""What epsilon, delta and the absence of a ledger mean, each in one plain sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator

from opendp_sim.accounting.little_protection import MOST_EPSILON
from opendp_sim.core.rounding import up_text
from opendp_sim.dsl.plan import Plan

__all__ = ["delta_in_words", "epsilon_in_words", "in_words", "spent_of"]


def spent_of(plan: Plan) -> tuple[float, ...] | None:
    """Return (epsilon,) or (epsilon, delta) of one run, or None where the claim has another form."""
    if plan.privacy is None:
        return None
    if plan.claim is None and plan.privacy.measure in {"pure", "approx"}:
        return plan.total
    return plan.claim


def epsilon_in_words(epsilon: float, *, replaced: bool = False) -> str:
    """Say what an epsilon bounds: a factor between two likelihoods.

    ``replaced`` is whether neighbours differ by what a record says, not by which records there are.
    """
    if epsilon > MOST_EPSILON:
        return f"epsilon {up_text(epsilon, 3)} limits hardly anything."
    factor = up_text(math.exp(epsilon) * (1 + 1e-12), 3)
    given, other = "with the protected records in the data", "without them"
    if replaced:
        if 1000 <= float(factor) < 1e12:
            factor = f"{float(factor):,.0f}"
        given, other = ("with what the protected records say", "with something else in their place")
    return (
        f"epsilon {up_text(epsilon, 3)}: {given}, anything that is "
        f"released is at most {factor} times as likely as {other}, or the other way round; "
        "epsilon 0 would reveal nothing."
    )


def delta_in_words(delta: float, of: str = "people") -> str:
    """Say what a delta adds; ``of`` is what is protected, in the plural."""
    if not delta:
        return "delta 0: that limit has no exceptions."
    return (
        f"delta {up_text(delta, 2)}: so much is added to that limit, as a probability; it should be "
        f"far below one over the number of {of}."
    )


def in_words(plan: Plan) -> Iterator[str]:
    """Yield a sentence each about epsilon, delta, and who counts the runs."""
    spent = spent_of(plan)
    if spent is not None:
        replaced = plan.privacy is not None and plan.privacy.unit.kind == "replace"
        yield epsilon_in_words(spent[0], replaced=replaced)
        row = plan.privacy is not None and plan.privacy.unit.of == "row"
        yield delta_in_words(spent[1] if len(spent) > 1 else 0.0, "records" if row else "people")
    if all(entry.ledger is None for entry in plan.program.data if not entry.public):
        yield (
            "No ledger adds them up: nothing counts the runs on this data, nothing stops the next; "
            "a `ledger` beside the dataset would do both."
        )
