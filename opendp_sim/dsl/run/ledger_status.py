"""State a plan's place in its ledger, spent, loss and left."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from opendp_sim.accounting.budget import Limit, MeasureName
from opendp_sim.accounting.composition import Charge, Total, converted_at, total_of
from opendp_sim.accounting.ledger._entries import counting_entries
from opendp_sim.accounting.ledger.ledger import Ledger, is_there
from opendp_sim.accounting.measures.second_opinion import zcdp_to_epsilon
from opendp_sim.core.arithmetic.rounding import float_up
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.records import ledger_path
from opendp_sim.dsl.run.charge import ledger_terms, refuse_lost

_MOST = 1000
"""Runs that are counted; more are as good as no end."""


def ledger_status(plan: Plan) -> dict[str, Any] | None:
    """Return a ledger's status for a plan, or None.

    File, unit, limit; spent, the plan's loss, left. Nothing is written. A ledger that cannot be read
    has ``refused`` instead: why not.
    """
    terms, path = ledger_terms(plan), ledger_path(plan)
    if terms is None or path is None or plan.charge is None:
        return None
    about: dict[str, Any] = {"file": str(path), "unit": terms.unit, "takes": plan.charge.text}
    try:
        there = is_there(path)
        if there:
            with Ledger.open(path, terms) as ledger:
                spent, made = ledger.total(), len(counting_entries(ledger.entries))
        else:
            refuse_lost(plan, path)
            spent, made = total_of((), terms.measure, terms.limit), 0
        before = Charge(terms.measure, spent.exact)

        def total(*charges: Charge) -> Total:
            return total_of((before, *charges), terms.measure, terms.limit)

        guess = _guessed(before, plan.charge, terms.measure, terms.limit)
        after, runs = total(plan.charge), room(total, plan.charge, terms.measure, guess)
    except BudgetError as error:
        return about | {"refused": f"expected {error.expected}; got {error.got}"}
    return about | {
        "limit": after.limit_text,
        "spent": spent.text,
        "measure": terms.measure,
        "loss": list(spent.loss),
        "runs": made,
        "left": after.left_text,
        "fits": after.fits,
        "room": runs,
        "new": not there,
    }


def _guessed(before: Charge, charge: Charge, measure: MeasureName, limit: Limit) -> int | None:
    """Return our own conversion's count of further runs."""
    if measure not in ("zcdp", "approx_zcdp") or charge.measure != measure or not limit.epsilon:
        return None
    delta = converted_at(measure, limit)

    def over(runs: int) -> bool:
        loss = tuple(a + b * runs for a, b in zip(before.exact, charge.exact, strict=True))
        return not Total(measure, loss, limit, zcdp_to_epsilon(float_up(loss[0]), delta)).fits

    return bisect_left(range(1, _MOST + 1), True, key=over)


def room(
    total: Callable[..., Total], charge: Charge, measure: str, guess: int | None = None
) -> int:
    """Return how many more runs of a loss fit, at most ``_MOST``.

    ``total`` is with these charges added; ``guess`` is the answer if that many fit and one more does not.
    """

    def fits(runs: int) -> bool:
        if charge.measure != measure:
            return bool(total(*[charge] * runs).fits)
        parts = (part * runs for part in charge.exact)
        try:
            return bool(total(Charge(charge.measure, tuple(parts))).fits)
        except BudgetError:
            return False  # a delta beyond 1

    most = _MOST if charge.measure == measure else _MOST // 10
    if not any(charge.exact):
        return most
    if guess is not None and (guess == 0 or fits(guess)) and (guess == most or not fits(guess + 1)):
        return guess
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
