"""Check, plan, charge and apply in every private estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import cleandoc
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.budget import Limit, Number
from opendp_sim.accounting.claim_text import claim_sentence
from opendp_sim.accounting.composition import Charge
from opendp_sim.accounting.file_schemas import time_now
from opendp_sim.accounting.ledger.ledger import Entry
from opendp_sim.accounting.release.answers import Answers
from opendp_sim.accounting.release.query import read_queries
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.device import using_device
from opendp_sim.core.errors import ParameterError, repr_text, scalar_text
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.grammar.program import VERSION
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.accountant import target_of
from opendp_sim.dsl.plan.kernel_choice import noise_in_records
from opendp_sim.dsl.plan.plan import Plan, plan_of
from opendp_sim.dsl.run.certificate import certified_release, claim_about
from opendp_sim.dsl.run.charge import unit_text
from opendp_sim.dsl.run.execute import run_in_memory
from opendp_sim.dsl.text.diagnostic import Refused
from opendp_sim.io.gate import check_form
from opendp_sim.io.origin import NOTHING_PRIVATE, Origin, origin_of, refuse_private
from opendp_sim.io.protocol import PieceSource, from_arrays
from opendp_sim.sklearn._validation.defaults import MEASURE
from opendp_sim.sklearn._validation.facts import PublicClasses, bound, choice, classes_of
from opendp_sim.sklearn._validation.refusals import EstimatorRefused, PlanRefused, as_refusals
from opendp_sim.sklearn._validation.tables import checked_table, ids_of, label_array
from opendp_sim.sklearn.budget import Budget, unit_word

# --------------------------------------------------------------------------------------------------
# A fit that is refused leaves its estimator as it was.

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E")


def all_or_nothing(fit: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Restore every attribute when a fit raises.

    The earlier fit continues to answer. What was charged stays charged: that is in the ledger, and not
    in the estimator.
    """

    @wraps(fit)
    def whole(self: E, /, *args: P.args, **kwargs: P.kwargs) -> R:
        held: Any = vars(self)
        before = dict(held)
        try:
            refuse_private_parameters(self, (*args, *kwargs.values()))
            found = fit(self, *args, **kwargs)
        except BaseException:
            held.clear()
            held.update(before)
            raise
        # After the fit stands: whoever makes errors of warnings has paid for it, and keeps it.
        if isinstance(self, PrivateEstimator) and (doubt := self._doubt()) is not None:
            warnings.warn(doubt, NoiseDecidesWarning, stacklevel=2)
        return found

    return whole


class NoiseDecidesWarning(UserWarning):
    """Warn that noise alone could make the released model."""


def refuse_private_parameters(estimator: Any, given: Sequence[Any]) -> None:
    """Refuse a parameter that is a part of the private table (OS704).

    ``classes=y`` or ``bounds=X[:2]``: parameters are public, and are told as they are. ``given`` are
    the private table, its labels and its persons.
    """
    private = NOTHING_PRIVATE
    for each in given:
        private |= origin_of(each)
    named = estimator.get_params(deep=False) if isinstance(estimator, BaseEstimator) else {}
    for name, value in named.items():
        if not hasattr(value, "get_params"):
            with as_refusals():
                refuse_private(origin_of(value), private, name)


# --------------------------------------------------------------------------------------------------

C = TypeVar("C", bound=type)


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(cls: C) -> C:
    """Make the keyword-only ``__init__`` of the annotated fields that scikit-learn asks for.

    The docstring gets the arguments and refusals of ``PrivateEstimator`` that it does not state itself.
    """
    made: C = dataclass(kw_only=True, eq=False, repr=False)(cls)  # type: ignore[assignment]
    base = next((c for c in made.__mro__[1:] if c.__name__ == "PrivateEstimator"), None)
    if base is not None and made.__doc__ and "Args:\n" in made.__doc__:
        own, shared = (cleandoc(doc).split("\n\n") for doc in (made.__doc__, base.__doc__ or ""))
        place = next(place for place, part in enumerate(own) if part.startswith("Args:"))
        args, raises = (part for part in shared if part.startswith(("Args:", "Raises:")))
        stated = {line.split(":")[0] for line in own[place].splitlines()}
        left = [line for line in args.splitlines() if line.split(":")[0] not in stated]
        own[place] = "\n".join([own[place], *left])
        if not any(part.startswith("Raises:") for part in own):
            own.insert(place + 1, raises)
        made.__doc__ = "\n\n".join(own)
    return made


_MEASURES = ("gdp", "zcdp", "pure")
_DATA = "records"


