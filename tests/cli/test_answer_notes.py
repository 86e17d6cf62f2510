"""`answer` says which labels noise may have decided, and which queries lie where no record can be."""

from __future__ import annotations

import json

import numpy as np
import pytest

import opendp_sim as sim
from opendp_sim.dsl.plan.errors import safe_deviations
from opendp_sim.dsl.run.answer import ask, notes_of, reference
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
    (told,) = notes_of(release, queries, posts, answers)
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


def test_a_lead_is_safe_among_all_classes_as_plans_say_it():
    assert safe_deviations(2) == 2.0
    assert safe_deviations(10) == pytest.approx(2.80, abs=0.02)
