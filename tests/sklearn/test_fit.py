"""What all estimators do: refuse before the charge, look at one record at a time, tell nothing."""

from __future__ import annotations

import datetime as dt
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

from opendp_sim import sklearn as face
from opendp_sim.core.errors import SimError
from opendp_sim.sklearn import (
    Budget,
    DPKernelDensity,
    DPNearestCentroid,
    DPSearch,
    base,
    base as all_or_nothing,
)

rng = np.random.default_rng(5)
X = np.concatenate([rng.uniform(0, 0.4, (90, 2)), rng.uniform(0.6, 1, (60, 2))])
Y = np.array(["a"] * 90 + ["b"] * 60)
NOISELESS = {"epsilon": 1e6, "bounds": (0, 1), "classes": ["a", "b"]}


def fitted(X=X, Y=Y, groups=None, **more):
    return DPNearestCentroid(**(NOISELESS | more)).fit(X, Y, groups=groups)


def test_predictions_come_from_the_release_alone():
    est = fitted()
    assert est.score(X, Y) == 1.0
    assert np.abs(est.centroids_ - [X[:90].mean(0), X[90:].mean(0)]).max() < 0.01
    assert est.privacy_["claim"] == [1e6, 1e-6]
    assert est.certificate_["privacy"]["measure"] == "gdp"
    again = pickle.loads(pickle.dumps(est))  # noqa: S301
    assert (again.predict(X) == est.predict(X)).all()
    assert (est.predict(X[:1]) == est.predict(X)[:1]).all()
    held = [v for v in vars(est).values() if isinstance(v, np.ndarray)]
    assert all(array.shape in ((2,), (2, 2)) for array in held)  # classes_ and centroids_


@pytest.mark.few(4)
@pytest.mark.filterwarnings("ignore:stored as objects")
@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        np.asfortranarray,
        lambda x: x.astype(np.float32),
        lambda x: x.tolist(),
        lambda x: x.astype(object),
        np.ma.masked_array,
        lambda x: pd.DataFrame(x, columns=["u", "v"]),
        lambda x: pd.DataFrame(x, columns=["u", "v"]).convert_dtypes(),
        lambda x: pl.DataFrame({"u": x[:, 0], "v": x[:, 1]}),
        lambda x: pl.DataFrame({"u": x[:, 0], "v": x[:, 1]}).lazy(),
        lambda x: pa.table({"u": x[:, 0], "v": x[:, 1]}),
        lambda x: pytest.importorskip("duckdb").from_arrow(pa.table({"u": x[:, 0], "v": x[:, 1]})),
    ],
)
def test_tables_of_every_form(form):
    est = fitted(form(X))
    assert est.predict(form(X)).tolist() == Y.tolist()
    assert est.n_features_in_ == 2


