"""What a search costs before it runs, and accuracies that may be published."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from opendp_sim.core.errors import BudgetError, SimError
from opendp_sim.sklearn import (
    Budget,
    DPNearestCentroid,
    HashFold,
    PublicScaler,
    cost_of,
    metrics as hits,
    private_score,
)
from opendp_sim.sklearn.budget import one_budget
from opendp_sim.sklearn.metrics import PrivateScore, right

rng = np.random.default_rng(3)
X = np.concatenate([rng.uniform(0, 0.4, (90, 2)), rng.uniform(0.6, 1, (60, 2))])
Y = np.array(["a"] * 90 + ["b"] * 60)
CLF = DPNearestCentroid(bounds=(0, 1), classes=["a", "b"], epsilon=0.5)


def test_a_reserved_grid_search_spends_what_was_said():
    budget = Budget(epsilon=3.0, delta=1e-6)
    search = GridSearchCV(CLF.set_params(budget=budget), {"epsilon": [0.25, 0.5]}, cv=HashFold(2))
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
    assert cost_of(CLF, cv=HashFold(5)).fits == 5
    piped = make_pipeline(PublicScaler(bounds=(0, 1)), CLF)
    grid = GridSearchCV(piped, {"dpnearestcentroid__epsilon": [1, 2]}, cv=HashFold(3), refit=False)
    assert cost_of(grid).fits == 6
    draws = RandomizedSearchCV(
        CLF, {"epsilon": [0.1, 0.2, 0.3]}, n_iter=2, random_state=1, cv=HashFold(2)
    )
    assert cost_of(draws).fits == 5
    assert "mu" in repr(cost_of(CLF))
    for wrong in (Ridge(), RandomizedSearchCV(CLF, {"epsilon": [1]}, n_iter=1)):
        with pytest.raises(SimError, match="OS102"):
            cost_of(wrong)
    mixed = GridSearchCV(CLF, {"measure": ["gdp", "zcdp"]}, cv=HashFold(2))
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


class Asked(BaseException):
    """An exception that no handler of exceptions expects."""


@pytest.mark.parametrize("kind", [ValueError, SystemExit, GeneratorExit, Asked])
def test_each_record_is_predicted_alone_and_failures_are_wrong(kind):
    est, table = Moody(kind), np.array([[1.0, 0.0], [1.0, 1.0], [-1.0, 0.0]])
    assert right(est, table, np.array(["a", "a", "a"])).tolist() == [True, False, False]
    assert est.sizes == {(1, 2)}
    whole = right(CLF.fit(X, Y), X, Y)
    for gone in (0, 75, 149):  # nobody's hit depends on who else is there
        rest = np.delete(X, gone, axis=0)
        assert (right(CLF, rest, np.delete(Y, gone)) == np.delete(whole, gone)).all()


@pytest.mark.parametrize("kind", [ValueError, SystemExit, Asked, KeyboardInterrupt])
def test_no_classifier_sees_a_record_before_the_charge(kind):
    """What it raises would tell of a record for nothing, as often as somebody asks."""
    budget, charged = Budget(epsilon=5.0, delta=1e-6), []

    class Looks(Moody):
        def predict(self, X):
            charged.append(budget.fits)
            return super().predict(X)

    table = np.array([[1.0, 1.0], [1.0, 0.0]])
    ends = "stopped while records were predicted; a charge stands"
    stops = pytest.raises(KeyboardInterrupt, match=f"^{ends}$")
    with stops if kind is KeyboardInterrupt else nullcontext() as stopped:
        private_score(Looks(kind), table, np.array(["a", "a"]), epsilon=1.0, budget=budget)
    assert stopped is None or stopped.value.__context__ is None
    assert charged == [1] * len(charged) != []
    assert budget.fits == 1
    for wrong in ({"groups": np.arange(2)}, {"epsilon": -1.0}, {"max_rows": 2}):
        with pytest.raises(SimError):  # and what is wrong is told before either
            private_score(Looks(), table, np.array(["a", "a"]), budget=budget, **wrong)
    assert budget.fits == 1
    assert len(charged) <= 2


class Near(Moody):
    """What the package's own classifiers might do at worst: round by place and by how many there are."""

    def predict(self, X):
        if not np.isfinite(X).all() or (X > 100).any():
            raise ValueError(f"John at {X}")
        places = np.arange(len(X)) / 128 + len(X)
        return np.where(X[:, 0] + places > 129.0, "a", "b")


