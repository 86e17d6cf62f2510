"""State a plan's Gaussian total and attackers under any measure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.accounting.measures.gaussian import mu_squared_down
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


def noise_ratios(plan: Planned, epsilons: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Return (epsilon, noise in parts of the plan's) at other budgets.

    Under ``gdp``, and nothing under other measures: noise is a sensitivity over mu, so its ratio is that
    of two mu's and no program is planned again, as ``plan.errors`` does.
    """
    privacy = plan.privacy
    if privacy is None or privacy.measure != "gdp" or privacy.budget.delta is None:
        return ()
    delta = privacy.budget.down("delta")
    if delta is None or not plan.total[0] > 0:
        return ()
    mine = math.sqrt(2.0 * plan.total[0])  # a rho of OpenDP's is half of mu squared
    return tuple((e, mine / _mu(Fraction(e), Fraction(delta))) for e in epsilons)


@lru_cache(maxsize=1024)
def _mu(epsilon: Fraction, delta: Fraction) -> float:
    return math.sqrt(float(mu_squared_down(epsilon, delta)))