@pytest.mark.filterwarnings("ignore:stored as objects")
def test_what_is_left_out_is_decided_row_by_row():
    """NaN, infinities, masks, unreadable cells and foreign labels cost their own record only."""
    bad = np.full((5, 2), 0.9, dtype=object)
    bad[:, 0] = [np.nan, np.inf, None, "x", {}]
    both = np.concatenate([X.astype(object), bad])
    labels = np.concatenate([Y, ["a"] * 5])
    assert np.abs(fitted(both, labels).centroids_ - fitted().centroids_).max() < 1e-3
    masked = np.ma.masked_array(
        np.concatenate([X, [[0.9, 0.9]]]), mask=[[False] * 2] * 150 + [[True, False]]
    )
    assert np.abs(fitted(masked, [*Y, "a"]).centroids_ - fitted().centroids_).max() < 1e-3
    foreign = fitted(np.concatenate([X, [[0.9, 0.9]] * 50]), [*Y, *["c"] * 50])
    assert np.abs(foreign.centroids_ - fitted().centroids_).max() < 1e-3
    assert foreign.classes_.tolist() == ["a", "b"]
    clamped = fitted(np.concatenate([X, [[1e300, -1e300]]]), [*Y, "a"])
    assert np.abs(clamped.centroids_ - fitted().centroids_).max() < 0.02
    empty = fitted(X[:0], Y[:0])  # no record is a data set too
    assert empty.predict(X).shape == (150,)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"bounds": None}, "OS101"),
        ({"classes": None}, "OS101"),
        ({"classes": ["a"]}, "OS101"),
        ({"classes": ["a", "a"]}, "OS101"),
        ({"classes": ["a", 1]}, "OS101"),
        ({"classes": "ab"}, "OS101"),
        ({"classes": 5}, "OS101"),
        ({"classes": [[0], [1]]}, "OS101"),
        ({"classes": [0, 2**70, 1]}, "OS101"),
        ({"classes": [0, 1e300]}, "OS101"),
        ({"classes": [0, float("nan")]}, "OS101"),
        ({"bounds": (1, 0)}, "OS102"),
        ({"bounds": (0, np.inf)}, "OS102"),
        ({"bounds": ([0, 0, 0], [1, 1, 1])}, "OS102"),
        ({"bounds": 1}, "OS102"),
        ({"data_norm": -1.0}, "OS101"),
        ({"epsilon": 0}, "OS101"),
        ({"epsilon": "one"}, "OS101"),
        ({"epsilon": np.nan}, "OS101"),
        ({"delta": 0}, "OS101"),
        ({"delta": None}, "OS101"),
        ({"measure": "pure"}, "OS102"),
        ({"measure": "renyi"}, "OS101"),
        ({"priors": [0.5, 0.5]}, "OS101"),
        ({"unit": "groups"}, "OS102"),
        ({"unit": "person"}, "OS101"),
        ({"max_rows": 3}, "OS102"),
    ],
)
def test_parameters_are_refused_before_the_charge(more, code):
    budget = Budget(mu=1e6)
    with pytest.raises(SimError, match=code) as refused:
        fitted(budget=budget, **more)
    assert budget.fits == 0
    assert isinstance(refused.value, ValueError)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("table", "labels", "groups"),
    [
        (X[:, 0], Y, None),
        (X[:, :0], Y, None),
        (X[None], Y, None),
        (X.astype(str), Y, None),
        (X.astype(complex), Y, None),
        (X.astype("datetime64[s]"), Y, None),
        ([[1.0, 2.0], [3.0]], ["a", "b"], None),
        (X[:-1], Y, None),
        (X, Y[:, None] == ["a", "b"], None),
        (X, np.linspace(0, 1, 150), None),
        (X, None, None),
        (X, Y, np.arange(150)),
    ],
)
def test_the_form_of_a_table_is_refused_before_the_charge(table, labels, groups):
    budget = Budget(mu=1e6)
    with pytest.raises(SimError) as refused:
        fitted(table, labels, groups, budget=budget)
    assert budget.fits == 0
    text = str(refused.value)
    assert "149" not in text
    assert "150" not in text  # the number of records is private


def test_no_value_is_in_a_refusal():
    with pytest.raises(SimError) as refused:
        fitted(np.array([["John", "1"], ["2", "3"]]), ["a", "b"])
    assert "John" not in str(refused.value)
    with pytest.raises(SimError) as refused:
        fitted().predict([["John", 1.0]])
    assert "John" not in str(refused.value)


def test_a_failure_after_the_charge_stands(monkeypatch):
    budget = Budget(mu=1e6)

    def broken(*_args, **_more):
        raise RuntimeError

    monkeypatch.setattr(base, "run_in_memory", broken)
    est = DPNearestCentroid(**NOISELESS, budget=budget)
    with pytest.raises(RuntimeError):
        est.fit(X, Y)
    assert budget.fits == 1
    assert not hasattr(est, "release_")


