"""Search hyperparameters privately.

Fits on one part of the records, accuracies on the other.

Proof: ``model_selection.md``, beside this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.model_selection import (
    BaseCrossValidator,
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
)
from sklearn.pipeline import Pipeline, make_pipeline as pipeline_of
from sklearn.utils.validation import check_is_fitted

from opendp_sim.accounting.budget import Limit, Number
from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.errors import repr_text
from opendp_sim.domains.normalise import normal
from opendp_sim.domains.records import Column
from opendp_sim.postprocessing.modes import points_of
from opendp_sim.sklearn._validation.facts import classes_of, number
from opendp_sim.sklearn._validation.kernel_backend import seed_of
from opendp_sim.sklearn._validation.refusals import EstimatorRefused, InputRefused
from opendp_sim.sklearn._validation.tables import (
    NamedCells,
    checked_table,
    ids_of,
    label_array,
    matrix_of,
    numbers_of,
)
from opendp_sim.sklearn._validation.wrappers import (
    check_accounted,
    check_folds,
    check_steps,
    refusal,
)
from opendp_sim.sklearn.base import (
    Copyable,
    PrivateEstimator,
    all_or_nothing,
    check_purse,
    coverage_of,
    fit_loss,
)
from opendp_sim.sklearn.budget import Budget, one_budget
from opendp_sim.sklearn.metrics import right

# --------------------------------------------------------------------------------------------------
# The candidates of a search, as public parameters name them; what is no grid is refused by a code.


def candidates_of(estimator: Any, listed: Iterable[Any]) -> list[Any]:
    """Return a copy of the estimator for each setting, or refuse (OS102)."""
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
    """Return the number of folds, or refuse unhashed ones (OS102)."""
    check_folds(cv)
    return cv.get_n_splits()


def _or_none(make: Callable[[], Any], *errors: type[Exception]) -> Any:
    """Return the made object, or None after an error."""
    try:
        return make()
    except errors:
        return None


def _refused(where: str, expected: str, got: str, hint: str) -> EstimatorRefused:
    return EstimatorRefused("OS102", where, expected=expected, got=got, hint=hint)


# --------------------------------------------------------------------------------------------------
# What a search or a cross-validation will charge, from public parameters alone.

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
        return Charge(measure, total_of(self.charges, measure, _ANY[measure]).exact)

    @property
    def whom(self) -> str:
        """Whom one loss is about, in words."""
        return f"{'person' if self.unit == 'groups' else 'record'} added or removed"

    def __repr__(self) -> str:
        """Return the number of fits and their loss."""
        loss = self.total.text
        return f"Cost({self.fits} fits; {loss} in all, for one {self.whom})"


def cost_of(
    search: Any, cv: Any = None, *, X: Any = None, y: Any = None, groups: Any = None
) -> Cost:
    """Return what ``search.fit`` or ``cross_val_score(search, ..., cv=cv)`` will charge; nothing is.

    Training parts of folds overlap, so their fits compose one after another: each counts.

    Args:
        search: ``GridSearchCV``, ``RandomizedSearchCV``, ``DPSearch``, or an estimator or pipeline; also
            one in another.
        cv: ``HashFold``, each of whose folds fits it; None for one fit. So is the ``cv`` of a search:
            one record moves others between all other folds (``model_selection.md``, Lemma 4).
        X: the table that will be fitted. With it every candidate by row that is no pipeline (those of
            ``DPSearch``, too) is fitted on none of its records, which reads its form alone: what a fit
            refuses is told here, and not by scores of NaN after its budget was reserved.
        y: its labels.
        groups: whose each record is. With it candidates by person are tried too; those in a search, or
            behind ``cv``, have to ask for it: ``set_fit_request(groups=True)``.

    Raises:
        EstimatorRefused (OS102): no private estimator in it, folds that are not ``HashFold``, or a number
            of fits that another library's code decides. InputRefused (OS602): with ``X``, what a fit
            would refuse.
    """
    if X is not None:
        shape = BaseEstimator()
        table = NamedCells.seen_by(shape, checked_table(shape, X, reset=True)).of(slice(0))
        labels = (
            None if y is None else label_array(y, "y")[:0].copy()
        )  # a view would hold on to all
        nobody = None if groups is None else ids_of(groups)[0][:0].copy()
        _try_on_nothing(search, table, labels, nobody)
    _check_routes(search, cv)
    once = _cost_of_one(search)
    return once if cv is None else _together([once] * splits_of(cv))


def make_pipeline(*steps: Any) -> Pipeline:
    """Return scikit-learn's pipeline, if its loss is that of its last step.

    Args:
        steps: transformers that treat each record alone, and a private estimator: ``PublicScaler``,
            ``Binarizer``, ``Normalizer("max")``, ``FunctionTransformer`` of None or a numpy ufunc of one
            argument, and ``FrozenEstimator``, by which its user declares that what it holds was fitted
            on public data; these in ``Pipeline``, ``FeatureUnion`` and ``ColumnTransformer``, too.

    Raises:
        EstimatorRefused (OS102): a step in which records may meet, or no private estimator at the end.

    Example:
        >>> from opendp_sim.sklearn import DPOneClass, PublicScaler, make_pipeline
        >>> made = make_pipeline(PublicScaler(bounds=(0, 9)), DPOneClass(bounds=(0, 1)))
        >>> [name for name, _ in made.steps]
        ['publicscaler', 'dponeclass']
    """
    made = pipeline_of(*steps)
    cost_of(made)
    return made


def _cost_of_one(est: Any) -> Cost:
    if isinstance(est, PrivateEstimator):
        return Cost((fit_loss(est),), est.unit)
    if hasattr(type(est), "private_cost"):  # and none that another library's wrapper hands on
        return est.private_cost()
    if type(est) is Pipeline:
        last = _cost_of_one(est.steps[-1][1])
        check_steps(est)
        return last
    if type(est) not in (GridSearchCV, RandomizedSearchCV):
        raise refusal(est)
    _check_workers(est)
    each = [_cost_of_one(found) for found in candidates_of(est.estimator, _candidates(est))]
    fits = [cost for cost in each for _ in range(splits_of(est.cv))]
    if est.refit:  # of a candidate that private records choose: the dearest counts
        _together(each)  # losses of two measures have no order
        fits.append(max(each, key=lambda cost: cost.total.exact))
    return _together(fits)


def _together(costs: list[Cost]) -> Cost:
    """Return what several fits charge, one after another."""
    charges = tuple(charge for cost in costs for charge in cost.charges)
    units = {cost.unit for cost in costs}
    if len(units) != 1 or len({charge.measure for charge in charges}) != 1:
        raise _refused_cost("candidates", "candidates of one unit and one measure")
    return Cost(charges, units.pop())


def _check_workers(search: Any) -> None:
    """Refuse worker processes for a budget of this process."""
    held = search.estimator.get_params(deep=True).values()
    here = any(isinstance(each, Budget) and each.in_memory for each in held)
    if search.n_jobs not in (None, 1) and here:
        raise EstimatorRefused(
            "OS102", "n_jobs", expected="a budget that other processes can see",
            got="one in this process's memory",
            hint="Budget.open('file.ledger', ...), or n_jobs=None.",
        )  # fmt: skip


def _try_on_nothing(search: Any, X: NamedCells, y: Any, groups: Any) -> None:
    """Fit every candidate on no record, without a charge."""
    if isinstance(search, GridSearchCV | RandomizedSearchCV):
        tried = candidates_of(search.estimator, _candidates(search))
    else:
        own = hasattr(type(search), "private_candidates")
        tried = search.private_candidates() if own else []
    for each in [search] if isinstance(search, PrivateEstimator) else tried:
        if not isinstance(each, PrivateEstimator):
            _try_on_nothing(each, X, y, groups)
        elif (each.unit == "row" or groups is not None) and not each.charges_at_predict:
            check_purse(each)
            whose = {} if each.unit == "row" else {"groups": groups}
            clone(each).set_params(budget=None).fit(X, y, **whose)


def _check_routes(search: Any, cv: Any) -> None:
    """Refuse groups that a search does not pass to fits."""
    inner = _end_of(search)
    tried = [inner] if cv is not None and get_config()["enable_metadata_routing"] else []
    if isinstance(inner, GridSearchCV | RandomizedSearchCV):
        tried = [_end_of(found) for found in candidates_of(inner.estimator, _candidates(inner))]
    for each in tried:
        if each is not inner:
            _check_routes(each, None)
        if _is_by_person(each) and not _routed(each):
            raise EstimatorRefused(
                "OS102",
                f"{type(each).__name__}.unit",
                expected="an estimator by person that asks for `groups`",
                got="one that gets none",
                hint="sklearn.set_config(enable_metadata_routing=True), then "
                "estimator.set_fit_request(groups=True), and groups=ids for the search.",
            )


def _end_of(estimator: Any) -> Any:
    """Return what is fitted behind the steps of pipelines."""
    while type(estimator) is Pipeline:
        estimator = estimator.steps[-1][1]
    return estimator


def _is_by_person(estimator: Any) -> bool:
    if hasattr(type(estimator), "private_cost"):
        return bool(estimator.private_cost().unit == "groups")
    return isinstance(estimator, PrivateEstimator) and estimator.unit == "groups"


def _routed(estimator: Any) -> bool:
    if not get_config()["enable_metadata_routing"]:
        return False
    return bool(estimator.get_metadata_routing().fit.requests.get("groups"))


def _candidates(search: Any) -> Any:
    if isinstance(search, GridSearchCV):
        return grid_of(search.param_grid)
    if not isinstance(search.random_state, int):
        raise _refused_cost("random_state", "a search with a whole number as random_state")
    return ParameterSampler(
        search.param_distributions, search.n_iter, random_state=search.random_state
    )


def cost_of_fits(fits: list[Any]) -> Cost:
    """Return what these estimators charge when each is fitted once."""
    return _together([_cost_of_one(fit) for fit in fits])


def _refused_cost(where: str, expected: str) -> EstimatorRefused:
    return EstimatorRefused(
        "OS102", where, expected=expected, got="another",
        hint="count the fits yourself and reserve them: budget.reserve([...]).",
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------

_NOBODY = 1e-6
"""A share of the records that would hold none of most tables; how many there are is private."""


class DPSearch(ClassifierMixin, Copyable):  # type: ignore[misc]
    """Fit every candidate, and keep the best on held-out records.

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
            check_accounted(self.estimator)
            raise EstimatorRefused(
                "OS102", "estimator", expected="a private classifier whose predictions are free",
                got=type(self.estimator).__name__,
                hint="put scalers with public constants before the search.",
            )  # fmt: skip
        budget = self._paid_by(found)
        return [each.set_params(budget=budget) for each in found]

    def _paid_by(self, candidates: Sequence[PrivateEstimator]) -> Budget | None:
        """Return the only budget of the search and candidates, or None."""
        check_purse(self)
        for each in candidates:
            check_purse(each)
        return one_budget(
            [self.budget, *(each.budget for each in candidates)],
            "one budget for the search and all of its candidates",
            "give it to the search alone: all fits are charged to it together.",
        )

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPSearch:
        """Fit all candidates, and choose.

        ``X`` (n, d), labels ``y`` (n,); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        array, labels = checked_table(self, X, reset=True), label_array(y, "y")
        table = NamedCells.seen_by(self, array)
        for each in self.private_candidates():
            classes_of(each.classes, type(each).__name__).check(labels, y)
        candidates, cost = self.private_candidates(), self.private_cost()
        ids = None if groups is None else ids_of(groups)[0]
        if len({len(array), len(labels), len(array if ids is None else ids)}) > 1:
            raise InputRefused(
                "OS602", "y", expected="one entry a record", got="another number of them",
                hint="X, y and groups need one entry a record.",
            )  # fmt: skip
        for candidate in candidates:  # on no record: whatever is wrong is told before the charge
            none = clone(candidate).set_params(budget=None)
            nobody = None if ids is None else ids[:0].copy()  # a view would hold on to everybody
            none.fit(table.of(slice(0)), labels[:0].copy(), groups=nobody)
        out = _held_out(array, groups, float(self.holdout), seed_of(self.random_state))
        budget = candidates[0].budget
        if budget is not None:
            budget.reserve(
                cost.charges, cost.unit, beside=False, copied=self._copied
            )  # by hand, or now
        part = None if ids is None else ids[~out]
        for candidate in candidates:
            candidate.fit(table.of(~out), labels[~out], groups=part)
        hits = np.stack([right(each, array[out], labels[out]) for each in candidates], axis=1)
        choice = _Choice(candidates[0], cost, max(each.max_copies for each in candidates))
        accuracy = choice.accuracies(hits, None if ids is None else ids[out])
        best = int(np.argmax(accuracy))
        self.best_estimator_, self.cost_ = candidates[best], cost
        self.best_params_ = list(grid_of(self.param_grid))[best]
        self.cv_results_ = {"params": list(grid_of(self.param_grid)), "accuracy": accuracy}
        self.classes_ = self.best_estimator_.classes_
        total = cost.total
        self.privacy_ = {
            "text": f"{total.text} for one {cost.whom}",
            "covers": coverage_of(min(each.max_copies for each in candidates)),
        }
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the chosen candidate's predictions, shape (q,).

        It compares the names of the columns.
        """
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict(X))


