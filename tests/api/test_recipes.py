"""``sim.density``, ``sim.classes``, ``sim.means``: plans over tables, and what their releases answer."""

from __future__ import annotations

import datetime as dt
import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import opendp_sim as sim
from opendp_sim.api.columns import declared
from opendp_sim.api.recipe import Recipe
from opendp_sim.core.errors import BudgetError, DataError, ParameterError, SimError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.plan.kernel_choice import grid_bits
from opendp_sim.dsl.types.error_terms import few_digits
from opendp_sim.plots import TopDisplay
from opendp_sim.sklearn._validation.bounds import box_of

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
    assert "nothing is spent yet" in repr(fit)
    release = fit.apply(form(TABLE), into=tmp_path)
    inside = ((TABLE["x"] - 0.15) / 0.1) ** 2 + ((TABLE["y"] - 15) / 10) ** 2
    exact = np.exp(-inside / 2).sum()
    found = release.density({"x": [0.15, 0.5], "y": [15.0, 50.0]}, confidence=0.9)
    assert abs(found["density"][0] / exact - 1) < 0.05
    assert found["density"][1] < 0.05 * exact
    assert sim.load(tmp_path / "release.npz").claim == release.claim


def test_one_bandwidth_is_in_data_units(tmp_path):
    fit = sim.density({"x": (0, 1)}, bandwidth=0.1, epsilon=1e4)
    assert "rescale" not in fit.plan.to_yaml()
    release = fit.apply(TABLE["x"][:, None], into=tmp_path)
    exact = np.exp(-(((TABLE["x"] - 0.2) / 0.1) ** 2) / 2).sum()
    assert abs(release.density([[0.2]])["density"][0] / exact - 1) < 0.02


def test_a_size_chooses_frequencies_and_the_plan_explains_them():
    four = dict.fromkeys("abcd", (0, 1))
    told = {}
    for size in (None, 50, 10**6):
        plan = sim.density(four, bandwidth=0.1, size=size).plan
        count = plan.types["sketch"].stages[-1].mechanism.frequencies
        told[size] = count
        assert plan.plain()["releases"]["noisy"]["reason"].startswith(f"{count:,} frequencies: ")
    assert told[None] == 8000
    without = sim.density(four, bandwidth=0.1, points="none").plan.to_yaml()
    assert "frequencies: 2000" in without
    assert "moments: true" not in without
    assert told[10**6] == 8000
    assert 500 <= told[50] < 2000
    by_class = sim.classes(four, label="k", keys=["a", "b"], bandwidth=0.1, size=10**6)
    assert "frequencies: 8000" in by_class.plan.to_yaml()
    fewer = {"unit": "who", "max_rows": 10, "size": 50}
    for rows in (10, np.int64(10)):
        by_person = sim.density(four, bandwidth=0.1, **fewer | {"max_rows": rows}).plan.to_yaml()
        assert "frequencies: 500" in by_person
    exact = sim.density(four, bandwidth=0.3, size=10**6).plan  # a lattice of 8,000
    assert "reason" not in exact.plain()["releases"]["noisy"]
    pure = sim.density(four, bandwidth=0.1, size=10**6, measure="pure")
    assert "frequencies: 2000" in pure.plan.to_yaml()


def test_points_are_grown_from_four_columns_on_and_their_share_is_planned():
    def planned(columns, **words):
        return sim.density(dict.fromkeys(columns, (0, 1)), bandwidth=0.1, **words).plan

    told = planned("abcd").plain()["releases"]["noisy"]["reason"]
    assert "4.5 % of the budget is for the columns' moments" in told
    assert "moments: true" in planned("abcd", points="grown").to_yaml()
    for plan in (
        planned("abc"),
        planned("abcd", points="none"),
        planned("abcd", measure="pure"),
        planned("abcd", size=1000, error=200),
    ):
        assert "moments: true" not in plan.to_yaml()
    with pytest.raises(ParameterError, match="OS101 points"):
        planned("abcd", points="public")
    with pytest.raises(ParameterError, match="OS101 points"):
        planned("abcd", points=np.array(["auto", "none"]))
    for words in ({"measure": "pure"}, {"size": 1000, "error": 200}):
        with pytest.raises(ParameterError, match="OS102 points"):
            planned("abcd", points="grown", **words)
    kinds = {"label": "kind", "bandwidth": 0.1}
    by_class = sim.classes(dict.fromkeys("abcd", (0, 1)), keys=["a", "b"], **kinds).plan.to_yaml()
    assert "moments: true" in by_class
    many = sim.classes(dict.fromkeys("abcd", (0, 1)), keys=list(range(101)), **kinds)
    assert "moments: true" not in many.plan.to_yaml()
    with pytest.raises(ParameterError, match="OS101 points"):
        sim.classes({"a": (0, 1)}, keys=["a", "b"], **kinds, points="public")


