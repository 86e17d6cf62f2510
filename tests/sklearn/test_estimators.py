"""Each estimator finds what its non-private twin finds, where noise is small."""

from __future__ import annotations

import pickle
import warnings
from itertools import product

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

import opendp_sim as sim
from opendp_sim import sklearn as face
from opendp_sim.core.errors import SimError
from opendp_sim.sklearn import (
    Budget,
    DPKernelClassifier,
    DPKernelDensity,
    DPKNeighborsClassifier,
    DPLogisticRegression,
    DPNearestCentroid,
    DPOneClass,
    DPRidge,
    NoiseDecidesWarning,
    PublicScaler,
)

rng = np.random.default_rng(7)
X = np.concatenate([rng.normal(c, 0.1, (150, 2)) for c in (-0.5, 0.0, 0.5)]).clip(-1, 1)
Y = np.repeat(["a", "b", "c"], 150)
BOX, BIG = {"bounds": (-1, 1)}, {"epsilon": 1e5}
CLASSIFIERS = [
    DPNearestCentroid(**BOX, **BIG, classes=["c", "b", "a"]),
    DPNearestCentroid(**BOX, **BIG, classes=["c", "b", "a"], priors="empirical"),
    DPLogisticRegression(**BOX, **BIG, classes=["a", "b", "c"], features="fourier"),
    DPKernelClassifier(**BOX, **BIG, classes=["c", "b", "a"], bandwidth=0.1),
]
ALL = [
    *CLASSIFIERS,
    DPKernelDensity(**BOX, **BIG, bandwidth=0.1),
    DPOneClass(**BOX, **BIG, bandwidth=0.1, threshold=0.02),
    DPRidge(**BOX, **BIG, y_bounds=(-2, 2)),
]

MORE = [
    DPLogisticRegression(**BOX, classes=["a", "c"], size=400, max_iter=8),
    DPKNeighborsClassifier(**BOX, classes=["a", "b", "c"], size=400, threshold=0.5),
]


def target(est):
    return X[:, 0] if isinstance(est, DPRidge) else Y


@pytest.mark.few(2)
@pytest.mark.parametrize("est", CLASSIFIERS, ids=lambda e: type(e).__name__)
def test_classifiers(est):
    est = clone(est).fit(X, Y)
    assert est.classes_.tolist() == ["a", "b", "c"]
    assert est.score(X, Y) > 0.98
    assert est.decision_function(X).shape == (450, 3)
    two = clone(est).set_params(classes=["a", "c"]).fit(X, Y)  # b is foreign: left out
    ends = Y != "b"
    assert two.score(X[ends], Y[ends]) > 0.98
    above = two.decision_function(X)
    assert above.shape == (450,)
    assert (two.predict(X) == np.where(above > 0, "c", "a")).all()
    if hasattr(est, "predict_proba"):
        assert np.allclose(est.predict_proba(X).sum(axis=1), 1)
        assert np.allclose(est.predict_proba([[50.0, 50.0]]).sum(), 1)


@pytest.mark.parametrize(
    ("bounds", "norm", "expected"),
    [
        ((-1, 1), None, 0.1 * 2 * 2**0.5),
        (([-1, -9], [1, 9]), None, 0.1 * 2**0.5),  # in ranges
        (None, 3.0, 1.5),
        ((-1, 1), 0.1, 0.05),
        (([-1, -9], [1, 9]), 0.1, 0.1 * 2**0.5),
    ],
)
def test_the_usual_bandwidth_is_of_public_bounds(bounds, norm, expected):
    given = {"bounds": bounds, "data_norm": norm, "classes": [0, 1], "features": "fourier"}
    plans = [
        DPLogisticRegression(**given, bandwidth=h).fit(X[:0], np.arange(0)).plan_.canonical
        for h in (None, expected)
    ]
    assert plans[0] == plans[1]


def test_a_parameter_that_no_program_can_hold_is_refused():
    for size in (object(), np.datetime64("2026-01-01"), {1, 2}):
        with pytest.raises(SimError, match="OS101"):
            clone(MORE[0]).set_params(size=size).fit(X, Y)


