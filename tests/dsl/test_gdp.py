"""The measure ``gdp`` from end to end: what it releases, what it refuses, what it says."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.accounting.ledger.ledger import Ledger, Terms
from opendp_sim.accounting.measures.gaussian import (
    delta_bounds,
    mu_squared_down,
    mu_squared_of_pure,
)
from opendp_sim.accounting.release.release import Release
from opendp_sim.cli import app
from opendp_sim.core.errors import BudgetError, SimError
from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.plan import losses
from opendp_sim.dsl.run.session import serve
from opendp_sim.dsl.text.diagnostic import Refused
from opendp_sim.dsl.verification.derivation import derivation
from opendp_sim.dsl.verification.verify import verify
from tests._small import write_small

GDP = ("measure: zcdp", "measure: gdp")
MU = ("budget: {epsilon: 1.0, delta: 1.0e-6}", "budget: {mu: 0.5}")
NO_LEDGER = ("    ledger: {file: points.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}\n", "")


def small(folder, *changes, **data):
    return plan_file(write_small(folder, GDP, *changes, **data))


# --- the claim ------------------------------------------------------------------------------------


def test_less_noise_for_the_same_epsilon_and_delta(tmp_path):
    gdp, zcdp = small(tmp_path, NO_LEDGER), plan_file(write_small(tmp_path, NO_LEDGER))
    scales = [p.releases["noisy"].record.scale for p in (gdp, zcdp)]
    assert scales[0] / scales[1] == pytest.approx(0.9324, abs=1e-4)
    assert gdp.claim == (1.0, 1e-6)
    best = 10 / math.sqrt(mu_squared_down(1.0, 1e-6))
    assert scales[0] == pytest.approx(best, rel=1e-11)
    assert scales[0] >= best
    noise = gdp.releases["noisy"].bound.claim.noise
    assert (noise.family, noise.sampler) == ("rounded_gaussian", "bulk")


def test_the_claim_follows_from_the_rational_mu_squared_alone(tmp_path):
    plan = small(tmp_path, NO_LEDGER)
    facts = plan.plain()["gaussian"]
    in_force, by_types = Fraction(facts["mu_squared"]), Fraction(facts["by_types"])
    assert by_types == Fraction(100) / Fraction(plan.releases["noisy"].record.scale) ** 2
    assert 0 <= in_force / by_types - 1 < Fraction(1, 2**48)
    assert delta_bounds(in_force, Fraction(plan.claim[0]))[1] <= Fraction(plan.claim[1])
    assert plan.claim[0] < facts["epsilon_by_zcdp"]


def test_a_budget_in_mu_is_kept_exactly(tmp_path):
    plan = small(tmp_path, NO_LEDGER, MU)
    assert plan.claim is None
    assert 2 * Fraction(plan.total[0]) <= Fraction(1, 4)
    assert plan.total[0] == pytest.approx(0.125, rel=1e-12)
    both = small(tmp_path, NO_LEDGER, (MU[0], "budget: {epsilon: 9.0, delta: 1.0e-6, mu: 0.5}"))
    assert both.total == plan.total


def test_a_pure_release_joins_at_its_exact_mu(tmp_path):
    laplace = ("noise: gaussian, scale: solve, spend: 100%", "noise: laplace, scale: 40.0")
    plan = small(tmp_path, NO_LEDGER, laplace, MU, ("mu: 0.5", "mu: 5.0"))
    epsilon = Fraction(100, 40)
    assert 2 * Fraction(plan.total[0]) >= mu_squared_of_pure(epsilon)
    assert plan.total[0] == pytest.approx(float(mu_squared_of_pure(epsilon)) / 2, rel=1e-9)
    solved = small(tmp_path, NO_LEDGER, ("noise: gaussian", "noise: laplace"), MU)
    assert solved.total[0] <= 0.125
    assert solved.total[0] == pytest.approx(0.125, rel=1e-9)


def test_a_disagreement_with_opendp_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(losses, "gdp_to_epsilon", lambda square, delta: 0.99)
    with pytest.raises(Exception, match="OS901"):
        small(tmp_path, NO_LEDGER)


# --- no discrete draw -----------------------------------------------------------------------------


@pytest.fixture
def poisoned(monkeypatch):
    """Every way to a discrete Gaussian draw fails: ours, and OpenDP's."""

    def refuse(*_):
        raise AssertionError("a discrete Gaussian was drawn")

    monkeypatch.setattr("opendp_sim.measurements.noise._impl.samplers._draw_gaussian", refuse)
    monkeypatch.setattr("opendp_sim.measurements.noise._impl.samplers.gaussian_magnitudes", refuse)
    monkeypatch.setattr("opendp_sim.measurements.noise._impl.sampled.sampled", refuse)
    monkeypatch.setattr("opendp_sim.measurements.knn._impl.vote_noise.discrete", refuse)


