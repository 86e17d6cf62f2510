"""Selection through a spec: what the unit implies, and how bad votes are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app

SPEC = (Path(__file__).parent.parent / "specs" / "teacher-votes.yaml").read_text(encoding="utf-8")


def run(folder: Path, spec: str, *command: str):
    path = folder / "votes.yaml"
    path.write_text(spec, encoding="utf-8")
    return CliRunner().invoke(app, [*command, str(path)])


def test_the_distance_of_a_threshold_follows_the_unit(tmp_path):
    stated = run(tmp_path, SPEC, "plan")
    left_out = run(tmp_path, SPEC.replace(", distance: 2", ""), "plan")
    assert stated.exit_code == left_out.exit_code == 0, left_out.output

    def total(found):
        return re.findall(r"rho [\d.e-]+, delta [\d.e-]+", found.output)

    assert total(left_out) == total(stated)
    assert total(stated)


def test_a_distance_below_the_units_is_named_where_no_scale_fits(tmp_path):
    found = run(tmp_path, SPEC.replace("distance: 2", "distance: 1"), "plan")
    assert found.exit_code != 0
    assert "`distance` is below the" in " ".join(found.output.split())


VOTES = """spec: opendp_sim/1
name: votes
data:
  table:
    source: {csv: votes.csv}
    columns:
      who: {dtype: int64, role: privacy_id}
      word: {dtype: category, keys: [a, b, c, d, e, f]}
privacy:
  unit: {add_remove: 1, of: who}
  measure: approx_zcdp
  budget: {epsilon: 8.0, delta: 1.0e-5, reserve: {mechanisms: 5.0e-6, conversion: 5.0e-6}}
flow:
  counts:
    from: table
    steps:
      - vote_counts: {item: word}
  chosen:
    from: counts
    release: {mechanism: {MECHANISM}, spend: 100%}
outputs:
  found:
    from: chosen
    save: found.json
"""


@pytest.mark.parametrize(("mechanism", "code"), [
    ("peel: {k: 0}", "OS101"),
    ("peel: {k: 1.5}", "OS101"),
    ("test_peel: {k: 6}", "OS102"),
    ("limited_domain: {k: 3, k_max: 3}", "OS102"),
    ("stable_top_k: {k_max: 6}", "OS102"),
    ("test_peel: {k: 2, delta: 1.0e-200}", "OS101"),
])  # fmt: skip
def test_bad_sizes_are_refused_on_the_command_line(tmp_path, mechanism, code):
    found = run(tmp_path, VOTES.replace("MECHANISM", mechanism), "check")
    assert found.exit_code == 1
    assert code in found.output
    assert "help" in found.output or "hint" in found.output.lower()


def test_a_delta_the_budget_cannot_hold_is_refused(tmp_path):
    found = run(tmp_path, VOTES.replace("MECHANISM", "test_peel: {k: 2, delta: 1.0e-3}"), "plan")
    assert found.exit_code == 1
    assert re.search(r"OS\d{3}", found.output)


@pytest.mark.parametrize(("rows", "code"), [
    ("", "OS608"), ("1,a\n1,a\n1,a\n2,a\n", None), ("1,a\n1,z\n", "OS60"), ("1,a\n1,\n", "OS60"),
], ids=["empty", "duplicates", "unlisted", "missing"])  # fmt: skip
def test_bad_tables_are_refused_and_repeated_votes_run(tmp_path, rows, code):
    (tmp_path / "votes.csv").write_text("who,word\n" + rows, encoding="utf-8")
    found = run(tmp_path, VOTES.replace("MECHANISM", "peel: {k: 2}"), "apply")
    assert (found.exit_code == 0) == (code is None), found.output
    assert code is None or code in found.output