@pytest.mark.few(3)
@pytest.mark.parametrize("est", ALL, ids=lambda e: type(e).__name__)
def test_every_estimator_keeps_the_protocol(est):
    """Refusals before the fit and of queries, pickles, single rows, and what is left when nothing is."""
    fresh = clone(est)
    ask = "score_samples" if isinstance(est, DPKernelDensity) else "predict"
    with pytest.raises(NotFittedError):
        getattr(fresh, ask)(X)
    y = target(est)
    fresh.fit(X, y)
    answers = getattr(fresh, ask)(X[::40])
    assert (getattr(pickle.loads(pickle.dumps(fresh)), ask)(X[::40]) == answers).all()  # noqa: S301
    one = [getattr(fresh, ask)(X[i : i + 1])[0] for i in range(0, 450, 40)]
    assert one == pytest.approx(answers) if answers.dtype.kind == "f" else one == answers.tolist()
    for wrong in (X[:, :1], X[0], [[np.nan, 0.0]], X[:0], [["x", 0.0]]):
        with pytest.raises(SimError) as refused:
            getattr(fresh, ask)(wrong)
        assert isinstance(refused.value, ValueError)
    again = clone(est).set_params(epsilon=1.0).fit(X[:0], y[:0])
    assert np.isfinite(np.asarray(getattr(again, ask)(X[:5]), dtype=object) != "").all()
    persons = clone(est).set_params(unit="groups", max_rows=3)
    persons.fit(X, y, groups=np.arange(450) // 5)
    assert dict(persons.plan_.releases["noisy"].maps)["bound_contributions"] == 3
    with pytest.raises(SimError, match="OS101"):
        clone(est).set_params(bounds=None).fit(X, y)


@pytest.mark.parametrize("engine", ["auto", "gauss_transform", "fourier"])
def test_density_is_that_of_scikit_learn(engine):
    ours = DPKernelDensity(**BOX, **BIG, bandwidth=0.2, engine=engine, n_components=4000).fit(X)
    exact = np.exp(KernelDensity(bandwidth=0.2).fit(X).score_samples(X[::30]))
    assert np.abs(np.exp(ours.score_samples(X[::30])) / exact - 1).max() < 0.25
    assert ours.engine_ == ("fourier" if engine == "auto" else engine)
    drawn = ours.sample(20, random_state=1, candidates=[[0.0, 0.0], [0.9, -0.9]])
    assert drawn.tolist() == [[0.0, 0.0]] * 20
    table = ours.density(X[:2], confidence=0.5)
    assert {"density", "lower", "upper"} <= set(table.keys())


@pytest.mark.parametrize("features", ["linear", "fourier"])
def test_a_model_of_noise_alone_is_warned_of_and_stands(features):
    """No record: 95 % of fits warn, so one of six does but in 2e-8 of runs; a clear one never does."""
    given = {**BOX, "classes": ["a", "c"], "features": features, "max_iter": 4}
    ends = Y != "b"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clear = DPLogisticRegression(**given, epsilon=100.0).fit(X[ends], Y[ends])
        assert clear.score(X[ends], Y[ends]) > 0.95
        budget, raised = Budget(epsilon=1000.0, delta=1e-4), 0
        for _ in range(6):
            est = DPLogisticRegression(**given, budget=budget)
            try:
                est.fit(X[:0], Y[:0])
            except NoiseDecidesWarning as warning:  # paid for, so it is kept
                raised += "noise alone" in str(warning)
            assert est.predict(X[:3]).shape == (3,)
    assert raised
    assert budget.fits == 6


def test_a_line_without_slopes_is_warned_of():
    """Without a record most lines under pure DP have no slope: that 40 have one is below 1e-20."""
    est = DPRidge(**BOX, y_bounds=(0, 1), measure="pure", delta=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lines = [clone(est).fit(X[:0], X[:0, 0]).coef_.any() for _ in range(40)]
    told = [each for each in caught if each.category is NoiseDecidesWarning]
    assert len(told) == lines.count(False) > 0


@pytest.mark.parametrize("made", [DPKernelDensity, DPOneClass])
def test_frequencies_follow_the_declared_size(made):
    """As of `sim.density`, with points and without."""
    four = dict.fromkeys("abcd", (0, 1))

    def count(plan):
        return plan.types["sketch"].stages[-1].mechanism.frequencies

    def of(**more):
        return count(made(bounds=(0, 1), bandwidth=0.1, **more).fit(np.zeros((0, 4))).plan_)

    sizes = (None, 50, 10**6)
    for points, usual in (("auto", 8000), ("none", 2000)):
        counts = [of(size=size, points=points) for size in sizes]
        assert counts == [
            count(sim.density(four, bandwidth=0.1, size=n, points=points).plan) for n in sizes
        ]
        assert counts[0] == usual
        assert 500 <= counts[1] < 2000 < counts[2] == 8000
    assert of(size=10**6, n_components=77) == 77
    assert of(size=50, max_copies=10) == 500  # more noise hides more sampling error
    assert of(size=10**6, measure="pure", delta=None) == 2000


@pytest.mark.parametrize("made", [DPKernelDensity, DPOneClass])
def test_points_are_grown_as_by_the_recipe(made):
    """A twentieth of the budget for moments: in 4 columns, where nobody asks for none."""

    def moments(columns=4, **more):
        fitted = made(bounds=(0, 1), bandwidth=0.1, **more).fit(np.zeros((0, columns)))
        return fitted.plan_.types["sketch"].stages[-1].mechanism.moments

    assert moments()
    assert moments(n_components=300)
    assert moments(columns=3, points="grown")
    assert not moments(columns=3)
    assert not moments(points="none")
    assert not moments(measure="pure", delta=None)
    with pytest.raises(face.EstimatorRefused, match="OS101 points"):
        moments(points="public")
    with pytest.raises(face.EstimatorRefused, match="OS101 points"):
        DPKernelDensity(bounds=(0, 1), engine="race", points="public").fit(np.zeros((9, 4)))
    for words in ({"engine": "race"}, {"engine": "gauss_transform"}, {"measure": "pure"}):
        with pytest.raises(face.EstimatorRefused, match="OS101 points"):
            moments(columns=2, points="grown", delta=None if "measure" in words else 1e-6, **words)


def test_an_estimator_answers_with_grown_points():
    X = np.random.default_rng(0).beta(2, 5, (3000, 4))
    given = {"epsilon": 8.0, "bounds": (0, 1), "bandwidth": 0.1, "n_components": 400}
    answers = [
        DPKernelDensity(**given, points=points).fit(X).density(X[:50])
        for points in ("auto", "none")
    ]
    grown, without = (np.median(answer["sketch_error"]) for answer in answers)
    assert grown < 0.5 * without


def test_density_of_unlike_columns_is_in_data_units():
    wide = X * [1.0, 100.0]
    ours = DPKernelDensity(**BIG, bounds=([-1, -100], [1, 100]), bandwidth=0.1).fit(wide)
    same = DPKernelDensity(**BIG, **BOX, bandwidth=0.2).fit(X)
    shift = ours.score_samples(wide[::30]) - same.score_samples(X[::30])
    assert np.abs(shift + np.log(100.0)).max() < 0.01


def test_race_counts_shared_hashes():
    found = DPKernelDensity(**BOX, **BIG, bandwidth=0.5, engine="race", n_components=400).fit(X)
    near, far = found.score_samples([[0.0, 0.0], [1.0, -1.0]])
    assert 0 > near > far


def test_one_class_flags_lonely_queries_only():
    est = DPOneClass(**BOX, **BIG, bandwidth=0.1, threshold=0.02).fit(X)
    assert est.predict([[0.0, 0.0], [0.9, -0.9]]).tolist() == [1, -1]
    assert (est.decision_function(X[:9]) == est.score_samples(X[:9]) - est.offset_).all()
    assert not hasattr(est, "fit_predict")  # labels of training records are not private


def test_ridge_finds_the_slopes():
    wide = X * [1.0, 50.0]
    y = wide @ [1.0, 0.02] + 0.3
    ours = DPRidge(**BIG, bounds=([-1, -50], [1, 50]), y_bounds=(-3, 3)).fit(wide, y)
    exact = Ridge(alpha=1e-6).fit(wide, y)
    assert np.abs(ours.coef_ * [1, 50] - exact.coef_ * [1, 50]).max() < 0.1
    assert abs(ours.intercept_ - exact.intercept_) < 0.05
    assert ours.score(wide, y) > 0.99
    low = DPRidge(**BIG, bounds=([-1, -50], [1, 50]), y_bounds=(-0.5, 0.5)).fit(wide, y)
    assert np.abs(low.predict(wide)).max() == 0.5
    low.set_params(y_bounds=(7, 8))  # what was released keeps to the bounds of its fit
    assert np.abs(low.predict(wide)).max() == 0.5
    with pytest.raises(SimError, match="OS101"):
        DPRidge(**BOX).fit(X, y)
    with pytest.raises(SimError, match="OS602"):
        DPRidge(**BOX, y_bounds=(0, 1)).fit(X, Y)


def test_the_public_scaler_learns_nothing():
    scaler = PublicScaler(bounds={0: (-1, 1), 1: (0, 5)}).fit(X)
    assert scaler.transform([[0.0, 10.0], [-5.0, 2.5]]).tolist() == [[0.5, 1.0], [0.0, 0.5]]
    assert np.isnan(scaler.transform([[np.nan, 1.0]])[0, 0])
    with pytest.raises(SimError, match="OS101"):
        PublicScaler().fit(X)
    piped = make_pipeline(
        PublicScaler(bounds=(-1, 1)),
        DPNearestCentroid(**BIG, bounds=(0, 1), classes=["a", "b", "c"]),
    )
    assert piped.fit(X, Y).score(X, Y) > 0.98


@pytest.mark.parametrize(
    ("est", "more"),
    [
        (ALL[1], {"priors": None}),
        (ALL[2], {"bandwidth": 0}),
        (ALL[2], {"features": "fast"}),
        (MORE[0], {"bandwidth": 1.0}),  # of waves, and none were asked for
        (MORE[0], {"random_state": -1}),
        (ALL[2], {"n_components": 0}),
        (ALL[2], {"n_components": 2**14 + 1}),
        (ALL[2], {"random_state": np.random.RandomState(1)}),
        (ALL[4], {"engine": "fast"}),
        (ALL[4], {"size": 0}),
        (ALL[4], {"size": 2.5}),
        (ALL[5], {"n_components": 2.0}),
        (ALL[4], {"bandwidth": np.inf}),
        (ALL[5], {"threshold": 1.0}),
        (ALL[5], {"false_alarms": 0.0}),
        (ALL[6], {"y_bounds": (1, 0)}),
        (ALL[6], {"radius": 0.5}),
        (ALL[6], {"radius": "1"}),
        (ALL[2], {"classes": [0.5, 1.5]}),
    ],
)
def test_own_parameters_are_refused(est, more):
    with pytest.raises(SimError, match=r"OS10[12]"):
        clone(est).set_params(**more).fit(X, target(est))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_no_row_of_the_fit_is_drawn_as_a_public_candidate():
    """`sample(candidates=X)` handed rows of the private table out, one by one."""
    table = np.random.default_rng(0).uniform(size=(50, 2))
    frame = pd.DataFrame(table, copy=True)
    for given in (table, frame, pl.from_pandas(frame.rename(columns=str)), list(table)):
        kde = DPKernelDensity(epsilon=5.0, bounds=(0, 1)).fit(given)
        for private in (given, given[:9]):
            with pytest.raises(ValueError, match="OS704 candidates"):
                kde.sample(3, candidates=private)
        assert len(kde.sample(3, candidates=[[0.0, 0.0], [0.5, 0.5]])) == 3
        assert len(pickle.loads(pickle.dumps(kde)).sample(3, candidates=np.eye(2))) == 3  # noqa: S301
    kde.fit(np.array(table[:40]))  # nobody keeps it
    assert len(kde.sample(3, candidates=table)) == 3


CLASSES = {"bounds": (-10, 10), "classes": [0, 1, 2, 3]}
ESTIMATORS = [
    face.DPNearestCentroid(**CLASSES, epsilon=1e6),
    face.DPKernelClassifier(**CLASSES, epsilon=1e6, bandwidth=2.0),
    face.DPLogisticRegression(**CLASSES, epsilon=100.0, max_iter=4),
    face.DPKernelDensity(bounds=(-10, 10)),
    face.DPOneClass(bounds=(-10, 10), threshold=0.1, epsilon=1000.0),
    face.DPRidge(bounds=(-10, 10), y_bounds=(-10, 10), epsilon=1e6),
    face.DPKNeighborsClassifier(
        **CLASSES, epsilon=1e5, threshold=0.5, queries=10_000, allow_scoring=True
    ),
    face.PublicScaler(bounds=(-10, 10)),
]
FAST = {
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_dict_unchanged",
    "check_dont_overwrite_attributes",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_estimators_unfitted",
    "check_fit2d_predict1d",
    "check_n_features_in_after_fitting",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
}
"""One fit each at most, and what a pipeline or a search stands on."""


@pytest.mark.few(2)
@pytest.mark.parametrize("est", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_a_slice_of_the_checks(est):
    ran = set()
    for copied, check in estimator_checks_generator(est, legacy=True):
        name = getattr(check, "func", check).__name__
        if name in FAST - face.expected_failed_checks(est).keys() and name not in ran:
            ran.add(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(copied)
    assert len(ran) >= 9


@pytest.mark.few(2)
@pytest.mark.parametrize("est", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.filterwarnings("ignore")
def test_no_value_of_an_array_is_in_a_refusal(est):
    """What should be one value may be a private column by mistake: its type is named, not its values."""
    wrong = (np.array([123456.75, 1.0]), pd.Series(["Alice", "b"]), [123456.75, 1.0])
    messages = []
    for name, value in product(est.get_params(deep=False), wrong):
        one = clone(est).set_params(**{name: value})
        try:
            one.fit(np.zeros((4, 2)), np.arange(4))
        except Exception as error:  # noqa: BLE001 - whatever it is, a user reads it
            messages.append(f"{name}: {error}")
    assert len(messages) >= 3
    assert [m for m in messages if any(v in m for v in ("123456", "1.23", "Alice"))] == []


@pytest.mark.deep
@pytest.mark.parametrize("est", ESTIMATORS, ids=lambda e: type(e).__name__)
@pytest.mark.filterwarnings("ignore")
def test_all_checks_pass_or_are_failed_for_a_reason(est):
    found = check_estimator(
        est, expected_failed_checks=face.expected_failed_checks(est), on_fail=None, on_skip=None
    )
    assert [r["check_name"] for r in found if r["status"] == "failed"] == []
