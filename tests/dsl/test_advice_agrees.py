"""No advice contradicts the plan's own predicted numbers, nor another advice."""

from __future__ import annotations

import re

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.sample_size import needed_records, rare_records
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows
from opendp_sim.dsl.plan.advice import advice
from opendp_sim.dsl.plan.expected_error import how_wrong
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.measurements.linear.linear_model import LinearModel


def grid(classes: int) -> GridRows:
    labels = tuple(f"c{i}" for i in range(classes))
    return GridRows(width=60, labels=labels, unit=0.01, lower=(-100,), upper=(100,), l2=100)


SPEC = """
spec: opendp_sim/1
name: advised
data:
  people:
    source: {npz: people.npz}
    columns:
      x: {dtype: "array[f64, 8]", bounds: [0, 4]}
      y: {dtype: category, keys: [a, b, c]}
privacy: {unit: {add_remove: 1, of: row}, measure: MEASURE, budget: {epsilon: EPSDELTA}}
flow:
  noisy:
    from: people
    steps:
      - select: {features: x, label: y}
      - quantize: {bits: 10}
      - SKETCH
    release: {noise: NOISE, scale: solve, spend: 100%}
outputs:
  answers: {from: noisy, post: [POST], save: answers.npz}
"""
MEANS = "moments_sketch: {per_label: true}", "nearest_class: {}"
KERNELS = (
    "fourier_sketch: {frequencies: 50, kernel: {gaussian: {bandwidth: 2.0}}, seed: 1, per_label: true}",
    "classify: {}",
)
BY_SUMS = KERNELS[0], "classify: {rule: map}"


def told(folder, measure="zcdp", epsilon=1.0, sketch=MEANS, extra=""):
    text = SPEC.replace("MEASURE", measure).replace("SKETCH", sketch[0]).replace("POST", sketch[1])
    pure = measure == "pure"
    text = text.replace("EPS", str(epsilon)).replace("DELTA", "" if pure else ", delta: 1.0e-6")
    text = text.replace("NOISE", "laplace" if pure else "gaussian")
    (folder / "spec.yaml").write_text(text + extra)
    plan = plan_file(folder / "spec.yaml")
    return plan, [one for one in advice(plan) if "linear_model" in one]


@pytest.mark.few(2)
@pytest.mark.parametrize("measure", ["zcdp", "gdp"])
@pytest.mark.parametrize("sketch", [MEANS, KERNELS, BY_SUMS])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_release_that_only_classifies_is_told_of_the_model(tmp_path, measure, sketch, epsilon):
    plan, (said,) = told(tmp_path, measure, epsilon, sketch)
    assert ("fourier_features" in said) == (sketch is not MEANS)
    number = int(re.search(r"about ([\d,]+) records", said)[1].replace(",", ""))
    # The same number as the model itself states at this loss.
    rho = plan.total[0] / (2 if measure == "gdp" else 1)
    assert number == needed_records(rho)
    model = LinearModel(rho=rho, size=number - 1).bind(grid(3), Symmetric()).reason
    assert f"needs some {number:,}" in model
    assert (
        "no classifier" not in LinearModel(rho=rho, size=number).bind(grid(3), Symmetric()).reason
    )


LINEAR = """
spec: opendp_sim/1
name: table
data:
  rows:
    source: {{npz: rows.npz}}
    columns:
      x: {{dtype: float64, bounds: [0.0, 1.0]}}
      y: {{dtype: float64, bounds: [0.0, 1.0]}}
      kind: {{dtype: category, keys: [a, b]}}
privacy: {{unit: {{add_remove: 1, of: row}}, measure: zcdp, budget: {{epsilon: 1.0, delta: 1.0e-6}}}}
flow:
  model:
    from: rows
    steps: [{{select: {{features: [x, y], label: kind}}}}, {{quantize: {{bits: 12}}}}{features}]
    release: {{mechanism: linear_model, spend: 100%}}
outputs:
  asked: {{from: model, post: [predict: {{}}], queries: {{npz: asked.npz}}, save: out/a.csv}}
"""


def test_a_model_says_of_classes_what_can_be_said(tmp_path):
    """Unequal classes: of how few records one is lost, and that public features are there."""
    path = tmp_path / "table.yaml"
    np.savez(tmp_path / "asked.npz", x=np.zeros(4), y=np.zeros(4))
    np.savez(tmp_path / "rows.npz", x=np.zeros(4), y=np.zeros(4), kind=np.array(list("abab")))
    path.write_text(LINEAR.format(features=""), "utf-8")
    plan = plan_file(path)
    told = how_wrong(plan)["asked"]
    rare = rare_records(plan.releases["model"].loss[0])
    assert 30 < rare < 50
    assert told.line == f"not known in advance; classes under {rare} rows seldom predicted"
    assert "count, class by class" in told.whole
    (said,) = [text for text in advice(plan) if "fourier_features" in text]
    assert "unequal classes" in said
    waves = ", {fourier_features: {frequencies: 8, bandwidth: 0.5, seed: 1}}"
    path.write_text(LINEAR.format(features=waves), "utf-8")
    assert not [text for text in advice(plan_file(path)) if "fourier_features" in text]
