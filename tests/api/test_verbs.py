"""``import opendp_sim as sim``: the verbs, a release that is asked, and answers as tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import opendp_sim as sim
from opendp_sim.core.errors import DataError, ParameterError, ReleaseError

SPEC = """
spec: opendp_sim/1
name: places
data:
  places:
    source: {memory: places}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
      kind: {dtype: category, keys: [a, "<b>"]}
privacy:
  unit: {add_remove: 1, of: row}
  measure: zcdp
  budget: {rho: 1000}
flow:
  noisy:
    from: places
    steps:
      - select: {features: x, label: kind}
      - quantize: {bits: 10}
      - race_sketch: {repetitions: 200, buckets: 64, family: {p_stable_l2: {width: 0.5}}, seed: 1, per_label: true}
    release: {noise: gaussian, spend: 100%}
outputs:
  all: {from: noisy, save: places.npz}
"""
POINTS = np.array([[0.5, 0.5]] * 60 + [[-0.5, -0.5]] * 40)
DATA = {"places": {"x": POINTS, "kind": ["a"] * 60 + ["<b>"] * 40}}
ASKED = [[0.5, 0.5], [-0.5, -0.5], [0.9, -0.9]]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    done = sim.apply(SPEC, DATA, into=folder)
    assert isinstance(done.results["all"], sim.Release)
    return sim.load(folder / "places.npz")


def test_names_are_there_and_unknown_ones_are_told():
    assert {"plan", "apply", "run", "load", "verify", "audit", "Ledger", "Limit"} <= set(dir(sim))
    for name in dir(sim):
        assert getattr(sim, name) is not None
    assert callable(sim.then_quantize)
    assert callable(sim.audit.audit)
    with pytest.raises(AttributeError, match="it offers"):
        sim.nonsense  # noqa: B018


def test_a_plan_comes_from_text_dict_path_builder_or_plan(tmp_path):
    from ruamel.yaml import YAML

    plan = sim.plan(SPEC)
    path = tmp_path / "places.yaml"
    path.write_text(SPEC)
    for other in (path, str(path), YAML(typ="safe").load(SPEC), plan):
        assert sim.plan(other).program.hash == plan.program.hash
    with pytest.raises(sim.Refused):
        sim.plan("spec: opendp_sim/1\nname: x\n")


def test_values_of_params_reach_a_text_a_dict_and_a_path(tmp_path):
    from ruamel.yaml import YAML

    text = (
        SPEC.replace("rho: 1000", 'rho: "${r}"') + "params: {r: {type: float, default: 1000.0}}\n"
    )
    path = tmp_path / "places.yaml"
    path.write_text(text)
    for spec in (path, text, YAML(typ="safe").load(text)):
        assert sim.plan(spec, r=0.5).charge.text == "rho 0.5"
        with pytest.raises(sim.Refused, match="OS308"):
            sim.plan(spec, strange=1)
    for resolved in (sim.plan(text), sim.Builder("b")):
        with pytest.raises(ParameterError, match="OS102"):
            sim.plan(resolved, r=0.5)


@pytest.mark.parametrize(
    "form",
    [
        np.array,
        list,
        lambda q: {"x": np.array(q)},
        lambda q: pd.DataFrame({"x": q}),
        lambda q: pd.DataFrame(np.array(q), columns=["x_0", "x_1"]),
        lambda q: pl.DataFrame({"x": q}),
        lambda q: pl.DataFrame({"x_0": [r[0] for r in q], "x_1": [r[1] for r in q]}),
        lambda q: pa.table({"x": q}),
    ],
    ids=["numpy", "list", "dict", "pandas", "pandas spread", "polars", "polars spread", "arrow"],
)
def test_queries_of_every_form_get_the_same_answers(release, form):
    plain = release.ask("density", ASKED)
    answers = release.ask("density", form(ASKED))
    assert np.array_equal(answers["density"], plain["density"])
    assert answers["density"].shape == (3, 2)
    assert answers["density"][0, 0] > 50 > answers["density"][0, 1]


def test_a_question_is_a_method_and_answers_are_asked_further(release):
    assert "density" in release.ops
    assert "density" in dir(release)
    density = release.density(ASKED, confidence=0.5)
    assert np.array_equal(density["density"], release.ask("density", ASKED)["density"])
    assert (density["upper"] <= release.density(ASKED)["upper"]).all()
    label = density.ask("classify")
    assert label["label"].tolist()[:2] == [0, 1]
    assert label.table()["label"].tolist()[:4] == ["a", "a", "<b>", "<b>"]
    assert label.question == ("density", "classify")


def test_answers_are_a_long_table_with_class_names(release):
    answers = release.ask("density", {"x": ASKED})
    table = answers.table()
    assert table["class"].tolist() == ["a", "<b>"] * 3
    assert table["query"].tolist() == [0, 0, 1, 1, 2, 2]
    assert len(answers) == 6
    assert table["density"].tolist() == answers["density"].reshape(-1).tolist()
    frames = [answers.to_pandas(), pd.DataFrame(answers.to_polars().to_dict(as_series=False))]
    frames.append(pl.DataFrame(answers).to_pandas())
    for frame in frames:
        assert frame["density"].tolist() == table["density"].tolist()
        assert frame["class"].tolist() == table["class"].tolist()
    assert pa.table(answers).num_rows == 6
    assert "&lt;b&gt;" in answers._repr_html_()
    assert "<b>" not in answers._repr_html_()
    assert "no further privacy loss" in repr(answers)
    assert list(answers) == answers.keys()
    with pytest.raises(DataError, match="OS602"):
        answers["nothing"]


@pytest.mark.parametrize(
    ("question", "queries", "parameters", "error", "code"),
    [
        ("densty", ASKED, {}, ParameterError, "OS101"),
        ("quantize", ASKED, {}, ParameterError, "OS101"),
        ("density", ASKED, {"confidnce": 0.9}, ParameterError, "OS101"),
        ("density", None, {}, DataError, "OS607"),
        ("density", [[1.0, 2.0, 3.0]], {}, DataError, "OS607"),
        ("density", [[np.nan, 2.0]], {}, DataError, "OS607"),
        ("density", {"y": ASKED}, {}, DataError, "OS602|OS607"),
        ("distance", ASKED, {}, ReleaseError, "OS702"),
    ],
)
def test_refusals_are_coded(release, question, queries, parameters, error, code):
    with pytest.raises(error, match=code):
        release.ask(question, queries, **parameters)


def test_a_plan_prints_ten_lines_and_says_what_is_promised():
    plan = sim.plan(SPEC)
    text = repr(plan)
    assert len(text.splitlines()) <= 10
    assert "rho 1000 for one record added or removed" in text
    assert "nothing is spent yet" in text
    assert "race_sketch" in text
    assert "<td" in plan._repr_html_()
    assert sim.plan(plan.to_yaml()).program.hash == plan.program.hash


def test_errors_at_other_budgets_fall_with_epsilon():
    text = SPEC.replace("{rho: 1000}", "{epsilon: 1.0, delta: 1.0e-6}").replace(
        "all: {from: noisy, save: places.npz}",
        "all: {from: noisy, post: [density: {}], save: all.npz}",
    )
    plan = sim.plan(text)
    curve = plan.errors([0.5, 1.0, 2.0])
    errors, *of_a_record = curve.errors.values()
    assert len(of_a_record) == 2  # the sketch's draws and rounding
    assert all(len(set(each)) == 1 for each in of_a_record)  # no budget changes them
    assert errors[0] > errors[1] > errors[2] > 0
    assert errors[1] == plan.outputs["all"].expected["noise_error"]
    assert curve.table()["epsilon"] == [0.5, 1.0, 2.0]
    assert "epsilon" in repr(curve)


def test_a_table_alone_belongs_to_the_only_source(tmp_path):
    frame = pd.DataFrame({"x": list(POINTS), "kind": DATA["places"]["kind"]})
    done = sim.apply(SPEC, frame, into=tmp_path)
    assert done.results["all"].density(ASKED)["density"][0, 0] > 30
    assert repr(done).startswith("Applied(places: all -> ")
    assert "places.npz; no ledger counted it)" in repr(done)
    files = Path(__file__).parents[2] / "specs" / "cities-modes.yaml"
    with pytest.raises(DataError, match=r"OS601.*this program reads files"):
        sim.apply(files, frame, into=tmp_path)
