"""The command line: what each command prints, its exit code, and that it matches the library."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from rich.console import Console

from opendp_sim.cli.about import schema_text
from opendp_sim.cli.output.summary import next_command, show_first
from opendp_sim.core.about import parameters_of
from opendp_sim.core.errors import CATALOGUE, ReleaseError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.domains.released import Released
from opendp_sim.dsl import plan_file
from opendp_sim.dsl.explain.explain import partners
from opendp_sim.dsl.grammar.pages import words_of_a_spec
from opendp_sim.dsl.grammar.program import Spec
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.dsl.run.charge import standing
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.text.yaml_document import parse
from tests._cli import begun, run as _run
from tests._golden import FOLDER, compare
from tests._plans import planned
from tests._small import write_small
from tests._tiers import some
from tests.cases import cases

SPECS = Path(__file__).parents[2] / "specs"
ALL_SPECS = sorted(SPECS.glob("*.yaml"))


FIT = """
spec: opendp_sim/1
name: fit
data:
  rows:
    source: {npz: rows.npz}
    columns: {x: {dtype: float64, bounds: [0, 1]}, y: {dtype: float64, bounds: [0, 1]}}
privacy: {unit: {add_remove: 1}, measure: zcdp, budget: {rho: 1.0}}
flow:
  sums:
    from: rows
    steps: [select: {features: [x, y]}, quantize: {bits: 8}, second_moments: {}]
    release: {noise: gaussian}
outputs:
  all: {from: sums, save: fit.npz}
