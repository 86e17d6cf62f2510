"""Explain epsilon, delta and a missing ledger.

One plain sentence each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from opendp_sim.accounting.budget_warnings import MOST_EPSILON
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.dsl.grammar.privacy import Unit
from opendp_sim.dsl.plan.plan import Plan


def spent_of(plan: Plan) -> tuple[float, ...] | None:
    """Return one run's (epsilon,) or (epsilon, delta).

    None where the claim has another form.
    """
    if plan.privacy is None:
        return None
    if plan.claim is None and plan.privacy.measure in {"pure", "approx"}:
        return plan.total
    return plan.claim


def epsilon_in_words(
    epsilon: float, *, replaced: bool = False, of: str = "the protected records"
) -> str:
    """Explain epsilon as a factor between two likelihoods.

    For the protected unit.

    ``replaced`` is whether neighbours differ by what a record says, not by which records there are;
    ``of`` is what is protected: what is said holds for each one by itself.
    """
    if epsilon > MOST_EPSILON:
        return f"epsilon {up_text(epsilon, 3)} limits hardly anything."
    factor = up_text(math.exp(epsilon) * (1 + 1e-12), 3)
    if 1000 <= float(factor) < 1e12:
        factor = f"{float(factor):,.0f}"
    given, other = f"with {of} in the data", "without"
    if replaced:
        given, other = (f"with what {of} said", "with anything else in its place")
    return (
        f"epsilon {up_text(epsilon, 3)}: {given}, anything that is released, and anything that is done "
        f"because of it, is at most {factor} times as likely as {other}, or the other way round; "
        "epsilon 0 would reveal nothing."
    )


def of_whom(unit: Unit) -> str:
    """Return the protected unit.

    One record, or all rows of one name, or several of them.
    """
    if unit.of == "row":
        return "one record" if unit.count == 1 else f"{unit.count} records"
    return "all rows of one person" if unit.count == 1 else f"all rows of {unit.count} persons"


def delta_in_words(delta: float, of: str = "people") -> str:
    """Explain a delta.

    ``of`` is the protected unit, in the plural.
    """
    if not delta:
        return "delta 0: that limit has no exceptions."
    return (
        f"delta {up_text(delta, 2)}: so much is added to that limit, as a probability; it should be "
        f"far below one over the number of {of}."
    )


def loss_sentences(plan: Plan) -> Iterator[str]:
    """Yield a sentence each about epsilon, delta, and who counts the runs."""
    spent = spent_of(plan)
    if spent is not None:
        assert plan.privacy is not None  # noqa: S101 - something was spent
        unit = plan.privacy.unit
        yield epsilon_in_words(spent[0], replaced=unit.kind == "replace", of=of_whom(unit))
        of = "records" if unit.of == "row" else "people"
        yield delta_in_words(spent[1] if len(spent) > 1 else 0.0, of)
    if all(entry.ledger is None for entry in plan.program.data if not entry.public):
        yield (
            "No ledger adds them up: nothing counts the runs on this data, nothing stops the next; "
            "a `ledger` beside the dataset would do both."
        )
