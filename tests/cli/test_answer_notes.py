"""`answer` says which labels noise may have decided, and which queries lie where no record can be."""

from __future__ import annotations

import json

import numpy as np
import pytest

import opendp_sim as sim
from opendp_sim.dsl.run.answer import answer_notes, ask, records_note, reference
from tests._cli import run as _run

TABLE = {"age": np.r_[np.full(150, 20.0), np.full(150, 90.0)], "kind": ["u"] * 150 + ["v"] * 150}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("notes")
    fit = sim.classes({"age": (0, 110)}, label="kind", keys=["u", "v"], bandwidth=11.0, epsilon=1.0)
    fit.apply(TABLE, into=made)
    (made / "near.csv").write_text("age\n20\n55\n90\n")
    (made / "far.csv").write_text("age\n20\n300\n-5\n")
    return made


@pytest.mark.parametrize(
    "posts",
    [
        ["classify"],
        ["classify: {rule: map}"],
        ["density", "classify: {rule: map}"],
        ["density: {normalise: true}", "classify"],
    ],
)
def test_labels_below_the_safe_lead_are_named(folder, posts):
    """A label with a margin of .0003 was printed without a word; two clear ones have none."""
    release, queries = sim.load(folder / "release.npz"), reference(str(folder / "near.csv"))
    answers = ask(release, queries, posts)[0] | {"margin": np.array([1e9, 0.0, 1e9])}
    (told,) = answer_notes(release, queries, posts, answers)
    assert "1 of 3 labels have a `margin` below the safe lead" in told
    assert "answers 2." in told


def test_the_command_says_it_below_the_answers(folder, monkeypatch):
    monkeypatch.setattr(
        "opendp_sim.dsl.run.answer.safe_deviations", lambda _: 1e9
    )  # else noise would decide
    words = (
        "answer",
        folder / "release.npz",
        "--post",
        "classify",
        "--queries",
        folder / "near.csv",
    )
    assert "note      3 of 3 labels have a `margin` below the safe lead" in _run(*words).output
    assert len(json.loads(_run(*words, "--json").output)["notes"]) == 1
    assert "below the safe lead" in _run(*words, "-o", folder / "labels.csv").output


def test_queries_outside_of_the_bounds_are_counted(folder):
    words = ("answer", folder / "release.npz", "--post", "density", "--queries")
    said = " ".join(_run(*words, folder / "far.csv").output.split())
    assert (
        "2 of 3 queries lie outside of the declared bounds of `age`, where no record can be" in said
    )
    assert "outside of" not in _run(*words, folder / "near.csv").output


SPEC = """spec: opendp_sim/1
name: small
data:
  records:
    source: {csv: t.csv}
    columns: {x: {dtype: float64, bounds: [0.0, 10.0]}}
    ingest: enforce
privacy: {unit: {add_remove: 1, of: row}, measure: gdp, budget: {epsilon: 8.0, delta: 1.0e-6}}
flow:
  noisy:
    from: records
    steps:
      - select: {features: [x]}
      - rescale: {}
      - quantize: {bits: 12}
      - gauss_transform_sketch: {bandwidth: 0.3}
    expect: {records: 900}
    release: {noise: gaussian, spend: 100%}
outputs:
  release: {from: noisy, save: out/release.npz}
  near: {from: noisy, post: [density: {}], queries: {csv: q.csv}, save: out/near.csv}
"""


@pytest.mark.parametrize(("cell", "warned"), [("3.5", False), ("3,5", True)])
def test_apply_tells_the_released_number_of_records(cell, warned, tmp_path):
    """Of 900 records 850 were dropped for a decimal comma: exit code 0, and not a word."""
    (tmp_path / "t.csv").write_text("x;y\n" + f"{cell};1\n" * 850 + "5;1\n" * 50)
    (tmp_path / "q.csv").write_text("x\n3\n")
    (tmp_path / "spec.yaml").write_text(
        SPEC.replace("csv: t.csv", "csv: {file: t.csv, delimiter: ';'}")
    )
    done = _run("apply", tmp_path / "spec.yaml", "--json")
    told = json.loads(done.stdout)["records"]
    assert set(told) == {"release", "near"}
    for line in told.values():
        assert ("900 were expected" in line and "doctor" in line) is warned, line
    count = float(told["release"].split("about ")[1].split(",")[0])
    assert abs(count - (50 if warned else 900)) < 60  # ten deviations of the noise at epsilon 8


def test_what_counts_no_records_has_no_such_note(folder, tmp_path):
    assert records_note({"x": np.zeros(3)}, 900) == ""
    assert records_note(np.zeros(3), None) == ""
    sizes = {"records": np.full((2, 2), 450.0), "least_records": np.full((2, 2), 20.0)}
    assert "expected" not in records_note(sizes, 900)
    assert "1,200 were expected" in records_note(sizes, 1200)
    assert records_note(sim.load(folder / "release.npz"), None).startswith("records about")
    top = sim.top("kind", k=1, unit="who", ids="int64", epsilon=10, delta=1e-6, keys=["u", "v"])
    table = {"kind": TABLE["kind"], "who": np.arange(300)}
    done = top.apply(table, into=tmp_path)
    assert all(records_note(result, 900) == "" for result in getattr(done, "results", {}).values())


MEANS = """spec: opendp_sim/1
name: small
data:
  records:
    source: {csv: t.csv}
    columns: {x: {dtype: float64, bounds: [0.0, 10.0]}, kind: {dtype: category, keys: [u, v]}}
privacy: {unit: {add_remove: 1, of: row}, measure: gdp, budget: {epsilon: 8.0, delta: 1.0e-6}}
flow:
  noisy:
    from: records
    steps:
      - select: {features: [x], label: kind}
      - quantize: {bits: 12}
      - SKETCH: {per_label: trueSEED}
    release: {noise: gaussian, spend: 100%}
outputs:
  release: {from: noisy, save: out/release.npz}
  near: {from: noisy, post: [nearest_class: {RULE}], queries: {csv: q.csv}, save: out/near.csv}
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("sketch", "rule", "seed"),
    [("moments_sketch", "", ""), ("slice_sketch", "rule: mean_distance", ", seed: 1")],
)
def test_classes_and_means_tell_the_released_number_of_records(sketch, rule, seed, tmp_path):
    """A release of means had no such line, and a class no column of it."""
    (tmp_path / "t.csv").write_text("x,kind\n" + "3,u\n" * 250 + "7,v\n" * 250)
    (tmp_path / "q.csv").write_text("x\n3\n")
    text = MEANS.replace("SKETCH", sketch).replace("RULE", rule).replace("SEED", seed)
    (tmp_path / "spec.yaml").write_text(text)
    told = json.loads(_run("apply", tmp_path / "spec.yaml", "--json").stdout)["records"]
    assert set(told) == {"release", "near"}
    count = float(told["near"].split("about ")[1].split(",")[0])
    assert abs(count - 500) < 100
    screen = [row for row in _run("apply", tmp_path / "spec.yaml").stdout.splitlines() if row]
    assert any(row.startswith("records  about ") for row in screen)  # once for both outputs
    assert "(release, near)" in " ".join(" ".join(screen).split())
