"""What a call will charge, and what it refuses before it charges, from public form alone."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from opendp_sim.io.columns import stored_as
from opendp_sim.sklearn import (
    Budget,
    DPNearestCentroid,
    DPSearch,
    HashFold,
    PublicScaler,
    cost_of,
    private_score,
)
from opendp_sim.sklearn.metrics import check_fitted, names_for, with_names

rng = np.random.default_rng(5)
Y = np.arange(240) % 2
X = np.clip(rng.normal(0.2, 0.1, (240, 4)) + 0.5 * Y[:, None] * [1, 0, 1, 0], 0, 1)
FRAME = pd.DataFrame(X, columns=list("abcd"))
CLF = DPNearestCentroid(bounds=(0, 1), classes=[0, 1], epsilon=0.5)
SURE = clone(CLF).set_params(epsilon=1e4)


SCORED = clone(SURE).fit(X, Y)


def _wide():
    return Budget(mu=1e3)


def _searched(budget):
    return DPSearch(CLF, {"epsilon": [0.5, 0.6]}, budget=budget)


def test_every_fit_of_a_search_in_folds_is_counted():
    """Two fits were told, and six charged."""
    search = _searched(None)
    assert cost_of(search, cv=HashFold(3)).fits == 6
    assert cost_of(make_pipeline(PublicScaler(bounds=(0, 1)), search), cv=HashFold(3)).fits == 6


@pytest.mark.long
def test_every_fit_of_a_search_in_a_search_is_counted():
    """Two fits were told, and four charged."""
    budget = _wide()
    grid = GridSearchCV(_searched(budget), {"holdout": [0.3]}, cv=HashFold(2), refit=False)
    cost = cost_of(grid)
    budget.reserve(cost.charges)
    grid.fit(X[:60], Y[:60])
    assert budget.fits == cost.fits == 4
    assert budget.total.loss == pytest.approx(cost.total.loss)
    told = {"holdout": [0.2, 0.3]}
    assert cost_of(GridSearchCV(_searched(None), told, cv=HashFold(3))).fits == 14
    plain = GridSearchCV(CLF, {"epsilon": [0.5, 1.0]}, cv=HashFold(2))
    assert cost_of(plain, cv=HashFold(3)).fits == 15
    assert cost_of(GridSearchCV(plain, {"refit": [True]}, cv=HashFold(2), refit=False)).fits == 10


class OtherPipeline(Pipeline):
    """A pipeline whose fit is anybody's."""


