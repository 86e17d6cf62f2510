"""Budgets at the ends of floats, and a curve under `approx`: a plan or a coded refusal."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import pytest

from opendp_sim.core.rounding import float_down
from opendp_sim.dsl import plan_file
from opendp_sim.dsl.diagnostic import Refused
from tests._small import write_small

BUDGET = "budget: {epsilon: 1.0, delta: 1.0e-6}"
NO_LEDGER = ("    ledger: {file: points.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}\n", "")


def planned(folder, measure, budget, *changes):
    changes = (("measure: zcdp", f"measure: {measure}"), (BUDGET, f"budget: {budget}"), *changes)
    return plan_file(write_small(folder, NO_LEDGER, *changes))


@pytest.mark.parametrize("delta", ["1.0e-9", "1.0e-6", "0.01"])
def test_a_rounded_gaussian_by_its_curve_is_solved_under_approx(tmp_path, delta):
    curve = ("noise: gaussian", "noise: rounded_gaussian, accounting: curve")
    plan = planned(tmp_path, "approx", f"{{epsilon: 1.0, delta: {delta}}}", curve)
    gdp = planned(tmp_path, "gdp", f"{{epsilon: 1.0, delta: {delta}}}")
    assert plan.total[0] <= 1.0
    assert plan.total[1] == float(delta)
    scale = plan.releases["noisy"].record.scale
    assert scale == pytest.approx(gdp.releases["noisy"].record.scale, rel=1e-8)


def test_a_mu_whose_square_is_no_float_is_planned(tmp_path):
    assert math.isfinite(planned(tmp_path, "gdp", "{mu: 1.0e+308}").total[0])
    assert float_down(Fraction(10) ** 400) == sys.float_info.max
    assert float_down(-(Fraction(10) ** 400)) == -math.inf


@pytest.mark.parametrize("measure", ["gdp", "approx"])
@pytest.mark.parametrize("delta", [0.5, 0.9999999])
def test_a_delta_of_a_half_or_more_is_refused_on_a_gaussian_curve(tmp_path, measure, delta):
    curve = ("noise: gaussian", "noise: rounded_gaussian, accounting: curve")
    changes = [curve] if measure == "approx" else []
    with pytest.raises(Refused, match="OS401"):
        planned(tmp_path, measure, f"{{epsilon: 1.0, delta: {delta}}}", *changes)


@pytest.mark.parametrize("delta", [1e-6, 0.4])
def test_an_epsilon_that_no_curve_holds_is_refused_under_gdp(tmp_path, delta):
    with pytest.raises(Refused, match="OS401"):
        planned(tmp_path, "gdp", f"{{epsilon: 1.0e+300, delta: {delta}}}")
    assert planned(tmp_path, "gdp", f"{{epsilon: 1.0e+9, delta: {delta}}}").claim[0] <= 1e9