@pytest.mark.parametrize(("columns", "narrow"), [("a", 1e-4), ("ab", 0.01), ("abc", 0.05)])
def test_a_narrow_kernel_of_few_columns_gets_more_frequencies(columns, narrow):
    """A lattice of 2,000 holds all but narrow ones: 8,000 err up to seven times less."""

    def planned(bandwidth, **words):
        plan = sim.density(dict.fromkeys(columns, (0, 1)), bandwidth=bandwidth, **words).plan
        made = plan.types["sketch"].stages[-1].mechanism
        return made.frequencies, made.moments

    assert planned(0.2) == planned(0.2, size=10**6) == (2000, False)
    assert planned(narrow) == (8000, True)
    assert planned(narrow, points="none") == (2000, False)
    assert planned(narrow, size=2)[0] == 2000
    assert planned(narrow, size=10**6)[0] == 8000


def test_grown_points_are_the_answer_of_releases_with_moments(tmp_path):
    """Saved, loaded and added up over periods: arrays of one vector."""
    draw = np.random.default_rng(1).beta(2, 5, (2000, 4))
    table = {name: draw[:, at] for at, name in enumerate("abcd")}
    fit = sim.density(dict.fromkeys("abcd", (0, 1)), bandwidth=0.15, size=300, epsilon=8.0)
    release = fit.apply(table, into=tmp_path)
    asked = np.full((1, 4), 0.25)
    grown, plain = (release.density(asked, public=which) for which in ("grown", "none"))
    assert "products" in release.arrays
    assert sim.load(tmp_path / "release.npz").density(asked)["density"] == grown["density"]
    assert grown["density"] != plain["density"]


def test_a_plan_of_a_size_states_the_error_for_so_many_rows():
    """A plan for three million rows spoke of a hundred."""
    for size, words in ((3_000_000, "are 3,000,000 rows"), (1, "is 1 row"), (None, "are 100 rows")):
        plan = sim.density({"a": (0, 1), "b": (0, 1)}, bandwidth=0.1, size=size).plan
        (known,) = plan.forecast().values()
        first = size or 100
        assert known.line.endswith(f"(if there {words})")
        assert known.plain()["at"][str(first)] == known.at(first)
        assert f"±{few_digits(known.at(first))} rows" in known.line
        assert (f"records: {size}" in plan.to_yaml()) == (size is not None)


@pytest.mark.parametrize("size", [0, True, np.True_, np.float64(5), 1.5, "many"])
def test_a_size_is_a_whole_number(size):
    with pytest.raises(ParameterError, match="OS101 size"):
        sim.density({"a": (0, 1)}, bandwidth=0.2, size=size)


@pytest.mark.few(1)
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_distances_are_in_data_units(norm, tmp_path):
    release = sim.distances(BOUNDS, norm=norm, epsilon=1e4).apply(TABLE, into=tmp_path)
    apart = np.abs(TABLE["x"] - 0.5), np.abs(TABLE["y"] - 50)
    exact = sum(apart) if norm == "l1" else np.hypot(*apart)
    found = release.distance({"x": [0.5], "y": [50.0]}, mean=True)
    assert abs(found["distance"][0] / exact.mean() - 1) < 0.01
    classes = sim.distances(BOUNDS, norm=norm, label="kind", keys=["a", "b"], epsilon=1e4)
    near = classes.apply(TABLE, into=tmp_path / "classes").nearest_class(
        {"x": [0.1], "y": [9.0]}, rule="mean_distance"
    )
    assert near.to_pandas()["label"][0] == "a"
    with pytest.raises(ParameterError, match="l1 or l2"):
        sim.distances(BOUNDS, norm="l3")


def test_a_classifier_predicts(tmp_path):
    fit = sim.predict(BOUNDS, label="kind", keys=["a", "b"], size=1000, epsilon=100)
    release = fit.apply(TABLE, into=tmp_path)
    found = release.predict({"x": [0.1, 0.9], "y": [9.0, 91.0]})
    assert found.to_pandas().groupby("query")["label"].first().tolist() == ["a", "b"]


