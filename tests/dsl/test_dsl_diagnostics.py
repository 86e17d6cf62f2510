"""Refused specs: code, place, caret, advice, as golden text; and nothing released or charged."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.cli._stop import note_charge, note_written
from opendp_sim.core.errors import CATALOGUE
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import plan_of
from opendp_sim.dsl.text.diagnostic import Notes, Refused
from opendp_sim.dsl.text.yaml_document import parse
from tests._golden import FOLDER, compare

PEOPLE = """
spec: opendp_sim/1
name: people
data:
  people:
    source: {npz: people.npz}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
      who: {dtype: str, role: privacy_id}
privacy:
  unit: {add_remove: 1, of: who}
  measure: zcdp
  budget: {rho: 0.4}
flow:
  sketch:
    from: people
    steps:
      - bound_contributions: {by: who, max_rows: 2, seed: 3}
      - select: {features: x}
      - quantize: {bits: 8}
      - race_sketch: {repetitions: 10, buckets: 16, seed: 1, family: {p_stable_l2: {width: 1.0}}}
  noisy: {from: sketch, release: {noise: gaussian, scale: solve, spend: 100%}}
outputs:
  all: {from: noisy, save: out/all.npz}
"""
BAD = sorted(path.stem for path in (FOLDER / "bad").glob("*.yaml"))
CODES = {
    "unknown_step": "OS303",
    "unknown_argument": "OS303",
    "unknown_word": "OS303",
    "wrong_type": "OS101",
    "nested_parameter": "OS303",
    "sensitivity_too_small": "OS301",
    "stability_too_small": "OS301",
    "no_noise": "OS307",
    "output_of_a_sketch": "OS307",
    "output_of_data": "OS704",
    "output_of_nothing": "OS303",
    "release_none_on_private": "OS307",
    "budget_not_met": "OS401",
    "gaussian_under_pure": "OS405",
    "no_delta": "OS401",
    "negative_budget": "OS401",
    "duplicate_key": "OS302",
    "anchor": "OS302",
    "merge_and_tag": "OS302",
    "not_yaml": "OS302",
    "hole": "OS310",
    "parameter_out_of_range": "OS308",
    "unknown_parameter": "OS308",
    "yaml_1_1_boolean": "OS101",
    "unknown_column": "OS204",
    "label_missing": "OS204",
    "unit_of_nobody": "OS303",
    "query_under_steps": "OS306",
    "circle": "OS306",
    "many_at_once": "OS101",
    "bare_csv": "OS304",
}


def _run(*words: str):
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A copy of the bad specs, entered, so that printed paths are relative."""
    shutil.copytree(FOLDER / "bad", tmp_path / "bad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.few(16)
@pytest.mark.parametrize("name", BAD)
def test_a_bad_spec_is_refused_with_a_code_a_place_and_advice(name, beside):
    """In a terminal as its golden file shows it."""
    result = _run("check", f"bad/{name}.yaml")
    assert result.exit_code == 1
    compare(f"bad/{name}.txt", result.stderr)
    result = _run("check", f"bad/{name}.yaml", "--json")
    assert result.exit_code == 1
    findings = json.loads(result.stdout)["errors"]
    assert CODES[name] in {finding["code"] for finding in findings}
    lines = Path(f"bad/{name}.yaml").read_text().splitlines()
    for finding in findings:
        assert finding["code"] in CATALOGUE
        assert finding["help"]
        assert 1 <= finding["line"] <= len(lines)
        assert 1 <= finding["column"] <= len(lines[finding["line"] - 1]) + 1


@pytest.mark.few(4)
@pytest.mark.parametrize("name", BAD)
def test_applying_a_bad_spec_leaves_nothing_behind(name, beside):
    before = sorted(beside.rglob("*"))
    assert _run("apply", f"bad/{name}.yaml").exit_code == 1
    assert sorted(beside.rglob("*")) == before


def test_every_bad_spec_has_a_code_here():
    assert set(BAD) == set(CODES)


def test_an_output_with_its_stages_name_is_one_error(tmp_path):
    spec = tmp_path / "people.yaml"
    spec.write_text(PEOPLE.replace("all: {from: noisy", "noisy: {from: noisy"))
    found = json.loads(_run("check", str(spec), "--json").stdout)["errors"]
    assert [error["code"] for error in found] == ["OS303"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("flow:", "tests: [released]\nflow:"),
        (
            "{noise: gaussian, scale: solve, spend: 100%}",
            "{mechanism: {gaussian: {}}, on_fail: stop}",
        ),
        (
            "{noise: gaussian, scale: solve, spend: 100%}",
            "{mechanism: {gaussian: {}}, filter: individual}",
        ),
    ],
)
def test_a_word_that_nothing_enforces_is_refused(old, new, tmp_path):
    """An entry that was kept and not enforced would be taken for a promise."""
    spec = tmp_path / "people.yaml"
    assert PEOPLE.count(old) == 1
    spec.write_text(PEOPLE.replace(old, new))
    found = _run("check", str(spec), "--json")
    assert found.exit_code == 1
    assert [error["code"] for error in json.loads(found.stdout)["errors"]] == ["OS303"]


def test_an_empty_value_is_shown_where_its_key_stands(tmp_path):
    """Was the next word's place, lines below."""
    spec = tmp_path / "people.yaml"
    spec.write_text(PEOPLE.replace("name: people", "name:\n\n# a note", 1))
    (found,) = json.loads(_run("check", str(spec), "--json").stdout)["errors"]
    line = spec.read_text().splitlines().index("name:") + 1
    assert (found["code"], found["line"], found["column"]) == ("OS304", line, 1)


