"""What a user sees: verdicts, evidence, JSON, SARIF, the pytest helper, the command, the refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import opendp.prelude as dp
import pytest
from typer.testing import CliRunner

from opendp_sim.accounting.evidence import fallen, record, tier
from opendp_sim.audit import assert_not_refuted, audit, to_sarif
from opendp_sim.audit.findings import Effort
from opendp_sim.cli import app
from opendp_sim.cli._audit_spec import spec_subjects
from opendp_sim.core.errors import AuditError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.certificate import evidence_of
from opendp_sim.dsl.run.execute import apply
from opendp_sim.testing import laws_about
from tests._plans import planned
from tests._small import write_small
from tests._tiers import some
from tests.audit.growing import audit_until, refuted
from tests.audit.sweep import audit_constructor
from tests.audit.twins.stand_ins import LINE, SYMMETRIC
from tests.cases import cases

SPECS = Path(__file__).parents[2] / "specs"
SHORT = replace(Effort.of("quick"), stability_seconds=0.3, stability_trials=800, seconds=0.3)


def broken():
    return dp.t.make_metric_bounded(
        dp.vector_domain(dp.atom_domain(T=int), size=5), dp.insert_delete_distance()
    )


def sound():
    return dp.t.make_count(LINE, SYMMETRIC)


def test_refuted_report_carries_evidence_and_replays():
    report = refuted(broken(), 2, seed=5)
    assert report.verdict == "refuted"
    assert "claimed" in str(report)
    plain = json.loads(report.to_json())
    assert plain["evidence"]["claimed"] == 1
    assert plain["evidence"]["measured"] == 2.0
    again = audit(broken(), 2, seed=5)
    assert (again.evidence.pair.left, again.evidence.pair.right) == (
        report.evidence.pair.left,
        report.evidence.pair.right,
    )
    scope: dict = {"obj": broken()}
    exec(report.search, scope)  # noqa: S102 - the snippet is the feature
    assert scope["report"].verdict == "refuted"


def test_sarif_names_a_hostile_file_as_an_address():
    text = to_sarif(audit(broken(), 2), "a b\x1b[2J%\ud800\n.py")
    (place,) = json.loads(text)["runs"][0]["results"][0]["locations"]
    uri = place["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "a%20b%1B%5B2J%25%3F%0A.py"


def test_pytest_helper_raises_with_the_report():
    with pytest.raises(AssertionError, match="refuted by L1 stability"):
        assert_not_refuted(broken(), 2)
    assert assert_not_refuted(sound(), 1, SHORT).verdict == "not refuted"


def test_not_refuted_prints_what_would_have_been_seen():
    noisy = sound() >> dp.m.then_laplace(1.0)
    text = str(audit_until(lambda report: "(L0, L3 ran" in str(report), noisy, 1, SHORT))
    assert "This is not a proof." in text
    assert "would have shown" in text
    assert "private" not in text
    assert "(L0, L3 ran; L1, L2, L4 did not)" in text


@pytest.mark.parametrize(
    "make",
    some([dp.t.make_metric_bounded, dp.t.make_sum_of_squared_deviations, dp.t.make_variance], 3),
    ids=lambda m: m.__name__,
)
def test_public_defects_of_opendp_are_found_blind(make):
    assert audit_constructor(make)[-1].verdict == "refuted"


@pytest.mark.parametrize("wrong", ["not an object", 3, len])
def test_objects_without_a_claim_are_refused(wrong):
    with pytest.raises(AuditError, match="OS501") as error:
        audit(wrong)
    assert "Hint" in str(error.value)


def test_command(tmp_path, monkeypatch):
    source = (
        "import opendp.prelude as dp\n"
        "def bad():\n"
        "    return dp.t.make_metric_bounded(dp.vector_domain(dp.atom_domain(T=int), size=5), dp.insert_delete_distance())\n"
        "def good():\n"
        "    return dp.t.make_count(dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance())\n"
    )
    (tmp_path / "audited_module.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = CliRunner()
    refuted = run.invoke(app, ["audit", "audited_module:bad", "--d-in", "2", "--format", "json"])
    assert refuted.exit_code == 1
    assert json.loads(refuted.stdout)["verdict"] == "refuted"
    sarif = run.invoke(app, ["audit", "audited_module:good", "--format", "sarif"])
    assert json.loads(sarif.stdout)["version"] == "2.1.0"
    assert sarif.exit_code == 0
    assert run.invoke(app, ["audit", "audited_module:missing"]).exit_code == 2
    assert run.invoke(app, ["audit", "nothing"]).exit_code == 2


WRONG = """
import opendp.prelude as dp

space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
good = lambda: dp.t.make_count(*space)
sums = lambda: dp.t.make_int_checked_sum(1, (0, 1))
needs = lambda argument: argument
nothing = lambda: None
number = 3
def fails():
    raise ValueError("record 42")