ANSWERS = [(f"w{w}", task, ("dog", "cat")[task % 2]) for w in range(60) for task in range(4)]
ANSWERS += [("w0", 9, "cat"), ("w1", 0, "bird"), (None, 0, "cat"), ("w2", 0, "dog")]


def answers(form=pd.DataFrame, ids=str):
    frame = pd.DataFrame(ANSWERS, columns=["worker", "task", "answer"])
    if ids is int:
        frame = frame.dropna()
        frame["worker"] = frame["worker"].str[1:].astype("int64")
    return form(frame)


LABELS = {"question": "task", "questions": [0, 1, 2, 3, 5], "keys": ["cat", "dog"], "epsilon": 1e3}


@pytest.mark.parametrize(
    ("form", "ids"), [(pd.DataFrame, str), (pl.DataFrame, str), (pa.table, int)]
)
def test_questions_have_the_label_that_most_workers_gave(form, ids, tmp_path):
    fit = sim.labels("answer", unit="worker", ids="int64" if ids is int else "str", **LABELS)
    assert "all rows of one `worker`" in str(fit.plan)
    found = fit.apply(answers(form, ids), into=tmp_path)
    assert found["question"].tolist() == [0, 1, 2, 3, 5]
    assert found["label"].tolist() == ["dog", "cat", "dog", "cat", None]


def test_labels_protect_a_worker_who_has_to_be_named():
    for unit in ("row", "task", "answer"):
        with pytest.raises(ParameterError, match="names the worker"):
            sim.labels("answer", unit=unit, **LABELS)


def test_classes_and_means_answer_by_name(tmp_path):
    asked = {"x": [0.1, 0.9], "y": [10.0, 90.0]}
    by_class = sim.classes(BOUNDS, label="kind", keys=["a", "b"], bandwidth=WIDTHS, epsilon=100)
    assert by_class.apply(TABLE, into=tmp_path).classify(asked)["label"].tolist() == [0, 1]
    by_mean = sim.means(BOUNDS, label="kind", keys=["a", "b"], epsilon=100)
    release = by_mean.apply(TABLE, into=tmp_path / "means")
    assert release.nearest_class(asked)["label"].tolist() == [0, 1]
    assert "distance" in sim.means({"x": (0, 1)}).apply(TABLE, into=tmp_path / "one").ops


PARAMETERS: dict[str, dict] = {
    "quantiles": {"shares": (0.5,)},
    "interval_count": {"radius": 0.1},
    "modes": {"seed": 0},
    "outliers": {"threshold": 0.01},
    "sample": {"size": 3, "seed": 0},
    "nearest_class": {"rule": "mean_distance"},
}
"""What a question needs beside a place; the rule only where there are no class means."""


PLACELESS = ("modes", "totals", "quantiles")


@pytest.mark.parametrize("named", [{}, {"label": "kind", "keys": ["a", "b"]}])
@pytest.mark.parametrize(
    ("recipe", "words"),
    [("density", {"bandwidth": 0.1}), ("means", {}), ("distances", {}), ("quantiles", {})],
)
def test_every_listed_question_can_be_asked_and_no_other(recipe, words, named, tmp_path):
    """Without classes nothing that chooses one is listed (it was, and asking it was OS204)."""
    if recipe == "density" and named:
        recipe = "classes"
    release = getattr(sim, recipe)({"x": (0, 1)}, **words, **named).apply(TABLE, into=tmp_path)
    assert ("nearest_class" in release.ops or "classify" in release.ops) == bool(named)
    for key in [key for key, cls in REGISTRY.items() if cls.room == "queries"]:
        more = PARAMETERS.get(key, {})
        if key == "nearest_class" and "totals" in release.ops:
            more = {}
        if key in release.ops:
            places = None if key in PLACELESS else {"x": [0.4]}
            assert release.ask(key, places, **more) is not None
        else:
            with pytest.raises(SimError) as refused:
                release.ask(key, {"x": [0.4]}, **more)
            assert refused.value.code in ("OS204", "OS702"), key


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
    assert "all rows of one `who`" in release.claim
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
        {"measure": "pure", "delta": 0},
    ],
)
def test_what_cannot_be_planned_is_refused(more):
    with pytest.raises(SimError) as refused:
        sim.density(BOUNDS, **({"bandwidth": 0.1} | more))
    assert refused.value.hint
    with pytest.raises(ParameterError, match="OS102"):
        sim.density(BOUNDS, bandwidth={"z": 1.0})