def test_a_missing_spec_is_one_coded_error(beside):
    result = _run("check", "nowhere.yaml")
    assert result.exit_code == 1
    assert re.search(r"error\[OS601\].*nowhere\.yaml", result.stderr)


def test_a_document_that_is_deep_or_large_is_refused_quickly(beside):
    Path("deep.yaml").write_text("a: " + "[" * 5000 + "]" * 5000)
    Path("large.yaml").write_text("a: " + "x" * 2**21)
    for name in ("deep", "large"):
        result = _run("check", f"{name}.yaml")
        assert result.exit_code == 1
        assert "OS302" in result.stderr


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("budget: {rho: 0.4}", "budget: {rho: -1}", "OS401"),
        ("add_remove: 1, of: who", "add_remove: one, of: who", "OS304"),
        ("add_remove: 1, of: who", "add_remove: 1, of: whom", "OS303"),
    ],
)
def test_a_wrong_privacy_section_makes_no_second_error_about_the_flow(old, new, code, beside):
    assert old in PEOPLE
    Path("people.yaml").write_text(PEOPLE.replace(old, new))
    findings = json.loads(_run("check", "people.yaml", "--json").stdout)["errors"]
    assert [finding["code"] for finding in findings] == [code]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "spec: opendp_sim/1",
        "{",
        "? [a]: b",
        "a: b: c",
        "\t",
        "--- a\n--- b",
        "&a [*a]",
        "spec: opendp_sim/1\ndata: 3\nflow: []\nprivacy: x\noutputs: ~\nname: 4",
        "\x00",
        "a: 'b",
        (
            "spec: opendp_sim/1\nname: a\ndata: {d: {source: {npz: 1}}}\nflow: {s: {from: 3, steps: {a: b}}}\n"
            "outputs: {o: {from: [], post: 3}}\nprivacy: {unit: 3, measure: [], budget: {epsilon: x}}"
        ),
    ],
)
def test_no_text_makes_the_reader_fail_otherwise(text, beside):
    Path("any.yaml").write_text(text)
    result = _run("check", "any.yaml")
    assert result.exit_code == 1
    assert "error[OS3" in result.stderr


SPECS = Path(__file__).parents[2] / "specs"
MISSPELT = [
    ("digit-density", "noise: gaussian", "noise: gausian", "`gaussian`"),
    ("digit-density", "release: {noise", "release: {nois", "`noise`"),
    ("digit-density", "spend: 100%", "spnd: 100%", "`spend`"),
    ("digit-density", "of: row", "of: rows", "`row`"),
    ("digit-density", "p_stable_l2", "p_stabel_l2", "`p_stable_l2`"),
    ("digit-density", "dtype: category", "dtype: categry", "`category`"),
    ("digit-density", "array[f32, 64]", "aray[f32, 64]", "`array`"),
    ("digit-density", "privacy:", "privcy:", "`privacy`"),
    ("digit-density", "measure: gdp", "measure: gpd", "`gdp`"),
    ("digit-density", "builtin: digits}", "builtin: digit}", "`digits`"),
    ("digit-density", "- quantize", "- quantise", "`quantize`"),
    ("digit-density", "from: densities", "from: densitys", "`densities`"),
    ("writers-density", "of: writer", "of: writr", "`writer`"),
    ("writers-density", "srp: ", "spr: ", "`srp`"),
    ("bright-pixels", "mechanism:", "mechansm:", "`mechanism`"),
    ("bright-pixels", "top_k: {", "topk: {", "`top_k`"),
    ("bright-pixels", "item: pixel", "item: pixl", "'pixel'"),
    ("digits-session", "serve: session", "serve: sesion", "`session`"),
]


@pytest.mark.few(9)
@pytest.mark.parametrize(("stem", "right", "wrong", "meant"), MISSPELT, ids=lambda text: text)
def test_a_misspelt_word_of_a_spec_is_recognised(stem, right, wrong, meant):
    text = (SPECS / f"{stem}.yaml").read_text("utf-8")
    assert right in text
    notes = Notes()
    document = parse(text.replace(right, wrong, 1), "spec.yaml", notes)
    with pytest.raises(Refused) as refused:
        plan_of(draft_of(document.data, folder=str(SPECS), document=document, notes=notes))
    helps = " ".join(finding.help for finding in refused.value.findings)
    assert f"did you mean {meant}" in helps


def test_another_measure_is_not_taken_for_a_misspelling():
    """`measure: rdp` asked whether `gdp` was meant: another promise; and a ledger has its place."""
    for wrong, meant in (
        ("measure: rdp", "use one of pure, gdp, zcdp"),
        ("measure: zcdp\n  ledger: {file: a.ledger}", "under `data`, beside `source`"),
    ):
        notes = Notes()
        document = parse(PEOPLE.replace("measure: zcdp", wrong), "spec.yaml", notes)
        with pytest.raises(Refused) as refused:
            plan_of(draft_of(document.data, document=document, notes=notes))
        assert meant in " ".join(finding.help for finding in refused.value.findings)


def test_what_an_earlier_command_of_the_process_did_is_not_said_again(beside):
    """Golden files failed after any command that had charged: its last line was that of every later refusal."""
    note_charge("entry 2 of old.ledger charges rho 0.3, and stands")
    assert "old.ledger" not in _run("check", "bad/circle.yaml").stderr
    note_written("old.csv")
    assert "old.csv" not in _run("check", "bad/circle.yaml", "--json").stdout
