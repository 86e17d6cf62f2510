"""``sim.density``, ``sim.classes``, ``sim.means``: plans over tables, and what their releases answer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import opendp_sim as sim
from opendp_sim.core.errors import BudgetError, DataError, ParameterError, SimError

rng = np.random.default_rng(2)
N = 400
TABLE = {
    "x": np.concatenate([rng.uniform(0, 0.3, N), rng.uniform(0.7, 1, N)]),
    "y": np.concatenate([rng.uniform(0, 30, N), rng.uniform(70, 100, N)]),
    "kind": np.array(["a"] * N + ["b"] * N),
    "who": np.array([f"p{i // 4}" for i in range(2 * N)]),
}
BOUNDS = {"x": (0, 1), "y": (0, 100)}
WIDTHS = {"x": 0.1, "y": 10.0}


@pytest.mark.parametrize(
    "form", [dict, pd.DataFrame, pl.DataFrame, lambda t: pd.DataFrame(t).convert_dtypes()]
)
def test_a_density_of_every_form_of_table(form, tmp_path):
    fit = sim.density(BOUNDS, bandwidth=WIDTHS, epsilon=1e4)
    assert "nothing was spent" in repr(fit)
    release = fit.apply(form(TABLE), into=tmp_path)
    inside = ((TABLE["x"] - 0.15) / 0.1) ** 2 + ((TABLE["y"] - 15) / 10) ** 2
    exact = np.exp(-inside / 2).sum()
    found = release.density({"x": [0.15, 0.5], "y": [15.0, 50.0]}, confidence=0.9)
    assert abs(found["density"][0, 0] / exact - 1) < 0.05
    assert found["density"][1, 0] < 0.05 * exact
    assert sim.load(tmp_path / "release.npz").claim == release.claim


def test_one_bandwidth_is_in_data_units(tmp_path):
    fit = sim.density({"x": (0, 1)}, bandwidth=0.1, epsilon=1e4)
    assert "rescale" not in fit.plan.to_yaml()
    release = fit.apply(TABLE["x"][:, None], into=tmp_path)
    exact = np.exp(-(((TABLE["x"] - 0.2) / 0.1) ** 2) / 2).sum()
    assert abs(release.density([[0.2]])["density"][0, 0] / exact - 1) < 0.02


def test_classes_and_means_answer_by_name(tmp_path):
    asked = {"x": [0.1, 0.9], "y": [10.0, 90.0]}
    by_class = sim.classes(BOUNDS, label="kind", keys=["a", "b"], bandwidth=WIDTHS, epsilon=100)
    assert by_class.apply(TABLE, into=tmp_path).classify(asked)["label"].tolist() == [0, 1]
    by_mean = sim.means(BOUNDS, label="kind", keys=["a", "b"], epsilon=100)
    release = by_mean.apply(TABLE, into=tmp_path / "means")
    assert release.nearest_class(asked)["label"].tolist() == [0, 1]
    assert "distance" in sim.means({"x": (0, 1)}).apply(TABLE, into=tmp_path / "one").ops


def test_persons_and_ledgers(tmp_path):
    fit = sim.density(
        BOUNDS,
        bandwidth=WIDTHS,
        unit="who",
        max_rows=2,
        ledger=tmp_path / "t.ledger",
        limit={"epsilon": 1.2, "delta": 1e-6},
    )
    assert dict(fit.plan.releases["noisy"].maps)["bound_contributions"] == 2
    release = fit.apply(TABLE, into=tmp_path)
    assert "one person (column `who`)" in release.claim
    with pytest.raises(BudgetError, match="OS402"):
        fit.apply(TABLE, into=tmp_path / "again")
    numbered = TABLE | {"who": np.arange(2 * N)}
    with pytest.raises(DataError, match="OS602"):  # all would be missing, and be paid for
        fit.apply(numbered, into=tmp_path)
    fresh = sim.density(BOUNDS, bandwidth=WIDTHS, unit="who", max_rows=2, ids="int64")
    fresh.apply(pd.DataFrame(numbered), into=tmp_path / "fresh")


@pytest.mark.parametrize(
    "more",
    [
        {"bandwidth": {"x": 0.1}},
        {"bandwidth": 0.0},
        {"bandwidth": -1.0},
        {"epsilon": 0},
        {"measure": "renyi"},
        {"unit": "who"},
        {"max_rows": 0, "unit": "who"},
    ],
)
def test_what_cannot_be_planned_is_refused(more):
    with pytest.raises(SimError) as refused:
        sim.density(BOUNDS, **({"bandwidth": 0.1} | more))
    assert refused.value.hint
    with pytest.raises(ParameterError, match="OS102"):
        sim.density(BOUNDS, bandwidth={"z": 1.0})


def test_a_missing_column_is_told():
    with pytest.raises(DataError, match="OS602"):
        sim.density(BOUNDS, bandwidth=0.1).apply({"x": TABLE["x"]})


@pytest.mark.parametrize(
    "columns",
    [
        None,
        ["x"],
        {},
        {"x": None},
        {"x": (1, 0)},
        {"x": (0, 1, 2)},
        {"x": "ab"},
        pd.DataFrame(TABLE),
    ],
)
def test_columns_without_bounds_are_told_what_to_write(columns):
    for recipe in (sim.density, sim.classes, sim.means):
        more = {"label": "kind", "keys": ["a", "b"]} if recipe is sim.classes else {}
        width = {} if recipe is sim.means else {"bandwidth": 0.1}
        with pytest.raises(ParameterError, match="OS101") as refused:
            recipe(columns, **more, **width)
        assert "apply(table)" in refused.value.hint


def test_the_column_whose_bounds_are_wrong_is_named():
    with pytest.raises(ParameterError, match=r"got \(1, 0\) for 'b'"):
        sim.density({"a": (0, 1), "b": (1, 0)}, bandwidth=0.1)


def test_answers_print_as_a_table_of_eighty_columns(tmp_path):
    release = sim.density(BOUNDS, bandwidth=0.1).apply(TABLE, into=tmp_path)
    answers = release.density({"x": np.linspace(0, 1, 12), "y": np.linspace(0, 1, 12)})
    head, *rows = str(answers).splitlines()
    assert head.split()[:4] == ["query", "x", "y", "density"]
    assert len(rows) == 12  # ten rows, how many more, and which columns
    assert rows[-2] == "... 2 more rows"
    assert all(name in head + rows[-1] for name in answers.table())
    assert max(map(len, (head, *rows[:10]))) <= 80
    assert float(rows[0].split()[3]) == pytest.approx(answers["density"].ravel()[0], rel=1e-4)


def test_a_misspelt_word_is_named():
    with pytest.raises(ParameterError, match="did you mean 'epsilon'"):
        sim.density(BOUNDS, bandwidth=0.1, epsillon=1.0)


def test_what_was_paid_for_is_not_replaced_by_another_program(tmp_path):
    """A rerun of the same program replaces its own; nothing is charged where it is refused."""
    one = sim.density(
        {"x": (0, 1)},
        bandwidth=0.1,
        ledger=tmp_path / "x.ledger",
        limit={"epsilon": 5.0, "delta": 1e-5},
    )
    one.apply(TABLE, into=tmp_path)
    one.apply(TABLE, into=tmp_path)
    kept = (tmp_path / "release.npz").read_bytes()
    other = sim.density({"x": (0, 2)}, bandwidth=0.1, ledger=tmp_path / "y.ledger")
    with pytest.raises(sim.SimError, match=r"OS609.*into="):
        other.apply(TABLE, into=tmp_path)
    assert (tmp_path / "release.npz").read_bytes() == kept
    assert not (tmp_path / "y.ledger").exists()
    (tmp_path / "release.npz").write_bytes(b"mine")
    with pytest.raises(sim.SimError, match="OS609"):
        one.apply(TABLE, into=tmp_path)


@pytest.mark.parametrize(
    "pair", [("18", "100"), "12", (0,), (0, 1, 2), (1, 0), (0, None), (0, 10**400)]
)
def test_bounds_are_two_numbers(pair):
    with pytest.raises(sim.SimError, match="OS101 columns"):
        sim.density({"x": pair}, bandwidth=0.1)


def test_a_column_that_is_no_number_is_told_what_to_do(tmp_path):
    with pytest.raises(sim.SimError, match=r"OS602.*a date as days") as refused:
        sim.density({"x": (0, 1)}, bandwidth=0.1).apply(
            {"x": np.array(["2020-01-01"] * 20, dtype="datetime64[D]")}, into=tmp_path
        )
    assert "enforce" not in str(refused.value)


def test_numpy_bounds_are_bounds():
    low, high = np.array([0, 1])
    assert sim.density({"x": (low, high)}, bandwidth=0.1).plan.claim == (1.0, 1e-06)
    assert sim.density({"x": np.array([0.0, 1.0])}, bandwidth=0.1).plan.claim == (1.0, 1e-06)


@pytest.mark.parametrize("word", [{"limit": {"epsilon": 2, "delta": 1e-6}}, {"max_rows": 3}])
def test_a_word_that_would_protect_nobody_is_refused(word):
    with pytest.raises(ParameterError, match="OS102"):
        sim.density(BOUNDS, bandwidth=0.1, **word)
