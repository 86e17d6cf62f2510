"""Folds of a search: one record that comes or goes changes each fit's table by that record alone."""

from __future__ import annotations

import warnings
from collections import Counter
from copy import copy

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    PredefinedSplit,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline as sklearn_pipeline

from opendp_sim.sklearn import (
    Budget,
    DPNearestCentroid,
    DPSearch,
    EstimatorRefused,
    HashFold,
    InputRefused,
    PublicScaler,
    cost_of,
    make_pipeline,
    private_score,
)

rng = np.random.default_rng(17)
X = rng.uniform(size=(40, 2))
Y = (X[:, 0] > 0.5).astype(int)
CLF = DPNearestCentroid(bounds=(0, 1), classes=[0, 1])
GRID = {"epsilon": [0.5, 1.0]}


class Seen(ClassifierMixin, BaseEstimator):
    """Keeps the table of each fit."""

    came: list[Counter] = []  # noqa: RUF012 - clones share it

    def fit(self, X, y):
        Seen.came.append(Counter((*row, label) for row, label in zip(X.tolist(), y, strict=True)))
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)


def tables(cv, table, labels):
    """The table of each fit of a search, counted record by record."""
    Seen.came.clear()
    search = GridSearchCV(Seen(), {}, cv=cv)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a score on a fold without records
        search.fit(table, labels)
    return list(Seen.came)


def put(at, row, label):
    return np.insert(X, at, row, axis=0), np.insert(Y, at, label)


NEIGHBOURS = {
    "added first": ((X, Y), put(0, [0.3, 0.7], 0)),
    "added inside": ((X, Y), put(17, [0.3, 0.7], 1)),
    "added last": ((X, Y), put(40, [0.3, 0.7], 0)),
    "a duplicate": ((X, Y), put(40, X[5], Y[5])),
    "a duplicate of another label": ((X, Y), put(0, X[5], 1 - Y[5])),
    "removed first": ((X, Y), (X[1:], Y[1:])),
    "removed last": ((X, Y), (X[:-1], Y[:-1])),
    "all equal": ((X[:1].repeat(9, 0), Y[:1].repeat(9)), (X[:1].repeat(8, 0), Y[:1].repeat(8))),
    "a second record": ((X[:1], Y[:1]), (X[:2], Y[:2])),
    "nan and infinity": ((X, Y), put(3, [np.nan, np.inf], 0)),
    "minus zero": (put(0, [0.0, 0.0], 0), put(0, [-0.0, 0.0], 0)),
}