def test_persons_are_bounded_and_are_routed():
    ids = np.arange(150) // 3
    est = fitted(unit="groups", max_rows=2, groups=ids, epsilon=1.0)
    maps = dict(est.plan_.releases["noisy"].maps)
    assert maps["bound_contributions"] == 2
    assert est.privacy_["text"].endswith("all rows of one `groups` added or removed")
    text = clone(est).fit(X, Y, groups=[f"p{i}" for i in ids])
    assert text.release_.released.deviation == est.release_.released.deviation
    with pytest.raises(SimError, match="OS602"):
        clone(est).fit(X, Y, groups=ids / 2)
    with pytest.raises(SimError, match="OS102"):
        clone(est).fit(X, Y)


@pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.DataFrame, lambda t: pl.DataFrame(t).lazy(), pa.table]
)
@pytest.mark.parametrize("cells", [["p4711"] * 3, [dt.date(2020, 1, 1)] * 3], ids=["text", "dates"])
def test_a_column_that_holds_no_numbers_is_refused_and_not_left_out(frame, cells):
    """Every record would be dropped, and be paid for. Objects have no type: their cells are read."""
    budget = Budget(epsilon=10.0, delta=1e-6)
    table = {"u": [0.1, 0.2, 0.3], "v": cells}
    if frame is pd.DataFrame and not isinstance(cells[0], str):
        table["v"] = pd.to_datetime(cells)
    told = {"epsilon": 1.0, "bounds": (0, 1), "classes": ["a", "b"], "budget": budget}
    with pytest.raises(ValueError, match="OS602 column v") as refused:
        DPNearestCentroid(**told).fit(frame(table), ["a", "b", "a"])
    assert "4711" not in str(refused.value)
    assert budget.fits == 0


EVERY = (
    face.DPNearestCentroid,
    face.DPKernelClassifier,
    face.DPLogisticRegression,
    face.DPRidge,
    face.DPOneClass,
    face.DPKNeighborsClassifier,
)
WRONG = [
    {"epsilon": -1},
    {"epsilon": 1e308},
    {"epsilon": float("nan")},
    {"delta": 2},
    {"measure": "pure"},
    {"unit": "who"},
    {"max_rows": 0},
    {"bounds": (3, -3)},
    {"classes": []},
    {"bandwidth": 1e-300},
    {"max_iter": 0},
    {"threshold": -1},
    {"queries": 10**12},
    {"budget": 5},
    {"random_state": np.random.RandomState(0)},
]


@pytest.mark.parametrize("wrong", WRONG, ids=" ".join)
def test_whatever_a_parameter_is_refused_for_is_a_value_error(wrong):
    """It is what callers of scikit-learn catch; and it keeps its code."""
    told = {"bounds": (-3, 3), "classes": [0, 1], "epsilon": 1.0, "threshold": 0.5, "queries": 9}
    told |= {"y_bounds": (0, 1), "bandwidth": 1.0}
    tried = 0
    for cls in EVERY:
        known = cls().get_params()
        if wrong.keys() <= known.keys():
            tried += 1
            est = cls(**{name: value for name, value in (told | wrong).items() if name in known})
            with pytest.raises(ValueError, match="OS") as refused:
                est.fit(np.zeros((4, 2)), np.array([0, 1, 0, 1]))
            assert isinstance(refused.value, SimError)
    assert tried


@pytest.mark.parametrize("wrong", [{"classes": None}, {"bounds": None}, {"epsilon": 9.0}, {}])
def test_a_fit_that_is_refused_leaves_the_model_as_it_was(wrong):
    """It overwrote the number of columns, and what was fitted before predicted no more."""
    budget = Budget(epsilon=3.0, delta=1e-6)
    est = DPNearestCentroid(bounds=(0, 1), classes=["a", "b"], budget=budget).fit(X, Y)
    before, known = est.predict(X[:20]).tolist(), sorted(vars(est))
    other = X if wrong else X[:, :0]
    with pytest.raises(SimError):
        est.set_params(**wrong).fit(other[:, :1], Y)
    assert sorted(vars(est)) == known
    assert est.n_features_in_ == 2
    assert est.predict(X[:20]).tolist() == before
    assert budget.fits == 1