def test_a_missing_column_is_told_before_a_ledger_or_a_file_is_looked_at(tmp_path):
    (tmp_path / "release.npz").write_bytes(b"another's")
    fit = sim.density(BOUNDS, bandwidth=0.1, ledger=tmp_path / "made.ledger")
    with pytest.raises(DataError, match="OS602"):
        fit.apply({"x": TABLE["x"]}, into=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["release.npz"]


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


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(["1", "2", "b"]),
        pd.Series(["1", 2, None], dtype=object),
        pl.Series(["1", "2", "b"]),
        pa.chunked_array([["1", "2", "b"]]),
        np.array(["1", "2", "b"]),
        pd.Series(["1", "2", "b"]).astype("category"),
        pl.Series(["1", "2", "b"]).cast(pl.Categorical),
    ],
    ids=["pandas", "objects", "polars", "arrow", "numpy", "categories", "polars categories"],
)
def test_texts_are_no_labels_where_every_key_is_a_number(labels, tmp_path):
    """All were left out, and it was paid for: the type of the column says so before."""
    fit = sim.means({"x": (0, 1)}, label="k", keys=[1, 2], ledger=tmp_path / "a.ledger")
    for table in (
        {"x": [0.1, 0.2, 0.3], "k": labels},
        pd.DataFrame({"x": [0.1, 0.2, 0.3], "k": labels}),
    ):
        with pytest.raises(DataError, match="OS602 column k: expected labels that are whole"):
            fit.apply(table, into=tmp_path)
    assert list(tmp_path.iterdir()) == []
    fit.apply({"x": [0.1, 0.2], "k": ["1", 2]}, into=tmp_path)  # a list has no type


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


def test_a_second_exploration_has_a_folder_of_its_own(tmp_path, monkeypatch):
    """A notebook's second cell was refused for the file of the first; nothing is replaced now."""
    monkeypatch.chdir(tmp_path)
    one = sim.density({"x": (0, 1)}, bandwidth=0.1)
    other = sim.density({"x": (0, 1)}, bandwidth=0.2)
    one.apply(TABLE)
    kept = (tmp_path / "release.npz").read_bytes()
    second = other.apply(TABLE)
    (own,) = tmp_path.glob("density-*/release.npz")
    assert own.parent.name == f"density-{other.plan.program.hash[:8]}"
    assert sim.load(own).claim == second.claim
    assert (tmp_path / "release.npz").read_bytes() == kept
    assert sim.verify(own.with_name("release.npz.certificate.json"))
    other.apply(TABLE)
    assert list(tmp_path.glob("density-*/release.npz")) == [own]
    one.apply(TABLE)
    assert (tmp_path / "release.npz").read_bytes() != kept


@pytest.mark.parametrize(
    "pair", [("18", "100"), "12", (0,), (0, 1, 2), (1, 0), (0, None), (0, 10**400)]
)
def test_bounds_are_two_numbers(pair):
    with pytest.raises(sim.SimError, match="OS101 columns"):
        sim.density({"x": pair}, bandwidth=0.1)


def test_a_column_that_is_no_number_is_told_what_to_do(tmp_path):
    with pytest.raises(sim.SimError, match=r"OS602.*bounds that are dates") as refused:
        sim.density({"x": (0, 1)}, bandwidth=0.1).apply(
            {"x": np.array(["2020-01-01"] * 20, dtype="datetime64[D]")}, into=tmp_path
        )
    assert "enforce" not in str(refused.value)


@pytest.mark.parametrize("word", [{"limit": {"epsilon": 2, "delta": 1e-6}}, {"max_rows": 3}])
def test_a_word_that_would_protect_nobody_is_refused(word):
    with pytest.raises(ParameterError, match="OS102"):
        sim.density(BOUNDS, bandwidth=0.1, **word)


@pytest.mark.parametrize(
    "module",
    [
        "opendp_sim.api.classes",
        "opendp_sim.api.density",
        "opendp_sim.api.means",
        "opendp_sim.api.quantiles",
        "opendp_sim.api.top",
    ],
)
def test_a_recipe_is_in_the_module_of_its_name(module):
    name = module.rpartition(".")[2]
    assert getattr(import_module(module), name) is getattr(sim, name)
    assert getattr(sim, name).__annotations__["return"].startswith(Recipe.__name__)


