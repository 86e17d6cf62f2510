"""What a fitted classifier and a table must share, from public form alone: no record is looked at.

A prediction that fails counts as wrong, so a mistake in the form would be charged and told as an
accuracy of nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from opendp_sim.sklearn.refusals import EstimatorRefused
from opendp_sim.sklearn.tables import is_text

__all__ = ["all_inside", "as_given", "check_estimator", "check_fitted", "check_kind", "names_for"]

_KINDS = {"U": "text", "T": "text", "S": "bytes"} | dict.fromkeys("biuf", "numbers")
"""Kinds of dtype whose values can be equal to each other."""


def check_estimator(estimator: Any) -> None:
    """Refuse what is no estimator (OS102)."""
    if isinstance(estimator, type) or not callable(getattr(estimator, "get_params", None)):
        raise _refused(
            "a fitted classifier of scikit-learn's form",
            "a class" if isinstance(estimator, type) else type(estimator).__name__,
            "pass the object that was fitted.",
        )


def all_inside(estimator: Any) -> list[Any]:
    """Return an estimator and all that it holds: parameters, and what it fitted."""
    found: dict[int, Any] = {}
    open_ = [estimator]
    while open_:
        each = open_.pop()
        if id(each) in found:
            continue
        found[id(each)] = each
        if isinstance(each, dict):
            open_ += each.values()
        elif isinstance(each, list | tuple):
            open_ += each
        elif isinstance(each, BaseEstimator):
            open_ += vars(each).values()
    return list(found.values())


def check_fitted(estimator: Any) -> None:
    """Refuse a classifier that has a fit and was not fitted, or that cannot predict (OS102)."""
    unfitted = False
    if hasattr(estimator, "fit"):
        try:
            check_is_fitted(estimator)
        except NotFittedError:
            unfitted = True
    if unfitted:
        raise _refused(
            "a classifier that is fitted",
            f"a {type(estimator).__name__} that is not",
            "call fit first; a class of your own says so by a fitted attribute that ends in `_`, or by "
            "`__sklearn_is_fitted__`.",
        )
    if not callable(getattr(estimator, "predict", None)):
        raise _refused(
            "a classifier that predicts",
            f"a {type(estimator).__name__} without `predict`",
            "a search needs refit=True.",
        )


def check_kind(estimator: Any, labels: NDArray[Any], column: Any) -> None:
    """Refuse labels whose dtype holds nothing that equals a class (OS102); objects may hold anything.

    What the caller passed, ``column``, may say by its own type that its objects are texts.
    """
    known, given = _kind_of_classes(getattr(estimator, "classes_", None)), _kind(labels.dtype)
    given = "text" if given is None and is_text(column) else given
    if known is not None and given is not None and known != given:
        raise EstimatorRefused(
            "OS102",
            "y",
            expected=f"labels of the kind of the estimator's classes: {known}",
            got=f"dtype {given if labels.dtype.kind == 'O' else labels.dtype}",
            hint="write the labels as they were written at fit.",
        )


def names_for(estimator: Any, table: Any) -> list[str] | None:
    """Return the names of the columns, where a classifier that was fitted with names gets a pandas frame.

    The names were compared before: they are those of the fit.
    """
    pandas = sys.modules.get("pandas")  # whoever holds a frame has it
    if pandas is None or not isinstance(table, pandas.DataFrame):
        return None
    known = getattr(estimator, "feature_names_in_", None)
    return None if known is None else [str(name) for name in known]


def as_given(rows: NDArray[Any], names: list[str] | None) -> Any:
    """Return rows as the array that they are, or as a new frame with these names and nothing else."""
    if names is None:
        return rows
    return sys.modules["pandas"].DataFrame(rows, columns=list(names), copy=False)


def _kind(dtype: np.dtype[Any]) -> str | None:
    return None if dtype.kind == "O" else _KINDS.get(dtype.kind, f"dtype kind {dtype.kind}")


def _kind_of_classes(classes: Any) -> str | None:
    """Return the one kind of a classifier's classes, which are public; None if there is none."""
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        return None
    if classes.dtype.kind != "O":
        return _kind(classes.dtype)
    kinds = {_kind(np.asarray(value).dtype) for value in classes}
    return kinds.pop() if len(kinds) == 1 else None


def _refused(expected: str, got: str, hint: str) -> EstimatorRefused:
    return EstimatorRefused("OS102", "estimator", expected=expected, got=got, hint=hint)
