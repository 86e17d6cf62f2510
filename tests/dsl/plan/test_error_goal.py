"""An error in place of a number: the plan solves the least number that reaches it, of public facts alone."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

import opendp_sim as sim
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.grammar.schema import json_schema

TWO = {"x": (0, 1), "y": (0, 1)}


def spec(step: str, budget: str = "{epsilon: 1.0, delta: 1.0e-6}", measure: str = "gdp") -> str:
    noise = "laplace" if measure == "pure" else "gaussian"
    return f"""\
spec: opendp_sim/2
name: small
data:
  rows: {{source: {{csv: r.csv}}, columns: {{x: {{dtype: "array[f64, 2]", bounds: [0, 1]}}}}}}
privacy: {{unit: {{add_remove: 1, of: row}}, measure: {measure}, budget: {budget}}}
flow:
  noisy:
    from: rows
    steps: [select: {{features: x}}, quantize: {{bits: 12}}, {step}]
    release: {{noise: {noise}, spend: 100%}}
outputs: {{found: {{from: noisy, save: found.npz}}}}
"""


GOAL = "{error: 300, size: 20000, of: distance}"
SOLVED = spec(f"threshold_sketch: {{thresholds: {GOAL}}}")
KERNEL = "kernel: {gaussian: {bandwidth: 0.3}}, seed: 1"


def error(plan, of: str, size: int) -> float:
    return plan.forecast()[f"{of} of found"].at(size)


@pytest.mark.parametrize(
    ("of", "size", "goal", "step", "name", "measure"),
    [
        ("distance", 9000, 200, "moment_tree: {levels: ?}", "levels", "pure"),
        pytest.param("distance", 20_000, 300, "threshold_sketch: {thresholds: ?}", "thresholds", "gdp",
                     marks=pytest.mark.long),
        pytest.param("density", 2000, 500, f"fourier_sketch: {{frequencies: ?, {KERNEL}}}",
                     "frequencies", "pure", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_the_least_number_that_reaches_an_error(of, size, goal, step, name, measure):
    budget = "{epsilon: 1.0}" if measure == "pure" else "{epsilon: 1.0, delta: 1.0e-6}"

    def planned(number: object):
        return sim.plan(spec(step.replace("?", str(number)), budget, measure))

    found = planned(f"{{error: {goal}, size: {size}, of: {of}}}")
    text = found.solved.removeprefix(f"{name} ").partition(":")[0]
    number = int(text.replace(",", ""))
    assert found.program.hash == planned(number).program.hash
    assert error(found, of, size) <= goal < error(planned(number - 1 - number // 250), of, size)
    assert f"solved    {name} {number:,}" in repr(found)


def test_epsilon_is_solved_from_an_error():
    """And the plan is that of a written epsilon, with the noise that reaches the error."""
    found = sim.means(TWO, epsilon={"error": 0.01, "size": 1000, "of": "mean"}).plan
    epsilon = found.program.privacy.budget.epsilon
    assert found.forecast()["mean of release"].at(1000) <= 0.01
    assert sim.means(TWO, epsilon=epsilon).plan.program.hash == found.program.hash
    less = sim.means(TWO, epsilon=0.99 * epsilon).plan
    assert less.forecast()["mean of release"].at(1000) > 0.01


def test_verbs_take_an_error_in_place_of_a_size():
    found = sim.density({"x": (0, 1)}, bandwidth=0.3, size=500, error=40)
    assert found.plan.forecast()["density of release"].at(500) <= 40
    assert found.plan.solved.startswith("frequencies ")
    assert "error: 40" in found.to_yaml()
    assert sim.plan(found.to_yaml()).program.hash == found.plan.program.hash
    far = sim.distances(TWO, error=40, size=10).plan
    assert far.forecast()["distance of release"].at(10) <= 40
    with pytest.raises(sim.SimError, match="size"):
        sim.density(TWO, bandwidth=0.3, error=40)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (spec("threshold_sketch: {thresholds: {error: 1, size: 20000, of: distance}}"), "at the least"),
        (spec("threshold_sketch: {thresholds: {error: 9, size: 20000}}"), "rank of found"),
        (spec("threshold_sketch: {thresholds: {error: 9, size: 20000, of: density}}"), "got density"),
        (spec("threshold_sketch: {thresholds: {error: 0, size: 20000}}"), "above 0"),
        (spec("threshold_sketch: {thresholds: {error: .inf, size: 20000}}"), "above 0"),
        (spec("threshold_sketch: {thresholds: {error: 9, size: 0}}"), "whole number from 1"),
        (spec("threshold_sketch: {thresholds: {error: 9}}"), "`size` is missing"),
        (spec("threshold_sketch: {thresholds: {error: nine, size: 9}}"), "must be a number"),
        (spec(f"slice_sketch: {{seed: {GOAL}}}"), "not solved from an error"),
        (spec(f"slice_sketch: {{seed: 1, directions: {GOAL}, thresholds: {GOAL}}}"), "one number"),
        (spec(f"distance_tree: {{levels: {GOAL.replace('distance', 'rank')}}}"), "raises it"),
        (spec("second_moments: {}", "{epsilon: {error: 9, size: 9}, delta: 1.0e-6}"), "depends on"),
        (spec("moments_sketch: {}", "{epsilon: {error: 1.0e-9, size: 9, of: mean}, delta: 1.0e-6}"),
         "at the least"),
    ],
)  # fmt: skip
def test_a_goal_that_cannot_be_reached_says_how_near_and_what_to_change(text, said):
    with pytest.raises(sim.SimError, match=r"OS\d\d\d") as refused:
        sim.plan(text)
    assert said in str(refused.value)


def test_a_ledger_needs_its_own_limit_where_epsilon_is_solved(tmp_path):
    words = {"epsilon": {"error": 0.01, "size": 1000, "of": "mean"}, "ledger": tmp_path / "l"}
    with pytest.raises(sim.SimError, match="limit"):
        sim.means(TWO, **words)
    assert sim.means(TWO, limit={"epsilon": 9, "delta": 1e-5}, **words).plan.claim is not None


def test_the_schema_takes_what_the_language_takes():
    check = Draft202012Validator(json_schema())
    for text in (
        SOLVED,
        spec("moments_sketch: {}", "{epsilon: {error: 9, size: 9}, delta: 1.0e-6}"),
    ):
        assert not [*check.iter_errors(YAML(typ="safe").load(text))]
    wrong = YAML(typ="safe").load(SOLVED.replace("size: 20000, ", ""))
    assert [*check.iter_errors(wrong)]


def test_a_plan_document_and_a_certificate_hold_the_number():
    """No goal is left in what is hashed, charged and verified."""
    plan = sim.plan(SOLVED)
    assert "error" not in json.dumps(plan.program.plain())
    assert draft_of(plan.program.plain()).program.hash == plan.program.hash
    assert sim.plan(plan.to_yaml(brief=True)).program.hash == plan.program.hash


def test_delta_alone_may_reach_an_error():
    """Epsilon was halved a thousand times, and then divided by."""
    found = sim.density({"x": (0, 1)}, bandwidth=0.1, delta=1e-2, epsilon={"error": 1e4, "size": 9})
    assert 0 < found.plan.claim[0] < 1e-5


@pytest.mark.parametrize("name", ["error", "size"])
def test_a_stage_of_a_goal_s_word_is_no_goal(name):
    """A stage that was named `error` was read as one."""
    assert sim.plan(SOLVED.replace("noisy", name)).solved == sim.plan(SOLVED).solved