@pytest.mark.parametrize(
    "ends",
    [
        ("2024-01-01", "2024-12-31"),
        (dt.date(2024, 1, 1), np.datetime64("2024-12-31")),
        (pd.Timestamp("2024-01-01"), pd.Timestamp("2024-12-31")),
    ],
    ids=["text", "dates", "pandas"],
)
def test_dates_have_dates_for_bounds_and_are_asked_by_dates(ends, tmp_path):
    days = pd.date_range("2024-01-01", periods=300)
    bounds = declared({"day": ends})
    assert bounds == {"day": {"dtype": "date", "bounds": ["2024-01-01", "2024-12-31"]}}
    fit = sim.density({"day": ends}, bandwidth=10.0, epsilon=1e4)
    release = fit.apply(pd.DataFrame({"day": days}), into=tmp_path)
    found = release.density({"day": ["2024-05-01"]})["density"][0]
    apart = (days - pd.Timestamp("2024-05-01")).days.to_numpy()
    assert abs(found / np.exp(-np.square(apart / 10.0) / 2).sum() - 1) < 0.05


@pytest.mark.parametrize("ends", [("2024-01-01", 3), ("2024-02-30", "2024-03-01"), ("b", "a")])
def test_what_is_no_pair_of_dates_is_told_how_dates_are_written(ends):
    with pytest.raises(ParameterError, match="OS101 columns") as refused:
        sim.density({"day": ends}, bandwidth=10.0)
    assert "2024-12-31" in refused.value.hint


VOTES = {
    "who": np.repeat(np.arange(600), 3).astype(str),
    "page": np.tile(["home", "map", "home"] * 5 + ["help", "home", "home"], 100),
    "far": np.arange(1800),
}


def test_the_most_frequent_items_by_person(tmp_path):
    """Each item counts once a person: of `home`, which every person has two times, no more than 600."""
    fit = sim.top("page", k=2, unit="who", epsilon=20.0)
    assert "all rows of one `who`" in repr(fit)
    assert "listed in 95% of runs" in repr(fit)
    found = fit.apply(VOTES, into=tmp_path)
    wanted = {"rank": [1, 2], "item": ["home", "map"]}
    assert found.to_pandas().to_dict("list") == wanted
    assert found.to_polars().to_dict(as_series=False) == wanted
    assert pl.DataFrame(found).to_dict(as_series=False) == wanted
    assert str(found).split() == ["rank", "item", "1", "home", "2", "map"]
    assert "<td>home</td>" in found._repr_html_()
    assert len(TopDisplay.of(found).items) == 2
    assert json.loads((tmp_path / "top.json").read_text()) == wanted
    again = fit.apply(pl.DataFrame(VOTES), into=tmp_path)  # a rerun replaces its own
    assert again["item"].tolist() == wanted["item"]
    with pytest.raises(sim.SimError, match="OS609"):
        sim.top("page", k=1, unit="who").apply(VOTES, into=tmp_path)
    assert sim.verify(tmp_path / "top.json.certificate.json")
    listed = sim.top("page", k=2, keys=["home", "map", "help"], unit="who", epsilon=20.0)
    assert listed.apply(VOTES, into=tmp_path / "a")["item"].tolist() == ["home", "map"]
    as_set = sim.top("page", k=2, keys=["map", "help", "home"], ranked=False, epsilon=20.0)
    unordered = as_set.apply(VOTES, into=tmp_path / "b")
    assert unordered.to_pandas().to_dict("list") == {"item": ["map", "home"]}  # in the keys' order
    assert not TopDisplay.of(unordered).ranked
    numbers = sim.top("far", k=2, items="int64", unit="who")
    nobodys = numbers.apply(VOTES, into=tmp_path / "c")  # nobody shares one
    assert (len(nobodys), nobodys.keys()) == (0, ["rank", "item"])
    assert nobodys.to_pandas().shape == (0, 2)


def test_few_items_of_a_person_count(tmp_path):
    """Of two pages of everybody a hash keeps one: together they have 600 votes, and not 1,200."""
    fit = sim.top("page", k=3, unit="who", epsilon=20.0, max_items=1)
    assert dict(fit.plan.releases["noisy"].bound.claim.expected)["items_per_user"] == 1
    votes = fit.apply(VOTES, into=tmp_path).to_pandas()["count"]
    assert sum(votes) == pytest.approx(600, abs=40)  # a deviation is under 1


def test_a_guess_of_a_person_s_items_chooses_their_bound():
    pages = [f"page {number}" for number in range(200)]
    fit = sim.top("page", k=40, keys=pages, unit="who", items_per_user=8)
    assert "with max_items=8 (taken)" in repr(fit).splitlines()[-1]
    assert "with max_items=8 (taken)" in fit._repr_html_()
    assert fit.plan.releases["noisy"].bound.claim.expected["items_per_user"] == 8


