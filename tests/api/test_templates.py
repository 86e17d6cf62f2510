"""``init``: recipes whose holes are all that is missing."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.api.templates import RECIPES, file_header, recipe_text
from opendp_sim.cli import app
from opendp_sim.dsl.grammar.program import TEMPLATE


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "blank"])
def test_a_recipe_runs_once_its_holes_are_filled(recipe, tmp_path):
    run = CliRunner().invoke(
        app, ["init", str(tmp_path / "s.yaml"), "--recipe", recipe, "--data", "t.csv"]
    )
    assert run.exit_code == 0, run.output
    text = (tmp_path / "s.yaml").read_text()
    assert CliRunner().invoke(app, ["check", str(tmp_path / "s.yaml")]).exit_code == 1
    filled = text.replace("name: ???", "name: mine").replace(
        "[???, ???]}   # from", "[0, 1]}   # from"
    )
    filled = filled.replace("bounds: [???, ???]", "bounds: [0, 90]").replace("[???, ???]", "[u, v]")
    assert "???" not in filled
    (tmp_path / "s.yaml").write_text(filled)
    lines = [f"{a:.3f},{90 * a:.2f},{'uv'[int(a > 0.5)]}" for a in np.linspace(0, 1, 300)]
    (tmp_path / "t.csv").write_text("a,b,kind\n" + "\n".join(lines) + "\n")
    release = sim.apply(tmp_path / "s.yaml").results["release"]
    post = text.split("--post ")[1].split()[0]
    assert post in release.ops
    assert len(release.ask(post, {"a": [0.5], "b": [45.0]})) >= 1


def test_columns_are_called_as_the_header_calls_them(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeffDate;CO(GT);T;kind;;\n10/03/2004;2,6;13,6;u;;\n")
    run = CliRunner().invoke(
        app, ["init", str(tmp_path / "s.yaml"), "--recipe", "classes", "--data", "t.csv"]
    )
    assert run.exit_code == 0
    text = (tmp_path / "s.yaml").read_text()
    assert 'source: {csv: {file: t.csv, delimiter: ";"}}' in text
    assert 'features: [Date, "CO(GT)", T], label: kind' in text
    assert "2,6" not in text
    filled = text.replace("name: ???", "name: mine").replace("keys: [???, ???]", "keys: [u, v]")
    (tmp_path / "s.yaml").write_text(filled.replace("[???, ???]", "[0, 90]"))
    found = CliRunner().invoke(app, ["check", str(tmp_path / "s.yaml")])
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize("line", ["1,2,3", "a", "a,a", "", 'a,"b', "x,nan,7"])
def test_a_first_line_that_may_be_a_record_is_no_header(line, tmp_path):
    (tmp_path / "t.csv").write_text(f"{line}\n1,2,3\n")
    assert file_header(tmp_path / "t.csv") == ([], ",")
    assert file_header(tmp_path / "none.csv") == ([], ",")


def test_without_arguments_it_says_what_there_is():
    run = CliRunner().invoke(app, ["init"])
    assert run.exit_code == 0
    assert all(name in run.output for name in RECIPES)
    assert CliRunner().invoke(app, ["init", "x.yaml", "--recipe", "nothing"]).exit_code == 1
    assert recipe_text("blank", None, TEMPLATE) == TEMPLATE
    assert "parquet: p.parquet" in recipe_text("means", "p.parquet", TEMPLATE)
