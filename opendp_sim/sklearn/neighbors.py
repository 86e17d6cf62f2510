"""Predict by nearest neighbours (experimental).

Its predictions are charged, not its fit.

Proof: ``measurements/knn/ind_knn.md``; what is charged when: ``neighbors.md``, beside this file.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from opendp_sim.accounting.claim_text import claim_sentence
from opendp_sim.accounting.session.session import Session
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.certificate import claim_about
from opendp_sim.dsl.run.session import Served, serve
from opendp_sim.io.origin import NOTHING_PRIVATE, Origin, origin_of
from opendp_sim.measurements.knn._impl.service import LEAST_REFERENCE
from opendp_sim.sklearn._validation.bounds import box_of
from opendp_sim.sklearn._validation.facts import choice, classes_of
from opendp_sim.sklearn._validation.refusals import EstimatorRefused, InputRefused, as_refusals
from opendp_sim.sklearn._validation.tables import dtype_of, label_array
from opendp_sim.sklearn.base import PrivateEstimator, all_or_nothing, checked_source, estimator
from opendp_sim.sklearn.metrics import is_scoring


@estimator
class DPKNeighborsClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Predict by votes of near records (experimental).

    Each record pays for its own votes (``ind_knn``). Unlike the other estimators it keeps the private
    records, in this process alone: it cannot be pickled, and only the thread that fitted it may ask.
    All predictions together lose ``epsilon`` at ``delta``, which is charged once, durably, before the
    first of them leaves; a fit that is never asked is free.

    Args:
        epsilon: the loss of all predictions together, at ``delta``.
        delta: of the conversion.
        bounds: public ``(low, high)`` of all columns, ``(lows, highs)``, or ``{column: (low, high)}``.
        data_norm: rows are shortened to this L2 norm. At least one of the two.
        classes: every label that could occur. A record with another label, or with a cell that is no
            number, is left out at fit without a word: that there is one is private.
        queries: how many predictions there will be; no more are answered. Fewer are more accurate.
        size: a public guess of the number of records; within a factor of two is enough.
        reference: public rows that look like queries, 50 or more; None if the first batch is that large.
            A copy (``clone``) takes no batch as its reference.
        threshold: cosine from which a record is a neighbour, in place of a reference.
        allow_scoring: whether ``score`` may be called, and a copy's ``predict`` (``cross_val_predict``):
            each row spends a prediction, and what is returned of private rows is raw.
        measure: ``gdp`` or ``zcdp``.
        budget: what the first prediction is charged to; None for none.

    Attributes:
        classes_: the public labels, sorted.

    Raises:
        EstimatorRefused (OS101, OS102), InputRefused (OS602, OS607): nothing was charged. BudgetError
            (OS402): the budget refuses. (OS406): the planned predictions are used up. (OS407): another
            thread, or a copy.
    """

    charges_at_predict: ClassVar[bool] = True

    bounds: Any = None
    data_norm: float | None = None
    classes: Any = None
    queries: int = 100
    size: int = 1000
    reference: Any = None
    threshold: float | None = None
    allow_scoring: bool = False

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> DPKNeighborsClassifier:
        """Keep the records; nothing is released and nothing charged.

        ``X`` (n, d), labels ``y`` (n,); ``groups`` (n,): whose each record is, with ``unit="groups"``.
        """
        array, labels = self._seen(X, reset=True), label_array(y, "y")
        who, width = type(self).__name__, array.shape[1]
        choice("measure", self.measure, ("gdp", "zcdp"))
        classes = classes_of(self.classes, who)
        classes.check(labels, y)
        box = box_of(self.bounds, self.data_norm, width, self)
        columns = self._with_groups(
            {"x": (array, box.column(dtype_of(array), width)), "label": classes.column(labels)},
            groups,
        )
        steps: list[Mapping[str, Any]] = [{"select": {"features": "x", "label": "label"}}]
        plan = self._planned(columns, [*steps, *box.steps()])
        table = checked_source(plan, {name: values for name, (values, _) in columns.items()})
        private = origin_of(X) | origin_of(array)
        reference = None
        if self.reference is not None:
            reference = self._numbers(self.reference, private, "reference")
        self._asked = _Asked(plan, table, reference, int(self.queries), private)
        if self._copied and self._asked.refers_now:
            raise EstimatorRefused(
                "OS102", f"{type(self).__name__}.reference",
                expected="reference=public_rows or a threshold, since this estimator is a copy",
                got="neither, so that the first queries of a wrapper would be shown as they are",
                hint="give 50 or more public rows that look like queries, or threshold=0.5.",
            )  # fmt: skip
        self.plan_, self.classes_ = plan, classes.values
        claim = claim_about(plan, next(iter(plan.releases.values())))
        self.privacy_ = {**claim, "text": claim_sentence(claim), "entry": None}
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return public queries' labels, shape (q,).

        The first call is charged. A copy (``clone``, as wrappers make) needs ``allow_scoring=True``.
        """
        check_is_fitted(self, "classes_")
        if self._copied and not self.allow_scoring:
            raise EstimatorRefused(
                "OS102",
                f"{type(self).__name__}.predict",
                expected="the estimator that was made by its class, or allow_scoring=True",
                got="a copy of it, as cross_val_predict and other wrappers fit and ask",
                hint="a wrapper's queries are other rows of its table, and private if that is: make "
                "the estimator by its class, and ask it about public rows.",
            )
        array = self._numbers(X, self._asked.private, "the first queries")
        self._asked.check(array)
        if self._asked.served is None:
            with self._on_device():
                self._charge(self.plan_)
                self._asked.open()
        with as_refusals():
            found = self._asked.ask(array)
        keys = {key: at for at, key in enumerate(self._keys())}
        return np.asarray(self.classes_[[keys[label] for label in found]])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return a raw accuracy, which spends predictions; refused without ``allow_scoring=True``."""
        if not self.allow_scoring:
            raise EstimatorRefused(
                "OS102", f"{type(self).__name__}.score",
                expected="allow_scoring=True, for public X and y", got="a score without it",
                hint="each row of X is a prediction that is spent, and of private rows the score is raw.",
            )  # fmt: skip
        return float(super().score(X, y, sample_weight))

    @property
    def predictions_left(self) -> int:
        """How many predictions are left of those that were planned."""
        check_is_fitted(self, "classes_")
        return self._asked.left

    def _keys(self) -> list[str | int]:
        return [str(v) if isinstance(v, str) else int(v) for v in self.classes_.tolist()]

    def _release(self) -> dict[str, Any]:
        rule = {} if self.threshold is None else {"threshold": self.threshold, "centre": False}
        setting = {"queries": self.queries, "size": self.size, **rule}
        return {"mechanism": {"ind_knn": setting}}

    def _outputs(self) -> dict[str, Any]:
        return {
            "predictions": {"from": "noisy", "serve": "session", "store": "predictions.session"}
        }