class _Choice(PrivateEstimator):
    """Release noisy numbers of right predictions at the loss of all fits."""

    def __init__(self, like: PrivateEstimator, cost: Cost, max_copies: int = 1) -> None:
        self.measure, self.unit, self.max_rows = like.measure, like.unit, like.max_rows
        self.max_copies, self.budget, self.cost = (
            max_copies,
            None,
            cost,
        )  # charged with the fits: no record is in both parts

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

    def _budget(self) -> Mapping[str, Number]:
        loss = self.cost.total.exact[0]
        if self.measure == "gdp":
            return {"mu": math.sqrt(2 * loss) * (1.0 - 2.0**-40)}
        return {"rho" if self.measure == "zcdp" else "epsilon": loss}


def _held_out(array: NDArray[Any], groups: Any, share: float, seed: int) -> NDArray[np.bool_]:
    """Return which records are held out, shape (n,), by a public hash."""
    return np.asarray(_hashes(array, groups, seed) < np.uint64(int(share * 2**64)))


def _hashes(table: Any, groups: Any, seed: int) -> NDArray[np.uint64]:
    """Return a keyed hash of each record's features, or person, (n,).

    With ``groups`` no cell of the table is read.
    """
    if groups is None:
        cells = [np.ascontiguousarray(row).tobytes() for row in numbers_of(table)]
    else:
        ids, dtype = ids_of(groups)
        names = normal(ids, Column("groups", dtype)).tolist()
        cells = [str(name).encode("utf-8", "surrogatepass") for name in names]
    key = seed.to_bytes(8, "big")
    found = b"".join(blake2b(cell, digest_size=8, key=key).digest() for cell in cells)
    return np.frombuffer(found, dtype=">u8").astype(np.uint64)