@pytest.mark.usefixtures("poisoned")
def test_a_gdp_program_draws_rounded_noise_only_and_its_certificate_verifies(tmp_path):
    plan = small(tmp_path)
    done = apply(plan, into=tmp_path)
    for path in done.certificates.values():
        checked, _ = verify(path)
        assert checked
    lines = "\n".join(derivation(done.certificates["release"]))
    assert f"= {2 * Fraction(plan.total[0])}   (mu = " in lines
    body = json.loads(done.certificates["release"].read_text())
    assert body["plan"]["gaussian"]["mu_squared"] == str(2 * Fraction(plan.total[0]))
    assert body["plan"]["attackers"]["one"]["exact"] is True
    assert body["privacy"]["measure"] == "gdp"


KNN = """
spec: opendp_sim/1
name: near
data:
  points:
    source: {npz: points.npz}
    columns:
      x: {dtype: "array[f64, 3]", bounds: [0.0, 1.0]}
      kind: {dtype: category, keys: [a, b]}
privacy:
  unit: {add_remove: 1, of: row}
  measure: gdp
  budget: {epsilon: 1.0, delta: 1.0e-6}
flow:
  rows:
    from: points
    steps: [select: {features: x, label: kind}, quantize: {bits: 8}]
  near:
    from: rows
    release: {mechanism: {MECHANISM: {queries: 50, size: 200}}, spend: 100%}
outputs:
  live: {from: near, serve: session, store: near.session, public_queries: {npz: queries.npz}}
"""


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("mechanism", ["ind_knn", "hybrid_knn"])
def test_neighbours_are_gaussian_sessions(tmp_path, mechanism):
    write_small(tmp_path)
    spec = tmp_path / "near.yaml"
    spec.write_text(KNN.replace("MECHANISM", mechanism))
    plan = plan_file(spec)
    assert plan.claim[0] <= 1.0
    assert plan.claim[0] == pytest.approx(1.0, rel=1e-9)
    rho = plan.releases["near"].record.rho
    assert plan.releases["near"].bound.claim.mu_squared == 2 * Fraction(rho)
    assert rho == pytest.approx(float(mu_squared_down(1.0, 1e-6)) / 2, rel=1e-9)
    with serve(plan) as session:
        answers = session.ask([[0.5, 0.5, 0.5]] * 3)
    assert len(answers.labels) == 3
    if mechanism == "ind_knn":  # what the hint of its first refusal says can be done in Python, too
        spec.write_text(spec.read_text().replace(", public_queries: {npz: queries.npz}", ""))
        with serve(plan_file(spec), store=tmp_path / "other.session") as session:
            with pytest.raises(SimError, match=r"OS607 .*in Python `\.reference\(queries\)`"):
                session.ask([[0.5, 0.5, 0.5]] * 3)
            assert session.reference([[at / 50, 0.5, 0.5] for at in range(50)])
            assert not session.reference([[0.5, 0.5, 0.5]] * 50)
            assert len(session.ask([[0.5, 0.5, 0.5]] * 3).labels) == 3


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("noise: gaussian", "noise: gaussian, sampler: opendp", "OS405"),
        ("noise: gaussian", "noise: rounded_gaussian, accounting: curve", "OS405"),
        (MU[0], "budget: {rho: 0.1}", "OS401"),
        (MU[0], "budget: {delta: 1.0e-6, mu: 1.0}", "OS401"),
        (MU[0], "budget: {epsilon: 1.0}", "OS401"),
        (MU[0], "budget: {mu: -1.0}", "OS401"),
        ("noise: gaussian, scale: solve, spend: 100%", "noise: gaussian, scale: 3.0", "OS401"),
    ],
)
def test_what_is_no_gaussian_program_is_refused_with_the_way_out(tmp_path, old, new, text):
    with pytest.raises(Refused) as caught:
        small(tmp_path, NO_LEDGER, (old, new))
    findings = caught.value.findings
    assert text in {finding.code for finding in findings}
    assert all(finding.help for finding in findings)


VOTES = """
spec: opendp_sim/1
name: votes
data:
  people:
    source: {npz: points.npz}
    columns:
      kind: {dtype: category, keys: [a, b]}
privacy:
  unit: {add_remove: 1, of: row}
  measure: gdp
  budget: {epsilon: 1.0, delta: 1.0e-6}
flow:
  counts:
    from: people
    steps: [vote_counts: {item: kind}]
  best:
    from: counts
    release: {mechanism: {MECHANISM}, spend: 100%}
outputs:
  found: {from: best, save: out/found.csv}
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "mechanism", ["gaussian_top_k: {k: 1}", "private_knn: {queries: 5}", "peel: {k: 1}"]
)
def test_losses_in_zcdp_alone_are_refused(tmp_path, mechanism):
    """A loss by any other road: the claim, not the measure's name, decides."""
    write_small(tmp_path)
    spec = tmp_path / "near.yaml"
    near = KNN.replace("{MECHANISM: {queries: 50, size: 200}}", "{" + mechanism + "}")
    spec.write_text(near if "knn" in mechanism else VOTES.replace("MECHANISM", mechanism))
    with pytest.raises(Refused) as caught:
        plan_file(spec)
    assert [finding.code for finding in caught.value.findings] == ["OS405"]
    assert "zcdp" in caught.value.findings[0].help


