"""What crosses processes and meta-estimators: person ids by routing, refusals, budgets; and no data."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline

import opendp_sim as sim
from opendp_sim.core.errors import DataError, SimError
from opendp_sim.sklearn import (
    Budget,
    DPNearestCentroid,
    DPSearch,
    HashFold,
    InputRefused,
    PlanRefused,
    PublicScaler,
    cost_of,
)

rng = np.random.default_rng(5)
X = np.concatenate([rng.uniform(0, 0.4, (60, 2)), rng.uniform(0.6, 1, (60, 2))])
Y = np.repeat([0, 1], 60)
IDS = np.arange(120) // 3
TOLD = {"bounds": (0, 1), "classes": [0, 1], "epsilon": 5.0, "unit": "groups", "max_rows": 2}


class Seen(DPNearestCentroid):
    """Keeps what identifiers came to each fit."""

    came: list[np.ndarray] = []  # noqa: RUF012 - clones share it

    def fit(self, X, y, groups=None):
        Seen.came.append(groups)
        return super().fit(X, y, groups)


@pytest.fixture
def seen():
    Seen.came.clear()
    with sklearn.config_context(enable_metadata_routing=True):
        yield Seen.came


def whole(ids):
    """Whether persons came with all of their rows."""
    return ids is not None and set(np.unique(ids, return_counts=True)[1].tolist()) == {3}


def test_a_search_over_a_pipeline_hands_every_fit_its_persons(seen):
    est = Seen(**TOLD).set_fit_request(groups=True)
    search = GridSearchCV(
        make_pipeline(PublicScaler(bounds=(0, 1)), est),
        {"seen__data_norm": [None, 1.5]},
        cv=HashFold(3),
    ).fit(X, Y, groups=IDS)
    assert len(seen) == 7
    assert all(whole(ids) for ids in seen)
    assert sorted(len(ids) for ids in seen) == [78] * 4 + [84] * 2 + [120]
    text = search.best_estimator_[-1].privacy_["text"]
    assert text.endswith("all rows of one `groups` added or removed")


def test_cross_validation_hands_them_on_and_never_loses_them(seen):
    est = Seen(**TOLD).set_fit_request(groups=True)
    found = cross_validate(est, X, Y, cv=HashFold(3), params={"groups": IDS})
    assert np.isfinite(found["test_score"]).all()
    assert [whole(ids) for ids in seen] == [True] * 3
    with pytest.raises(UnsetMetadataPassedError):
        cross_validate(Seen(**TOLD), X, Y, cv=HashFold(3), params={"groups": IDS})
    assert len(seen) == 3


def test_a_private_search_takes_them_too_alone_and_as_a_step(seen):
    search = DPSearch(Seen(**TOLD), {"data_norm": [None, 1.5]}).fit(X, Y, groups=IDS)
    assert all(whole(ids) for ids in seen if len(ids))
    first = len(seen)
    search.set_fit_request(groups=True)
    pipe = make_pipeline(PublicScaler(bounds=(0, 1)), search).fit(X, Y, groups=IDS)
    assert len(seen) == 2 * first
    assert pipe.predict(X[:3]).shape == (3,)


# --- refusals in other processes ------------------------------------------------------------------


def _subclasses(cls):
    return {cls}.union(*(map(_subclasses, cls.__subclasses__())))


def test_every_refusal_arrives_as_itself_and_brings_nothing_along():
    code = {"OS": "OS602"} | {f"OS{n}": f"OS{n}01" for n in range(1, 10)}
    for cls in _subclasses(SimError) - _subclasses(sim.Refused):
        made = cls(code[cls.family], "here", expected="a", got=(1, "b"), hint="c")
        made.results = X  # what is set on it later stays here
        again = pickle.loads(pickle.dumps(made))  # noqa: S301
        assert (type(again), str(again), again.code) == (cls, str(made), made.code)
        assert not hasattr(again, "results") or again.results is not X
    with pytest.raises(sim.Refused) as refused:
        sim.plan({"spec": "opendp_sim/1"})
    for one in (refused.value, PlanRefused(refused.value.findings)):
        again = pickle.loads(pickle.dumps(one))  # noqa: S301
        assert type(again) is type(one)
        assert str(again) == str(one)
        assert again.findings == one.findings


@pytest.mark.long
def test_a_budget_of_this_process_says_so_to_workers():
    """In the text that a search raises, not in the cause of a cause."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    clf = DPNearestCentroid(bounds=(0, 1), classes=[0, 1], budget=budget)
    with pytest.raises(SimError, match=r"OS403.*Budget\.open"):
        cross_val_score(clf, X, Y, cv=HashFold(2), n_jobs=2, error_score="raise")
    with pytest.raises(ValueError, match=r"OS403.*Budget\.open"):  # scikit-learn's own, of all fits
        cross_val_score(clf, X, Y, cv=HashFold(2), n_jobs=2)
    assert budget.fits == 0


