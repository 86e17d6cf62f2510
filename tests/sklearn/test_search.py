"""``DPSearch``: parts that no neighbour moves, a choice that costs nothing beyond the fits."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA
from sklearn.feature_extraction.image import PatchExtractor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)

from opendp_sim.core.errors import BudgetError, SimError
from opendp_sim.sklearn import (
    Budget,
    DPKernelDensity,
    DPLogisticRegression,
    DPNearestCentroid,
    DPOneClass,
    DPRidge,
    DPSearch,
    HashFold,
    PublicScaler,
    cost_of,
    make_pipeline as accounted_pipeline,
    model_selection as module,
    private_score,
)
from opendp_sim.sklearn._validation.refusals import EstimatorRefused, InputRefused
from opendp_sim.sklearn._validation.tables import NamedCells, checked_table
from opendp_sim.sklearn.model_selection import candidates_of, grid_of, splits_of, with_params

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


@pytest.mark.long
def test_columns_in_another_order_are_refused():
    """They were answered, and scored for money: candidates were fitted on arrays without names."""
    frame = pd.DataFrame(X, columns=["p", "q"])
    named = clone(CLF).set_params(bounds={"p": (0, 1), "q": (0, 2)})
    bare = DPSearch(CLF, GRID).fit(X, Y)
    for est in (CLF, named):
        search, budget = DPSearch(est, GRID).fit(frame, Y), Budget(mu=1e3)
        best = search.best_estimator_
        assert (search.predict(frame) == best.predict(frame)).mean() == 1.0
        for use in (
            lambda search=search: search.predict(frame[["q", "p"]]),
            lambda best=best: best.predict(frame[["q", "p"]]),
            lambda search=search, b=budget: private_score(search, frame[["q", "p"]], Y, budget=b),
            lambda best=best, b=budget: private_score(best, frame[["q", "p"]], Y, budget=b),
        ):
            with pytest.raises(InputRefused, match="OS607"):
                use()
        assert budget.fits == 0
        assert float(private_score(best, frame, Y, epsilon=1e3)) > 0.95
    assert not hasattr(bare.best_estimator_, "feature_names_in_")


def test_what_fits_of_a_search_refuse_is_told_by_the_cost():
    """Two fits were told and reserved, and refused by the fit that came after."""
    frame = pd.DataFrame(X, columns=["p", "q"])
    unbound = clone(CLF).set_params(bounds=None)
    bad = DPSearch(unbound, {"data_norm": [None, 1.0]})
    for search in (bad, GridSearchCV(bad, {"holdout": [0.3]}, cv=HashFold(2))):
        with pytest.raises(SimError, match="OS101"):
            cost_of(search, X=X, y=Y)
    named = clone(CLF).set_params(bounds={"p": (0, 1), "q": (0, 2)})
    for search in (DPSearch(named, GRID), GridSearchCV(named, GRID, cv=HashFold(2)), named):
        assert cost_of(search, X=frame, y=Y).fits
        with pytest.raises(SimError, match="OS102"):
            cost_of(search, X=X, y=Y)


@pytest.mark.parametrize(
    "search",
    [
        DPSearch(None, {}),
        DPSearch(5, {}),
        DPSearch("x", {}),
        DPSearch(DPNearestCentroid, {}),
        *(DPSearch(CLF, grid) for grid in (5, None, {"epsilon": 0.5}, {"epsilom": [1]}, [], [5])),
        *(DPSearch(CLF, GRID, holdout=share) for share in (1e-300, 1 - 1e-16, 0, 2, None, "x")),
        GridSearchCV(None, {}),
        *(GridSearchCV(CLF, grid) for grid in (5, {"epsilom": [1]}, [], {"bounds__x": [1]})),
    ],
    ids=lambda search: type(search).__name__,
)
def test_what_is_no_search_is_refused_by_a_code(search):
    """scikit-learn's own errors passed, or a search that held no record out was charged."""
    budget = Budget(mu=1e3)
    uses = [lambda: cost_of(search), lambda: cost_of(search, X=X, y=Y)]
    if isinstance(search, DPSearch):
        uses.append(lambda: clone_with(search, budget).fit(X, Y))
    for use in uses:
        with pytest.raises(EstimatorRefused, match=r"OS10[12]") as refused:
            use()
        assert refused.value.hint
    assert (budget.fits, budget.reserved) == (0, 0)


