"""Check that wrappers of a private estimator are accounted for.

Estimators of scikit-learn, with the reason of each. A budget sees one table at a fit. A wrapper that
copies, weights or makes records before the fit, or that learns from raw scores after it, loses more
than the budget says, and no fit can see that. One table answers for ``cost_of``, ``DPSearch`` and
``private_score``; ``wrappers.md`` beside this file shows it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer

from opendp_sim.core.errors import repr_text
from opendp_sim.sklearn._validation.refusals import EstimatorRefused
from opendp_sim.sklearn.base import PrivateEstimator
from opendp_sim.sklearn.preprocessing import PublicScaler

_DRAWS = "a record may be drawn several times for one fit, and how many records there are moves all draws"
_RAW = "it learns or chooses by raw predictions of private records, which no budget sees"
_RELABELS = "it fits once a class or a column, and changes labels before"
_WEIGHTS = "it weights or draws records by how earlier fits predicted them"
_ONCE = "each of its members is fitted once: reserve cost_of of each"

ACCOUNTED = {
    "Pipeline": "its end is fitted once; a step before it in which records may meet is refused",
    "GridSearchCV": "one fit a candidate and fold of HashFold, one more; not its choice by raw scores",
    "RandomizedSearchCV": "as GridSearchCV, with a whole number as random_state",
    "DPSearch": "one fit a candidate on one part of the records, and noisy accuracies of the other",
}
"""Wrappers whose fits are counted, each with the reason."""
NOT_ACCOUNTED = {
    "AdaBoostClassifier": _WEIGHTS,
    "BaggingClassifier": _DRAWS,
    "BaggingRegressor": _DRAWS,
    "CalibratedClassifierCV": _RAW,
    "ClassifierChain": _RELABELS,
    "MultiOutputClassifier": _RELABELS,
    "OneVsOneClassifier": _RELABELS,
    "OneVsRestClassifier": _RELABELS,
    "RFE": _RAW,
    "RFECV": _RAW,
    "SelectFromModel": _RAW,
    "SelfTrainingClassifier": _RAW,
    "SequentialFeatureSelector": _RAW,
    "StackingClassifier": _RAW,
    "StackingRegressor": _RAW,
    "TunedThresholdClassifierCV": _RAW,
    "VotingClassifier": _ONCE,
    "VotingRegressor": _ONCE,
}
"""Wrappers that are refused, each with the reason."""
_OTHER = "its own code decides how often a record is fitted"


def check_accounted(estimator: Any) -> None:
    """Refuse a wrapped private estimator with an uncounted loss (OS102)."""
    if not hasattr(estimator, "get_params") or isinstance(estimator, type):
        return
    for each in outside_of_frozen(estimator):
        if isinstance(each, BaseEstimator) and holds_private(each):
            if type(each) is Pipeline:
                check_steps(each)
            elif type(each) in (GridSearchCV, RandomizedSearchCV):
                check_folds(each.cv)
            elif type(each).__name__ not in ACCOUNTED or not _is_known(type(each)):
                raise refusal(each)


def refusal(wrapper: Any) -> EstimatorRefused:
    """Return the refusal of an unaccounted wrapper, with the reason."""
    name = type(wrapper).__name__
    return EstimatorRefused(
        "OS102",
        name,
        expected="a private estimator, or a wrapper whose fits are counted: "
        + ", ".join(ACCOUNTED),
        got=f"another: {NOT_ACCOUNTED.get(name, _OTHER) if _is_known(type(wrapper)) else _OTHER}",
        hint="fit the private estimator itself, each record once; if the table holds copies of a record, "
        "state the most of them: max_copies.",
    )


def check_folds(cv: Any) -> None:
    """Refuse folds other than ``HashFold`` (OS102); an iterator stays unread."""
    if type(cv).__name__ == "HashFold" and _is_ours(type(cv)):
        return
    named = cv.__name__ if isinstance(cv, type) else type(cv).__name__
    got = f"cv={cv}" if cv is None or type(cv) is int else f"{named:.40}"
    raise EstimatorRefused(
        "OS102", "cv", expected="HashFold, whose folds are a public hash of each record",
        got=f"{got}, in which one record may move others between the folds: no loss can be stated",
        hint="write cv=HashFold(3), from opendp_sim.sklearn; its folds are by person with groups.",
    )  # fmt: skip


def holds_private(estimator: Any) -> bool:
    """Say whether an estimator has a private one among its parameters."""
    inside = outside_of_frozen(estimator)[1:]
    return any(isinstance(each, PrivateEstimator) for each in inside)


def _is_ours(kind: type) -> bool:
    """Say whether a class is this package's."""
    return kind.__module__.startswith("opendp_sim.")


