"""State a plan's Gaussian total and attackers under any measure."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.accounting.measures.second_opinion import zcdp_to_epsilon
from opendp_sim.dsl.plan.records import Planned


def gaussian_facts(plan: Planned) -> dict[str, Any] | None:
    """Return the rational mu**2 of a ``gdp`` program.

    Everything else is computed from it. ``mu_squared`` is in force: twice OpenDP's total. ``by_types``
    is the same from the types alone.
    """
    if plan.privacy is None or plan.privacy.measure != "gdp":
        return None
    by_types = 2 * sum((r.again[0] for r in plan.releases.values() if r.again), Fraction(0))
    delta = None if plan.target is None else plan.target.conversion_delta
    return {
        "mu_squared": str(2 * Fraction(plan.total[0])),
        "by_types": str(by_types),
        "epsilon_by_zcdp": None if delta is None else zcdp_to_epsilon(plan.total[0], delta),
    }


def attackers_of(plan: Planned) -> dict[str, Any] | None:
    """Return the program's attackers of one record and of the unit."""
    if plan.privacy is None or not plan.total:
        return None
    measure, exact = plan.privacy.measure, is_tight(plan)
    return {
        "one": attacker_of(measure, plan.of_one, exact=exact).plain(),
        "unit": attacker_of(measure, plan.total, exact=exact).plain(),
    }


def is_tight(plan: Planned) -> bool:
    """Return whether the Gaussian curve is exact, as without pure releases."""
    if plan.privacy is None or plan.privacy.measure != "gdp":
        return False
    bounds = [release.bound for release in plan.releases.values() if release.bound is not None]
    return all(bound.claim.mu_squared is not None for bound in bounds)