def clone_with(search, budget):
    return DPSearch(search.estimator, search.param_grid, holdout=search.holdout, budget=budget)


def test_folds_that_are_read_once_are_refused_unread():
    """They were counted, reserved, and the search found no folds any more."""
    splits = list(HashFold(2).split(X))
    once = iter(splits)
    for use in (
        lambda: cost_of(GridSearchCV(CLF, GRID, cv=once)),
        lambda: cost_of(CLF, cv=(s for s in splits)),
        lambda: cost_of(CLF, cv=[]),
    ):
        with pytest.raises(EstimatorRefused, match="OS102 cv"):
            use()
    assert len(list(once)) == 2
    assert cost_of(GridSearchCV(CLF, GRID, cv=HashFold(2))).fits == 5
    assert splits_of(HashFold(2)) == 2
    assert candidates_of(CLF, grid_of({"epsilon": [3.0]}))[0].epsilon == 3.0
    assert with_params(CLF, {"epsilon": 2.0}).epsilon == 2.0


def test_cells_go_on_with_their_names():
    est = clone(CLF)
    cells = NamedCells(X, np.array(["p", "q"], dtype=object)).of(slice(3))
    assert checked_table(est, cells, reset=True) is cells.cells
    assert list(est.feature_names_in_) == ["p", "q"]
    assert not np.shares_memory(cells.cells, X)
    NamedCells.seen_by(CLF, X).tell(est)
    assert (est.n_features_in_, hasattr(est, "feature_names_in_")) == (2, False)


def test_the_estimators_own_budget_pays_where_the_search_has_none():
    """Candidates were given the search's budget, which is none by default: every fit was free."""
    budget = Budget(mu=1e3)
    own = clone(CLF).set_params(budget=budget)
    cost = cost_of(DPSearch(own, GRID))
    DPSearch(own, GRID).fit(X, Y)
    assert (budget.fits, budget.reserved) == (cost.fits, 0) == (2, 0)
    tight = Budget(mu=0.1)
    with pytest.raises(BudgetError, match="OS402"):
        DPSearch(CLF, {**GRID, "budget": [tight]}).fit(X, Y)
    DPSearch(own, GRID, budget=budget).fit(X, Y)
    assert (budget.fits, tight.fits) == (4, 0)


def test_a_search_with_two_budgets_is_refused():
    one, two = Budget(mu=1e3), Budget(mu=1e3)
    for search in (
        DPSearch(clone(CLF).set_params(budget=one), GRID, budget=two),
        DPSearch(CLF, {"budget": [one, two]}),
        DPSearch(CLF, GRID, budget=3.0),
    ):
        with pytest.raises(ValueError, match="OS102"):
            search.fit(X, Y)
    assert (one.fits, two.fits, one.reserved, two.reserved) == (0, 0, 0, 0)


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


@pytest.mark.parametrize(
    "est",
    [
        DPRidge(bounds=(0, 1), y_bounds=(0, 4)),
        DPKernelDensity(bounds=(0, 1)),
        DPOneClass(bounds=(0, 1), threshold=0.1),
    ],
    ids=lambda est: type(est).__name__,
)
def test_a_search_over_what_is_no_classifier_is_refused_before_the_charge(est):
    budget = Budget(epsilon=5.0, delta=1e-6)
    search = DPSearch(est, {"epsilon": [1.0]}, budget=budget)
    for use in (lambda: search.fit(np.zeros((40, 2)), np.zeros(40)), lambda: cost_of(search)):
        with pytest.raises(ValueError, match="OS102 estimator: expected a private classifier"):
            use()
    assert budget.total.share == 0


