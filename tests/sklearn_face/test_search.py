"""``DPSearch``: parts that no neighbour moves, a choice that costs nothing beyond the fits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opendp_sim.core.errors import BudgetError, SimError
from opendp_sim.sklearn import (
    Budget,
    DPLogisticRegression,
    DPNearestCentroid,
    DPSearch,
    cost_of,
    search as module,
)

rng = np.random.default_rng(11)
X = np.concatenate([rng.uniform(0, 0.4, (200, 2)), rng.uniform(0.6, 1, (150, 2))])
Y = np.array(["a"] * 200 + ["b"] * 150)
CLF = DPNearestCentroid(bounds=(0, 1), classes=["a", "b"], epsilon=100.0)
GRID = {"data_norm": [None, 0.05]}


@pytest.mark.parametrize("persons", [False, True])
def test_whoever_comes_or_goes_moves_nobody_else(persons):
    ids = np.array([f"p{i // 5}" for i in range(350)]) if persons else None
    whole = module._held_out(X, ids, 0.3, 4)
    assert 0.15 < whole.mean() < 0.45
    assert (module._held_out(X, ids, 0.3, 5) != whole).any()
    order = rng.permutation(350)
    for kept in (order, order[:100], np.arange(350)[1:], np.arange(350)[5:]):
        part = module._held_out(
            np.asfortranarray(X[kept]), None if ids is None else ids[kept], 0.3, 4
        )
        assert (part == whole[kept]).all()
    if persons:
        assert (whole.reshape(70, 5) == whole.reshape(70, 5)[:, :1]).all()
        blank = module._held_out(X, np.array([f" {i} " for i in ids], dtype=object), 0.3, 4)
        assert (blank == whole).all()  # one person, however the identifier is written
    else:
        object_cells = X.astype(object)
        assert (module._held_out(object_cells, None, 0.3, 4) == whole).all()


def test_it_chooses_and_charges_the_fits_only():
    budget = Budget(mu=1e3)
    search = DPSearch(CLF, GRID, budget=budget)
    cost = cost_of(search)
    search.fit(X, Y)
    assert cost.fits == budget.fits == 2
    assert budget.reserved == 0
    assert search.best_params_ == {"data_norm": None}
    assert search.score(X, Y) == 1.0
    accuracy = search.cv_results_["accuracy"]
    assert accuracy[0] > 0.95 > accuracy[1]
    assert search.best_estimator_.release_.claim.startswith("(100, 1e-06)-DP")


@pytest.mark.parametrize("more", [{}, {"measure": "zcdp"}, {"measure": "pure", "delta": None}])
def test_the_accuracies_lose_no_more_than_the_fits(more, monkeypatch):
    plans = []
    monkeypatch.setattr(
        module._Choice,
        "_run",
        lambda self, columns, steps, groups: plans.append(self._planned(columns, steps)),
    )
    est = DPNearestCentroid(bounds=(0, 1), classes=["a", "b"], **more)
    candidates = [est] * 3
    choice = module._Choice(est, module.cost_of_fits(candidates))
    with pytest.raises(AttributeError):
        choice.accuracies(np.ones((4, 3), dtype=bool), None)
    (plan,) = plans
    total = choice.cost.total.loss[0]
    assert plan.total[0] <= total
    assert math.isclose(plan.total[0], total, rel_tol=1e-9)


def test_refusals_come_before_the_charge():
    budget = Budget(mu=0.1)
    with pytest.raises(BudgetError, match="OS402"):
        DPSearch(CLF, GRID, budget=budget).fit(X, Y)
    wide = Budget(mu=1e3)
    for est, grid, groups in (
        (CLF, {"data_norm": [-1.0]}, None),
        (CLF, {"bounds": [None]}, None),
        (CLF, GRID, np.arange(350)),
        (CLF, {"measure": ["gdp", "zcdp"]}, None),
    ):
        with pytest.raises(SimError):
            DPSearch(est, grid, budget=wide).fit(X, Y, groups=groups)
    with pytest.raises(SimError):
        DPSearch(CLF, GRID, budget=wide).fit(X, Y[:-1])
    with pytest.raises(SimError):
        DPSearch(CLF, GRID, budget=wide, holdout=1.0).fit(X, Y)
    assert (budget.fits, budget.reserved, wide.fits, wide.reserved) == (0, 0, 0, 0)


def test_logistic_regression():
    est = DPLogisticRegression(bounds=(0, 1), classes=["b", "a"], epsilon=50.0, max_iter=16).fit(
        X, Y
    )
    assert est.score(X, Y) > 0.95
    assert np.allclose(est.predict_proba(X).sum(axis=1), 1)
    assert ((est.decision_function(X) > 0) == (est.predict(X) == "b")).all()
    assert est.privacy_["claim"] == [50.0, 1e-6]
    with pytest.raises(SimError, match=r"OS10[12]"):
        DPLogisticRegression(bounds=(0, 1), epsilon=50.0).fit(X, Y)