def test_what_a_stopped_fit_set_is_put_back():
    class Stopped:
        kept = None

        @all_or_nothing.all_or_nothing
        def fit(self, value):
            """Set something, and stop."""
            self.kept, self.new_ = value, value
            raise KeyboardInterrupt

    est = Stopped()
    est.kept = 1
    with pytest.raises(KeyboardInterrupt):
        est.fit(2)
    assert vars(est) == {"kept": 1}


@pytest.mark.parametrize("kind", [iter, dict.fromkeys, "".join], ids=["iterator", "dict", "text"])
def test_classes_that_are_no_list_are_refused(kind):
    with pytest.raises(SimError, match="OS101"):
        fitted(classes=kind(["a", "b"]))


@pytest.mark.parametrize(
    "hold",
    [np.array, pd.Series, pl.Series, pa.array, lambda cells: pd.DataFrame({"y": cells})],
    ids=["numpy", "pandas", "polars", "arrow", "frame"],
)
def test_texts_are_no_labels_of_whole_classes_whatever_holds_them(hold):
    """Of numpy they were refused, of pandas and Polars each text was a foreign label, or a number."""
    budget, texts = Budget(mu=9.0), ["0", "1"] * 75
    told = {"bounds": (0, 1), "classes": [0, 1]}
    with pytest.raises(SimError, match=r"OS102 classes"):
        DPNearestCentroid(**told, budget=budget).fit(X, hold(texts))
    with pytest.raises(SimError, match=r"OS102 classes"):
        DPSearch(DPNearestCentroid(**told, budget=budget), {"epsilon": [1.0]}).fit(X, hold(texts))
    assert budget.fits == 0
    DPNearestCentroid(**told).fit(X, texts)  # a list has no type: each cell is read by itself


def test_a_column_of_vectors_is_told_what_to_do():
    """Every record was left out, and it was charged."""
    budget = Budget(mu=9.0)
    for table in (pd.DataFrame({"e": list(X)}), pd.Series(list(X))):
        with pytest.raises(SimError, match=r"OS602 X.*np\.stack"):
            fitted(table, budget=budget)
    assert budget.fits == 0


def test_a_search_without_room_is_told_to_reserve():
    budget = Budget(epsilon=0.6, delta=1e-6)
    with pytest.raises(
        SimError, match=r"OS402 budget:.*budget\.reserve\(cost_of\(search\)\.charges\)"
    ):
        fitted(budget=budget, epsilon=0.7)


@pytest.mark.parametrize("kind", [DPNearestCentroid, DPSearch, DPKernelDensity])
def test_no_part_of_the_private_table_is_a_public_parameter(kind):
    """`classes=y` was refused where a label came twice, and told all labels where none did."""
    table, labels = np.random.default_rng(0).uniform(size=(40, 2)), np.arange(40)
    budget = Budget(epsilon=50.0, delta=1e-6)
    for name, value in (
        ("classes", labels),
        ("classes", labels[:2]),
        ("bounds", (table[0], table[1])),
    ):
        if kind is DPKernelDensity and name == "classes":
            continue
        words = {"bounds": (0, 1)} | ({} if kind is DPKernelDensity else {"classes": range(40)})
        if kind is DPSearch:
            est = DPSearch(DPNearestCentroid(**words), {name: [value]}, budget=budget)
        else:
            est = kind(**(words | {name: value}), budget=budget)
        where = "param_grid" if kind is DPSearch else name
        with pytest.raises(ValueError, match=f"OS704 {where}"):
            est.fit(table, labels)
    assert budget.fits == 0
    public = DPNearestCentroid(
        bounds=(table[0].copy(), 1 + table[1]), classes=range(40), budget=budget
    )
    public.fit(table, labels)  # of a copy no address tells
    assert budget.fits == 1