class _Asked:
    """Hold private records, their paid session, and the predictions left."""

    def __init__(
        self, plan: Plan, table: Any, reference: Any, queries: int, private: Origin
    ) -> None:
        self._plan, self._table, self._reference = plan, table, reference
        self._private = private
        self.left = queries
        self.served: Served | None = None
        self._folder = Path(mkdtemp(prefix="neighbors"))
        self._open: list[Session] = []
        weakref.finalize(self, _ended, self._folder, self._open)
        self._refers = bool(getattr(_setting(plan), "needs_reference", False))

    @property
    def refers_now(self) -> bool:
        """Return whether the next queries become the reference."""
        return self.served is None and self._refers and self._reference is None

    @property
    def private(self) -> Origin:
        """Return the origin of the records, for reference queries."""
        return self._private if self.refers_now else NOTHING_PRIVATE

    def open(self) -> None:
        """Open the session, which reads the records for the first time."""
        store = self._folder / "predictions.session"
        with as_refusals():
            self.served = serve(self._plan, memory={"records": self._table}, store=store)
            self._open.append(self.served.session)
            if self._reference is not None:
                self.served.session.refer({"x": self._reference})

    def check(self, queries: NDArray[np.float64]) -> None:
        """Refuse unanswerable queries (OS406, OS607) before they are asked."""
        if is_scoring():
            raise EstimatorRefused(
                "OS102", "predict",
                expected="a classifier whose predictions are free functions of a row",
                got="private records as queries",
                hint="what is left would tell how many there were, and answers depend on earlier ones.",
            )  # fmt: skip
        count = len(queries)
        if self.refers_now and count < LEAST_REFERENCE:
            raise InputRefused(
                "OS607", "predict",
                expected=f"{LEAST_REFERENCE} queries or more at first, which say what queries look like",
                got=f"{count}",
                hint="or give reference=public_rows to the estimator, or threshold=0.5.",
            )  # fmt: skip
        if count > self.left:
            raise BudgetError(
                "OS406", "predict", expected=f"at most {self.left} more predictions",
                got=f"{count} queries",
                hint="a new fit with more `queries` is another charge; ask fewer at a time.",
            )  # fmt: skip

    def ask(self, queries: NDArray[np.float64]) -> tuple[str | int, ...]:
        """Answer queries; they count whatever happens."""
        self.left -= len(queries)
        assert self.served is not None  # noqa: S101 - `predict` opened it
        return self.served.session.ask({"x": queries}).labels

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse copies and pickles (OS407)."""
        raise BudgetError(
            "OS407", "DPKNeighborsClassifier", expected="the fitted estimator itself",
            got="a copy of it",
            hint="it holds private records; `clone` makes one that is not fitted.",
        )  # fmt: skip


def _ended(folder: Path, sessions: list[Session]) -> None:
    """Close the store, and remove its folder."""
    for session in sessions:
        session.close()
    shutil.rmtree(folder, ignore_errors=True)


def _setting(plan: Plan) -> Any:
    return next(iter(plan.releases.values())).record
