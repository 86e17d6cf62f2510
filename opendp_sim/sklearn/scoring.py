"""A private accuracy: how many held-out private records are predicted right, with noise.

``score``, ``cross_val_score`` and ``best_params_`` read raw records; this does not publish them.
Proof: ``scoring.md``, beside this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from opendp_sim.sklearn.base import PrivateEstimator
from opendp_sim.sklearn.budget import Budget
from opendp_sim.sklearn.defaults import MEASURE
from opendp_sim.sklearn.fitted_form import (
    all_inside,
    check_estimator,
    check_fitted,
    check_kind,
    names_for,
)
from opendp_sim.sklearn.hits import check_pairs, right
from opendp_sim.sklearn.refusals import EstimatorRefused
from opendp_sim.sklearn.shared_budget import one_budget
from opendp_sim.sklearn.tables import column_of, seen

__all__ = ["PrivateScore", "private_score"]


@dataclass(frozen=True)
class PrivateScore:
    """A private accuracy.

    Attributes:
        accuracy: the share of records predicted right, within [0, 1].
        deviation: what noise moves it by, one deviation.
        records: the noisy number of records.
        privacy: the claim, as estimators state it in ``privacy_``.
    """

    accuracy: float
    deviation: float
    records: float
    privacy: dict[str, Any]

    def __float__(self) -> float:
        """Return the accuracy."""
        return self.accuracy


def private_score(
    estimator: Any,
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    epsilon: float = 1.0,
    delta: float | None = 1e-6,
    measure: str = MEASURE,
    unit: str = "row",
    max_rows: int | None = None,
    budget: Budget | None = None,
) -> PrivateScore:
    """Release the accuracy of a fitted classifier on private records.

    The estimator must be public or released: its own fit is charged elsewhere. It sees raw records, once
    they are charged, and its code may keep them: use none that you do not trust. A record whose
    prediction fails counts as wrong. The package's own estimators predict in batches, others one record
    at a time, as a pandas frame of one row where they were fitted with names and X is one.

    Args:
        estimator: a fitted classifier whose ``predict`` is a function of the row alone.
        X: shape (n, d), private records.
        y: shape (n,), their labels.
        groups: shape (n,), whose each record is, with ``unit="groups"``.
        epsilon: the loss, at ``delta``.
        delta: None with ``measure="pure"``.
        measure: ``gdp``, ``zcdp`` or ``pure``.
        unit: ``row`` or ``groups``.
        max_rows: rows used of one person.
        budget: what it is charged to; None for the one that the estimator holds, if it holds one.

    Raises:
        EstimatorRefused (OS102): no classifier, one that is not fitted or is charged at predict, or
            labels of another kind than its classes. InputRefused (OS602): no table; (OS607): other
            columns than those of the fit. BudgetError (OS402): the budget refuses. Nothing was charged.
    """
    check_estimator(estimator)
    inside = [*all_inside(estimator), *estimator.get_params(deep=True).values()]
    charged = any(getattr(each, "charges_at_predict", False) for each in inside)
    if not is_classifier(estimator) or charged:
        raise EstimatorRefused(
            "OS102",
            "estimator",
            expected="a classifier whose predictions are free functions of a row",
            got=type(estimator).__name__,
            hint="only accuracies are released here.",
        )
    check_fitted(estimator)
    array, labels = seen(estimator, X, reset=False), column_of(y, "y")
    check_pairs(array, labels)
    check_kind(estimator, labels, y)
    names = names_for(estimator, X)
    if budget is None:
        budget = one_budget(
            inside, "one budget", "say which one pays: private_score(..., budget=budget)."
        )
    tally = _Tally(epsilon, delta, measure, unit, max_rows, budget)
    return tally.score_of(lambda: right(estimator, array, labels, names), len(array), groups)


class _Tally(PrivateEstimator):
    """Counts of right and wrong records, with noise."""

    _charged_as = "private_score"

    def __init__(
        self,
        epsilon: float,
        delta: float | None,
        measure: str,
        unit: str,
        max_rows: int | None,
        budget: Budget | None,
    ) -> None:
        self.epsilon, self.delta, self.measure = epsilon, delta, measure
        self.unit, self.max_rows, self.budget = unit, max_rows, budget

    def score_of(
        self, hits: Callable[[], NDArray[np.bool_]], records: int, groups: Any
    ) -> PrivateScore:
        """Charge, and only then ask the estimator, whose code is anybody's."""
        told = {"dtype": "category", "keys": [0, 1]}
        columns = {"right": (np.zeros(records, dtype=np.int64), told)}
        votes: list[Mapping[str, Any]] = [{"vote_counts": {"item": "right"}}]
        self._run(columns, votes, groups, lambda: {"right": hits().astype(np.int64)})
        (counts,) = self.release_.arrays.values()
        wrong, good = (float(max(c, 0.0)) for c in np.asarray(counts, dtype=np.float64).ravel())
        size, noise = max(wrong + good, 1.0), self.release_.released.deviation
        share = min(good / size, 1.0)
        off = noise * float(np.hypot(share, 1.0 - share)) / size
        return PrivateScore(share, off, wrong + good, self.privacy_)
