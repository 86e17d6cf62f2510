"""A search whose choice is private: fits on one part of the records, accuracies on the other.

Proof: ``search.md``, beside this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from opendp_sim.accounting.totals import loss_text
from opendp_sim.queries.modes import points_of
from opendp_sim.sklearn.all_or_nothing import all_or_nothing
from opendp_sim.sklearn.base import PrivateEstimator, check_budget
from opendp_sim.sklearn.budget import Budget
from opendp_sim.sklearn.candidates import candidates_of, grid_of
from opendp_sim.sklearn.cost import Cost, cost_of_fits
from opendp_sim.sklearn.engines import seed_of
from opendp_sim.sklearn.hits import right
from opendp_sim.sklearn.named_cells import NamedCells
from opendp_sim.sklearn.public_facts import classes_of, number
from opendp_sim.sklearn.refusals import EstimatorRefused, InputRefused
from opendp_sim.sklearn.shared_budget import one_budget
from opendp_sim.sklearn.tables import column_of, ids_of, numbers_of, seen
from opendp_sim.spaces.normal import normal
from opendp_sim.spaces.records import Column

__all__ = ["DPSearch"]

_NOBODY = 1e-6
"""A share of the records that would hold none of most tables; how many there are is private."""


class DPSearch(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Fit every candidate on one part of the records, and keep the one that does best on the other.

    ``GridSearchCV`` chooses by raw scores of private records, which no budget can see. Here the parts
    are cut by a public hash of each record (of each person, by groups), and the accuracies are noisy;
    they cost nothing beyond the fits, because no record is in both parts.

    Args:
        estimator: a private classifier.
        param_grid: as ``GridSearchCV``'s; candidates keep unit and measure.
        holdout: the share of records that scores are taken of.
        random_state: seed of the public hash.
        budget: what all fits are charged to; None for the estimator's own, if it has one.

    Attributes:
        best_estimator_: the candidate that was chosen, as fitted on the one part.
        best_params_: its parameters.
        cv_results_: ``params``, and ``accuracy``, noisy, of each.
        cost_: the loss of all of it.

    Raises:
        EstimatorRefused (OS102), InputRefused (OS602), BudgetError (OS402): nothing was charged.
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        holdout: float = 0.25,
        random_state: int | None = 0,
        budget: Budget | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.holdout = holdout
        self.random_state = random_state
        self.budget = budget

    def private_cost(self) -> Cost:
        """Return what ``fit`` charges."""
        return cost_of_fits(self.private_candidates())

    def private_candidates(self) -> list[Any]:
        """Return what ``fit`` fits, each with the one budget that pays."""
        number("holdout", self.holdout, above=_NOBODY, below=1.0 - _NOBODY)
        found = candidates_of(self.estimator, grid_of(self.param_grid))
        private = (isinstance(e, PrivateEstimator) and not e.charges_at_predict for e in found)
        good = all(private) and all(map(is_classifier, found))
        if not good:
            raise EstimatorRefused(
                "OS102",
                "estimator",
                expected="a private classifier whose predictions are free",
                got=type(self.estimator).__name__,
                hint="put scalers with public constants before the search.",
            )
        budget = self._paid_by(found)
        return [each.set_params(budget=budget) for each in found]

    def _paid_by(self, candidates: Sequence[PrivateEstimator]) -> Budget | None:
        """Return the one budget of the search and of its candidates; None where nobody has one."""
        check_budget(self)
        for each in candidates:
            check_budget(each)
        return one_budget(
            [self.budget, *(each.budget for each in candidates)],
            "one budget for the search and all of its candidates",
            "give it to the search alone: all fits are charged to it together.",
        )

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPSearch:
        """Fit all candidates, and choose.

        Args:
            X: shape (n, d).
            y: shape (n,), labels.
            groups: shape (n,), whose each record is, with ``unit="groups"``.
        """
        array, labels = seen(self, X, reset=True), column_of(y, "y")
        table = NamedCells.seen_by(self, array)
        for each in self.private_candidates():
            classes_of(each.classes, type(each).__name__).check(labels, y)
        candidates, cost = self.private_candidates(), self.private_cost()
        ids = None if groups is None else ids_of(groups)[0]
        if len({len(array), len(labels), len(array if ids is None else ids)}) > 1:
            raise InputRefused(
                "OS602",
                "y",
                expected="one entry a record",
                got="another number of them",
                hint="X, y and groups need one entry a record.",
            )
        for candidate in candidates:  # on no record: whatever is wrong is told before the charge
            none = clone(candidate).set_params(budget=None)
            nobody = None if ids is None else ids[:0].copy()  # a view would hold on to everybody
            none.fit(table.of(slice(0)), labels[:0].copy(), groups=nobody)
        out = _held_out(array, groups, float(self.holdout), seed_of(self.random_state))
        budget = candidates[0].budget
        if budget is not None:
            budget.reserve(cost.charges, cost.unit, beside=False)  # by hand, or now
        part = None if ids is None else ids[~out]
        for candidate in candidates:
            candidate.fit(table.of(~out), labels[~out], groups=part)
        hits = np.stack([right(each, array[out], labels[out]) for each in candidates], axis=1)
        choice = _Choice(candidates[0], cost)
        accuracy = choice.accuracies(hits, None if ids is None else ids[out])
        best = int(np.argmax(accuracy))
        self.best_estimator_, self.cost_ = candidates[best], cost
        self.best_params_ = list(grid_of(self.param_grid))[best]
        self.cv_results_ = {"params": list(grid_of(self.param_grid)), "accuracy": accuracy}
        self.classes_ = self.best_estimator_.classes_
        total = cost.total
        self.privacy_ = {"text": f"{loss_text(total.measure, total.loss)} for one {cost.whom}"}
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the chosen candidate's predictions, shape (q,); it compares the names of the columns."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict(X))


class _Choice(PrivateEstimator):
    """Noisy numbers of right predictions, one a candidate, at the loss of all fits together."""

    def __init__(self, like: PrivateEstimator, cost: Cost) -> None:
        self.measure, self.unit, self.max_rows = like.measure, like.unit, like.max_rows
        self.budget, self.cost = None, cost  # charged with the fits: no record is in both parts

    def accuracies(self, hits: NDArray[np.bool_], groups: Any) -> NDArray[np.float64]:
        told = {"dtype": f"array[f32, {hits.shape[1]}]", "bounds": [0, 1]}
        steps: list[Mapping[str, Any]] = [
            {"quantize": {"bits": 8}},
            {"moments_sketch": {"squares": False}},
        ]
        self._released({"x": (hits.astype(np.float32), told)}, steps, groups, features="x")
        released = self.release_.released
        offer: Any = released.capability("class_means", "accuracy")
        found = offer.class_sums(self.release_.arrays, released.deviation)
        size = max(float(found.counts[0]), found.of_count, 1.0)
        points = points_of("accuracy", released)(found.sums / size + found.centre)
        return np.asarray(np.clip(points[0], 0.0, 1.0))

    def _budget(self) -> Mapping[str, float]:
        loss = self.cost.total.loss[0]
        if self.measure == "gdp":
            return {"mu": math.sqrt(2.0 * loss) * (1.0 - 2.0**-40)}
        return {"rho" if self.measure == "zcdp" else "epsilon": loss}


def _held_out(array: NDArray[Any], groups: Any, share: float, seed: int) -> NDArray[np.bool_]:
    """Say which records are held out, shape (n,): by a public hash of the record, or of its person."""
    key = seed.to_bytes(8, "big")
    if groups is None:
        cells = (np.ascontiguousarray(row).tobytes() for row in numbers_of(array))
    else:
        ids, dtype = ids_of(groups)
        names = normal(ids, Column("groups", dtype)).tolist()
        cells = (str(name).encode("utf-8", "surrogatepass") for name in names)
    most = int(share * 2**64)
    hashes = (blake2b(cell, digest_size=8, key=key).digest() for cell in cells)
    return np.fromiter((int.from_bytes(h, "big") < most for h in hashes), bool, len(array))
