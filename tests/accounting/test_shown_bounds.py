"""Bounds that are printed: never below the number, exact only where that is so."""

from __future__ import annotations

import ast
import io
import math
import re
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

import opendp_sim.prelude as sim
from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.budget_warnings import little_protection
from opendp_sim.accounting.claim_text import claim_sentence
from opendp_sim.accounting.composition import loss_text
from opendp_sim.accounting.measures.attackers import Attacker
from opendp_sim.cli.output.plan import show_plan
from opendp_sim.core import dp
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.errors import SpaceError
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from opendp_sim.dsl import plan_file
from opendp_sim.dsl.plan.accountant import _BETTER
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.measurements.noise.rounded_gaussian import RoundedGaussian
from opendp_sim.plots.curves import PrivacyDisplay
from opendp_sim.report.facts import attack_picture
from tests._small import write_small

GDP = ("measure: zcdp", "measure: gdp")
NO_LEDGER = ("    ledger: {file: points.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}\n", "")
PURE = ("noise: gaussian", "noise: laplace")


@pytest.mark.parametrize("digits", [2, 3, 6])
def test_a_bound_is_shown_at_its_digits_and_never_below(digits):
    for value in (1.83249, 1.00227, 1.049e-6, 1e-6, 0.1, 1.0, 99.96, 123456.7, 1e300, 0.0):
        text = up_text(value, digits)
        assert Decimal(text) >= Decimal(repr(value))
        assert float(text) <= value * (1 + 10.0 ** (1 - digits))
    assert [up_text(v, 3) for v in (0.1, 1e-6, 1.0, 1.83249)] == ["0.1", "1e-06", "1", "1.84"]
    assert up_text(math.inf) == "inf"


def test_losses_and_promises_are_rounded_up():
    assert loss_text("zcdp", (0.12345601,)) == "rho 0.123457"
    assert loss_text("approx", (1.0000001, 1.0001e-6)) == "epsilon 1.00001, delta 1.01e-06"
    assert loss_text("gdp", (0.125,)) == "mu 0.5"
    assert loss_text("gdp", (0.12500000001,)) == "mu 0.500001"
    assert loss_text("gdp", (math.inf,)) == "mu inf"
    assert claim_sentence({"claim": (1.0022701, 1.0490001e-6)}) == "(1.00228, 1.04901e-06)-DP"


@pytest.mark.parametrize("stem", ["digit-density", "cancer-slices", "flights-regression"])
def test_the_maps_of_a_plan_are_shown_rounded_up(stem):
    plan = plan_file(Path(__file__).parents[2] / "specs" / f"{stem}.yaml")
    out = Console(file=io.StringIO(), width=400)
    show_plan(plan, out)
    (line,) = [row for row in out.file.getvalue().splitlines() if row.startswith("maps ")]
    (release,) = plan.releases.values()
    shown = [float(part.split()[-1]) for part in line.partition(" (")[0].split(" -> ")[1:]]
    held = [*(value for _, value in release.maps), *release.plain()["own"]["loss"]]
    assert len(shown) == len(held)
    assert all(a >= b * (1 - 1e-15) for a, b in zip(shown, held, strict=True))
    assert (
        any(f"{b:.6g}" != f"{a:.6g}" for a, b in zip(shown, held, strict=True))
        or stem != "digit-density"
    )
    short = next(text for word, text in tell(plan).lines() if word == "distance")
    parts = short.split(" -> ")
    assert all(float(p) >= v * (1 - 1e-15) for p, (_, v) in zip(parts, release.maps, strict=True))


def test_exact_is_said_only_where_every_release_is_gaussian_by_its_own_claim(tmp_path):
    for change, exact in (((), True), ((PURE,), False)):
        plan = plan_file(write_small(tmp_path, GDP, NO_LEDGER, *change))
        assert plan.plain()["attackers"]["one"]["exact"] is exact
        assert PrivacyDisplay.from_plan(plan).exact is exact
        captions = " ".join(part.note for part in attack_picture(plan))
        assert ("exact: the claim allows so much and no more" in captions) is exact


def test_the_report_rounds_what_an_attacker_finds_up():
    found = Attacker("gdp", (0.125,)).found(0.01)
    assert float(found) >= 100 * Attacker("gdp", (0.125,)).power(0.01)


@pytest.mark.parametrize("far", [-1.0, math.nan, math.inf, -math.inf])
def test_a_curve_at_no_distance_is_refused(far):
    claim = RoundedGaussian(scale=4.0, accounting="curve").bind(IntVector(2), VectorNorm("l2"))
    with pytest.raises(SpaceError, match="OS206"):
        claim.privacy_map(far)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    curve = space >> sim.then_rounded_gaussian(scale=4.0, accounting="curve")
    with pytest.raises(Exception, match="OS206"):
        curve.map(far)


def test_the_hint_for_gdp_names_the_linear_model():
    assert "linear_model" in _BETTER["gdp"]


_LOSS = re.compile(r"(?:^|_)(?:epsilon|delta|rho|mu|loss|losses|claim|claimed)(?:$|_)")
_ROUNDS = re.compile(r"[0-9.][efg%]$|^[efg]$")
_NO_LOSS = {"dsl/plan/text.py"}  # an axis of budgets that somebody asks for


def _names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def rounded_losses(text):
    """Lines that format a loss, or something of one, by Python's rounding to the nearest."""
    formats = re.search(r":[^\s\"']*[efg%]\}", text)
    for node in ast.walk(ast.parse(text)) if formats else ():
        if isinstance(node, ast.FormattedValue) and any(map(_LOSS.search, _names(node.value))):
            specs = [getattr(part, "format_spec", None) for part in ast.walk(node)]
            texts = [ast.unparse(spec)[2:-1] for spec in specs if spec is not None]
            yield from [node.lineno for spec in texts if _ROUNDS.search(spec)]


def test_losses_are_rounded_in_one_place():
    """``up_text`` and ``number_text`` alone: a loss that is printed is never below the true one."""
    assert list(rounded_losses('f"{epsilon:.3g}"')) == [1]
    assert list(rounded_losses("f\"{', '.join(f'{v:.6g}' for v in r['loss'])}\""))
    assert not list(rounded_losses('f"{up_text(epsilon, 3)} of {needed(rho):,}"'))
    package = Path(sim.__file__).parent
    found = {
        f"{path.relative_to(package)}:{line}"
        for path in package.rglob("*.py")
        # an audit's epsilon is measured: a lower bound, beside the claim that it is compared with
        if path.relative_to(package).parts[0] != "audit"
        and str(path.relative_to(package)) not in _NO_LOSS
        for line in rounded_losses(path.read_text(encoding="utf-8"))
    }
    assert not found


def test_a_weak_budget_that_is_a_ratio_is_warned_of():
    """It was a TypeError: a fraction has no ``:g``."""
    assert "epsilon 61/3" in (little_protection(Limit(epsilon="61/3")) or "")
