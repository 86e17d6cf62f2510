"""What a search or a cross-validation will charge, from public parameters alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
    check_cv,
)
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from opendp_sim.accounting.budget import Budget as Limit
from opendp_sim.accounting.totals import Charge, loss_text, total_of
from opendp_sim.sklearn.base import PrivateEstimator, check_budget, loss_of
from opendp_sim.sklearn.budget import Budget
from opendp_sim.sklearn.refusals import EstimatorRefused
from opendp_sim.sklearn.scaler import PublicScaler
from opendp_sim.sklearn.tables import column_of, matrix_of

__all__ = ["Cost", "cost_of", "cost_of_fits"]

_ANY = {"pure": Limit(epsilon=1.0), "zcdp": Limit(rho=1.0), "gdp": Limit(mu=1.0)}
"""Limits that nothing is compared with: they only name the measure's parts."""


@dataclass(frozen=True)
class Cost:
    """What a search charges, fit by fit.

    Attributes:
        charges: one loss a fit; ``budget.reserve(cost.charges)`` reserves them, all or none.
        unit: ``row`` or ``groups``.
    """

    charges: tuple[Charge, ...]
    unit: str

    @property
    def fits(self) -> int:
        """The number of fits."""
        return len(self.charges)

    @property
    def total(self) -> Charge:
        """The loss of all fits together, by OpenDP's composition."""
        measure = self.charges[0].measure
        return Charge(measure, total_of(self.charges, measure, _ANY[measure]).loss)

    @property
    def whom(self) -> str:
        """Whom one loss is about, in words."""
        return f"{'person' if self.unit == 'groups' else 'record'} added or removed"

    def __repr__(self) -> str:
        """Return the number of fits and their loss."""
        loss = loss_text(self.total.measure, self.total.loss)
        return f"Cost({self.fits} fits; {loss} in all, for one {self.whom})"


def cost_of(search: Any, cv: Any = None, *, X: Any = None, y: Any = None) -> Cost:
    """Return what ``search.fit`` or ``cross_val_score(search, ..., cv=cv)`` will charge; nothing is.

    Training parts of folds overlap, so their fits compose one after another: each counts.

    Args:
        search: ``GridSearchCV``, ``RandomizedSearchCV``, ``DPSearch``, or an estimator or pipeline.
        cv: folds, for an estimator; None for one fit.
        X: the table that will be fitted. With it every candidate by row that is no pipeline is fitted on
            none of its records, which reads its form alone: what a fit refuses is told here, and not by
            scores of NaN after its budget was reserved.
        y: its labels.

    Raises:
        EstimatorRefused (OS102): no private estimator in it, or a number of fits that data decides.
            InputRefused (OS602): with ``X``, what a fit would refuse.
    """
    if X is not None:
        _try_on_nothing(search, matrix_of(X)[:0], None if y is None else column_of(y, "y")[:0])
    if hasattr(search, "private_cost"):
        found: Cost = search.private_cost()
        return found
    if isinstance(search, GridSearchCV | RandomizedSearchCV):
        _check_workers(search)
    else:
        if hasattr(search, "cv") and hasattr(search, "estimator"):
            raise _refused(
                type(search).__name__, "a grid or randomized search, DPSearch, or an estimator"
            )
        return cost_of_fits([search] * (1 if cv is None else _splits(cv)))
    candidates = list(_candidates(search))
    fits = [
        _with(search.estimator, params) for params in candidates for _ in range(_splits(search.cv))
    ]
    if search.refit:  # of a candidate that private records choose: the dearest counts
        dearest = max(map(_with_params(search.estimator), candidates), key=lambda e: _loss(e).loss)
        fits.append(dearest)
    return cost_of_fits(fits)


def _check_workers(search: Any) -> None:
    """Refuse workers for a budget that lives in this process: all their fits would be refused."""
    budget = _private(search.estimator).budget
    if search.n_jobs not in (None, 1) and isinstance(budget, Budget) and budget.in_memory:
        raise EstimatorRefused(
            "OS102",
            "n_jobs",
            expected="a budget that other processes can see",
            got="one in this process's memory",
            hint="Budget.open('file.ledger', ...), or n_jobs=None.",
        )


