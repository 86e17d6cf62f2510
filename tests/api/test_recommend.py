"""``sim.recommend`` ranks every mechanism of a question by its plan's own forecast, and guesses nothing."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import opendp_sim as sim
from opendp_sim.api.recommend import QUESTIONS, recommend
from opendp_sim.api.templates import _ASKED, RECIPES
from opendp_sim.cli import app
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.released import offering
from opendp_sim.dsl.plan.expected_error import error_of

CHOOSER = (Path(__file__).parents[2] / "docs" / "choose.md").read_text("utf-8")


def ranked(question: str, columns=2, size=1000, **words):
    return recommend(question, columns, size=size, **words)


@pytest.mark.parametrize(
    ("question", "words", "first", "tab"),
    [
        ("density", {}, "fourier_sketch", "How many near"),
        ("density", {"measure": "pure", "bandwidth": 0.01}, "gauss_transform_sketch", "How many"),
        ("distances", {}, "threshold_sketch", "How far"),
        ("distances", {"norm": "l2"}, "slice_sketch", "How far"),
        ("distances", {"norm": "l2_squared"}, "moments_sketch", "How far"),
        ("quantiles", {}, "distance_tree", "How far"),
        ("means", {}, "moments_sketch", "How far"),
    ],
)
def test_the_chooser_names_the_least_predicted_error(question, words, first, tab):
    found = ranked(question, **words)
    assert found.best.mechanism == first
    (part,) = re.findall(rf"tab-item}} {tab}.*?\n(.*?)\n:::::\n", CHOOSER, re.DOTALL)
    assert f"`{first}`" in part
    errors = [one.error for one in found.candidates]
    assert errors == sorted(errors)
    assert 0 < errors[0] < math.inf


def test_a_candidate_is_its_plan_s_forecast_and_its_spec_s_program():
    best = ranked("density", size=5000).best
    (output,) = best.plan.outputs.values()
    (told,) = error_of(output, lookup("density")()).values()
    assert best.error == told.at(5000)
    assert best.unit == told.unit == "rows"
    assert sim.plan(best.spec()).program.hash == best.plan.program.hash


@pytest.mark.parametrize("question", ["classes", "means", "regression"])
def test_every_mechanism_that_offers_an_answer_is_ranked_or_said(question):
    found = ranked(question)
    told = {one.mechanism for one in (*found.candidates, *found.unknown)} | {*found.refused}
    asked = (lookup(query) for each in QUESTIONS[question] for query in each)
    assert told == {key for query in asked for name in query.asks_for for key in offering(name)}


def test_what_depends_on_the_data_has_no_number():
    found = ranked("regression", 3)
    assert not found.candidates
    assert {one.mechanism for one in found.unknown} == {"linear_regression", "second_moments"}
    assert all(one.error is None for one in found.unknown)
    with pytest.raises(sim.SimError, match="OS102"):
        _ = found.best
    assert "not ranked" in repr(found)


def test_items_are_ranked_by_the_votes_that_one_needs():
    found = ranked("top", k=3)
    assert found.best.mechanism == "top_k"
    closed = ranked("top", keys=["a", "b", "c", "d"], k=3, measure="zcdp")
    assert "gaussian_top_k" in {one.mechanism for one in (*closed.candidates, *closed.unknown)}


@pytest.mark.parametrize(
    ("question", "columns", "words"),
    [
        ("densty", 2, {}),
        (7, 2, {}),
        ("density", 0, {}),
        ("density", math.nan, {}),
        ("density", True, {}),
        ("density", {"x": (1, 0)}, {}),
        ("density", 2, {"size": 0}),
        ("density", 2, {"size": math.nan}),
        ("density", 2, {"epsilon": 0}),
        ("density", 2, {"epsilon": math.nan}),
        ("density", 2, {"epsilon": {"error": 9, "size": 9}}),
        ("density", 2, {"bandwidth": math.nan}),
        ("density", 2, {"bandwidth": 0}),
        ("distances", 2, {"norm": "l3"}),
        ("distances", 2, {"norm": ["l1"]}),
        ("top", 2, {"k": 0}),
        ("classes", 2, {"keys": {"a", "b"}}),
    ],
)
def test_a_wrong_word_is_refused_by_a_code(question, columns, words):
    with pytest.raises(sim.SimError, match=r"OS\d\d\d") as refused:
        ranked(question, columns, **{"size": 10} | words)
    assert "does not state" not in str(refused.value)


def test_each_mechanism_s_reason_stands_where_none_can_be_planned():
    with pytest.raises(sim.SimError, match=r"none of \d+ that can be planned.*peel: "):
        ranked("top", measure="pure")


def test_the_first_size_is_no_exception():
    """With one record every answer is noise, and is said to be as wrong as it is."""
    assert ranked("density", 1, size=1).best.error > 1
    assert not ranked("means", 1, size=1).candidates


def test_a_card_escapes_its_texts():
    shown = ranked("means")._repr_html_()
    assert shown.startswith("<table>")
    assert "moments_sketch" in shown


def test_the_command_prints_what_the_verb_ranks():
    asked = ["recommend", "means", "--columns", "2", "--size", "1000"]
    found = ranked("means", source="records.csv")
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0
    assert " ".join(shown.output.split()) == " ".join(repr(found).split())
    spec = CliRunner().invoke(app, [*asked, "--spec"])
    assert sim.plan(spec.output).program.hash == found.best.plan.program.hash
    assert CliRunner().invoke(app, ["recommend", "densty"]).exit_code == 1


def test_every_recipe_of_init_has_a_question_to_compare():
    assert {_ASKED.get(name, name) for name in RECIPES if name != "blank"} <= {*QUESTIONS}


def test_no_class_is_not_two_of_our_own():
    """Empty keys were taken for none, and two classes were invented."""
    with pytest.raises(sim.SimError, match="keys"):
        sim.recommend("classes", 2, size=10, keys=[])
