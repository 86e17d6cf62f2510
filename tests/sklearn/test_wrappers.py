"""Copies before ``fit``: wrappers that are not accounted for are refused at every door, by one table."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import warnings

import joblib
import numpy as np
import pytest
from sklearn.base import MetaEstimatorMixin, clone
from sklearn.ensemble import BaggingClassifier, StackingRegressor, VotingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import all_estimators

from opendp_sim.accounting.certificate.certificate import HANDED
from opendp_sim.core.errors import SimError
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.plan import plan_of
from opendp_sim.dsl.run.certificate import derived_statement
from opendp_sim.sklearn import (
    Budget,
    DPKNeighborsClassifier,
    DPNearestCentroid,
    DPRidge,
    DPSearch,
    EstimatorRefused,
    HashFold,
    PublicScaler,
    cost_of,
    make_pipeline as accounted_pipeline,
    private_score,
)
from opendp_sim.sklearn._validation.wrappers import ACCOUNTED, NOT_ACCOUNTED
from opendp_sim.sklearn.base import coverage_of
from opendp_sim.sklearn.model_selection import cost_of_fits

rng = np.random.default_rng(0)
X = rng.uniform(size=(200, 2))
Y = (X[:, 0] > 0.5).astype(int)


def centroid(**more):
    return DPNearestCentroid(**({"bounds": (0, 1), "classes": [0, 1]} | more))


NESTED = {
    "a search in a bag": BaggingClassifier(DPSearch(centroid(), {"epsilon": [0.5, 1.0]})),
    "a pipeline in a bag": BaggingClassifier(make_pipeline(StandardScaler(), centroid())),
    "a bag in a pipeline": make_pipeline(StandardScaler(), BaggingClassifier(centroid())),
    "a bag in a grid": GridSearchCV(BaggingClassifier(centroid()), {"n_estimators": [2]}, cv=2),
}
NESTED |= {
    name: kind([("a", DPRidge(bounds=(0, 1), y_bounds=(0, 1)))])
    for name, kind in (("stacked", StackingRegressor), ("voting", VotingRegressor))
}
NOT_OF_THIS_FORM = ("AdaBoostClassifier", "RANSACRegressor", "StackingRegressor", "VotingRegressor")
"""Wrappers that refuse a classifier, or one without `sample_weight`, before they fit it."""


def holders():
    """Every class of scikit-learn that takes another estimator, with a private one in it."""
    for name, cls in all_estimators():
        words = inspect.signature(cls).parameters
        first = next((w for w in ("estimator", "estimators", "base_estimator") if w in words), None)
        if first is None or name in ACCOUNTED or name == "FrozenEstimator":
            continue
        made = {first: [("a", centroid())] if first == "estimators" else centroid()}
        for word, parameter in words.items():
            if word not in made and parameter.default is inspect.Parameter.empty:
                made[word] = {"epsilon": [1.0]}
        yield pytest.param(cls(**made), id=name)


@pytest.mark.parametrize("wrapper", list(holders()))
def test_three_doors_give_one_answer_about_every_wrapper_of_scikit_learn(wrapper, monkeypatch):
    said = set()
    monkeypatch.setattr("opendp_sim.sklearn.metrics.check_fitted", lambda _each: None)
    monkeypatch.setattr("opendp_sim.sklearn.metrics.is_classifier", lambda _each: True)
    for door in (
        lambda: cost_of(wrapper),
        lambda: DPSearch(wrapper, {}).fit(X, Y),
        lambda: private_score(wrapper, X, Y),
    ):
        with pytest.raises(EstimatorRefused, match="OS102") as caught:
            door()
        said.add(str(caught.value))
    name = type(wrapper).__name__
    assert len(said) == 1, said
    assert name in next(iter(said))
    assert NOT_ACCOUNTED.get(name, "its own code decides") in next(iter(said))


def test_every_wrapper_of_the_table_is_one_of_scikit_learn_s():
    known = {name for name, cls in all_estimators() if issubclass(cls, MetaEstimatorMixin)}
    known |= {name for name, _ in all_estimators()}
    assert set(NOT_ACCOUNTED) <= known
    assert set(ACCOUNTED) - {"DPSearch"} <= known


def pickled(estimator):
    return pickle.loads(pickle.dumps(estimator))  # noqa: S301 - as a process gets it


def bags(budget, **more):
    est = centroid(epsilon=0.5, budget=budget)
    return BaggingClassifier(est, n_estimators=2, random_state=0, **more)


@pytest.mark.few(10)
@pytest.mark.parametrize(
    "wrapper", [*holders(), *(pytest.param(e, id=n) for n, e in NESTED.items())]
)
def test_no_wrapper_s_own_fit_spends_a_budget_that_nobody_reserved_of(wrapper):
    """A bag's budget said epsilon 2.40 where a record drawn 4 + 3 + 2 + 3 + 2 times made 8.02."""
    budget = Budget(epsilon=50.0, delta=1e-6)
    with_purse = clone(wrapper)
    if "random_state" in with_purse.get_params(deep=False):  # else some draw one class alone
        with_purse.set_params(random_state=0)
    for at, each in with_purse.get_params(deep=True).items():
        if isinstance(each, DPNearestCentroid | DPSearch | DPRidge):
            with_purse.set_params(**{f"{at}__budget": budget})
    refused, many = "", "MultiOutput" in repr(wrapper) or "Chain" in repr(wrapper)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that failed
        try:
            with_purse.fit(X, np.stack([Y, Y], axis=1) if many else Y)
        except Exception as error:  # noqa: BLE001 - each wrapper in its own words
            refused = str(error)
    assert (budget.fits, budget.reserved) == (0, 0)
    of_a_form = "DPRidge" in repr(wrapper) or type(wrapper).__name__ not in NOT_OF_THIS_FORM
    assert ("a reserved fit, since this estimator is a copy" in refused) == of_a_form