def farthest(cv, pair):
    """The largest distance of two neighbours' tables, over the fits of one search."""
    one, other = (tables(cv, *each) for each in pair)
    assert len(one) == len(other) == 4
    return max(((a - b) + (b - a)).total() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_neighbour_changes_the_table_of_each_fit_by_its_record(name):
    most = 2 if name == "minus zero" else 1  # replaced, which is distance 2
    assert farthest(HashFold(3), NEIGHBOURS[name]) <= most


@pytest.mark.parametrize(
    "cv", [KFold(3), StratifiedKFold(3), KFold(3, shuffle=True, random_state=0)]
)
def test_folds_by_position_break_that_law(cv):
    assert farthest(cv, NEIGHBOURS["added first"]) > 1


def test_a_person_stays_in_one_fold_and_moves_nobody():
    ids = np.array([f"p{at // 4}" for at in range(40)])
    for gone in (slice(0, 4), slice(20, 24), slice(36, 40)):
        kept = np.delete(np.arange(40), gone)
        pairs = zip(
            HashFold(3).split(X, groups=ids),
            HashFold(3).split(X[kept], groups=ids[kept]),
            strict=True,
        )
        for (train, _), (other, _) in pairs:
            assert set(train) - set(np.arange(40)[gone]) == set(kept[other])
            assert len(set(np.arange(40)[gone]) & set(train)) in (0, 4)
    words = np.array([["a", "b"]] * 40)  # persons decide, whatever the columns are
    assert len(list(HashFold(2).split(words, groups=ids))) == 2
    with pytest.raises(InputRefused, match="OS602"):
        list(HashFold(2).split(X, groups=ids[1:]))
    with pytest.raises(InputRefused, match="OS602"):
        list(HashFold(2).split(words))


def test_persons_reach_the_folds_and_the_fits():
    ids = np.arange(40) // 4
    est = clone(CLF).set_params(unit="groups", max_rows=4)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(est.set_fit_request(groups=True), {}, cv=HashFold(2))
        assert cost_of(search, X=X, y=Y, groups=ids).fits == 3
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            search.fit(X, Y, groups=ids)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("bad", [0, 1, -2, 2.0, "3", None, True])
def test_no_number_of_folds_is_refused(bad):
    with pytest.raises(EstimatorRefused, match="OS102 n_splits"):
        HashFold(bad)


ALL = np.arange(40)
FITTED = GridSearchCV(CLF, {}, cv=HashFold(2)).fit(X, Y)
POSITIONAL = {
    "default": None,
    "int": 3,
    "KFold": KFold(3),
    "shuffled": KFold(3, shuffle=True, random_state=0),
    "StratifiedKFold": StratifiedKFold(3),
    "RepeatedKFold": RepeatedKFold(),
    "ShuffleSplit": ShuffleSplit(3),
    "LeaveOneOut": LeaveOneOut(),
    "TimeSeriesSplit": TimeSeriesSplit(3),
    "PredefinedSplit": PredefinedSplit(ALL % 3),
    "list": [(ALL[:20], ALL[20:]), (ALL[20:], ALL[:20])],
    "empty list": [],
    "GroupKFold": GroupKFold(3),
    "LeaveOneGroupOut": LeaveOneGroupOut(),
    "GroupShuffleSplit": GroupShuffleSplit(3),
    "StratifiedGroupKFold": StratifiedGroupKFold(3),
    "other code": type("HashFold", (KFold,), {})(3),
    "subclass": type("MyFold", (HashFold,), {"__module__": "mine"})(3),
    "class": HashFold,
}


@pytest.mark.parametrize("name", POSITIONAL)
def test_folds_that_one_record_may_move_are_refused_at_every_door(name):
    cv = POSITIONAL[name]
    grid = GridSearchCV(CLF, GRID, cv=cv)
    fitted = copy(FITTED).set_params(cv=cv)
    piped = sklearn_pipeline(PublicScaler(bounds=(0, 1)), grid)
    doors = [
        lambda: cost_of(grid),
        lambda: cost_of(RandomizedSearchCV(CLF, GRID, n_iter=1, random_state=0, cv=cv)),
        lambda: cost_of(piped),
        lambda: cost_of(grid, cv=HashFold(2)),
        lambda: cost_of(GridSearchCV(grid, {}, cv=HashFold(2))),
        lambda: make_pipeline(PublicScaler(bounds=(0, 1)), grid),
        lambda: DPSearch(grid, {}).fit(X, Y),
        lambda: private_score(fitted, X, Y),
        *([] if cv is None else [lambda: cost_of(CLF, cv=cv)]),
    ]
    said = set()
    for door in doors:
        with pytest.raises(EstimatorRefused, match=r"OS102 cv.*cv=HashFold\(3\)") as refused:
            door()
        said.add(str(refused.value))
    assert len(said) == 1


def test_a_search_in_hashed_folds_charges_what_was_said():
    budget = Budget(epsilon=9.0, delta=1e-6)
    est = clone(CLF).set_params(budget=budget)
    search = GridSearchCV(est, GRID, cv=HashFold(2))
    cost = cost_of(search, X=X, y=Y)
    budget.reserve(cost.charges)
    search.fit(X, Y)
    assert (budget.fits, budget.reserved, cost.fits) == (5, 0, 5)
    budget.reserve(cost_of(est, cv=HashFold(3)))
    assert budget.reserved == 3
    assert np.isfinite(cross_val_score(est, X, Y, cv=HashFold(3))).all()
    assert budget.fits == 8
    assert 0 <= private_score(search, X, Y, budget=budget).accuracy <= 1