def test_what_every_fit_would_refuse_is_told_before_it_is_reserved():
    words = np.array(["a@secret.example", "b"] * 60)
    budget = Budget(epsilon=3.0, delta=1e-6)
    est = DPNearestCentroid(bounds=(0, 1), classes=[0, 1], budget=budget)
    search = GridSearchCV(est, {"data_norm": [None, 1.0]}, cv=HashFold(3))
    assert cost_of(search, X=X, y=Y).fits == cost_of(search).fits == 7
    for table, labels in ((X, words), (X.astype(str), Y), (X[0], Y), (X, None)):
        with pytest.raises((DataError, SimError), match="OS") as refused:
            cost_of(search, X=table, y=labels)
        assert "secret" not in str(refused.value)
    with pytest.raises(InputRefused, match="OS602"):
        cost_of(est, X=X.astype(str), y=Y)
    assert budget.fits == 0


@pytest.mark.deep
def test_workers_charge_once_and_tell_nothing(tmp_path, capfd):
    """Two processes, a file's budget, records that no text may quote: some minutes on a busy machine."""
    cells = X.astype(object)
    cells[5, 0] = "alice@secret.example"
    labels = Y.astype(object)
    labels[3] = "bob@secret.example"

    def search(budget, **more):
        est = DPNearestCentroid(epsilon=0.5, bounds=(0, 1), classes=[0, 1], budget=budget)
        score = {"scoring": _half, "n_jobs": 2}
        return GridSearchCV(est, {"data_norm": [None, 1.0]}, cv=HashFold(3), **(score | more))

    one = Budget.open(tmp_path / "a.ledger", epsilon=9.0, delta=1e-6)
    one.reserve(cost_of(search(one)))
    search(one).fit(cells, labels)
    assert (one.fits, one.reserved) == (7, 0)
    two = Budget.open(tmp_path / "b.ledger", epsilon=9.0, delta=1e-6)
    two.reserve(cost_of(search(two)).charges)
    search(two).fit(cells, labels)
    assert two.left_text == one.left_text
    small = Budget.open(tmp_path / "c.ledger", epsilon=0.5, delta=1e-6)
    with pytest.raises(SimError, match="OS402"):
        small.reserve(cost_of(search(small)))
    small.reserve(cost_of(search(small)).charges[:1])
    told = warnings.catch_warnings(record=True, action="always")
    with told as said, pytest.raises(SimError, match=r"OS102 .*a reserved fit"):
        search(small).fit(cells, labels)
    texts = "".join(str(warning.message) for warning in said)
    assert "OS102" in texts
    assert "secret" not in texts
    assert small.fits == 1
    with pytest.raises(InputRefused, match="OS602") as refused:
        search(two, error_score="raise").fit(cells.astype(str), labels)
    assert "secret" not in str(refused.value) + "".join(capfd.readouterr())


def _half(_est, _X, _y):
    return 0.5
