"""A private accuracy: how many held-out private records are predicted right, with noise.

``score``, ``cross_val_score`` and ``best_params_`` read raw records; this does not publish them.
Proof: ``scoring.md``, beside this file.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from opendp_sim.sklearn.base import PrivateEstimator
from opendp_sim.sklearn.budget import Budget
from opendp_sim.sklearn.defaults import MEASURE
from opendp_sim.sklearn.refusals import EstimatorRefused, InputRefused
from opendp_sim.sklearn.tables import column_of, matrix_of

__all__ = ["PrivateScore", "private_score", "right"]


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

    The estimator must be public or released: its own fit is charged elsewhere. Its code sees raw
    records, before the charge, and may keep them: use none that you do not trust. Records are predicted
    one at a time (0.4 to 2 ms each), and one whose prediction fails counts as wrong.

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
        budget: what it is charged to; None for none.

    Raises:
        EstimatorRefused (OS102): no classifier, or one that is charged at predict. InputRefused
            (OS602): no table. BudgetError (OS402): the budget refuses; nothing was charged.
    """
    inside = [estimator, *estimator.get_params(deep=True).values()]
    charged = any(getattr(each, "charges_at_predict", False) for each in inside)
    if not is_classifier(estimator) or charged:
        raise EstimatorRefused(
            "OS102",
            "estimator",
            expected="a classifier whose predictions are free functions of a row",
            got=type(estimator).__name__,
            hint="only accuracies are released here.",
        )
    hits = right(estimator, matrix_of(X), column_of(y, "y"))
    tally = _Tally(epsilon, delta, measure, unit, max_rows, budget)
    return tally.score_of(hits, groups)


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

    def score_of(self, hits: NDArray[np.bool_], groups: Any) -> PrivateScore:
        told = {"dtype": "category", "keys": [0, 1]}
        columns = {"right": (hits.astype(np.int64), told)}
        self._run(columns, [{"vote_counts": {"item": "right"}}], groups)
        (counts,) = self.release_.arrays.values()
        wrong, good = (float(max(c, 0.0)) for c in np.asarray(counts, dtype=np.float64).ravel())
        records, noise = max(wrong + good, 1.0), self.release_.released.deviation
        share = min(good / records, 1.0)
        off = noise * float(np.hypot(share, 1.0 - share)) / records
        return PrivateScore(share, off, wrong + good, self.privacy_)


def right(estimator: Any, array: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which records are predicted right, shape (n,): each alone, from one buffer.

    A product of matrices rounds by the shape of the whole batch: predicted together, a record that
    comes or goes could turn another one's close call. A buffer of one row is the same call for each.
    """
    if len(array) != len(labels):
        raise InputRefused(
            "OS602",
            "y",
            expected="one label a record",
            got="another number of them",
            hint="X and y need one entry a record.",
        )
    out = np.zeros(len(array), dtype=bool)
    buffer = np.empty((1, array.shape[1]), dtype=array.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names of columns; and no warning may count records
        for row, (values, label) in enumerate(zip(array, labels, strict=True)):
            buffer[0] = values
            try:
                out[row] = bool(estimator.predict(buffer)[0] == label)
            except (Exception, SystemExit):  # noqa: BLE001, S112 - who fails is wrong, and nothing is told
                continue
    return out
