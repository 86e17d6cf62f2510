"""What a search costs before it runs, and accuracies that may be published."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    LeaveOneOut,
    RandomizedSearchCV,
    StratifiedKFold,
)
from sklearn.pipeline import make_pipeline

from opendp_sim.core.errors import BudgetError, SimError
from opendp_sim.sklearn import Budget, DPNearestCentroid, PublicScaler, cost_of, private_score
from opendp_sim.sklearn.scoring import right

rng = np.random.default_rng(3)
X = np.concatenate([rng.uniform(0, 0.4, (90, 2)), rng.uniform(0.6, 1, (60, 2))])
Y = np.array(["a"] * 90 + ["b"] * 60)
CLF = DPNearestCentroid(bounds=(0, 1), classes=["a", "b"], epsilon=0.5)


def test_a_reserved_grid_search_spends_what_was_said():
    budget = Budget(epsilon=3.0, delta=1e-6)
    search = GridSearchCV(CLF.set_params(budget=budget), {"epsilon": [0.25, 0.5]}, cv=2)
    cost = cost_of(search)
    assert cost.fits == 5  # the refit counts as the dearest candidate
    budget.reserve(cost.charges)
    before = budget.total.loss
    search.fit(X, Y)
    assert (budget.fits, budget.total.loss) == (5, before)
    assert cost.total.loss == pytest.approx(before)
    assert budget.reserved == 0
    CLF.set_params(budget=None)


def test_costs_come_from_public_parameters():
    assert cost_of(CLF).fits == 1
    assert cost_of(CLF, cv=5).fits == 5
    assert cost_of(CLF, cv=GroupKFold(3)).fits == 3
    piped = make_pipeline(PublicScaler(bounds=(0, 1)), CLF)
    grid = GridSearchCV(
        piped, {"dpnearestcentroid__epsilon": [1, 2]}, cv=StratifiedKFold(3), refit=False
    )
    assert cost_of(grid).fits == 6
    draws = RandomizedSearchCV(CLF, {"epsilon": [0.1, 0.2, 0.3]}, n_iter=2, random_state=1, cv=2)
    assert cost_of(draws).fits == 5
    assert "mu" in repr(cost_of(CLF))
    for wrong in (Ridge(), RandomizedSearchCV(CLF, {"epsilon": [1]}, n_iter=1)):
        with pytest.raises(SimError, match="OS102"):
            cost_of(wrong)
    with pytest.raises(SimError, match="OS102"):  # the number of folds is the number of records
        cost_of(CLF, cv=LeaveOneOut())
    mixed = GridSearchCV(CLF, {"measure": ["gdp", "zcdp"]}, cv=2)
    with pytest.raises(SimError, match="OS102"):
        cost_of(mixed)


class Moody(ClassifierMixin, BaseEstimator):
    """Right where the first cell is positive; fails on some records, and sees who stands beside."""

    def __init__(self, kind=ValueError):
        self.sizes, self.kind = set(), kind

    def predict(self, X):
        self.sizes.add(X.shape)
        if (X[:, 1] > 0.9).any():
            raise self.kind(f"John at {X}")
        return np.where(X[:, 0] > 0, "a", "b")


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_each_record_is_predicted_alone_and_failures_are_wrong(kind):
    est, table = Moody(kind), np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
    assert right(est, table, np.array(["a", "a", "a"])).tolist() == [True, False, False]
    assert est.sizes == {(1, 2)}
    whole = right(CLF.fit(X, Y), X, Y)
    for gone in (0, 75, 149):  # nobody's hit depends on who else is there
        rest = np.delete(X, gone, axis=0)
        assert (right(CLF, rest, np.delete(Y, gone)) == np.delete(whole, gone)).all()


@pytest.mark.parametrize("more", [{}, {"measure": "pure", "delta": None}, {"measure": "zcdp"}])
def test_private_scores_are_near_and_are_charged(more):
    est = DPNearestCentroid(bounds=(0, 1), classes=["a", "b"], epsilon=1e4).fit(X, Y)
    found = private_score(est, X, Y, epsilon=1e4, **more)
    assert float(found) == pytest.approx(1.0, abs=0.05)
    assert abs(found.records - 150) < 5
    assert found.privacy["claim" if "measure" not in more or more["measure"] == "zcdp" else "total"]


def test_private_scores_spend_and_refuse():
    est = DPNearestCentroid(bounds=(0, 1), classes=["a", "b"], epsilon=1e4).fit(X, Y)
    budget = Budget(mu=0.25)
    private_score(est, X, Y, epsilon=1.0, budget=budget)
    with pytest.raises(BudgetError, match="OS402"):
        private_score(est, X, Y, epsilon=1.0, budget=budget)
    assert budget.fits == 1
    found = private_score(est, X, Y, np.arange(150) // 3, unit="groups", max_rows=2, epsilon=1e4)
    assert abs(found.records - 100) < 5
    for wrong in (Ridge(), PublicScaler()):
        with pytest.raises(SimError, match="OS102"):
            private_score(wrong, X, Y)
    with pytest.raises(SimError, match="OS602"):
        private_score(est, X, Y[:-1])
    assert private_score(est, X[:0], Y[:0]).accuracy <= 1.0
