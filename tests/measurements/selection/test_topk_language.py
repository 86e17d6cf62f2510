"""Selection through a spec: what the unit implies, and how bad votes are refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import opendp.prelude as dp
import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.core.mechanism import lookup
from opendp_sim.dsl import plan_file

dp.enable_features("contrib")

SPEC = (Path(__file__).parents[3] / "specs" / "teacher-votes.yaml").read_text(encoding="utf-8")


def run(folder: Path, spec: str, *command: str):
    path = folder / "votes.yaml"
    path.write_text(spec, encoding="utf-8")
    return CliRunner().invoke(app, [*command, str(path)])


def test_the_distance_of_a_threshold_follows_the_unit(tmp_path):
    stated = run(tmp_path, SPEC, "plan", "-v")
    left_out = run(tmp_path, SPEC.replace(", distance: 2", ""), "plan", "-v")
    assert stated.exit_code == left_out.exit_code == 0, left_out.output

    def total(found):
        return re.findall(r"rho [\d.e-]+, delta [\d.e-]+", found.output)

    assert total(left_out) == total(stated)
    assert total(stated)


@pytest.mark.long
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


@pytest.mark.parametrize(
    ("mechanism", "code"),
    [
        ("peel: {k: 0}", "OS101"),
        ("peel: {k: 1.5}", "OS101"),
        ("gated_peel: {k: 6}", "OS102"),
        ("limited_domain: {k: 3, k_max: 3}", "OS102"),
        ("stable_top_k: {k_max: 6}", "OS102"),
        ("gated_peel: {k: 2, delta: 1.0e-200}", "OS101"),
    ],
)
def test_bad_sizes_are_refused_on_the_command_line(tmp_path, mechanism, code):
    found = run(tmp_path, VOTES.replace("MECHANISM", mechanism), "check")
    assert found.exit_code == 1
    assert code in found.output
    assert "help" in found.output or "hint" in found.output.lower()


def test_a_delta_the_budget_cannot_hold_is_refused(tmp_path):
    found = run(tmp_path, VOTES.replace("MECHANISM", "gated_peel: {k: 2, delta: 1.0e-3}"), "plan")
    assert found.exit_code == 1
    assert re.search(r"OS\d{3}", found.output)


@pytest.mark.parametrize(
    ("rows", "code"),
    [("", "OS608"), ("1,a\n1,a\n1,a\n2,a\n", None), ("1,a\n1,z\n", "OS60"), ("1,a\n1,\n", "OS60")],
    ids=["empty", "duplicates", "unlisted", "missing"],
)
def test_bad_tables_are_refused_and_repeated_votes_run(tmp_path, rows, code):
    (tmp_path / "votes.csv").write_text("who,word\n" + rows, encoding="utf-8")
    found = run(tmp_path, VOTES.replace("MECHANISM", "peel: {k: 2}"), "apply")
    assert (found.exit_code == 0) == (code is None), found.output
    assert code is None or code in found.output


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("measure", "accounting"),
    [("approx", "curve"), ("approx", "zcdp"), ("approx_zcdp", "zcdp"), ("zcdp", "zcdp")],
)
def test_noisy_max_has_a_way_through_the_language(tmp_path, measure, accounting):
    (tmp_path / "votes.csv").write_text("who,word\n1,a\n1,b\n2,a\n", encoding="utf-8")
    spec = VOTES.replace("MECHANISM", f"noisy_max_gaussian: {{k_max: 3, accounting: {accounting}}}")
    spec = spec.replace("measure: approx_zcdp", f"measure: {measure}")
    if measure != "approx_zcdp":
        spec = spec.replace(", reserve: {mechanisms: 5.0e-6, conversion: 5.0e-6}", "")
    found = run(tmp_path, spec, "apply")
    assert found.exit_code == 0, found.output
    assert json.loads((tmp_path / "found.json").read_text())


@pytest.mark.parametrize("measure", ["approx_zcdp"])
def test_a_renyi_curve_alone_is_refused_with_the_way_out(tmp_path, measure):
    spec = VOTES.replace("MECHANISM", "noisy_max_gaussian: {k_max: 3}")
    found = run(
        tmp_path,
        spec.replace("measure: approx_zcdp", f"measure: {measure}").replace(
            ", reserve: {mechanisms: 5.0e-6, conversion: 5.0e-6}", ""
        ),
        "plan",
    )
    said = " ".join(found.output.split())
    assert found.exit_code == 1
    assert "OS405" in said
    assert "accounting: curve" in said


BAD_VOTES = {
    "negative": ("-1,0,1,0", "OS60"),
    "fractional": ("0.5,0,1,0", "OS60"),
    "above one": ("2,0,1,0", "OS60"),
    "missing": (",0,1,0", "OS60"),
    "text": ("yes,0,1,0", "OS60"),
    "short": ("1,0,1", "OS60"),
}
LABELS = """spec: opendp_sim/1
name: labels
data:
  teachers:
    source: {csv: teachers.csv}
    columns:
      a: {dtype: int64, bounds: [0, 1]}
      b: {dtype: int64, bounds: [0, 1]}
      c: {dtype: int64, bounds: [0, 1]}
      d: {dtype: int64, bounds: [0, 1]}
privacy:
  unit: {replace: 1, of: row}
  measure: approx_zcdp
  budget: {epsilon: 8.0, delta: 1.0e-5, reserve: {mechanisms: 5.0e-6, conversion: 5.0e-6}}
flow:
  rows:
    from: teachers
    steps:
      - select: {features: [a, b, c, d]}
  answers:
    from: rows
    release: {mechanism: {pate_labels: {labels: 4, rule: {stable: {k_max: 3}}}}, spend: 100%}
outputs:
  found:
    from: answers
    save: found.json
"""


@pytest.mark.few(2)
@pytest.mark.parametrize("bad", BAD_VOTES)
def test_bad_votes_of_teachers_are_refused_from_a_file(tmp_path, bad):
    row, code = BAD_VOTES[bad]
    good = "1,0,1,0\n" * 30
    (tmp_path / "teachers.csv").write_text("a,b,c,d\n" + good + row + "\n", encoding="utf-8")
    found = run(tmp_path, LABELS, "apply")
    assert found.exit_code == 4
    assert code in found.output
    assert "help" in found.output.lower() or "hint" in found.output.lower()
    assert "yes" not in found.output.split("teachers.csv")[-1]
    (tmp_path / "teachers.csv").write_text("a,b,c,d\n" + good, encoding="utf-8")
    assert run(tmp_path, LABELS, "apply").exit_code == 0


def test_no_teacher_at_all(tmp_path):
    (tmp_path / "teachers.csv").write_text("a,b,c,d\n", encoding="utf-8")
    found = run(tmp_path, LABELS, "apply")
    assert found.exit_code == 4
    assert "OS608" in found.output


@pytest.mark.long
def test_the_former_name_of_gated_peel_still_reads(tmp_path):
    """One program, one hash, whichever of the two names a spec uses; `explain` knows both."""
    published = Path(__file__).parents[3] / "specs" / "bright-pixels-published.yaml"
    text = published.read_text(encoding="utf-8")
    assert "gated_peel:" in text
    old = tmp_path / published.name
    old.write_text(text.replace("gated_peel:", "test_peel:"), encoding="utf-8")
    assert plan_file(old).program.hash == plan_file(published).program.hash
    assert lookup("test_peel") is lookup("gated_peel")