class Counted:
    """In place of a hash: the next place, whoever stands there."""

    count = 0

    def __init__(self, key, **told):
        Counted.count += 1

    def digest(self):
        return Counted.count.to_bytes(8, "big")


@pytest.mark.parametrize("twin", [False, True])
def test_own_classifiers_see_batches_and_no_record_moves_another(twin, monkeypatch):
    """A record's place is its own hash: the place that a count of records gives fails this law."""
    monkeypatch.setattr(Near, "__module__", "opendp_sim.sklearn.near")
    if twin:
        monkeypatch.setattr(hits, "blake2b", Counted)
    table = rng.uniform(0, 1, (300, 2))
    table[:3] = [[np.nan, 0.0], [101.0, 0.0], [np.inf, 0.0]]
    labels = np.full(300, "a")
    whole = right(Near(), table, labels)
    assert 40 < whole.sum() < 260
    assert not whole[:3].any()
    parts = (rng.permutation(300), np.arange(1, 300), np.arange(1, 300, 7), [5], [1, 2, 9])
    same = [(right(Near(), table[kept], labels[kept]) == whole[kept]).all() for kept in parts]
    assert all(same) != twin
    twice = np.concatenate([table, table[::-1]])
    assert twin or (right(Near(), twice, np.full(600, "a")) == [*whole, *whole[::-1]]).all()


def test_few_calls_predict_many_records(monkeypatch):
    """3,000 records were 3,000 calls of a millisecond."""
    est, calls = CLF.fit(X, Y), []
    predict = DPNearestCentroid.predict
    monkeypatch.setattr(
        DPNearestCentroid, "predict", lambda self, X: (calls.append(len(X)), predict(self, X))[1]
    )
    many = rng.uniform(0, 1, (1500, 2))
    plain, truth = make_pipeline(PublicScaler(bounds=(0, 1)), est), predict(est, many)
    assert right(est, many, truth).mean() > 0.99
    assert len(calls) < 40
    assert right(make_pipeline(StandardScaler().fit(X), est), many[:20], truth[:20]).shape == (20,)
    assert calls.count(1) == 20  # a step that is not ours is asked one record at a time
    plain[0].fit(X)
    assert right(plain, many.astype(object), truth).mean() > 0.99
    hidden = np.ma.masked_array(many[:40], mask=np.arange(80).reshape(40, 2) == 7)
    assert right(est, hidden, truth[:40]).tolist() == [at != 3 for at in range(40)]


@pytest.mark.parametrize("more", [{}, {"measure": "pure", "delta": None}, {"measure": "zcdp"}])
def test_private_scores_are_near_and_are_charged(more):
    est = DPNearestCentroid(bounds=(0, 1), classes=["a", "b"], epsilon=1e4).fit(X, Y)
    found = private_score(est, X, Y, epsilon=1e4, **more)
    assert float(found) == pytest.approx(1.0, abs=0.05)
    assert isinstance(found, PrivateScore)
    assert abs(found.records - 150) < 5
    assert found.privacy["claim" if "measure" not in more or more["measure"] == "zcdp" else "total"]


def test_private_scores_spend_and_refuse():
    est = DPNearestCentroid(bounds=(0, 1), classes=["a", "b"], epsilon=1e4).fit(X, Y)
    budget = Budget(mu=0.25)
    private_score(est, X, Y, epsilon=1.0, budget=budget)
    with pytest.raises(BudgetError, match="OS402"):
        private_score(est, X, Y, epsilon=1.0, budget=budget)
    assert budget.fits == 1
    holds, other = (
        type(est)(**est.get_params() | {"budget": Budget(mu=1e4)}).fit(X, Y),
        Budget(mu=1e4),
    )
    assert private_score(holds, X, Y).privacy["entry"] is not None  # it was free of the ledger
    piped = make_pipeline(PublicScaler(bounds=(0, 1)), holds)
    piped[0].fit(X)
    assert private_score(piped, X, Y, budget=other).privacy["entry"] is not None
    assert (holds.budget.fits, other.fits) == (2, 1)
    with pytest.raises(ValueError, match="OS102 budget"):
        one_budget([None, other, 5, budget], "one budget", "say which")
    found = private_score(est, X, Y, np.arange(150) // 3, unit="groups", max_rows=2, epsilon=1e4)
    assert abs(found.records - 100) < 5
    for wrong in (Ridge(), PublicScaler()):
        with pytest.raises(SimError, match="OS102"):
            private_score(wrong, X, Y)
    with pytest.raises(SimError, match="OS602"):
        private_score(est, X, Y[:-1])
    assert private_score(est, X[:0], Y[:0]).accuracy <= 1.0
