"""Budgets at the ends of floats, and a curve under `approx`: a plan or a coded refusal."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest

from opendp_sim.accounting.budget import MEASURES
from opendp_sim.core.arithmetic.rounding import float_down
from opendp_sim.dsl import plan_file
from opendp_sim.dsl.text.diagnostic import Refused
from tests._small import write_small
from tests._tiers import some

BUDGET = "budget: {epsilon: 1.0, delta: 1.0e-6}"
FIELDS = (("epsilon",), ("epsilon", "delta"), ("rho",), ("mu",), ("rho", "delta"))
NO_LEDGER = ("    ledger: {file: points.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}\n", "")


def planned(folder, measure, budget, *changes):
    changes = (("measure: zcdp", f"measure: {measure}"), (BUDGET, f"budget: {budget}"), *changes)
    return plan_file(write_small(folder, NO_LEDGER, *changes))


@pytest.mark.few(1)
@pytest.mark.parametrize("delta", ["1.0e-9", "1.0e-6", "0.01"])
def test_a_rounded_gaussian_by_its_curve_is_solved_under_approx(tmp_path, delta):
    curve = ("noise: gaussian", "noise: rounded_gaussian, accounting: curve")
    plan = planned(tmp_path, "approx", f"{{epsilon: 1.0, delta: {delta}}}", curve)
    gdp = planned(tmp_path, "gdp", f"{{epsilon: 1.0, delta: {delta}}}")
    assert plan.total[0] <= 1.0
    assert plan.total[1] == float_down(Fraction(delta))
    assert plan.charge.exact[1] == Fraction(delta)
    scale = plan.releases["noisy"].record.scale
    assert scale == pytest.approx(gdp.releases["noisy"].record.scale, rel=1e-8)


def test_a_mu_whose_square_is_no_float_is_planned(tmp_path):
    assert math.isfinite(planned(tmp_path, "gdp", "{mu: 1.0e+308}").total[0])
    assert float_down(Fraction(10) ** 400) == sys.float_info.max
    assert float_down(-(Fraction(10) ** 400)) == -math.inf


@pytest.mark.parametrize("measure", ["gdp", "approx"])
@pytest.mark.parametrize("delta", some([0.5, 0.9999999], 2))
def test_a_delta_of_a_half_or_more_is_refused_on_a_gaussian_curve(tmp_path, measure, delta):
    curve = ("noise: gaussian", "noise: rounded_gaussian, accounting: curve")
    changes = [curve] if measure == "approx" else []
    with pytest.raises(Refused, match="OS401"):
        planned(tmp_path, measure, f"{{epsilon: 1.0, delta: {delta}}}", *changes)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", some(range(8), 2))
def test_any_budget_is_planned_or_refused_with_a_code(tmp_path, seed):
    """Numbers from one end of the floats to the other, for every measure and field."""
    rng = np.random.default_rng(seed)
    ends = [5e-324, 2.3e-308, 1e-300, 1e-30, 1e-6, 0.1, 0.5, 1 - 2**-53, 1.0, 700.0, 1e4]
    ends += [1e9, 1e155, sys.float_info.max, 10.0 ** float(rng.uniform(-300, 300))]
    for measure in MEASURES:
        names = FIELDS[rng.integers(len(FIELDS))]
        said = ", ".join(f"{name}: {_number(ends[rng.integers(len(ends))])}" for name in names)
        noise = "laplace" if measure in ("pure", "approx") else "gaussian"
        with suppress(Refused):  # an error of the house (OS9xx) is none
            plan = planned(tmp_path, measure, f"{{{said}}}", ("noise: gaussian", f"noise: {noise}"))
            assert all(map(math.isfinite, plan.total))


def _number(value):
    """Return a number as YAML reads it: with a point."""
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


@pytest.mark.few(2)
@pytest.mark.parametrize("budget", ["0.1", "1/7", "1/3", "0.3", "0.7"])
@pytest.mark.parametrize("measure", ["pure", "approx"])
def test_a_run_is_charged_the_decimal_or_ratio_that_was_written(tmp_path, measure, budget):
    """A solved share never costs more than it says, and a stated scale costs what its map says."""
    delta = ", delta: 1.0e-6" if measure == "approx" else ""
    noise = ("noise: gaussian", "noise: laplace")
    plan = planned(tmp_path, measure, f"{{epsilon: {budget}{delta}}}", noise)
    assert plan.charge.exact[0] == Fraction(budget) >= Fraction(plan.total[0])
    stated = ("noise: gaussian, scale: solve, spend: 100%", "noise: laplace, scale: 20.0")
    given = planned(tmp_path, measure, f"{{epsilon: 40.0{delta}}}", stated)
    assert given.charge.exact == tuple(map(Fraction, given.total))
