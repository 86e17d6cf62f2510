"""What commands print: labels by name, the query beside its answer, and nothing where that is asked."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.cli import COMMANDS, app
from opendp_sim.cli._quiet import hushed
from opendp_sim.dsl.grammar.choosing import CHOOSING

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


def _run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


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


@pytest.mark.parametrize("word", ["epsilon", "delta", "bounds", "dtype", "unit", "ledger"])
def test_a_page_ends_with_how_to_choose_in_eighty_columns(word):
    page = _run("explain", word).output
    assert page.rstrip().endswith(CHOOSING[word])
    assert max(map(len, CHOOSING[word].splitlines())) <= 80
