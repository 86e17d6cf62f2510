"""Extreme but public inputs: a coded refusal or a sound plan, never a crash and never a spurious OS901."""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest

from opendp_sim.accounting.budget import Limit
from opendp_sim.core.errors import BudgetError, ParameterError
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows
from opendp_sim.dsl import Refused, plan_file
from opendp_sim.dsl.plan import losses
from opendp_sim.dsl.plan.accountant import target_of
from opendp_sim.transformations.row_maps.quantize import Quantize
from tests._small import write_small

SPECS = Path(__file__).parents[2] / "specs"
RELEASE, BUDGET = (
    "{noise: gaussian, scale: solve, spend: 100%}",
    "budget: {epsilon: 1.0, delta: 1.0e-6}",
)
LEDGER = "    ledger: {file: points.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}\n"


def _code(folder, *changes):
    with pytest.raises(Refused) as caught:
        plan_file(write_small(folder, (LEDGER, ""), *changes))
    return caught.value


@pytest.mark.few(2)
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("claim", [".inf", ".nan", "-30", "1e400"])
def test_an_expected_sensitivity_is_a_number(norm, claim, tmp_path):
    error = _code(
        tmp_path,
        (
            "expect: {stability: 1, sensitivity: {l1: 100, l2: 10, linf: 1}}",
            f"expect: {{sensitivity: {{{norm}: {claim}}}}}",
        ),
    )
    assert error.code == "OS304"


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", ["1e-300", "1e-160"])
def test_a_scale_whose_loss_overflows_is_refused(noise, scale, tmp_path):
    assert _code(tmp_path, (RELEASE, f"{{noise: {noise}, scale: {scale}}}")).code == "OS401"


def _asked(measure, epsilon, delta):
    return (
        (LEDGER, ""),
        ("measure: zcdp", f"measure: {measure}"),
        (BUDGET, f"budget: {{epsilon: {epsilon}, delta: {delta}}}"),
    )


CONVERTED = ("zcdp", "approx_zcdp")
FAR = [("1e300", "1e-6"), ("1.0", "0.999999"), ("1.0", "1e-320")]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("measure", "epsilon", "delta"),
    [("approx", *far) for far in FAR[:1]]
    + [(CONVERTED[0], "1e4", "1e-300")]
    + [
        pytest.param(*each, marks=pytest.mark.long)
        for each in (
            *(("approx", *far) for far in FAR[1:]),
            *((measure, "1e-300", "1e-6") for measure in (*CONVERTED, "approx")),
            *((measure, "1e4", "1e-300") for measure in CONVERTED[1:]),
            *((measure, "1.0", "0.1") for measure in CONVERTED),
        )
    ],
)
def test_an_extreme_budget_is_met(measure, epsilon, delta, tmp_path):
    plan = plan_file(write_small(tmp_path, *_asked(measure, epsilon, delta)))
    stated = plan.total if measure == "approx" else plan.claim
    assert stated[0] <= float(epsilon)
    assert stated[1] <= float(delta)


def test_parts_of_delta_add_up_to_no_more_than_delta():
    for place in range(2000):
        reserve = 1e-5 * (place + 0.4567) / 2003
        budget = Limit(epsilon=1.0, delta=1e-5, reserve_mechanisms=reserve)
        assert Fraction(budget.conversion_delta) + Fraction(reserve) <= Fraction(1e-5)
    budget = Limit(epsilon=1.0, delta=1e-05, reserve_mechanisms=2.276595167845972e-06)
    target = target_of(budget, "approx_zcdp", with_delta=True)
    assert Fraction(target.whole[1]) + Fraction(target.conversion_delta) <= Fraction(1e-5)
    assert target.conversion_delta == budget.conversion_delta


@pytest.mark.parametrize(
    ("bounds", "bits"),
    [
        ((0.0, 5e-324), 4),
        ((0.0, 1e-310), 24),
        ((-1.7e308, 1.7e308), 4),
        ((1.0, 1.0 + 2.0**-40), 16),
    ],
)
def test_bounds_that_floats_cannot_divide_are_refused(bounds, bits):
    with pytest.raises(ParameterError) as caught:
        Quantize(bits=bits, bounds=bounds).bind(RealRows(width=1), Symmetric())
    assert caught.value.code == "OS102"


def test_a_unit_of_more_records_than_opendp_counts_is_refused(tmp_path):
    """A million persons of 2**20 rows each ended as an internal error of kind OpenDPException."""
    spec = tmp_path / "people.yaml"
    spec.write_text(PEOPLE)
    with pytest.raises(Refused) as caught:
        plan_file(spec)
    assert caught.value.code == "OS205"
    assert "bound_contributions" in str(caught.value)


PEOPLE = """
spec: opendp_sim/1
name: people
data:
  people:
    source: {csv: people.csv}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
      who: {dtype: str, role: privacy_id}
privacy: {unit: {add_remove: 1000000, of: who}, measure: zcdp, budget: {rho: 0.4}}
flow:
  rows:
    from: people
    steps:
      - bound_contributions: {max_rows: 1048576}
      - select: {features: x}
      - quantize: {bits: 8}
      - threshold_sketch: {thresholds: 16}
    release: {noise: gaussian, scale: solve, spend: 100%}
outputs: {sums: {from: rows, save: sums.npz}}
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", sorted((path.stem for path in SPECS.glob("*.yaml")), key="bright-pixels".__ne__)
)
def test_a_spec_of_a_budget_beyond_sense_is_planned_or_refused(name, tmp_path):
    """The second opinion ended its search at epsilon 1,024 and took OpenDP's answer for wrong."""
    text = (SPECS / f"{name}.yaml").read_text().replace("data/", f"{SPECS}/data/")
    far = re.sub(r"\bepsilon: *[\d.e+-]+", "epsilon: 2000", text)
    (tmp_path / "far.yaml").write_text(far)
    with suppress(Refused):  # an InternalError is none
        plan_file(tmp_path / "far.yaml")


def test_a_curve_that_never_falls_is_no_loss():
    """An infinite epsilon was a crash, and one beyond 1,024 was taken for 1,024."""
    assert losses._epsilon_at(lambda epsilon: 0.5 * (epsilon < 5000), 0.1) == pytest.approx(5000)
    with pytest.raises(BudgetError, match="OS401"):
        losses._finite_epsilon(lambda _: 0.5, 0.1)