"""


# --- specs ----------------------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("spec", some(ALL_SPECS, 2), ids=lambda path: path.stem)
def test_every_spec_of_the_package_checks(spec):
    result = _run("check", spec)
    assert result.exit_code == 0, result.stderr


def test_the_plan_is_the_golden_one(monkeypatch):
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr("opendp_sim.cli.output.plan.process_memory", lambda: 0)  # this suite's
    # what an audit found of today's code is in evidence.jsonl, not here
    monkeypatch.setattr("opendp_sim.dsl.types.records.tier", lambda _key: "proved and audited")
    result = _run("plan", "small.yaml", "-v")
    assert result.exit_code == 0, result.stderr
    compare("small.plan.txt", result.stdout)


@pytest.mark.few(3)
@pytest.mark.parametrize("spec", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_plan_says_first_who_is_protected_how_well_and_how_wrong_answers_are(spec):
    """In six labelled lines of one row each, errors in one for each output; 80 columns, nothing cut."""
    plan = planned(spec)
    out = Console(file=io.StringIO(), width=200)
    said = tell(plan, ledger=standing(plan))
    show_first(said, next_command(plan, said, f"specs/{spec.name}"), out)
    lines = out.file.getvalue().splitlines()
    heads = ["plan", "who", "privacy", "error", "cost", "next"]
    assert [head for line in lines if (head := line[:9].strip())] == heads
    at = [line[:9].strip() for line in lines].index("error")
    errors = [line[9:] for line in lines[at:-2]]
    assert len(errors) >= min(len(plan.outputs), 12)
    for name in list(plan.outputs)[:12]:
        of = (name[:5], "density:"), f" of {name[:5]}"
        assert [one for one in errors if one.startswith(of[0]) or of[1] in one], name
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line.replace("…:", ":")]
    lines = [line for line in lines if line[:9].strip()]
    for line, told in zip(
        lines, (plan.program.name, "each ", " at most", ":", "epsilon", spec.name), strict=True
    ):
        assert told in line
    assert f"right {said.attacker.right}%" in lines[2]
    assert said.privacy.numbers["right"] == float(said.attacker.right)


@pytest.mark.parametrize("name", ["digits-session", "digits-hybrid"])
def test_the_plan_of_a_session_says_what_a_record_serves_and_what_does_better(name):
    found = " ".join(_run("plan", SPECS / f"{name}.yaml", "-v").stdout.split())
    assert "expected neighbours:" in found
    assert "queries a typical record serves 909.1" in found  # T / 0.55
    assert "a one-off release usually serves better: `linear_model`, or class means" in found


def test_the_plan_as_json_is_the_librarys():
    found = json.loads(_run("plan", FOLDER / "small.yaml", "--json").stdout)
    assert found.pop("advice") == []
    assert found.pop("ledger")["new"]
    plan = plan_file(FOLDER / "small.yaml")
    assert found.pop("forecast") == {name: one.plain() for name, one in plan.forecast().items()}
    assert found == json.loads(plan.canonical)


def test_planning_opens_no_data(tmp_path):
    spec = write_small(tmp_path)
    for name in ("points.npz", "queries.npz"):
        (tmp_path / name).unlink()
    for command in ("check", "types", "plan"):
        assert _run(command, spec).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_apply_prints_plan_files_and_ledger(tmp_path):
    spec = write_small(tmp_path)
    result = _run("apply", begun(spec), "--param", "width=0.8", "--into", tmp_path / "elsewhere")
    assert result.exit_code == 0, result.stderr
    release = tmp_path / "elsewhere" / "out" / "release.npz"
    assert release.exists()
    # Silent on standard error where that is no terminal.
    assert result.stderr == ""
    words = [line[:9].strip() for line in result.stdout.splitlines() if line.strip()]
    assert words == ["done", "who", "privacy", "error", "cost", "next", "records", "records"]
    assert "epsilon 1, delta 1e-6 spent; the ledger has room for" in result.stdout
    assert "density.csv.certificate.json\n" in result.stdout
    assert "in the place" not in result.stdout
    assert "strong: attackers guess right 55.6% of the time at most (coin: 50%)" in result.stdout
    again = _run("apply", spec, "--param", "width=0.8", "--into", tmp_path / "elsewhere", "-v")
    told = " ".join(again.stdout.split())
    assert "ledger spent rho" in told
    assert "release: in the place of an earlier run's; both runs' losses add up" in told
    assert "strong after 2 runs: attackers guess right 57.8% at most (coin: 50%)" in told
    assert "claim (1, 1e-06)-DP" in told


# --- exit codes -----------------------------------------------------------------------------------


def test_exit_codes(tmp_path):
    spec = write_small(tmp_path)
    assert _run("check", spec).exit_code == 0
    assert _run("check", FOLDER / "bad" / "unknown_step.yaml").exit_code == 1
    assert _run("check").exit_code == 2
    assert _run("check", spec, "--no-such-option").exit_code == 2
    assert _run("plan", spec, "--param", "width").exit_code == 2
    assert _run("ledger", "show", tmp_path / "none.ledger").exit_code == 3
    (tmp_path / "points.npz").write_bytes(b"no archive")
    assert _run("apply", spec).exit_code == 3
    assert _run("apply", begun(spec)).exit_code == 4
    assert _run("verify", spec).exit_code == 5
    assert _run("answer", spec, "--query", "digits_test", "--post", "density").exit_code == 5


def test_a_failure_of_the_house_shows_no_text(monkeypatch):
    def broken(*_):
        raise RuntimeError("a record: 0.123456789")

    monkeypatch.setattr("opendp_sim.cli.spec.plan_file", broken)
    result = _run("check", FOLDER / "small.yaml")
    assert result.exit_code == 70
    assert "0.1234" not in result.stderr
    assert "RuntimeError" in result.stderr


# --- about the language ---------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize("key", some(sorted(REGISTRY), 6))
def test_explain_has_a_page_for_every_mechanism(key):
    text = _run("explain", key).stdout
    for name in parameters_of(REGISTRY[key]):
        assert f"    {name}" in text
    assert "Evidence" in text


def test_explain_has_a_page_for_every_error():
    for code in sorted(CATALOGUE):
        assert CATALOGUE[code] in " ".join(_run("explain", code).stdout.split())


def test_explain_a_stage_and_an_unknown_word():
    text = _run("explain", "sketch", "--spec", FOLDER / "small.yaml").stdout
    assert "sensitivity l1 100, l2 10, linf 1, monotone" in text
    result = _run("explain", "race_scketch")
    assert result.exit_code == 1
    assert "did you mean `race_sketch`?" in result.stderr


@pytest.mark.parametrize("word", some(sorted(words_of_a_spec(Spec)), 16))
def test_explain_has_a_page_for_every_word_of_a_spec(word):
    assert word in _run("explain", word).stdout


def test_what_a_sketch_offers_and_a_query_asks_for_is_declared():
    rows = cases()
    for key, cls in REGISTRY.items():
        offered = set(getattr(rows[key].claim(), "capabilities", {}))
        assert offered == set(cls.offers)
        if cls.room != "queries":
            assert not cls.asks_for
            continue
        domain = rows[key].domain
        if isinstance(domain, Released):
            assert set(domain.capabilities) & set(cls.asks_for)
            with pytest.raises(ReleaseError) as refused:
                rows[key].mechanism.bind(replace(domain, capabilities={}), rows[key].metric)
            assert refused.value.code == "OS702"
            assert any(sketch in refused.value.hint for sketch in partners(key))


def test_a_query_without_a_feature_is_told_which(tmp_path):
    spec = tmp_path / "fit.yaml"
    spec.write_text(FIT)
    rows = np.random.default_rng(0).uniform(0, 1, (40, 2))
    np.savez(tmp_path / "rows.npz", x=rows[:, 0], y=rows[:, 1])
    assert _run("apply", spec).exit_code == 0
    (tmp_path / "asked.csv").write_text("x\n0.5\n")
    found = _run(
        "answer", tmp_path / "fit.npz", "--query", tmp_path / "asked.csv", "--post", "regress"
    )
    assert found.exit_code == 4
    assert "OS607" in found.stderr
    assert "column y" in found.stderr
    assert "write 0" in found.stderr
    found = _run(
        "answer", tmp_path / "fit.npz", "--query", tmp_path / "asked.csv", "--post", "regress: {"
    )
    assert found.stderr.count("error[") == 1
    found = _run(
        "answer", tmp_path / "rows.npz", "--query", tmp_path / "asked.csv", "--post", "regress"
    )
    assert "output without `post`" in " ".join(found.stderr.split())
    (tmp_path / "asked.csv").write_text("x,y\n0.5,0\n")
    found = _run(
        "answer", tmp_path / "fit.npz", "--query", tmp_path / "asked.csv", "--post", "regress"
    )
    assert found.exit_code == 0


def _plan_lines(path, start):
    text = re.sub(r" ?\n(?: {9,10}(?! ))?", " ", _run("plan", path, "-v").stdout)
    return [
        part
        for part in re.split(r" (?=(?:advice|warning)  |ingest    |plan of |peak memory)", text)
        if part.startswith(start)
    ]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("budget: {rho: 1.0}", "budget: {epsilon: 1.0, delta: 0.01}", "delta 0.01"),
        (
            "{noise: gaussian}",
            "{noise: gaussian, spend: 40%}",
            "60% of the budget's rho is left: larger shares (`spend`) would",
        ),
        ("{noise: gaussian}", "{noise: gaussian, scale: 1000.0}", "is left: smaller scales (of `"),
        ("budget: {rho: 1.0}", "budget: {rho: 1.0e-9}", "records can add at most"),
        (
            "y: {dtype: float64, bounds: [0, 1]}}",
            "y: {dtype: int64, bounds: [0, 1]}}\n    ingest: enforce",
            "where x is not finite, or y is no whole number",
        ),
    ],
)
def test_a_plan_advises_what_is_allowed_and_seldom_meant(tmp_path, old, new, told):
    fit = FIT.replace("second_moments: {}", "threshold_sketch: {thresholds: 8}").replace(
        "save: fit.npz", "post: [distance: {}], save: fit.npz"
    )
    path = tmp_path / "fit.yaml"
    path.write_text(fit)
    assert not _plan_lines(path, ("advice", "warning", "ingest"))
    assert fit.count(old) == 1
    path.write_text(fit.replace(old, new))
    assert told in " ".join(_plan_lines(path, ("advice", "warning", "ingest"))).replace("  ", " ")


def test_the_template_fails_check_until_its_holes_are_filled(tmp_path):
    path = tmp_path / "new.yaml"
    assert _run("init", path).exit_code == 0
    result = _run("check", path, "--json")
    assert result.exit_code == 1
    findings = json.loads(result.stdout)["errors"]
    assert {finding["code"] for finding in findings} == {"OS310"}
    assert len(findings) == 4
    assert _run("init", path).exit_code == 1
    text = path.read_text().replace("name: ???", "name: mine").replace("npz: ???", "npz: a.npz")
    path.write_text(text.replace("epsilon: ???", "epsilon: 1.0").replace("seed: ???", "seed: 1"))
    assert _run("check", path).exit_code == 0


@pytest.mark.parametrize(
    ("dtype", "meant"), [("f64", "float64"), ("f32", "float64"), ("i64", "int64")]
)
def test_a_scalar_with_the_dtype_of_an_entry_is_told_what_was_meant(tmp_path, dtype, meant):
    path = write_small(tmp_path, ("kind: {", f"age: {{dtype: {dtype}}}\n      kind: {{"))
    (found,) = json.loads(_run("check", path, "--json").stdout)["errors"]
    assert f"did you mean `{meant}`?" in found["help"]
    assert found["path"].endswith("age.dtype")


# --- the schema -----------------------------------------------------------------------------------


def test_the_schema_has_not_drifted():
    assert (SPECS / "schema.json").read_text() == schema_text(), (
        "run: opendp-sim schema --force -o specs/schema.json"
    )
    assert _run("schema", "--check", SPECS / "schema.json").exit_code == 0


@pytest.fixture(scope="module")
def schema():
    return json.loads(schema_text())


def _data(text):
    return parse(text, "x", Notes()).data


@pytest.mark.few(6)
@pytest.mark.parametrize("spec", [*ALL_SPECS, FOLDER / "small.yaml"], ids=lambda path: path.stem)
def test_the_schema_accepts_every_good_spec(spec, schema):
    assert Draft202012Validator(schema).is_valid(_data(spec.read_text()))


@pytest.mark.long  # `test_startup.py` and `test_forks.py` start it too
def test_the_installed_entry_point_runs():
    code = "from opendp_sim.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "ops"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "quantize" in done.stdout
