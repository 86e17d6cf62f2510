"""The candidates of a search, as public parameters name them; what is no grid is refused by a code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, check_cv

from opendp_sim.sklearn.refusals import EstimatorRefused

__all__ = ["candidates_of", "grid_of", "splits_of", "with_params"]


def candidates_of(estimator: Any, listed: Iterable[Any]) -> list[Any]:
    """Return a copy of the estimator with each of the parameters (OS102 where it has none of them)."""
    return [with_params(estimator, params) for params in listed]


def with_params(estimator: Any, params: Any) -> Any:
    """Return a copy of an estimator with these parameters, or refuse (OS102)."""
    copied = _or_none(lambda: clone(estimator), TypeError)
    if copied is None or isinstance(copied, type):
        raise _refused(
            "estimator",
            "an estimator object",
            "a class or something else",
            "pass what the class makes: DPSearch(DPNearestCentroid(...), {...}).",
        )
    done = _or_none(lambda: copied.set_params(**params), AttributeError, TypeError, ValueError)
    if done is None:
        raise _refused(
            "param_grid",
            f"parameters of {type(estimator).__name__}",
            f"{', '.join(map(str, params)) if isinstance(params, dict) else 'something else':.80}",
            "estimator.get_params() lists them.",
        )
    return done


def grid_of(grid: Any) -> ParameterGrid:
    """Return a grid of parameters that has a candidate, or refuse (OS102)."""
    found: ParameterGrid | None = _or_none(lambda: ParameterGrid(grid), TypeError, ValueError)
    if found is None or len(found) == 0:
        raise _refused(
            "param_grid",
            "names of parameters to lists of values, and at least one candidate",
            "none" if found is not None else "something else",
            'for example {"epsilon": [0.5, 1.0]}.',
        )
    return found


def splits_of(cv: Any) -> int:
    """Return the number of folds, which must not depend on data, or refuse (OS102).

    An iterator is refused unread: it would be used up here, and the search would find no folds in it.
    """
    if hasattr(cv, "__next__"):
        raise _refused(
            "cv", "folds that can be read twice", "an iterator", "write cv=list(splits)."
        )
    found: int | None = _or_none(lambda: int(check_cv(cv).get_n_splits()), TypeError, ValueError)
    if found is None or found < 1:
        raise _refused(
            "cv",
            "folds whose number does not depend on the data, at least one",
            "another" if found is None else "none",
            "count the fits yourself and reserve them: budget.reserve([...]).",
        )
    return found


def _or_none(make: Callable[[], Any], *errors: type[Exception]) -> Any:
    """Return what is made, or None: scikit-learn's errors have no code, and may be long."""
    try:
        return make()
    except errors:
        return None


def _refused(where: str, expected: str, got: str, hint: str) -> EstimatorRefused:
    return EstimatorRefused("OS102", where, expected=expected, got=got, hint=hint)