def coverage_of(copies: int) -> str:
    """Return the part of a table's way that a budget sees."""
    if copies == 1:
        return "the table as it was given: its preparation, copies and weights are not covered"
    return (
        f"the table as it was given, if a record occurs at most {copies} times in it: its preparation "
        "and weights are not covered"
    )


Columns = Mapping[str, tuple[Any, Mapping[str, Any]]]
"""Column name to its values and its declaration."""


class Copyable(BaseEstimator):  # type: ignore[misc]
    """Tell copies of an estimator from the one that its class made.

    A wrapper fits copies, and only the wrapper knows how often a record is among the rows that it hands
    to them. So a copy (``clone``, ``copy``, a pickle) spends what was reserved, and nothing else.
    """

    _copied: ClassVar[bool] = False

    def __setstate__(self, state: Any) -> None:
        """Become a copy."""
        super().__setstate__({**state, "_copied": True})

    def __sklearn_clone__(self) -> Self:
        """Return a copy without a fit."""
        made: Self = super().__sklearn_clone__()
        held: Any = vars(made)
        held["_copied"] = True
        return made


@estimator
class PrivateEstimator(Copyable):
    """Define the base of private estimators.

    Each is a plan of the language over one private table. With ``max_copies=k`` noise is for k rows at
    once: a record that occurs at most k times in the table given to ``fit``, as the curator
    guarantees, loses ``epsilon`` (``model_selection.md``, Lemma 3).

    Fitted attributes: ``release_`` (everything that left the private side), ``plan_``, ``privacy_``,
    ``certificate_``, ``n_features_in_``, ``feature_names_in_``. Predictions come from ``release_`` alone.

    Args:
        epsilon: the loss of one fit, at ``delta``.
        delta: None with ``measure="pure"``.
        unit: ``row``, or ``groups``: the persons that ``groups`` of ``fit`` names.
        max_rows: rows used of one person, with ``unit="groups"``.
        max_copies: how often one record may occur in the table, as you guarantee; noise grows with it.
        measure: ``gdp``, ``zcdp`` or ``pure``.
        budget: what each fit is charged to; None for none.
        device: ``cuda`` for sums on a card (extra ``gpu``), with the same bits; None for the CPU.

    Raises:
        EstimatorRefused (OS101, OS102), InputRefused (OS602): nothing was charged. BudgetError (OS402):
            the budget refuses; nothing was charged.
    """

    epsilon: Number = 1.0
    delta: Number | None = 1e-6
    unit: str = "row"
    max_rows: int | None = None
    max_copies: int = 1
    measure: str = MEASURE
    budget: Budget | None = None
    device: str | None = None
    _charged_as: ClassVar[str] = ""
    """What a ledger calls it, where that is not the name of the class."""
    charges_at_predict: ClassVar[bool] = False

    # --- fit -----------------------------------------------------------------------------------------

    def _seen(self, X: Any, *, reset: bool) -> NDArray[Any]:
        return checked_table(self, X, reset=reset)

    def _labelled(self, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any], PublicClasses]:
        """Return records, labels and public classes, or refuse them."""
        array, labels = self._seen(X, reset=True), label_array(y, "y")
        classes = classes_of(self.classes, type(self).__name__)
        classes.check(labels, y)
        return array, labels, classes

    def _released(
        self, columns: Columns, steps: Sequence[Mapping[str, Any]], groups: Any, **select: Any
    ) -> Any:
        """Plan, charge and run a release over the columns.

        ``select`` and ``steps``; the release is kept. Everything that the caller can get wrong is
        refused before the charge; what comes after it stands as charged, whatever happens.
        """
        return self._run(columns, [{"select": select}, *steps], groups)

    def _run(
        self,
        columns: Columns,
        steps: list[Mapping[str, Any]],
        groups: Any,
        late: Callable[[], Mapping[str, Any]] = dict,
    ) -> Any:
        """Do so for any steps.

        ``late`` returns columns that somebody's code computes from records: they stand in for
        ``columns`` of the same form once the charge stands, and not before.
        """
        with self._on_device():
            return self._charged_run(self._with_groups(columns, groups), steps, late)

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Use the device inside, found and proved before any charge."""
        if not isinstance(self.device, str | None):
            raise EstimatorRefused(
                "OS101", f"{type(self).__name__}.device", expected="cpu, cuda, cuda:1, ..., or None",
                got=type(self.device).__name__, hint="leave it out for the CPU: the bits are the same.",
            )  # fmt: skip
        refused: EstimatorRefused | None = None
        with ExitStack() as stack:
            try:
                stack.enter_context(using_device(self.device))
            except ParameterError as error:
                refused = EstimatorRefused(
                    error.code, f"{type(self).__name__}.device", expected=error.expected,
                    got=error.got, hint=error.hint,
                )  # fmt: skip
            if refused is not None:
                raise refused
            yield

    def _charged_run(
        self,
        columns: Columns,
        steps: list[Mapping[str, Any]],
        late: Callable[[], Mapping[str, Any]],
    ) -> Any:
        plan = self._planned(columns, steps)
        arrays = {name: values for name, (values, _) in columns.items()}
        table = checked_source(plan, arrays)
        entry = self._charge(plan)
        if found := late():
            table = checked_source(plan, arrays | dict(found))
        time = time_now()
        release: Release = run_in_memory(plan, {_DATA: table})["release"]
        self.certificate_ = certified_release(plan, "release", release, time)
        self.plan_, self.release_ = plan, release
        claim = claim_about(plan, next(iter(plan.releases.values())))
        self.privacy_ = {
            **claim,
            "text": claim_sentence(claim),
            "covers": coverage_of(self._copies()),
            "entry": None if entry is None else entry.seq,
        }
        return self

    def _charge(self, plan: Plan) -> Entry | None:
        """Charge a plan to the budget, if there is one.

        A copy of an estimator spends what was reserved for it, and nothing else (OS102).
        """
        if self.budget is None or plan.charge is None:
            return None
        name = self._charged_as or type(self).__name__
        unit = unit_text(plan) if self.max_copies == 1 else unit_word(self.unit)
        return self.budget.charge(plan.charge, unit, name, plan.program.hash, reserved=self._copied)

    def _with_groups(self, columns: Columns, groups: Any) -> Columns:
        who = type(self).__name__
        if (choice("unit", self.unit, ("row", "groups")) == "groups") != (groups is not None):
            raise EstimatorRefused(
                "OS102",
                f"{who}.unit",
                expected="groups at fit exactly where unit='groups'",
                got=f"unit={self.unit!r} and {'no groups' if groups is None else 'groups'}",
                hint="give the persons' identifiers: fit(X, y, groups=ids), and max_rows=; inside "
                "cross-validation also set_fit_request(groups=True).",
            )
        if (self.max_rows is not None) != (groups is not None):
            raise EstimatorRefused(
                "OS102", f"{who}.max_rows", expected="max_rows exactly where unit='groups'",
                got=f"unit={self.unit!r} and max_rows={scalar_text(self.max_rows, 20)}",
                hint="max_rows is how many rows of one person are used: noise grows with it.",
            )  # fmt: skip
        if groups is None:
            return columns
        ids, dtype = ids_of(groups)
        return {**columns, "groups": (ids, {"dtype": dtype, "role": "privacy_id"})}

    def _planned(self, columns: Columns, steps: list[Mapping[str, Any]]) -> Plan:
        check_purse(self)
        if self.max_rows is not None:
            steps = [{"bound_contributions": {"max_rows": self.max_rows}}, *steps]
        unit, told = (
            {"add_remove": self._copies(), "of": self.unit},
            {n: d for n, (_, d) in columns.items()},
        )
        spec = {
            "spec": VERSION,
            "name": type(self).__name__,
            "data": {_DATA: {"source": {"memory": _DATA}, "columns": told, "ingest": "enforce"}},
            "privacy": {
                "unit": unit,
                "measure": self.measure,
                "budget": Limit(**self._budget()).plain(),
            },
            "flow": {
                "sketch": {"from": _DATA, "steps": steps},
                "noisy": {"from": "sketch", "release": {**self._release(), "spend": "100%"}},
            },
            "outputs": self._outputs(),
        }
        return _plan(self._written(spec))

    def _written(self, value: object) -> Any:
        """Return a parameter in JSON's types, or refuse (OS101)."""
        if isinstance(value, Mapping):
            return {str(name): self._written(each) for name, each in value.items()}
        found = python_value(value)
        if isinstance(found, list | tuple):
            return [self._written(each) for each in found]
        if isinstance(found, str | int | float | None):
            return found
        raise EstimatorRefused(
            "OS101", type(self).__name__,
            expected="parameters that are numbers, texts or arrays of them",
            got=f"a {type(value).__name__}", hint="`get_params()` shows what was given.",
        )  # fmt: skip

    def _copies(self) -> int:
        """Return how often a record may occur, or refuse (OS102)."""
        copies = python_value(self.max_copies)
        if type(copies) is int and (copies == 1 or (self.unit == "row" and 1 < copies <= 10**6)):
            return copies
        raise EstimatorRefused(
            "OS102", f"{type(self).__name__}.max_copies",
            expected="a whole number from 1, and 1 with unit='groups'",
            got=f"unit={repr_text(self.unit, 30)} and max_copies={scalar_text(self.max_copies, 20)}",
            hint="a person's copies are rows of that person, which max_rows bounds.",
        )  # fmt: skip

    def _noise(self) -> float | None:
        """Return a sum's noise deviation in records, before a plan."""
        rows = self.max_copies if self.max_rows is None else self.max_rows
        return noise_in_records(Limit(**self._budget()), rows)

    def _release(self) -> dict[str, Any]:
        """Return how the sketch is released."""
        return {"noise": "laplace" if self.measure == "pure" else "gaussian"}

    def _outputs(self) -> dict[str, Any]:
        """Return what the plan gives out."""
        return {"release": {"from": "noisy", "save": "release.npz"}}

    def _budget(self) -> Mapping[str, Number]:
        """Return the budget of one fit, as a spec states it."""
        return budget_of(self)

    def _doubt(self) -> str | None:
        """Return why a released model may be noise alone, or None.

        From the release alone.
        """
        return None

    # --- answers -------------------------------------------------------------------------------------

    def _ask(self, question: str, X: Any, **parameters: Any) -> Answers:
        """Ask the release about public queries."""
        check_is_fitted(self)
        array = self._seen(X, reset=False)
        with as_refusals():
            return self.release_.ask(question, self._queries(array), **parameters)

    def _queries(self, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return queries as the columns that the release asks for."""
        return {"x": array}

    def _numbers(
        self, X: Any, private: Origin = NOTHING_PRIVATE, where: str = "X"
    ) -> NDArray[np.float64]:
        """Return queries as finite floats (q, d), or refuse (OS607, OS704)."""
        check_is_fitted(self)
        array = self._seen(X, reset=False)
        records = Records((Column("x", f"array[f64, {array.shape[1]}]"),))
        with as_refusals():
            if private:
                refuse_private(origin_of(X), private, where)  # a frame's array is a copy
            found = read_queries(lambda: from_arrays(records, {"x": array}), "X", private=private)
            return np.asarray(found["x"])

    # --- scikit-learn --------------------------------------------------------------------------------

    def __getstate__(self) -> Any:
        """Keep plain data when pickled."""
        here = ("plan_", "_given")  # of this process
        return {name: value for name, value in super().__getstate__().items() if name not in here}

    def __sklearn_tags__(self) -> Any:
        """Say that two fits differ, and that sparse tables are refused."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.sparse = False
        return tags


_PLANS: dict[tuple[str, str], Plan] = {}
_MOST_PLANS = 64


def _plan(spec: Mapping[str, Any]) -> Plan:
    """Plan a program once, however many folds and clones run it."""
    draft = draft_of(spec)
    key = draft.program.name, draft.program.hash
    if draft.notes.findings or key not in _PLANS:
        try:
            found = plan_of(draft)
        except Refused as error:
            raise PlanRefused(error.findings) from None
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        _PLANS[key] = found
    return _PLANS[key]


def budget_of(estimator: Any) -> dict[str, Number]:
    """Return a fit's budget as in a spec, or refuse (OS101, OS102)."""
    measure = choice("measure", estimator.measure, _MEASURES)
    epsilon = bound("epsilon", estimator.epsilon)
    if measure == "pure":
        if estimator.delta is not None:
            raise EstimatorRefused(
                "OS102", "delta", expected="delta=None with measure='pure'",
                got=scalar_text(estimator.delta, 30), hint="pure DP has no delta: write delta=None.",
            )  # fmt: skip
        return {"epsilon": epsilon}
    return {"epsilon": epsilon, "delta": bound("delta", estimator.delta, below=1.0)}


def check_purse(estimator: Any) -> None:
    """Refuse what is no budget (OS102)."""
    if not isinstance(estimator.budget, Budget | None):
        raise EstimatorRefused(
            "OS102", f"{type(estimator).__name__}.budget", expected="a Budget, or None",
            got=type(estimator.budget).__name__,
            hint="Budget(epsilon=1.0, delta=1e-6), or Budget.open('file.ledger', ...).",
        )  # fmt: skip


def fit_loss(estimator: Any) -> Charge:
    """Return the loss that one fit never exceeds."""
    limit, measure = Limit(**budget_of(estimator)), estimator.measure
    return Charge(measure, target_of(limit, measure, with_delta=False).exact)


def checked_source(plan: Plan, arrays: Mapping[str, Any]) -> PieceSource:
    """Return the columns as a source of checked form, before the charge."""
    (entry,) = plan.program.data
    with as_refusals():
        table = from_arrays(entry.records, arrays)
        check_form(table)
    return table