def test_a_bag_is_refused_in_a_worker_too(tmp_path):
    held, filed = (
        Budget(epsilon=50.0, delta=1e-6),
        Budget.open(tmp_path / "a.ledger", epsilon=50.0, delta=1e-6),
    )
    sent = pickled(bags(filed))
    for bag in (bags(held), bags(held, n_jobs=2), copy.deepcopy(bags(held)), bags(filed), sent):
        with (
            joblib.parallel_backend("threading"),
            pytest.raises(EstimatorRefused, match=r"OS102 .*a reserved fit"),
        ):
            bag.fit(X, Y)
    assert held.fits == filed.fits == 0


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("how", "kind"),
    [
        *((how, "estimator") for how in (clone, copy.copy, copy.deepcopy, pickled)),
        (clone, "neighbours"),
        *(pytest.param(how, "search", marks=pytest.mark.long) for how in (clone, pickled)),
    ],
)
def test_a_copy_spends_what_was_reserved_for_it_and_nothing_else(how, kind):
    budget = Budget(epsilon=50.0, delta=1e-6)
    est = {
        "estimator": centroid(budget=budget),
        "search": DPSearch(centroid(), {"epsilon": [0.5, 1.0]}, budget=budget),
        "neighbours": DPKNeighborsClassifier(
            bounds=(0, 1), classes=[0, 1], threshold=0.5, allow_scoring=True, budget=budget
        ),
    }[kind]
    copied = how(est)
    with pytest.raises(EstimatorRefused, match=r"OS102 budget.*cost_of\(copy\)"):
        copied.fit(X, Y).predict([[0.1, 0.2]])
    assert (budget.fits, budget.reserved) == (0, 0)
    budget.reserve(cost_of(copied))
    spent = budget.total
    copied.fit(X, Y).predict([[0.1, 0.2]])
    assert (budget.total, budget.reserved) == (spent, 0)
    with pytest.raises(EstimatorRefused, match=r"OS102 .*a reserved fit"):
        how(est).fit(X, Y).predict([[0.1, 0.2]])
    est.fit(X, Y).predict([[0.1, 0.2]])  # what its class made is its user's own
    assert budget.total.loss > spent.loss
    assert budget.total.text.endswith("of tables as given to fit")