def leaves():
    raise SystemExit(0)
def claims(value):
    return dp.m.make_user_measurement(*space, dp.max_divergence(), len, lambda d: value)
unknown = lambda: claims(float("nan"))
infinite = lambda: claims(float("inf"))
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["good", "--d-in", "-1"], "a positive number"),
        (["good", "--d-in", "0"], "a positive number"),
        (["good", "--d-in", "0.5"], "a whole number"),
        (["good", "--d-in", "1e30"], "at most 1000 records"),
        (["good", "--d-in", "1001"], "at most 1000 records"),
        (["good", "--d-in", "nan"], "a positive number"),
        (["good", "--d-in", "inf"], "a positive number"),
        (["good", "--d-in", "one"], "a positive number"),
        (["good", "--d-in", ""], "a positive number"),
        (["good", "--beta", "2"], "0 < beta < 1"),
        (["good", "--beta", "nan"], "0 < beta < 1"),
        (["good", "--budget", "slow"], "slow"),
        (["good", "--format", "xml"], "xml"),
        (["needs"], "works without arguments"),
        (["fails"], "ValueError at"),
        (["leaves"], "SystemExit at"),
        (["unknown"], "returns NaN"),
        (["infinite"], "map is infinite"),
        (["sums"], "works without arguments"),
        (["nothing"], "a Transformation, Measurement"),
        (["number"], "a Transformation, Measurement"),
        (["absent"], "a name of that module"),
        ([""], "module:factory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_is_refused_by_code_and_exits_with_two(
    tmp_path, monkeypatch, arguments, expected
):
    (tmp_path / "wrong_module.py").write_text(WRONG)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(app, ["audit", f"wrong_module:{arguments[0]}", *arguments[1:]])
    assert done.exit_code == 2
    assert expected in " ".join(done.output.split())
    assert "OS903" not in done.output
    assert "record 42" not in done.output


@pytest.mark.long
def test_a_release_that_always_raises_is_said_to_have_shown_nothing():
    broken = dp.m.make_user_measurement(
        LINE, SYMMETRIC, dp.max_divergence(), lambda _: 1 // 0, lambda d: 1.0 * d
    )
    assert "every release raised" in str(audit(broken, 1, SHORT))


def test_a_map_that_refuses_a_distance_claims_nothing_there():
    picky = dp.t.make_user_transformation(
        LINE, SYMMETRIC, LINE, SYMMETRIC, list, lambda d: d if d < 3 else 1 // 0
    )
    with pytest.raises(AuditError, match="claims something"):
        audit(picky, 5)
    assert audit(picky, 2, SHORT).verdict == "not refuted"


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_every_mechanism_has_a_record(key):
    """What was recorded is of the laws as they are: one that was added since must be run."""
    found = record(key)
    case = cases()[key]
    names = {law.__name__.removeprefix("check_") for law in laws_about(case)}
    assert names == {*found["laws"]["held"], *found["laws"]["excused"]}
    assert found["laws"]["failed"] == []
    if REGISTRY[key].room == "queries":
        assert tier(key) == ("proved" if fallen(key) else "post-processing")
        assert "post_processing_reads_the_release_alone" in found["laws"]["held"]
    else:
        assert found["audits"]["verdict"] == "not refuted"
        assert found["audits"]["layers"]


@pytest.mark.few(4)
@pytest.mark.parametrize("spec", some(sorted(SPECS.glob("*.yaml")), 2), ids=lambda path: path.stem)
def test_every_spec_lists_laws_and_audits_of_each_of_its_mechanisms(spec):
    """A query has no audit: it loses nothing, by the law that it reads a release alone."""
    plan = planned(spec)
    for output in plan.outputs:
        behind = evidence_of(plan, output)
        steps = [step.key for step in plan.outputs[output].decl.post]
        assert set(steps) < set(behind)
        for key, found in behind.items():
            assert found["record"]["laws"]["held"]
            assert (found["record"]["audits"] is None) == (REGISTRY[key].room == "queries")


def test_a_certificate_holds_what_stands_behind_queries_too(tmp_path):
    done = apply(plan_file(write_small(tmp_path)))
    found = json.loads(done.certificates["density"].read_text())["evidence"]
    assert found["race_sketch"]["record"]["audits"]["verdict"] == "not refuted"
    assert found["density"]["tier"] == tier("density")
    assert "post_processing_is_pure" in found["density"]["record"]["laws"]["held"]


def test_chains_that_several_releases_share_are_audited_once():
    found = [
        name.split("#")[1] for name, _, _ in spec_subjects(SPECS / "bright-pixels-published.yaml")
    ]
    before = [name for name in found if name.endswith("(before the noise)")]
    assert len(before) == 2  # one in L1 and one in L2
    assert len(set(found) - set(before)) == len(found) - len(before) > 5
