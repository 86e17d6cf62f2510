"""What a search or a cross-validation will charge, from public parameters alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, ParameterSampler, RandomizedSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from opendp_sim.accounting.budget import Budget as Limit
from opendp_sim.accounting.totals import Charge, loss_text, total_of
from opendp_sim.sklearn.base import PrivateEstimator, check_budget, loss_of
from opendp_sim.sklearn.budget import Budget
from opendp_sim.sklearn.candidates import candidates_of, grid_of, splits_of
from opendp_sim.sklearn.named_cells import NamedCells
from opendp_sim.sklearn.refusals import EstimatorRefused
from opendp_sim.sklearn.scaler import PublicScaler
from opendp_sim.sklearn.tables import column_of, ids_of, seen

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


def cost_of(
    search: Any, cv: Any = None, *, X: Any = None, y: Any = None, groups: Any = None
) -> Cost:
    """Return what ``search.fit`` or ``cross_val_score(search, ..., cv=cv)`` will charge; nothing is.

    Training parts of folds overlap, so their fits compose one after another: each counts.

    Args:
        search: ``GridSearchCV``, ``RandomizedSearchCV``, ``DPSearch``, or an estimator or pipeline; also
            one in another.
        cv: folds that each fit it; None for one.
        X: the table that will be fitted. With it every candidate by row that is no pipeline (those of
            ``DPSearch``, too) is fitted on none of its records, which reads its form alone: what a fit
            refuses is told here, and not by scores of NaN after its budget was reserved.
        y: its labels.
        groups: whose each record is. With it candidates by person are tried too; those in a search, or
            behind ``cv``, have to ask for it: ``set_fit_request(groups=True)``.

    Raises:
        EstimatorRefused (OS102): no private estimator in it, or a number of fits that data or another
            library's code decides. InputRefused (OS602): with ``X``, what a fit would refuse.
    """
    if X is not None:
        shape = BaseEstimator()
        table = NamedCells.seen_by(shape, seen(shape, X, reset=True)).of(slice(0))
        labels = None if y is None else column_of(y, "y")[:0].copy()  # a view would hold on to all
        nobody = None if groups is None else ids_of(groups)[0][:0].copy()
        _try_on_nothing(search, table, labels, nobody)
    _check_routes(search, cv)
    once = _cost_of_one(search)
    return once if cv is None else _together([once] * splits_of(cv))


def _cost_of_one(est: Any) -> Cost:
    """Return what one fit charges; of what is not known here, the number of fits is not known."""
    if isinstance(est, PrivateEstimator):
        return Cost((loss_of(est),), est.unit)
    if hasattr(type(est), "private_cost"):  # and none that another library's wrapper hands on
        found: Cost = est.private_cost()
        return found
    if type(est) is Pipeline:
        last = _cost_of_one(est.steps[-1][1])
        _check_steps(est)
        return last
    if type(est) not in (GridSearchCV, RandomizedSearchCV):
        raise _refused(
            type(est).__name__,
            "an estimator whose number of fits is known: a private one, a Pipeline that ends in it, "
            "GridSearchCV, RandomizedSearchCV or DPSearch",
        )
    _check_workers(est)
    each = [_cost_of_one(found) for found in candidates_of(est.estimator, _candidates(est))]
    fits = [cost for cost in each for _ in range(splits_of(est.cv))]
    if est.refit:  # of a candidate that private records choose: the dearest counts
        _together(each)  # losses of two measures have no order
        fits.append(max(each, key=lambda cost: cost.total.loss))
    return _together(fits)


def _together(costs: list[Cost]) -> Cost:
    """Return what several fits charge, one after another."""
    charges = tuple(charge for cost in costs for charge in cost.charges)
    units = {cost.unit for cost in costs}
    if len(units) != 1 or len({charge.measure for charge in charges}) != 1:
        raise _refused("candidates", "candidates of one unit and one measure")
    return Cost(charges, units.pop())


def _check_workers(search: Any) -> None:
    """Refuse workers for a budget that lives in this process: all their fits would be refused."""
    held = search.estimator.get_params(deep=True).values()
    here = any(isinstance(each, Budget) and each.in_memory for each in held)
    if search.n_jobs not in (None, 1) and here:
        raise EstimatorRefused(
            "OS102",
            "n_jobs",
            expected="a budget that other processes can see",
            got="one in this process's memory",
            hint="Budget.open('file.ledger', ...), or n_jobs=None.",
        )


def _try_on_nothing(search: Any, X: NamedCells, y: Any, groups: Any) -> None:
    """Fit every candidate on no record, charged to nobody: it sees the form of the table alone."""
    if isinstance(search, GridSearchCV | RandomizedSearchCV):
        tried = candidates_of(search.estimator, _candidates(search))
    else:
        own = hasattr(type(search), "private_candidates")
        tried = search.private_candidates() if own else []
    for each in [search] if isinstance(search, PrivateEstimator) else tried:
        if not isinstance(each, PrivateEstimator):
            _try_on_nothing(each, X, y, groups)
        elif (each.unit == "row" or groups is not None) and not each.charges_at_predict:
            check_budget(each)
            whose = {} if each.unit == "row" else {"groups": groups}
            clone(each).set_params(budget=None).fit(X, y, **whose)


def _check_routes(search: Any, cv: Any) -> None:
    """Refuse persons whom a search will not hand to its fits: they would all fail, after a reserve."""
    tried = [search] if cv is not None and get_config()["enable_metadata_routing"] else []
    if isinstance(search, GridSearchCV | RandomizedSearchCV):
        tried = candidates_of(search.estimator, _candidates(search))
    for each in tried:
        if isinstance(each, PrivateEstimator) and each.unit == "groups" and not _routed(each):
            raise EstimatorRefused(
                "OS102",
                f"{type(each).__name__}.unit",
                expected="an estimator by person that asks for `groups`",
                got="one that gets none",
                hint="sklearn.set_config(enable_metadata_routing=True), then "
                "estimator.set_fit_request(groups=True), and groups=ids for the search.",
            )


def _routed(estimator: Any) -> bool:
    if not get_config()["enable_metadata_routing"]:
        return False
    return bool(estimator.get_metadata_routing().fit.requests.get("groups"))


def _candidates(search: Any) -> Any:
    if isinstance(search, GridSearchCV):
        return grid_of(search.param_grid)
    if not isinstance(search.random_state, int):
        raise _refused("random_state", "a search with a whole number as random_state")
    return ParameterSampler(
        search.param_distributions, search.n_iter, random_state=search.random_state
    )


def cost_of_fits(fits: list[Any]) -> Cost:
    """Return what these estimators charge when each is fitted once."""
    return _together([_cost_of_one(fit) for fit in fits])


def _check_steps(pipeline: Any) -> None:
    """Refuse a pipeline with a private estimator before its end, or a step that learns from records."""
    steps = (step for _, step in pipeline.steps[:-1] if hasattr(step, "get_params"))
    before = (each for step in steps for each in _outside_of_frozen(step))
    if any(
        isinstance(each, PrivateEstimator) or hasattr(type(each), "private_cost") for each in before
    ):
        raise _refused("estimator", "exactly one private estimator, at the end of its pipeline")
    for step in filter(_learns, _outside_of_frozen(pipeline)):
        raise EstimatorRefused(
            "OS102",
            f"step {type(step).__name__}",
            expected="steps that learn nothing from the records",
            got="one whose fit reads them, which no budget sees",
            hint="use PublicScaler(bounds=...), a FunctionTransformer, or a FrozenEstimator that was "
            "fitted on public data.",
        )


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
