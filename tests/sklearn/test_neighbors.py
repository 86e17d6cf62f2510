"""The experimental estimator whose predictions are charged: once, before the first leaves, and no more."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import VotingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

from opendp_sim.core.errors import BudgetError, SimError
from opendp_sim.sklearn import Budget, DPNearestCentroid, DPSearch, HashFold, cost_of, private_score
from opendp_sim.sklearn.neighbors import DPKNeighborsClassifier

rng = np.random.default_rng(7)
X = np.concatenate([rng.normal([1, 0], 0.1, (400, 2)), rng.normal([0, 1], 0.1, (400, 2))])
Y = np.array(["right"] * 400 + ["up"] * 400)
ASKED = X[::100] * 2.0
TOLD = {
    "epsilon": 20.0,
    "bounds": (-2, 2),
    "classes": ["right", "up"],
    "queries": 20,
    "size": 800,
    "threshold": 0.8,
}


def fitted(**more):
    return DPKNeighborsClassifier(**(TOLD | more)).fit(X, Y)


def test_a_fit_is_free_and_all_predictions_are_one_charge():
    budget = Budget(epsilon=30.0, delta=1e-6)
    est = fitted(budget=budget)
    assert budget.fits == 0
    assert est.predict(ASKED).tolist() == Y[::100].tolist()
    assert budget.fits == 1
    assert est.predict(ASKED[:2]).tolist() == ["right", "right"]
    assert budget.fits == 1
    assert est.predictions_left == 10
    assert est.privacy_["claim"] == [20.0, 1e-6]
    assert cost_of(est).fits == 1


def test_no_more_predictions_than_planned():
    est = fitted(queries=3)
    with pytest.raises(BudgetError, match="OS406"):
        est.predict(ASKED)
    assert est.predictions_left == 3
    est.predict(ASKED[:3])
    with pytest.raises(BudgetError, match="OS406"):
        est.predict(ASKED[:1])


def test_a_budget_that_refuses_is_asked_before_a_record_is_read():
    est = fitted(budget=Budget(epsilon=1.0, delta=1e-6))
    with pytest.raises(BudgetError, match="OS402"):
        est.predict(ASKED)
    assert est._asked.served is None


def test_a_reference_or_a_large_first_batch_or_a_threshold():
    est = fitted(threshold=None)
    with pytest.raises(SimError, match="OS607"):
        est.predict(ASKED)
    assert est._asked.served is None
    public = np.concatenate([X[::10]])  # what was published of another year, say
    with pytest.raises(ValueError, match="OS704 reference"):
        fitted(threshold=None, reference=X[::10])
    referred = fitted(threshold=None, reference=public)
    assert (referred.predict(ASKED) == Y[::100]).mean() >= 0.75
    first = fitted(threshold=None, queries=80)
    with pytest.raises(ValueError, match="OS704 the first queries"):
        first.predict(X[::10])
    assert len(first.predict(public)) == 80


@pytest.mark.parametrize(
    "more",
    [
        {"bounds": None},
        {"classes": None},
        {"queries": 0},
        {"size": 1},
        {"measure": "pure"},
        {"threshold": 2.0},
        {"epsilon": 0},
        {"unit": "groups"},
        {"reference": [[np.nan, 1.0]]},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_anything(more):
    with pytest.raises(SimError) as refused:
        fitted(**more)
    assert refused.value.hint


def test_scores_are_refused_and_purses_are_not_copied():
    est = fitted()
    with pytest.raises(SimError, match="allow_scoring"):
        est.score(ASKED, Y[::100])
    assert fitted(allow_scoring=True).score(ASKED, Y[::100]) == 1.0
    est.predict(ASKED[:1])
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(BudgetError, match="OS407"):
            copied(est)
    assert not hasattr(clone(est), "classes_")


def test_what_reads_private_records_by_predicting_refuses_it():
    for est in (fitted(), make_pipeline(fitted())):
        with pytest.raises(SimError, match="OS102"):
            private_score(est, X, Y, epsilon=1.0)
    with pytest.raises(SimError, match="OS102"):
        DPSearch(fitted(), {"queries": [5, 6]}).fit(X, Y)


class Hides(ClassifierMixin, BaseEstimator):
    """A classifier that nobody can look into."""

    def __init__(self, asks=None):
        self.asks = asks

    def predict(self, X):
        return self.asks(X)


def test_no_private_score_asks_it_whoever_holds_it():
    """What was left told how many private records there were, at any epsilon."""
    est, budget = fitted(), Budget(mu=1e3)
    search = GridSearchCV(Pipeline([("clf", DPNearestCentroid())]), {}, cv=HashFold(2))
    search.best_estimator_ = Pipeline([("clf", est)])
    for each in (search, VotingClassifier([])):
        each.estimators_ = [est]
        with pytest.raises(SimError, match="OS102 estimator"):
            private_score(each, X, Y, budget=budget)
    assert budget.fits == 0
    hidden = Hides(lambda X: est.predict(X))  # noqa: PLW0108 - nothing to look at
    found = private_score(hidden, X[:4], Y[:4], epsilon=1e4, budget=budget)
    assert float(found) < 0.1
    assert est.predictions_left == 20
    assert est.predict(ASKED).tolist() == Y[::100].tolist()


def test_persons_bring_all_their_rows():
    ids = np.arange(800) // 2
    est = DPKNeighborsClassifier(**TOLD, unit="groups", max_rows=2).fit(X, Y, groups=ids)
    assert est.predict(ASKED).tolist() == Y[::100].tolist()
    assert "groups" in est.privacy_["text"] or "person" in est.privacy_["text"]