def _is_known(kind: type) -> bool:
    """Return whether a class is scikit-learn's or this package's."""
    return kind.__module__.startswith("sklearn.") or _is_ours(kind)


def check_steps(pipeline: Any) -> None:
    """Refuse private estimators before a pipeline's end, and learning steps."""
    steps = (step for _, step in pipeline.steps[:-1] if hasattr(step, "get_params"))
    before = (each for step in steps for each in outside_of_frozen(step))
    if any(
        isinstance(each, PrivateEstimator) or hasattr(type(each), "private_cost") for each in before
    ):
        raise EstimatorRefused(
            "OS102", "estimator",
            expected="exactly one private estimator, at the end of its pipeline", got="another",
            hint="count the fits yourself and reserve them: budget.reserve([...]).",
        )  # fmt: skip
    for step in outside_of_frozen(pipeline):
        _check_step(step)


def outside_of_frozen(estimator: Any) -> list[Any]:
    """Return an estimator and inner ones, without frozen, which never refit."""
    named = estimator.get_params(deep=True)
    frozen = tuple(f"{name}__" for name, each in named.items() if isinstance(each, FrozenEstimator))
    return [estimator, *(each for name, each in named.items() if not name.startswith(frozen))]


_ALONE = (PublicScaler, Binarizer)
"""Transformers that treat each record alone."""
_SCALE = "PublicScaler(bounds=...), or FunctionTransformer of a numpy ufunc, as np.log1p"
_FREEZE = (
    "a step that treats each record alone is declared by FrozenEstimator(step.fit(public_rows))"
)


def _check_step(step: Any) -> None:
    """Refuse a transformer that mixes records at or after its fit (OS102)."""
    kind, name = type(step), type(step).__name__
    transforms = hasattr(step, "fit") and hasattr(step, "transform")
    if isinstance(step, PrivateEstimator | type) or not transforms:
        return
    got = "one that may read other records, which no budget sees"
    if kind is FunctionTransformer:
        if (got := _doubt(step)) == "":
            return
        name = f"{name}(func={getattr(step.func, '__name__', type(step.func).__name__):.40})"
        got = f"{got}, which no budget sees"
    elif kind is ColumnTransformer:
        if not any(
            callable(c) and type(c) is not make_column_selector for *_, c in step.transformers
        ):
            return
        got = "columns that a function of the table selects, which no budget sees"
    elif kind is Normalizer:
        if step.norm == "max":
            return
        name = f"{name}(norm={repr_text(step.norm, 20)})"
        got = "row sums, whose last bits may tell one record from more, which no budget sees"
    elif kind in (*_ALONE, Pipeline, FeatureUnion) or (
        kind is FrozenEstimator and not _mixes(step)
    ):
        return
    raise EstimatorRefused(
        "OS102", f"step {name}",
        expected="steps that learn nothing from the records and treat each record alone", got=got,
        hint=f"use {_SCALE}; {_FREEZE}.",
    )  # fmt: skip


def _mixes(step: FrozenEstimator) -> bool:
    """Return whether a frozen step mixes public fixed rows.

    It is its user's declaration: where such rows cannot be transformed, it stands.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names of columns
            rows = np.sin(np.arange(1.0, 16 * step.n_features_in_ + 1)).reshape(16, -1)
            beside = np.asarray(step.transform(rows), dtype=np.float64)[3:4]
            alone = np.asarray(step.transform(rows[3:4]), dtype=np.float64)
        return beside.shape != alone.shape or not np.allclose(beside, alone, equal_nan=True)
    except Exception:  # noqa: BLE001 - anybody's code, on rows that nobody handed over
        return False


def _doubt(step: FunctionTransformer) -> str:
    """Return the doubt that a function is cell-wise, if any."""
    func = step.func
    one = isinstance(func, np.ufunc) and func.signature is None and (func.nin, func.nout) == (1, 1)
    if func is not None and not (
        one and func.types != ["O->O"]
    ):  # of np.frompyfunc: anybody's code
        return "a function that may read the whole table"
    if step.kw_args:
        return "arguments (kw_args) that may differ record by record"
    if step.inverse_func is not None or step.validate:
        return "inverse_func or validate=True, which report what they find in the records"
    return ""
