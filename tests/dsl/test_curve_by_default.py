"""Selections under `approx` are accounted for by their exact curve, unless the author says otherwise."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest

from opendp_sim.dsl.plan.advice import advice
from opendp_sim.dsl.plan.plan import Plan, plan_file

FOLDER = Path(__file__).parents[2] / "specs"
SPEC = (FOLDER / "bright-pixels.yaml").read_text("utf-8")
BUDGET = SPEC[SPEC.index("  measure:") : SPEC.index("flow:")]
RHO = (
    "  measure: approx_zcdp\n"
    "  budget: {epsilon: 1.0, delta: 1.0e-5, reserve: {mechanisms: 5.0e-6, conversion: 5.0e-6}}\n"
)


def planned(folder: Path, text: str) -> Plan:
    path = folder / "top.yaml"
    path.write_text(text.replace("data/", f"{FOLDER}/data/"), "utf-8")
    return plan_file(path)


def height(plan: Plan, name: str = "top") -> float:
    bound = plan.releases[name].bound
    assert bound is not None
    return bound.claim.expected["height"]


def test_one_release_reads_its_curve(tmp_path: Path) -> None:
    """A threshold of 53 votes where the bound in rho asks for 67 or more."""
    curve = planned(tmp_path, SPEC)
    record = curve.releases["top"].record
    assert record is not None
    assert record.spec()["accounting"] == "curve"
    assert curve.charge is not None
    assert curve.charge.exact == (1, Fraction(1, 10**5))
    assert curve.total == (1.0, math.nextafter(1e-5, 0.0))  # 1e-5 is above 1/10**5
    stated = planned(
        tmp_path, SPEC.replace("{k: 4, ranked: true}", "{k: 4, ranked: true, accounting: zcdp}")
    )
    assert stated.releases["top"].record.spec()["accounting"] == "zcdp"  # type: ignore[union-attr]
    rho = planned(tmp_path, SPEC.replace(BUDGET, RHO))
    assert height(curve) <= 0.85 * min(height(stated), height(rho))
    assert any("measure: approx" in text for text in advice(rho))
    assert not any("measure: approx" in text for text in advice(curve))


@pytest.mark.long
def test_shares_of_a_budget_read_their_curves_too(tmp_path: Path) -> None:
    """Two releases: each within its half, and OpenDP's composition is the whole."""
    release = SPEC[SPEC.index("  top:\n") : SPEC.index("outputs:")].replace("100%", "50%")
    text = SPEC.replace("100%", "50%").replace(
        "outputs:", release.replace("  top:", "  again:") + "outputs:"
    )
    both = planned(tmp_path, text + "  more: {from: again, save: out/more.json}\n")
    for name in ("top", "again"):
        record = both.releases[name].record
        assert record is not None
        assert record.spec()["accounting"] == "curve"
    assert both.total == (pytest.approx(1.0, rel=2e-3), pytest.approx(1e-5))
    assert both.total[0] <= 1.0
    assert both.total[1] <= 1e-5


def test_where_there_is_no_curve_rho_is_read(tmp_path: Path) -> None:
    """`fill: peel` composes a test and draws in rho: the plan falls back, and says how it accounts."""
    items = ", ".join(f"r{row}c{column}" for row in range(8) for column in range(8))
    text = SPEC.replace("top_k: {k: 4, ranked: true}", "stable_top_k: {k: 4, k_max: 9, fill: peel}")
    text = text.replace("{item: pixel}", f"{{item: pixel, items: [{items}]}}")
    record = planned(tmp_path, text).releases["top"].record
    assert record is not None
    assert record.spec()["accounting"] == "zcdp"