def test_the_plan_that_is_made_is_the_one_that_is_compared():
    """Without an order an item needs 8 persons more than no. 11; the ranked plan's 14 were compared."""
    pages = [f"page {number}" for number in range(12)]
    fit = sim.top("page", k=10, keys=pages, unit="who", items_per_user=np.int64(1), ranked=False)
    assert "items 7.3 votes above no. 11" in repr(fit)
    line = repr(fit).splitlines()[-1]
    assert "needs: 8 above no. 11 with max_items=1" in line
    assert "8 above no. 11 without a bound (taken)" in line


@pytest.mark.long
def test_persons_in_all_are_preferred_to_as_many_above_a_later_item():
    line = repr(sim.top("page", k=5, unit="who", items_per_user=5, epsilon=1000.0)).splitlines()[-1]
    assert "3 with max_items=5 (taken)" in line
    assert re.search(r" 3 above no\. [\d,]+ without a bound", line)


@pytest.mark.long
def test_compared_bounds_end_where_max_items_does():
    keys = [f"page {number}" for number in range(12)]
    words = {"k": 2, "keys": keys, "unit": "who"}
    compared = sim.top("page", **words, items_per_user=10**6)
    assert "with max_items=1,000,000, " in repr(compared)
    assert "2,000,000" not in repr(compared)


@pytest.mark.long
def test_no_bound_is_taken_where_it_gains_nothing():
    """Two draws are cheaper than noise on the counts of a person with 60 items."""
    pages = [f"page {number}" for number in range(200)]
    many = sim.top("page", k=2, keys=pages, unit="who", items_per_user=60)
    assert "without a bound (taken)" in repr(many)
    assert many.plan.to_yaml() == sim.top("page", k=2, keys=pages, unit="who").plan.to_yaml()


@pytest.mark.long
def test_a_bound_lists_what_noise_of_many_items_hides(tmp_path):
    """3,000 persons of 14 items, 30 of them of 600 more: 50 items of 162 to 260 persons, others of 25.

    Noise on counts has deviation 17: 45 of 50 pass but in 1e-12 of runs. Without a bound an item needs
    342 votes more than number 1,001, by noise of scale 20: 25 of 50 pass in far fewer.
    """
    rng = np.random.default_rng(0)
    popular = np.repeat(np.arange(50), 260 - 2 * np.arange(50))
    whose = np.concatenate([rng.choice(3000, 260 - 2 * j, replace=False) for j in range(50)])
    rest = 14 * 3000 - len(popular)
    heavy = np.repeat(np.arange(30), 600)
    who = np.concatenate([whose, rng.integers(0, 3000, rest), heavy])
    item = np.concatenate([popular, rng.integers(50, 2050, rest + len(heavy))])
    order = rng.permutation(len(who))
    table = {"who": who[order], "item": item[order]}
    words = {"k": 50, "unit": "who", "ids": "int64", "items": "int64"}
    bounded = sim.top("item", **words, max_items=14).apply(table, into=tmp_path / "a")
    free = sim.top("item", **words).apply(table, into=tmp_path / "b")
    assert (bounded["item"] < 50).sum() >= 45
    assert (free["item"] < 50).sum() <= 25


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_rows": 2, "unit": "who"},
        {"k": 0},
        {"measure": "gdp"},
        {"keys": ["a"]},
        {"items": "f8"},
        {"max_items": 3},
        {"items_per_user": 3},
        {"max_items": 0, "unit": "who"},
        {"items_per_user": True, "unit": "who"},
        {"max_items": np.True_, "unit": "who"},
        {"items_per_user": 3, "max_items": 3, "unit": "who"},
    ],
    ids=" ".join,
)
def test_top_items_that_cannot_be_planned_are_refused(wrong):
    with pytest.raises(SimError) as refused:
        sim.top("page", **({"k": 2} | wrong))
    assert refused.value.hint


KEPT = {"ledger": "a.ledger"}