@pytest.mark.parametrize("cv", [3, HashFold(2)])
def test_folds_that_nobody_asked_the_cost_of_are_refused(cv):
    budget = Budget(epsilon=50.0, delta=1e-6)
    for run in (
        lambda: GridSearchCV(centroid(budget=budget), {}, cv=cv, error_score="raise").fit(X, Y),
        lambda: cross_val_score(centroid(budget=budget), X, Y, cv=cv, error_score="raise"),
        lambda: cross_val_predict(centroid(budget=budget), X, Y, cv=cv),
    ):
        with pytest.raises(EstimatorRefused, match=r"OS102 .*a reserved fit"):
            run()
    assert budget.fits == 0


def test_a_wrapper_asks_no_neighbours_about_private_rows():
    """A test fold became the reference, whose mean is taken exactly and free."""
    words = {"bounds": (0, 1), "classes": [0, 1], "queries": 400}
    for more in ({}, {"allow_scoring": True}):
        with pytest.raises(EstimatorRefused, match=r"OS102 DPKNeighborsClassifier.reference"):
            cross_val_predict(DPKNeighborsClassifier(**words, **more), X, Y, cv=2)
    est = DPKNeighborsClassifier(**words, threshold=0.5)
    with pytest.raises(EstimatorRefused, match=r"OS102 DPKNeighborsClassifier.predict"):
        cross_val_predict(est, X, Y, cv=2)
    assert len(cross_val_predict(est.set_params(allow_scoring=True), X, Y, cv=2)) == len(X)


def test_a_scaler_that_learns_before_a_private_estimator_is_refused_at_every_door():
    learned = make_pipeline(StandardScaler(), centroid()).fit(X, Y)
    said = set()
    for door in (lambda: cost_of(learned), lambda: private_score(learned, X, Y)):
        with pytest.raises(EstimatorRefused, match="step StandardScaler") as caught:
            door()
        said.add(str(caught.value))
    assert len(said) == 1
    ours = make_pipeline(PublicScaler(bounds=(0, 1)), centroid()).fit(X, Y)
    assert cost_of(ours).fits == 1
    assert 0 <= private_score(ours, X, Y).accuracy <= 1
    with pytest.raises(EstimatorRefused, match="step StandardScaler"):
        accounted_pipeline(StandardScaler(), centroid())
    with pytest.raises(EstimatorRefused, match="OS102"):
        accounted_pipeline(PublicScaler(bounds=(0, 1)), LogisticRegression())
    assert accounted_pipeline(PublicScaler(bounds=(0, 1)), centroid()).fit(X, Y).score(X, Y) > 0.5
    frozen = make_pipeline(FrozenEstimator(StandardScaler().fit(X)), centroid())
    assert cost_of(frozen).fits == 1


@pytest.mark.few(3)
@pytest.mark.parametrize(("measure", "delta"), [("pure", None), ("gdp", 1e-6), ("zcdp", 1e-6)])
@pytest.mark.parametrize("copies", [2, 7])
def test_copies_are_charged_at_their_distance(measure, delta, copies):
    """Noise is that of one row, as many times larger; a ledger by record is charged the same."""
    budget = Budget(epsilon=5.0, delta=delta, measure=measure)
    one = centroid(measure=measure, delta=delta, budget=budget).fit(X, Y)
    more = centroid(measure=measure, delta=delta, budget=budget, max_copies=copies).fit(X, Y)
    scales = [next(iter(each.plan_.releases.values())).record.scale for each in (one, more)]
    assert scales[1] == pytest.approx(copies * scales[0], rel=1e-9)
    assert more.plan_.privacy.unit.d_in == copies
    assert budget.fits == 2
    assert cost_of(more).charges == cost_of(one).charges
    # The plan's map at one row: what a table without copies would have lost.
    assert more.plan_.of_one[0] < one.plan_.of_one[0]