# --------------------------------------------------------------------------------------------------


class HashFold(BaseCrossValidator):  # type: ignore[misc]
    """Cross-validator whose folds are a public hash of each record.

    Record r is tested in the fold ``hash(r) mod n_splits`` and nowhere else, with the hash of its
    features, or of its person where ``groups`` are given: equal records, and all rows of a person, stand
    in one fold. One record, or person, that comes or goes moves nobody else (``model_selection.md``,
    Lemma 4). Folds are of about equal size, and may be empty. For a search in a search give the two
    different ``random_state``: equal ones cut equal folds.

    Args:
        n_splits: the number of folds, at least 2.
        random_state: a whole number, the public key of the hash; None for 0.

    Raises:
        EstimatorRefused (OS101, OS102): another number of folds, or no key.

    Example:
        >>> import numpy as np
        >>> folds = HashFold(2).split(np.arange(12.0).reshape(6, 2))
        >>> sorted(at for _, test in folds for at in test.tolist())
        [0, 1, 2, 3, 4, 5]
    """

    __metadata_request__split = {"groups": True}  # noqa: RUF012 - scikit-learn's way to ask for them

    def __init__(self, n_splits: int = 5, *, random_state: int | None = 0) -> None:
        self.n_splits, self.random_state = n_splits, random_state
        self.get_n_splits()
        seed_of(random_state)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds, which no argument changes."""
        del X, y, groups
        found = python_value(self.n_splits)
        if type(found) is not int or found < 2:
            raise _refused(
                "n_splits",
                "a whole number of folds, at least 2",
                repr_text(found, 20),
                "HashFold(3)",
            )
        return found

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield each fold's training and test places.

        Args:
            X: shape (n, d), numbers; with ``groups`` any table of n rows.
            y: not read.
            groups: shape (n,), whose each record is; None where each is somebody else's.

        Raises:
            InputRefused (OS602): no table of numbers, or not one group a record.
        """
        del y
        hashes = _hashes(matrix_of(X) if groups is None else X, groups, seed_of(self.random_state))
        if len(hashes) != len(X):
            raise InputRefused(
                "OS602", "groups", expected="one entry a record", got="another number of them",
                hint="X and groups need one entry a record.",
            )  # fmt: skip
        folds = hashes % np.uint64(self.get_n_splits())
        for fold in range(self.get_n_splits()):
            yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