@pytest.mark.parametrize(
    "write",
    [
        lambda: sim.density({1: (0, 1)}, bandwidth=0.5),
        lambda: sim.density({"n": (0, 5)}, unit="n", max_rows=2, bandwidth=1.0),
        lambda: sim.means({"x": (0, 1)}, label="who", keys=["a", "b"], unit="who", max_rows=1),
        lambda: sim.means({"x": (0, 1)}, label=5, keys=["a", "b"]),
        lambda: sim.means({"x": (0, 1)}, limit=5, **KEPT),
        lambda: sim.means({"x": (0, 1)}, limit=["epsilon"], **KEPT),
        lambda: sim.means({"x": (0, 1)}, ledger=5),
        lambda: sim.means({"x": (0, 1)}, unit=["v"], max_rows=1),
        lambda: sim.means({"x": (0, 1)}, unit=None),
        lambda: sim.means({"x": (0, 1)}, unit="v", ids=5, max_rows=1),
        lambda: sim.means({"x": (0, 1)}).apply(TABLE, into=5),
        lambda: sim.top("p", k=2, unit="p"),
        lambda: sim.top(["p"], k=2),
        *(lambda keys=keys: sim.top("p", k=1, keys=keys) for keys in (5, "ab", {"a": 1, "b": 2})),
        lambda: sim.top("p", k=1, keys={"x", "y"}),
        lambda: sim.means({"x": (0, 1)}, label="k", keys=frozenset("ab")),
    ],
)
def test_words_of_another_form_are_refused_by_a_code(write):
    """Raw errors passed; a set made another program in every process; a person was an item, for money."""
    with pytest.raises(ParameterError, match=r"OS10[12]") as refused:
        write()
    assert refused.value.hint


@pytest.mark.parametrize(
    "form", [dict, pd.DataFrame, pl.DataFrame], ids=["dict", "pandas", "polars"]
)
def test_persons_that_are_numbers_are_told_the_word_for_it(form, tmp_path):
    table = form({"who": np.arange(3), "page": np.array([1, 2, 3]), "text": ["a", "b", "c"]})
    with pytest.raises(DataError, match=r'OS602 column who.*ids="int64"'):
        sim.top("text", k=1, unit="who").apply(table, into=tmp_path)
    with pytest.raises(DataError, match=r'OS602 column page.*items="int64"'):
        sim.top("page", k=1).apply(table, into=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "form", [pd.DataFrame, pl.DataFrame, lambda table: pd.Series(*table.values())]
)
@pytest.mark.parametrize(
    ("verb", "missing"),
    [("density", "bandwidth"), ("classes", "label, no keys, no bandwidth"), ("top", "k")],
)
def test_a_table_instead_of_bounds_is_told_what_to_do(verb, missing, form):
    """What everybody tries first; the refusal is a whole call, and holds no value of the table."""
    table = form({"salary": [123456.75, 98765.25]})
    with pytest.raises(ParameterError, match=rf"OS101 {verb}: .*no {missing}") as refused:
        getattr(sim, verb)(table)
    assert f"a call such as sim.{verb}(" in str(refused.value)
    assert f"got {type(table).__name__}, no {missing}" in str(refused.value)
    assert ".apply(table)" in str(refused.value)
    assert "123456" not in str(refused.value)
    assert "salary" not in str(refused.value)


@pytest.mark.parametrize(
    "form", [list, np.array, pd.Series, pl.Series, set, lambda pair: {1: pair}]
)
@pytest.mark.parametrize("rows", [[123456.75], [123456.75, 98765.25], [123456.75, 1.0, 2.0]])
def test_no_value_of_a_table_is_in_a_refusal(form, rows):
    """A dict of columns is a table too: its values were in the refusal, as bounds that are none."""
    held = form(rows)
    calls = [
        lambda: sim.density(held, bandwidth=1.0),
        lambda: sim.density({"salary": held}, bandwidth=1.0),
        lambda: sim.density({"salary": "Alice"}, bandwidth=1.0),
    ]
    if hasattr(held, "dtype"):
        calls += [lambda: sim.density({"salary": (0, 1)}, bandwidth=held)]
    for call in calls:
        with pytest.raises(ParameterError, match="OS101") as refused:
            call()
        message = str(refused.value).replace(",", "")
        assert not any(value in message for value in ("123456", "1.23", "98765", "Alice"))


def test_every_recipe_takes_one_grid():
    """Recipes had 12 or 14 bits, estimators 14, `init` 12 or 20: rounding led from 1,500 records on."""
    few, wide = {"x": (0, 1), "y": (0, 1)}, {f"x{i}": (0, 1) for i in range(65)}
    kinds = {"label": "kind", "keys": ["a", "b"]}
    for columns, bits in ((few, 20), (wide, 19)):
        for fit in (
            sim.means(columns),
            sim.predict(columns, **kinds),
            sim.distances(columns, norm="l2"),
            sim.classes(columns, bandwidth=0.5, **kinds),
        ):
            assert re.findall(r"bits: (\d+)", fit.plan.to_yaml()) == [str(bits)]
    assert [grid_bits(width) for width in (1, 64, 65, 4000, 2**20)] == [20, 20, 19, 17, 13]
    steps = box_of((0, 1), None, 800, None).steps()
    assert steps == [{"quantize": {"bits": 18}}]