PLAIN = DPNearestCentroid(bounds=(0, 1), classes=[0, 1])


@pytest.mark.parametrize(
    "step",
    [
        StandardScaler(),
        PCA(1),
        Normalizer(),
        Normalizer("l1"),
        make_pipeline(StandardScaler()),
        FeatureUnion([("a", PublicScaler(bounds=(0, 1))), ("b", PCA(1))]),
        ColumnTransformer([("a", StandardScaler(), [0])]),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_step_that_learns_from_records_is_no_private_pipeline(step):
    piped = make_pipeline(step, PLAIN)
    for search in (
        piped,
        GridSearchCV(piped, {"dpnearestcentroid__epsilon": [1.0]}, cv=HashFold(2)),
    ):
        with pytest.raises(ValueError, match=r"OS102 step .*which no budget sees"):
            cost_of(search)


@pytest.mark.parametrize(
    "step",
    [
        PublicScaler(bounds=(0, 1)),
        Normalizer("max"),
        FrozenEstimator(Normalizer().fit(np.eye(2))),
        FunctionTransformer(),
        FunctionTransformer(np.log1p),
        FrozenEstimator(FunctionTransformer(lambda X: X[:, ::-1]).fit(np.eye(2))),
        Binarizer(),
        "passthrough",
        FrozenEstimator(StandardScaler().fit(np.eye(2))),
        FrozenEstimator(make_pipeline(StandardScaler(), PCA(1)).fit(np.eye(2))),
        FrozenEstimator(StandardScaler().fit(pd.DataFrame(np.eye(2), columns=["p", "q"]))),
        FrozenEstimator(OneHotEncoder().fit([["a"], ["b"]])),
        ColumnTransformer([("a", PublicScaler(bounds=(0, 1)), [0]), ("b", "drop", [1])]),
        ColumnTransformer([("a", FunctionTransformer(np.sqrt), make_column_selector())]),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_step_that_learns_nothing_may_stand_before(step):
    assert cost_of(make_pipeline(step, PLAIN), cv=HashFold(3)).fits == 3


def centred(table):
    """Move every record when one comes or goes."""
    return table - table.mean(axis=0)


class Stateless(TransformerMixin, BaseEstimator):
    """Learns nothing at fit, by its tags, and reads the whole table after it."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return centred(X)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class OtherUnion(FeatureUnion):
    """A union whose fit is anybody's."""


MEETING = {
    "centred": FunctionTransformer(centred),
    "lambda": FunctionTransformer(lambda X: X / X.max()),
    "partial": FunctionTransformer(partial(np.clip, a_min=0, a_max=1)),
    "np.sort": FunctionTransformer(np.sort, kw_args={"axis": 0}),
    "a method of a ufunc": FunctionTransformer(np.add.accumulate),
    "a ufunc of Python code": FunctionTransformer(np.frompyfunc(lambda x: x, 1, 1)),
    "a ufunc of two": FunctionTransformer(np.add),
    "a ufunc with two results": FunctionTransformer(np.modf),
    "a ufunc of matrices": FunctionTransformer(np.vecdot),
    "arguments": FunctionTransformer(np.log1p, kw_args={"where": np.eye(2, dtype=bool)}),
    "an inverse that is tried on records": FunctionTransformer(np.exp, inverse_func=np.log),
    "refusals by value": FunctionTransformer(np.exp, validate=True),
    "in columns": ColumnTransformer([("a", FunctionTransformer(centred), [0])]),
    "in the rest of the columns": ColumnTransformer(
        [("a", "drop", [0])], remainder=FunctionTransformer(centred)
    ),
    "in a union": FeatureUnion([("a", make_pipeline(FunctionTransformer(centred)))]),
    "columns by a function": ColumnTransformer(
        [("a", PublicScaler(), lambda X: [int(X.argmax()) % 2])]
    ),
    "stateless": Stateless(),
    "frozen and centred": FrozenEstimator(FunctionTransformer(centred).fit(np.eye(2))),
    "frozen in a pipeline": FrozenEstimator(
        make_pipeline(StandardScaler(), Stateless()).fit(np.eye(2))
    ),
    "patches": PatchExtractor(),
    "another union": OtherUnion([("a", PublicScaler(bounds=(0, 1)))]),
}


@pytest.mark.few(7)
@pytest.mark.parametrize("name", MEETING)
def test_a_step_in_which_records_may_meet_is_refused_at_every_door(name):
    piped = make_pipeline(MEETING[name], PLAIN)
    fitted = make_pipeline(PublicScaler(bounds=(0, 1)), PLAIN).fit(X, Y == "a")
    fitted.steps[0] = ("step", MEETING[name])
    grid = GridSearchCV(piped, {"dpnearestcentroid__epsilon": [1.0]}, cv=HashFold(2))
    doors = [
        lambda: cost_of(piped),
        lambda: cost_of(grid),
        lambda: accounted_pipeline(MEETING[name], PLAIN),
        lambda: private_score(fitted, X, Y == "a"),
    ]
    said = set()
    for door in doors:
        with pytest.raises(EstimatorRefused, match=r"OS102 step .*which no budget sees") as refused:
            door()
        said.add(str(refused.value))
    assert len(said) == 1


def test_a_refused_function_is_named_and_may_be_declared():
    with pytest.raises(EstimatorRefused) as refused:
        cost_of(make_pipeline(FunctionTransformer(centred), PLAIN))
    for word in ("FunctionTransformer", "centred", "np.log1p", "FrozenEstimator"):
        assert word in str(refused.value)


@pytest.mark.parametrize(
    "step",
    [
        PublicScaler(bounds=(0, 1)),
        Binarizer(threshold=0.5),
        Normalizer("max"),
        *(FunctionTransformer(each) for each in (None, np.log1p, np.sqrt, np.exp, np.tanh, np.sin)),
        FeatureUnion([("a", FunctionTransformer(np.cbrt)), ("b", Normalizer("max"))]),
    ],
    ids=str,
)
def test_a_step_that_is_accepted_treats_each_record_alone_bit_for_bit(step):
    """And the step that moves every record fails this law."""
    cost_of(make_pipeline(step, PLAIN))
    for dtype, order in itertools.product((np.float32, np.float64), "CF"):
        table = np.asarray(rng.uniform(0, 3, (67, 65)).astype(dtype), order=order)
        for kept in (
            np.arange(1, 67),
            np.arange(66),
            np.arange(3, 67, 7),
            [40],
            np.arange(67)[::-1],
        ):
            kept_table = np.asarray(table[kept], order=order)
            whole, part = (clone(step).fit(each).transform(each) for each in (table, kept_table))
            assert np.ascontiguousarray(whole[kept]).tobytes() == part.tobytes()
    assert (centred(table)[1:] != centred(table[1:])).any()


def test_what_workers_and_budgets_would_refuse_is_told_by_the_cost():
    known = Budget(epsilon=5.0, delta=1e-6)
    search = GridSearchCV(
        clone(PLAIN).set_params(budget=known), {"epsilon": [1.0]}, cv=HashFold(2), n_jobs=2
    )
    with pytest.raises(ValueError, match=r"OS102 n_jobs.*Budget\.open"):
        cost_of(search)
    search.n_jobs = None
    assert "for one record added or removed" in repr(cost_of(search))
    with pytest.raises(ValueError, match="budget"):
        cost_of(clone(PLAIN).set_params(budget=3.0), X=np.zeros((9, 2)), y=np.zeros(9))