@pytest.mark.parametrize("bad", [0, -1, 1.0, True, "2", None, 10**7])
def test_no_number_of_copies_is_refused(bad):
    with pytest.raises(SimError, match=r"OS102.*max_copies"):
        centroid(max_copies=bad).fit(X, Y)


def test_copies_of_a_person_s_rows_are_rows_of_that_person():
    with pytest.raises(SimError, match=r"OS102.*max_copies"):
        centroid(unit="groups", max_rows=2, max_copies=2).fit(X, Y, groups=np.arange(200) // 4)


@pytest.mark.parametrize(("measure", "delta"), [("pure", None), ("gdp", 1e-6)])
def test_a_score_of_copies_is_charged_at_their_distance(measure, delta):
    """A record that occurs k times moves k counts at once."""
    budget = Budget(epsilon=5.0, delta=delta, measure=measure)
    fitted = centroid(epsilon=1e4).fit(X, Y)
    told = {"measure": measure, "delta": delta, "epsilon": 0.5, "budget": budget}
    one, more = (private_score(fitted, X, Y, max_copies=k, **told) for k in (1, 7))
    noise = [each.deviation * each.records for each in (one, more)]
    share = [np.hypot(each.accuracy, 1 - each.accuracy) for each in (one, more)]
    assert noise[1] / share[1] == pytest.approx(7 * noise[0] / share[0], rel=0.03)
    assert budget.fits == 2
    twice = cost_of_fits([centroid(**told)] * 2).total
    assert budget.total.loss == pytest.approx(twice.loss, rel=1e-9)
    for bad in (0, 1.0, True, None):
        with pytest.raises(SimError, match=r"OS102.*max_copies"):
            private_score(fitted, X, Y, max_copies=bad, **told)
    with pytest.raises(SimError, match=r"OS102.*max_copies"):
        private_score(
            fitted, X, Y, np.arange(200), unit="groups", max_rows=1, max_copies=2, budget=budget
        )
    assert budget.fits == 2


def test_the_promise_says_what_of_the_table_is_covered():
    """Copies are left out, up to where their number is stated; and every door says so."""
    fitted = centroid(epsilon=1e4).fit(X, Y)
    search = DPSearch(centroid(max_copies=3), {"epsilon": [0.5, 1.0]}).fit(X, Y)
    mixed = DPSearch(fitted, {"max_copies": [1, 3]}).fit(X, Y)  # one of its fits is for one copy
    for one in (fitted, private_score(fitted, X, Y), DPSearch(fitted, {}).fit(X, Y), mixed):
        told = one.privacy if hasattr(one, "privacy") else one.privacy_
        assert told["covers"] == coverage_of(1)
    for more in (
        centroid(max_copies=3).fit(X, Y),
        private_score(fitted, X, Y, max_copies=3),
        search,
    ):
        told = more.privacy if hasattr(more, "privacy") else more.privacy_
        assert told["covers"] == coverage_of(3)
    assert "copies and weights are not covered" in coverage_of(1)
    assert "3 times" in coverage_of(3)
    assert "copies" not in coverage_of(3)


def test_a_certificate_of_what_was_read_here_leaves_nothing_to_its_preparation():
    """A file is read, and prepared, by the spec's own steps; a table in memory by somebody else."""
    plan = centroid().fit(X, Y).plan_
    told = [derived_statement(plan, "release")["assumptions"]]
    spec = json.loads(json.dumps(plan.program.plain()))
    for source in ({"npz": "x.npz"}, {"parquet": "x.parquet"}):
        spec["data"]["records"]["source"] = source
        told.append(derived_statement(plan_of(draft_of(spec)), "release")["assumptions"])
    assert [HANDED in each for each in told] == [True, False, False]
    assert all([each for each in texts if each != HANDED] == told[1] for texts in told)


def test_a_certificate_says_that_the_preparation_of_the_table_is_not_covered():
    told = centroid().fit(X, Y).certificate_["assumptions"]
    assert sum("its preparation, copies of its records and weights" in text for text in told) == 1