@pytest.mark.parametrize(
    "wrapped",
    [
        BaggingClassifier(CLF, n_estimators=3),
        OneVsRestClassifier(CLF),
        VotingClassifier([("a", CLF)]),
        StackingClassifier([("a", CLF)]),
        CalibratedClassifierCV(CLF),
        MultiOutputClassifier(CLF),
        OtherPipeline([("a", CLF)]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_fits_that_nobody_can_count_are_refused(wrapped):
    """Each was told as one fit."""
    within = make_pipeline(PublicScaler(bounds=(0, 1)), wrapped)
    for search in (wrapped, within, GridSearchCV(wrapped, {}, cv=HashFold(2))):
        for cv in (None, 3):
            with pytest.raises(ValueError, match=r"OS102 .*whose fits are counted"):
                cost_of(search, cv=cv)


def test_workers_of_a_search_in_a_search_need_a_ledger_file():
    for search in (_searched(_wide()), GridSearchCV(_searched(_wide()), {}, cv=HashFold(2))):
        with pytest.raises(ValueError, match=r"OS102 n_jobs.*Budget\.open"):
            cost_of(GridSearchCV(search, {}, cv=HashFold(2), n_jobs=2))


def _foreign():
    scaled = ColumnTransformer([("s", StandardScaler(), ["a", "b"])], remainder="passthrough")
    return make_pipeline(scaled, LogisticRegression()).fit(FRAME, Y)


MISTAKES = {
    "none": (None, X, Y),
    "class": (DPNearestCentroid, X, Y),
    "text": ("estimator", X, Y),
    "not fitted": (clone(CLF), X, Y),
    "pipeline not fitted": (make_pipeline(PublicScaler(bounds=(0, 1)), clone(CLF)), X, Y),
    "search not fitted": (_searched(None), X, Y),
    "search without a refit": (GridSearchCV(SURE, {}, cv=HashFold(2), refit=False).fit(X, Y), X, Y),
    "width": (clone(SURE).fit(X, Y), X[:, :2], Y),
    "foreign width": (LogisticRegression().fit(X, Y), X[:, :2], Y),
    "order": (clone(SURE).fit(FRAME, Y), FRAME[list("dcba")], Y),
    "names": (_foreign(), FRAME.rename(columns={"a": "z"}), Y),
    "text labels": (clone(SURE).fit(X, Y), X, Y.astype(str)),
    "bytes": (LogisticRegression().fit(X, Y.astype(str)), X, Y.astype("S")),
    "object classes": (LogisticRegression().fit(X, Y.astype(str).astype(object)), X, Y),
    "dates": (LogisticRegression().fit(X, Y), X, Y.astype("datetime64[D]")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_public_mistakes_are_refused_before_the_charge(mistake):
    """Each was charged, for an accuracy of nothing; and the texts are equal without any record."""
    estimator, table, labels = MISTAKES[mistake]
    budget, texts = _wide(), []
    for kept in (slice(None), slice(0, 0), slice(7, 9)):
        with pytest.raises(ValueError, match=r"OS(102|607)") as refused:
            private_score(estimator, table[kept], labels[kept], budget=budget)
        texts.append(str(refused.value))
    assert len(set(texts)) == 1
    assert budget.fits == 0


TEXTS = Y.astype(str)


@pytest.mark.parametrize(
    "labels",
    [
        pd.Categorical(TEXTS),
        pd.Series(TEXTS, dtype="category"),
        pd.Categorical.from_codes(Y, pd.Index(["0", "1"], dtype=object)),
        pl.Series(TEXTS).cast(pl.Categorical),
        pl.Series(TEXTS).cast(pl.Enum(["0", "1"])),
        pa.array(TEXTS).dictionary_encode(),
        pa.chunked_array([pa.array(TEXTS).dictionary_encode()]),
        pd.DataFrame({"y": pd.Series(TEXTS, dtype="category")}),
        pd.Series(TEXTS, dtype="string"),
    ],
    ids=["pandas", "series", "objects", "polars", "enum", "arrow", "chunks", "frame", "string"],
)
def test_categories_of_texts_are_no_classes_of_numbers(labels):
    """All but the last were charged and read as numbers, or scored as nothing: their type is public."""
    budget, wanted = _wide(), clone(CLF)
    wanted.set_params(budget=budget)
    with pytest.raises(ValueError, match="OS102 classes"):
        wanted.fit(X, labels)
    with pytest.raises(ValueError, match="OS102"):
        DPSearch(wanted, {"epsilon": [0.5]}).fit(X, labels)
    with pytest.raises(ValueError, match="OS102 y"):
        private_score(SCORED, X, labels, budget=budget)
    assert budget.fits == 0


def test_the_type_of_categories_is_that_of_what_they_name():
    assert stored_as(pd.Categorical([1, 2]).dtype) == "int64"
    assert stored_as(pa.dictionary(pa.int32(), pa.string())).startswith("str")
    assert stored_as(None) == ""
    clone(CLF).fit(X, pd.Categorical(Y))


class Looks(ClassifierMixin, BaseEstimator):
    """Notes what it is handed, and writes into it."""

    def fit(self, X, y):
        self.feature_names_in_ = np.array(list("abcd"), dtype=object)
        self.n_features_in_, self.saw_ = 4, []
        return self

    def predict(self, X):
        self.saw_.append((type(X), X.shape, list(X.index), list(X.columns), dict(X.attrs)))
        answer = (X["a"] > 0.45).astype(int).to_numpy()
        X.insert(0, "more", 1.0)
        X.attrs["seen"] = True
        X.index = ["John"]
        return answer


def test_a_named_row_tells_nothing_of_the_others():
    """Neither an index nor what an estimator did to the row before."""
    est = Looks().fit(FRAME, Y)
    named = FRAME.set_index(pd.Index([f"p{at}" for at in range(240)]))
    assert float(private_score(est, named, Y, epsilon=1e3)) > 0.8
    assert len(est.saw_) == 240
    assert all(seen == (pd.DataFrame, (1, 4), [0], list("abcd"), {}) for seen in est.saw_)


class Ruled(ClassifierMixin, BaseEstimator):
    """A public rule that has no fit."""

    def predict(self, X):
        return (X[:, 0] > 0.45).astype(int)


@pytest.mark.long
def test_what_fits_is_scored_as_before():
    own, few, y = clone(SURE).fit(FRAME, Y), FRAME[:40], Y[:40]
    budget = _wide()
    for est, table, labels in (
        (own, few, y),
        (own, few, list(y)),
        (own, few, y.astype(bool)),
        (own, few, y.astype(float)),
        (LogisticRegression().fit(X, Y), X[:40], y),
        (Ruled(), X[:40], y),
        (GridSearchCV(SURE, {}, cv=HashFold(2)).fit(FRAME, Y), few, y),
        (make_pipeline(PublicScaler(bounds=(0, 1)), clone(SURE)).fit(FRAME, Y), few, y),
    ):
        assert float(private_score(est, table, labels, epsilon=1e3, budget=budget)) > 0.8
    with pytest.warns(UserWarning, match="valid feature names"):  # before the charge, of form alone
        assert float(private_score(own, X[:40], y, epsilon=1e3)) > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            private_score(own, X[:40], y, budget=budget)
    assert budget.fits == 8


def test_names_are_given_where_pandas_is_what_came():
    est = _foreign()
    assert names_for(est, FRAME) == list("abcd")
    assert names_for(est, X) is None
    assert names_for(LogisticRegression().fit(X, Y), FRAME) is None
    row = X[:1].copy()
    assert with_names(row, None) is row
    assert with_names(row, list("abcd")).equals(FRAME[:1])
    check_fitted(est)


def test_persons_whom_a_search_would_not_hand_on_are_refused_before_the_reserve():
    """Three fits were told and reserved, and all of them failed."""
    persons, more = np.arange(240) // 2, {"unit": "groups", "max_rows": 2}
    est = clone(CLF).set_params(**more)
    with pytest.raises(ValueError, match=r"OS102.*set_fit_request"):
        cost_of(GridSearchCV(est, {"epsilon": [0.5]}, cv=HashFold(2)))
    with config_context(enable_metadata_routing=True):
        with pytest.raises(ValueError, match=r"OS102.*set_fit_request"):
            cost_of(est, cv=HashFold(3))
        asked = clone(est).set_fit_request(groups=True)
        search = GridSearchCV(asked, {"epsilon": [0.5]}, cv=HashFold(2))
        assert cost_of(search, X=X, y=Y, groups=persons).fits == 3
        piped = make_pipeline(PublicScaler(bounds=(0, 1)), est)
        inner = GridSearchCV(est, {"epsilon": [0.5]}, cv=HashFold(2))
        for one in (piped, inner, make_pipeline(inner), DPSearch(est, {"epsilon": [0.5]})):
            with pytest.raises(ValueError, match=r"OS102.*set_fit_request"):
                cost_of(GridSearchCV(one, {}, cv=HashFold(2)))
            with pytest.raises(ValueError, match=r"OS102.*set_fit_request"):
                cost_of(one, cv=HashFold(2))
        behind = make_pipeline(PublicScaler(bounds=(0, 1)), asked)
        assert cost_of(GridSearchCV(behind, {}, cv=HashFold(2))).fits == 3
        wrong = clone(asked).set_params(max_rows=None)
        with pytest.raises(ValueError, match=r"OS102.*max_rows"):
            cost_of(wrong, X=X, y=Y, groups=persons)


def test_without_scikit_learn_the_extra_is_named():
    """In a process that has none; a budget needs none."""
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from opendp_sim.sklearn import Budget\n"
        "try:\n    from opendp_sim.sklearn import DPRidge\n"
        "except ModuleNotFoundError as error:\n    print(error, error.name)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == (
        "DPRidge needs scikit-learn: pip install 'opendp_sim[sklearn]'. sklearn"
    )