def _try_on_nothing(search: Any, X: Any, y: Any) -> None:
    """Fit every candidate on no record, charged to nobody: it sees the form of the table alone."""
    if isinstance(search, GridSearchCV | RandomizedSearchCV):
        tried = [_with(search.estimator, params) for params in _candidates(search)]
    else:
        tried = [search] if isinstance(search, PrivateEstimator) else []
    for each in tried:
        if (
            isinstance(each, PrivateEstimator)
            and each.unit == "row"
            and not each.charges_at_predict
        ):
            check_budget(each)
            clone(each).set_params(budget=None).fit(X, y)


def _with_params(estimator: Any) -> Any:
    return lambda params: _with(estimator, params)


def _with(estimator: Any, params: Any) -> Any:
    return clone(estimator).set_params(**params)


def _candidates(search: Any) -> Any:
    if isinstance(search, GridSearchCV):
        return ParameterGrid(search.param_grid)
    if not isinstance(search.random_state, int):
        raise _refused("random_state", "a search with a whole number as random_state")
    return ParameterSampler(
        search.param_distributions, search.n_iter, random_state=search.random_state
    )


def _splits(cv: Any) -> int:
    """Return the number of folds, which must not depend on data."""
    try:
        return int(check_cv(cv).get_n_splits())
    except (TypeError, ValueError):
        raise _refused("cv", "folds whose number does not depend on the data") from None


def cost_of_fits(fits: list[Any]) -> Cost:
    """Return what these estimators charge when each is fitted once."""
    private = [_private(fit) for fit in fits]
    units = {est.unit for est in private}
    losses = tuple(loss_of(est) for est in private)
    if len(units) > 1 or len({loss.measure for loss in losses}) > 1:
        raise _refused("candidates", "candidates of one unit and one measure")
    return Cost(losses, units.pop())


def _loss(estimator: Any) -> Charge:
    return loss_of(_private(estimator))


def _private(estimator: Any) -> PrivateEstimator:
    """Return the one private estimator inside: the object itself, or a step of a pipeline."""
    inside = [estimator, *estimator.get_params(deep=True).values()]
    found = {id(each): each for each in inside if isinstance(each, PrivateEstimator)}
    if len(found) != 1:
        raise _refused("estimator", "exactly one private estimator")
    for step in filter(_learns, _outside_of_frozen(estimator)):
        raise EstimatorRefused(
            "OS102",
            f"step {type(step).__name__}",
            expected="steps that learn nothing from the records",
            got="one whose fit reads them, which no budget sees",
            hint="use PublicScaler(bounds=...), a FunctionTransformer, or a FrozenEstimator that was "
            "fitted on public data.",
        )
    return next(iter(found.values()))


def _outside_of_frozen(estimator: Any) -> list[Any]:
    """Return an estimator and all that stand inside of it, but nothing that cannot be fitted again."""
    named = estimator.get_params(deep=True)
    frozen = tuple(f"{name}__" for name, each in named.items() if isinstance(each, FrozenEstimator))
    return [estimator, *(each for name, each in named.items() if not name.startswith(frozen))]


def _learns(step: Any) -> bool:
    """Whether the fit of a step reads records, as far as scikit-learn's tags say so."""
    ours = (
        PrivateEstimator
        | PublicScaler
        | FrozenEstimator
        | Pipeline
        | FeatureUnion
        | ColumnTransformer
    )
    if isinstance(step, ours | type) or not hasattr(step, "transform"):
        return False
    return bool(get_tags(step).requires_fit)


def _refused(where: str, expected: str) -> EstimatorRefused:
    return EstimatorRefused(
        "OS102",
        where,
        expected=expected,
        got="another",
        hint="count the fits yourself and reserve them: budget.reserve([...]).",
    )
