"""A budget that protects very weakly says so, wherever it is shown; every usual one says nothing."""

from __future__ import annotations

import pytest

import opendp_sim as sim
from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.budget_warnings import MOST_EPSILON, little_protection
from opendp_sim.dsl.plan.advice import advice
from opendp_sim.sklearn import Budget

SAID = "gives very weak protection"


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (Limit(epsilon=MOST_EPSILON), False),
        (Limit(epsilon=MOST_EPSILON + 0.1, delta=1e-6), True),
        (Limit(rho=5.0), False),
        (Limit(rho=50.0), True),
        (Limit(mu=1.0), False),
        (Limit(mu=4.0), True),
        (None, False),
    ],
    ids=str,
)
def test_what_protects_very_weakly_is_told(limit, said):
    assert (SAID in (little_protection(limit) or "")) == said


def test_plans_recipes_and_budgets_all_say_it():
    for epsilon, said in ((1.0, False), (1e3, True)):
        fit = sim.density({"x": (0, 1)}, bandwidth=0.1, epsilon=epsilon)
        assert (SAID in repr(fit)) == said
        assert any(SAID in text for text in advice(fit.plan)) == said
        assert (SAID in repr(Budget(epsilon=epsilon, delta=1e-6))) == said