# --- ledgers --------------------------------------------------------------------------------------


def test_who_may_join_whom():
    zcdp, gdp = Limit(rho=1.0), Limit(mu=2.0)
    assert total_of([Charge("gdp", (0.2,)), Charge("zcdp", (0.1,))], "zcdp", zcdp).loss[
        0
    ] == pytest.approx(0.3)
    box = Limit(epsilon=3.0, delta=1e-5)
    assert total_of([Charge("gdp", (0.02,))], "approx_zcdp", box).loss == (0.02, 0.0)
    joined = total_of([Charge("pure", (0.5,))], "gdp", gdp)
    assert 2 * Fraction(joined.loss[0]) >= mu_squared_of_pure(Fraction(1, 2))
    for measure, loss in (("zcdp", (0.1,)), ("approx", (0.1, 1e-6)), ("approx_zcdp", (0.1, 0.0))):
        with pytest.raises(BudgetError, match="OS405"):
            total_of([Charge(measure, loss)], "gdp", gdp)
    with pytest.raises(BudgetError, match="OS405"):
        total_of([Charge("gdp", (0.1,))], "pure", Limit(epsilon=1.0))


def test_a_gaussian_program_charges_a_zcdp_ledger(tmp_path):
    place = ("{file: points.ledger, limit", "{file: points.ledger, measure: zcdp, limit")
    plan = small(tmp_path, place)
    apply(plan, into=tmp_path)
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert ledger.terms.measure == "zcdp"
        assert ledger.total().loss == plan.total
        assert ledger.charges[0].measure == "gdp"


def test_a_gaussian_ledger_keeps_its_limit(tmp_path):
    limit = ("limit: {epsilon: 3.0, delta: 1.0e-5}", "limit: {mu: 0.3}")
    plan = small(tmp_path, limit)
    apply(plan, into=tmp_path)
    with pytest.raises(BudgetError, match="OS402"):
        apply(plan, into=tmp_path)
    terms = Terms("gdp", "add_remove 1 of row", Limit(mu=0.3))
    with Ledger.open(tmp_path / "points.ledger", terms) as ledger:
        assert ledger.total().left["mu"] == pytest.approx(math.sqrt(0.09 - 2 * plan.total[0]))


@pytest.mark.few(1)
@pytest.mark.parametrize(("measure", "said"), [("gdp", True), ("zcdp", False)])
def test_a_running_sum_is_not_called_a_gaussian_claim(tmp_path, measure, said):
    """Lemma 6 of ``privacy_filter.md`` promises the limit, not what was spent at a chosen moment."""
    plan = plan_file(write_small(tmp_path, ("measure: zcdp", f"measure: {measure}")))
    apply(plan, into=tmp_path)
    shown = CliRunner().invoke(app, ["ledger", "show", str(tmp_path / "points.ledger")]).stdout
    assert ("the claim is the limit" in " ".join(shown.split())) == said


# --- attackers ------------------------------------------------------------------------------------


def test_an_edited_mu_is_found_by_the_derivation(tmp_path):
    done = apply(small(tmp_path), into=tmp_path)
    path = done.certificates["release"]
    whole = path.read_text()
    body = json.loads(whole)
    for edit in (
        {"gaussian": {**body["plan"]["gaussian"], "mu_squared": "1/100"}},
        {"claim": [0.999, 1e-6]},
    ):
        path.write_text(json.dumps(body | {"plan": body["plan"] | edit}))
        with pytest.raises(SimError, match="OS701"):
            derivation(path)
        with pytest.raises(SimError, match="OS701"):
            verify(path)


def test_small_scales_are_released_in_parts_of_a_cell(tmp_path):
    plan = small(tmp_path, NO_LEDGER, ("epsilon: 1.0", "epsilon: 60.0"))
    assert plan.releases["noisy"].bound.claim.noise.step == Fraction(1, 3)
    assert "1/3 of a cell" in plan.plain()["releases"]["noisy"]["reason"]
    done = apply(plan, into=tmp_path)
    assert verify(done.certificates["release"])[0]
    release = Release.load(done.files["release"])
    assert release.released.noise.step == Fraction(1, 3)
    values = release.arrays["counts"]
    assert np.allclose(3 * values, np.rint(3 * values), atol=1e-9)
    assert (done.files["density"]).stat().st_size > 0
