"""What commands print: labels by name, the query beside its answer, and nothing where that is asked."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import opendp_sim as sim
from opendp_sim import __version__
from opendp_sim.cli import COMMANDS, loaded
from opendp_sim.cli.output.quiet import hushed
from opendp_sim.dsl.files.write import formula_note, write_output
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import plan_of
from opendp_sim.dsl.run.execute import apply
from opendp_sim.dsl.text.diagnostic import Refused
from tests._cli import run as _run

TABLE = {
    "a": np.linspace(0, 1, 200),
    "b": np.linspace(0, 90, 200),
    "kind": ["u"] * 100 + ["v"] * 100,
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    fit = sim.means({"a": (0, 1), "b": (0, 90)}, label="kind", keys=["u", "v"], epsilon=1e3)
    fit.apply(TABLE, into=folder)
    (folder / "q.csv").write_text("a,b\n0.1,9\n0.9,81\n")
    return folder


def test_queries_stand_beside_answers_and_labels_have_names(release):
    asked = (
        "answer",
        release / "release.npz",
        "--queries",
        release / "q.csv",
        "--post",
        "nearest_class",
    )
    shown = _run(*asked).output.splitlines()
    assert shown[0].split("\t")[:2] == ["a", "b"]
    found = json.loads(_run(*asked, "--json").output)
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    assert [(row["a"], row["b"], row["label"]) for row in rows] == [
        (0.1, 9.0, "u"),
        (0.9, 81.0, "v"),
    ]
    assert _run(*asked, "-o", release / "found.json").exit_code == 0
    found = json.loads((release / "found.json").read_text())
    assert found["label"] == ["u", "v"]
    assert found["classes"] == ["u", "v"]
    assert found["a"] == [0.1, 0.9]


def test_every_command_can_be_quiet(release):
    loud = _run("verify", release / "release.npz.certificate.json")
    assert loud.exit_code == 0
    assert loud.output
    for words in (("--quiet", "verify"), ("verify", "--quiet")):
        quiet = _run(*words, release / "release.npz.certificate.json")
        assert (quiet.exit_code, quiet.output) == (0, "")
    assert json.loads(_run("ops", "--json", "--quiet").output)
    assert "OS303" in _run("explain", "nothing-of-that-name", "--quiet").output
    for name in COMMANDS:
        assert _run(name, "--quiet", "--help").exit_code == 0, name
    assert _run("ops").output
    assert not hushed()


@pytest.mark.long
def test_help_and_version_have_short_forms_everywhere():
    for name in COMMANDS:
        for word, command in _leaves(name):
            words = [word] if command.name == word else [word, command.name]
            assert _run(*words, "-h").stdout == _run(*words, "--help").stdout != "", words
            assert _run(*words, "-V").stdout == f"opendp-sim {__version__}\n", words
    assert _run("-h").stdout == _run("--help").stdout
    assert _run("-V").stdout == _run("--version").stdout == f"opendp-sim {__version__}\n"
    assert "OS303" in _run("explain", "--", "-V").output, "what follows -- is no option"


def _leaves(name):
    """Every command that can be run: a word, or two."""
    found = loaded(name)
    return (
        [(name, command) for command in found.commands.values()]
        if hasattr(found, "commands")
        else [(name, found)]
    )


def test_every_command_takes_json():
    for name in COMMANDS:
        for word, command in _leaves(name):
            assert "--json" in [o for p in command.params for o in p.opts], (word, command.name)


def test_json_is_what_comes_out(tmp_path, release):
    certificate = release / "release.npz.certificate.json"
    for words in (
        ("explain", "race_sketch"),
        ("explain", "OS402"),
        ("explain", "epsilon"),
        ("explain", "audit"),
        ("schema",),
        ("schema", "-o", tmp_path / "s.json"),
        ("schema", "--check", tmp_path / "s.json"),
        ("stubs",),
        ("init",),
        ("init", tmp_path / "new.yaml", "--recipe", "means"),
        ("report", certificate, "-o", tmp_path / "page.html"),
        ("verify", certificate),
    ):
        found = _run(*words, "--json")
        assert json.loads(found.stdout), words
        assert found.exit_code == 0, words
    told = json.loads(_run("explain", "race_sketch", "--json").stdout)
    assert told["mechanism"]["parameters"]["repetitions"]["default"] == "required"
    for words in (
        ("explain", "nothing"),
        ("schema", "--check", tmp_path / "none.json"),
        ("init", tmp_path / "new.yaml"),
        ("report", tmp_path / "none.yaml"),
        ("plot", tmp_path / "none.yaml", "-o", tmp_path / "p.svg"),
        ("engine", "check", "nothing"),
        ("session", tmp_path / "none.yaml"),
        ("audit", tmp_path / "none.yaml"),
    ):
        found = _run(*words, "--json")
        assert found.exit_code in (1, 2, 4), words
        assert json.loads(found.stdout)["errors"][0]["code"].startswith("OS"), words


# --- eighty columns -------------------------------------------------------------------------------


def test_piped_output_is_eighty_columns_wide(release):
    certificate = release / "release.npz.certificate.json"
    for words in (
        ("verify", certificate),
        ("verify", certificate, "--explain"),
        ("ops",),
        ("init",),
        ("explain", "epsilon"),
        ("explain", "classify"),
        ("explain", "nothing-of-that-name"),
        ("ledger", "verify", release / "none.ledger"),
    ):
        for line in _run(*words).output.splitlines():
            assert len(line) <= 80 or " " not in line.strip(), (words, line)


def test_a_plan_says_first_what_promises_nothing_and_which_data_is_missing(tmp_path):
    """Epsilon 100 was told below the tree, and a file that is not there only by a run."""
    spec = tmp_path / "none.yaml"
    text = (Path(__file__).parents[1] / "golden" / "small.yaml").read_text(encoding="utf-8")
    text = text.replace(
        "budget: {epsilon: 1.0, delta: 1.0e-6}", "budget: {epsilon: 100, delta: .01}"
    )
    spec.write_text(text.replace("limit: {epsilon: 3.0, delta: 1.0e-5}", "limit: {rho: 1000}"))
    said = _run("plan", spec)
    assert said.exit_code == 0
    first, _, rest = said.output.partition("\nnext ")
    assert "warning  epsilon 100 gives very weak protection" in first
    assert "warning  delta 0.01 is too large" in first
    assert "epsilon 100 gives" not in rest
    for command in ("plan", "check"):
        said = " ".join(_run(command, spec).output.split())
        assert "the data file of `points`, points.npz, is not there now" in said
    (tmp_path / "points.npz").touch()
    assert "not there now" not in _run("check", spec).output


@pytest.mark.parametrize(
    ("cells", "acts"),
    [
        (["=1+1"], True),
        (["@SUM(A1)"], True),
        (["+cmd"], True),
        (["-cmd|' /C calc'!A0"], True),
        (["a\x1b[2Jb"], True),
        (["a\x9b2Jb"], True),
        ([" =1+1"], True),
        (["a;=1+1"], True),
        (["\uff1d1+1"], True),
        (["-3.5", "+1e-7", "-inf", "a=b", "Łódź", "x\ny", ""], False),
    ],
)
def test_texts_that_a_spreadsheet_would_run_are_named(tmp_path, cells, acts):
    """Anybody can call an item `=HYPERLINK(...)`; the file holds it as it is, and the command says so."""
    path = tmp_path / "top.csv"
    write_output(path, {"item": np.array(cells, dtype=object)}, None)
    assert bool(formula_note(path)) is acts
    assert formula_note(tmp_path / "top.json") == ""


INERT = {
    "=1+1": "'=1+1",
    "-cmd|' /C calc'!A0": "'-cmd|' /C calc'!A0",
    " @SUM(A1)": " '@SUM(A1)",
    "a;=1+1": "a;'=1+1",
    "\uff1d1": "'\uff1d1",
    "a\x1b[2Jb\x9b": "a\\x1b[2Jb\\x9b",
    "\t=1": "\\t'=1",
    "x\ny": "x\\ny",
    "-3.5": "-3.5",
    "Łódź": "Łódź",
    "a=b": "a=b",
    "": "",
}


def test_texts_for_a_spreadsheet_are_inert(tmp_path):
    """Quotes stop no spreadsheet: it reads `"=1+1"` as a formula, too."""
    path, cells = tmp_path / "top.csv", np.array(list(INERT), dtype=object)
    numbers = np.linspace(-1, 1, len(cells))
    write_output(path, {"item": cells, "=count": numbers}, None, spreadsheet=True)
    assert formula_note(path) == ""
    with path.open(encoding="utf-8", newline="") as stream:
        (item, count), *rows = csv.reader(stream)
    assert (item, count) == ("item", "'=count")
    assert [row[0] for row in rows] == list(INERT.values())
    assert [float(row[1]) for row in rows] == numbers.tolist()
    assert '"a;\'=1+1"' in path.read_text(
        "utf-8"
    )  # and no cell ends where a country's reader parts them


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_no_text_for_a_spreadsheet_is_named(texts):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "top.csv"
        write_output(path, {"item": np.array(texts, dtype=object)}, None, spreadsheet=True)
        assert formula_note(path) == ""


def test_a_spec_and_answer_write_for_a_spreadsheet(tmp_path):
    (tmp_path / "q.csv").write_text("a\n0.1\n")
    columns = {
        "a": {"dtype": "float64", "bounds": [0, 1]},
        "k": {"dtype": "category", "keys": ["=u()", "v"]},
    }
    steps = [
        {"select": {"features": ["a"], "label": "k"}},
        {"quantize": {"bits": 8}},
        {"moments_sketch": {"per_label": True}},
    ]
    output = {
        "from": "n",
        "post": [{"nearest_class": {}}],
        "queries": {"csv": str(tmp_path / "q.csv")},
    }
    spec = {
        "spec": "opendp_sim/1",
        "name": "top",
        "data": {"d": {"source": {"memory": "d"}, "columns": columns}},
        "privacy": {
            "unit": {"add_remove": 1, "of": "row"},
            "measure": "pure",
            "budget": {"epsilon": 900},
        },
        "flow": {
            "v": {"from": "d", "steps": steps},
            "n": {"from": "v", "release": {"noise": "laplace", "spend": "100%"}},
        },
        "outputs": {"o": output | {"save": "o.csv", "texts": "spreadsheet"}},
    }
    plan = plan_of(draft_of(spec))
    table = {"a": np.linspace(0, 1, 18), "k": ["=u()"] * 9 + ["v"] * 9}
    done = apply(plan, memory={"d": table}, into=tmp_path)
    assert "'=u()" in done.files["o"].read_text("utf-8")
    assert formula_note(done.files["o"]) == ""
    spec["outputs"]["o"] = output | {"save": "o.csv"}
    assert (
        "texts" not in plan_of(draft_of(spec)).program.plain()["outputs"]["o"]
    )  # of before: its hash
    spec["outputs"]["o"] = output | {"save": "o.json", "texts": "spreadsheet"}
    with pytest.raises(Refused, match=r"`texts` is for a table in a \.csv"):
        plan_of(draft_of(spec))


def test_answer_says_that_a_table_holds_formulas(tmp_path):
    fit = sim.means({"a": (0, 1), "b": (0, 90)}, label="kind", keys=["=u()", "v"], epsilon=1e3)
    fit.apply(TABLE | {"kind": ["=u()"] * 100 + ["v"] * 100}, into=tmp_path)
    (tmp_path / "q.csv").write_text("a,b\n0.1,9\n0.9,81\n")
    for ends, named in (("csv", True), ("json", False)):
        asked = ("answer", tmp_path / "release.npz", "--queries", tmp_path / "q.csv")
        shown = _run(*asked, "--post", "nearest_class", "-o", tmp_path / f"a.{ends}").output
        assert ("a spreadsheet would" in " ".join(shown.split())) is named
    shown = _run(
        *asked, "--post", "nearest_class", "-o", tmp_path / "s.csv", "--spreadsheet"
    ).output
    assert "a spreadsheet would" not in " ".join(shown.split())
    assert "'=u()" in (tmp_path / "s.csv").read_text("utf-8")
    refused = _run(*asked, "--post", "nearest_class", "--spreadsheet")
    assert refused.exit_code
    assert "--spreadsheet" in refused.output
