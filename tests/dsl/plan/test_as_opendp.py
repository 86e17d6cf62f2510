"""A whole program as one OpenDP measurement, and a Gaussian one under its exact curve."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.accounting.measures.gaussian import delta_bounds
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl import plan_file
from tests._small import points, write_small

NO_LEDGER = ("    ledger: {file: points.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}\n", "")
TWO = (
    "spend: 100%}",
    "spend: 50%}\n  other:\n    from: sketch\n    release: {noise: gaussian, spend: 50%}",
)


def planned(folder, measure, *changes):
    return plan_file(
        write_small(folder, NO_LEDGER, ("measure: zcdp", f"measure: {measure}"), *changes)
    )


def records(count=200):
    data = points(count)
    return data | {"kind": (data["kind"] == "b").astype(np.int64)}


@pytest.mark.parametrize("unit", ["add_remove: 1", "add_remove: 3"])
def test_the_curve_is_the_totals_and_opendp_goes_on_from_it(tmp_path, unit):
    plan = planned(tmp_path, "gdp", TWO, ("add_remove: 1", unit))
    program, d_in = plan.to_opendp(curve=True), plan.privacy.unit.d_in
    profile, m = program.map(d_in), 2 * Fraction(plan.total[0])
    for epsilon in (0.0, 0.25, 1.0, 7.5):
        low, high = delta_bounds(m, Fraction(epsilon))
        assert low <= high <= Fraction(profile.delta(epsilon)) <= high * (1 + Fraction(1, 2**50))
    assert profile.epsilon(1e-6) == pytest.approx(plan.claim[0], abs=1e-11)
    fixed = dp.c.make_fix_delta(program, 1e-6)
    epsilon, delta = fixed.map(d_in)
    assert delta == 1e-6
    assert delta_bounds(m, Fraction(epsilon))[1] <= Fraction(delta)
    twice = dp.c.make_composition([fixed, fixed])
    assert twice.map(d_in)[0] >= 2 * epsilon
    assert len(fixed(records())) == 2


def test_zero_distance_loses_nothing_and_more_loses_more(tmp_path):
    program = planned(tmp_path, "gdp").to_opendp(curve=True)
    assert program.map(0).delta(0.0) == 0.0
    deltas = [program.map(d_in).delta(1.0) for d_in in (1, 2, 3)]
    assert deltas == sorted(set(deltas))


@pytest.mark.few(1)
@pytest.mark.parametrize("measure", ["zcdp", "approx_zcdp", "approx"])
def test_no_curve_is_claimed_for_another_measure(tmp_path, measure):
    with pytest.raises(BudgetError, match="OS405"):
        planned(tmp_path, measure).to_opendp(curve=True)


def test_no_release_is_no_measurement(tmp_path):
    plan = planned(tmp_path, "gdp")
    object.__setattr__(plan, "releases", {})
    with pytest.raises(BudgetError, match="OS405"):
        plan.to_opendp()