# --- sources --------------------------------------------------------------------------------------

KINDS = {"label": "kind", "keys": ["a", "b"]}


@pytest.mark.parametrize(
    "made",
    [
        lambda **o: sim.density(BOUNDS, bandwidth=WIDTHS, **o),
        lambda **o: sim.classes(BOUNDS, bandwidth=WIDTHS, **KINDS, **o),
        lambda **o: sim.means(BOUNDS, **KINDS, unit="who", max_rows=3, **o),
        lambda **o: sim.predict(BOUNDS, **KINDS, **o),
        lambda **o: sim.top("kind", k=1, unit="who", **o),
    ],
    ids=["density", "classes", "means", "predict", "top"],
)
def test_a_recipe_of_a_file_is_the_spec_that_it_writes(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"ledger": "t.ledger", "limit": {"epsilon": 3, "delta": 1e-6}}
    fit = made(source="my trips.csv", **options)
    text = fit.to_yaml()
    assert str(tmp_path) not in text
    for written in (text, fit.plan.to_yaml(brief=True)):
        assert sim.plan(written).program.hash == fit.plan.program.hash
    (output,) = fit.plan.outputs.values()
    assert output.decl.save.startswith("my-trips-")


def test_a_recipe_reads_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(TABLE).to_csv("trips.csv", index=False)
    of_file = sim.density(BOUNDS, bandwidth=WIDTHS, epsilon=1e4, source="trips.csv")
    release = of_file.apply()
    assert (tmp_path / "trips-density.npz").exists()
    of_table = sim.density(BOUNDS, bandwidth=WIDTHS, epsilon=1e4).apply(TABLE)
    found, same = (r.density({"x": [0.15], "y": [15.0]})["density"][0] for r in (release, of_table))
    assert abs(found / same - 1) < 0.01
    (tmp_path / "spec.yaml").write_text(of_file.to_yaml(), encoding="utf-8")
    assert sim.plan("spec.yaml").program.hash == of_file.plan.program.hash


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: sim.density(BOUNDS, bandwidth=1.0, source="trips"), "OS101 source"),
        (lambda: sim.density(BOUNDS, bandwidth=1.0, source=TABLE["x"]), "OS101 source"),
        (lambda: sim.density(BOUNDS, bandwidth=1.0, source={"csv": 5}), "OS304"),
        (lambda: sim.density(BOUNDS, bandwidth=1.0, source="a.csv").apply(TABLE), "OS101 data"),
        (lambda: sim.density(BOUNDS, bandwidth=1.0).apply(), "OS101 data"),
        (
            lambda: sim.labels(
                "a", question="q", questions=[1], keys=["a", "b"], unit="w", source="a.csv"
            ),
            "OS102 source",
        ),
    ],
)
def test_a_wrong_source_is_refused(call, code):
    with pytest.raises(SimError, match=code):
        call()


@pytest.mark.parametrize("wrong", [[31.5, 44.5], (31.5, 44.5), {"x": [31.5]}, [np.array([31.5])]])
def test_a_column_given_as_a_bandwidth_or_a_norm_is_in_no_refusal(wrong):
    """A list, and a list in a mapping: both were repeated, and a list as a norm was no coded refusal."""
    with pytest.raises(SimError) as refused:
        sim.density({"x": (0, 1)}, bandwidth=wrong)
    assert "31.5" not in str(refused.value)
    with pytest.raises(SimError) as refused:
        sim.distances({"x": (0, 1)}, norm=wrong)
    assert "31.5" not in str(refused.value)


def test_a_repeated_run_parses_no_program_and_seals_nothing_without_a_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate of the run before states this program as this version writes it."""
    monkeypatch.chdir(tmp_path)
    ready = sim.top("item", k=1, keys=["a", "b"])
    assert ready.plan.program.hash is ready.plan.program.hash
    table = {"item": ["a", "b", "a"]}
    ready.apply(table)
    for name in ("opendp_sim.dsl.run.overwrite.draft_of", "opendp_sim.dsl.files.staging.Seal"):
        monkeypatch.setattr(name, lambda *_a, **_k: pytest.fail("needless"))
    ready.apply(table)
    assert [file.name for file in tmp_path.iterdir() if file.is_dir()] == []
