"""Measure a private accuracy.

The noisy number of held-out private records predicted right. ``score``, ``cross_val_score`` and
``best_params_`` read raw records; this does not publish them. Proof: ``metrics.md``, beside this file.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from opendp_sim.sklearn._validation.defaults import MEASURE
from opendp_sim.sklearn._validation.refusals import EstimatorRefused, InputRefused
from opendp_sim.sklearn._validation.tables import checked_table, is_text, label_array, numbers_of
from opendp_sim.sklearn._validation.wrappers import check_accounted
from opendp_sim.sklearn.base import PrivateEstimator
from opendp_sim.sklearn.budget import Budget, one_budget

# --------------------------------------------------------------------------------------------------
# What a fitted classifier and a table must share, from public form alone: no record is looked at.
#
# A prediction that fails counts as wrong, so a mistake in the form would be charged and told as an
# accuracy of nothing.

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
    """Return an estimator and everything inside it."""
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
    """Refuse an unfitted classifier or one without predictions (OS102)."""
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
    """Refuse labels that cannot equal a class (OS102).

    By dtype; objects may be anything. What the caller passed, ``column``, may say by its own type that
    its objects are texts.
    """
    known, given = _kind_of_classes(getattr(estimator, "classes_", None)), _kind(labels.dtype)
    given = "text" if given is None and is_text(column) else given
    if known is not None and given is not None and known != given:
        raise EstimatorRefused(
            "OS102", "y", expected=f"labels of the kind of the estimator's classes: {known}",
            got=f"dtype {given if labels.dtype.kind == 'O' else labels.dtype}",
            hint="write the labels as they were written at fit.",
        )  # fmt: skip


def names_for(estimator: Any, table: Any) -> list[str] | None:
    """Return column names for a pandas frame.

    Where a classifier was fitted with names. The names were compared before: they are those of the
    fit.
    """
    pandas = sys.modules.get("pandas")  # whoever holds a frame has it
    if pandas is None or not isinstance(table, pandas.DataFrame):
        return None
    known = getattr(estimator, "feature_names_in_", None)
    return None if known is None else [str(name) for name in known]


def with_names(rows: NDArray[Any], names: list[str] | None) -> Any:
    """Return rows as an array or a frame with these names alone."""
    if names is None:
        return rows
    return sys.modules["pandas"].DataFrame(rows, columns=list(names), copy=False)


def _kind(dtype: np.dtype[Any]) -> str | None:
    return None if dtype.kind == "O" else _KINDS.get(dtype.kind, f"dtype kind {dtype.kind}")


def _kind_of_classes(classes: Any) -> str | None:
    """Return the classes' one kind, or None."""
    if not isinstance(classes, np.ndarray) or classes.ndim != 1:
        return None
    if classes.dtype.kind != "O":
        return _kind(classes.dtype)
    kinds = {_kind(np.asarray(value).dtype) for value in classes}
    return kinds.pop() if len(kinds) == 1 else None


def _refused(expected: str, got: str, hint: str) -> EstimatorRefused:
    return EstimatorRefused("OS102", "estimator", expected=expected, got=got, hint=hint)


# --------------------------------------------------------------------------------------------------
# Which records a classifier predicts right, each as a function of that record alone.
#
# A product of matrices rounds by the shape of the whole batch: predicted together, a record that comes or
# goes could turn another one's close call. So a foreign classifier sees one record at a time. The
# package's own see many, in batches of one shape in which a record's place is its own hash: Lemma 1 of
# ``metrics.md``, beside this file.

_PLACES = 128
"""Records in one batch; what a record's hash is cut to."""
_OWN = "opendp_sim.sklearn."
_SCORING = ContextVar("_SCORING", default=False)


def is_scoring() -> bool:
    """Return whether this thread predicts private records, free of charge."""
    return _SCORING.get()


def check_pairs(array: NDArray[Any], labels: NDArray[Any]) -> None:
    """Refuse labels that are more or fewer than the records (OS602)."""
    if len(array) != len(labels):
        raise InputRefused(
            "OS602", "y", expected="one label a record", got="another number of them",
            hint="X and y need one entry a record.",
        )  # fmt: skip


def right(
    estimator: Any, array: NDArray[Any], labels: NDArray[Any], names: list[str] | None = None
) -> NDArray[np.bool_]:
    """Return which records are predicted right, shape (n,).

    A record whose prediction fails is wrong, whatever it failed with, and nothing is told of it. With
    ``names`` a foreign classifier is given each record as a pandas frame of one row.

    Raises:
        KeyboardInterrupt: somebody stopped it; the text is fixed.
    """
    check_pairs(array, labels)
    stopped = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names of columns; and no warning may count records
        token = _SCORING.set(True)
        try:
            found = _predictions(estimator, array, names)
        except KeyboardInterrupt:
            stopped = True
        finally:
            _SCORING.reset(token)
    if stopped:  # outside the handler: it keeps no context whose frames hold data
        raise KeyboardInterrupt("stopped while records were predicted; a charge stands")
    same = (_same(*pair) for pair in zip(found, labels, strict=True))
    return np.fromiter(same, dtype=bool, count=len(array))


def _predictions(estimator: Any, array: NDArray[Any], names: list[str] | None) -> list[Any]:
    """Return one prediction a record, equal for equal ones, None for failures."""
    own = _is_own(estimator)
    if np.ma.isMaskedArray(array) or (own and array.dtype.kind == "O"):
        array = numbers_of(array)
    rows = np.ascontiguousarray(array)
    alone = _Alone(estimator, rows, None if own else names)
    if rows.dtype.kind == "O":  # such cells have no bits to tell records apart by
        return [alone.asked(row) for row in rows]
    first: dict[bytes, int] = {}
    which = [first.setdefault(row.tobytes(), len(first)) for row in rows]
    known = np.frombuffer(b"".join(first), dtype=rows.dtype).reshape(len(first), rows.shape[1])
    nobody = np.zeros((_PLACES, rows.shape[1]), dtype=rows.dtype)
    if own and _predictions_of(estimator, nobody.copy()) is not None:
        found = _by_places(alone, list(first), known, nobody)
    else:
        found = [alone.asked(row) for row in known]
    return [found[at] for at in which]


class _Alone:
    """Ask a classifier one record at a time, from one buffer."""

    def __init__(self, estimator: Any, rows: NDArray[Any], names: list[str] | None) -> None:
        self.estimator, self._names = estimator, names
        self._buffer = np.empty((1, rows.shape[1]), dtype=rows.dtype)

    def asked(self, row: NDArray[Any]) -> Any:
        """Return the prediction, None if it fails."""
        self._buffer[0] = row
        found = _predictions_of(self.estimator, self._buffer, self._names)
        return None if found is None else found[0]


def _by_places(
    alone: _Alone, keys: list[bytes], rows: NDArray[Any], nobody: NDArray[Any]
) -> list[Any]:
    """Return predictions of different records in an order by bits."""
    found: list[Any] = [None] * len(keys)
    queues: dict[int, list[int]] = defaultdict(list)
    for at, (key, finite) in enumerate(zip(keys, np.isfinite(rows).all(axis=1), strict=True)):
        if finite:
            queues[int.from_bytes(blake2b(key, digest_size=8).digest(), "big") % _PLACES].append(at)
        else:
            found[at] = alone.asked(rows[at])
    batch = nobody.copy()
    for wave in zip_longest(*queues.values()):
        here = {place: at for place, at in zip(queues, wave, strict=True) if at is not None}
        answers = _answers(alone.estimator, batch, here, rows)
        if answers is None:  # who fails alone is wrong, and nobody stands there for the others
            here = {p: at for p, at in here.items() if alone.asked(rows[at]) is not None}
            answers = _answers(alone.estimator, batch, here, rows)
        for place, at in here.items():
            found[at] = None if answers is None else answers[place]
    return found


def _answers(
    estimator: Any, batch: NDArray[Any], here: dict[int, int], rows: NDArray[Any]
) -> list[Any] | None:
    """Return a batch's predictions at the rows' places."""
    batch[:] = 0
    batch[list(here)] = rows[list(here.values())]
    return _predictions_of(estimator, batch)


def _predictions_of(
    estimator: Any, table: NDArray[Any], names: list[str] | None = None
) -> list[Any] | None:
    """Return a table's predictions, or None."""
    try:
        found = list(estimator.predict(with_names(table, names)))
        return found if len(found) == len(table) else None
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - an end of the process would tell of a record, too
        return None


def _same(found: Any, label: Any) -> bool:
    try:
        return found is not None and bool(found == label)
    except Exception:  # noqa: BLE001 - two kinds that cannot be compared are not the same
        return False


def _is_own(estimator: Any) -> bool:
    """Return whether ``predict`` treats rows independently."""
    kind = type(estimator)
    if kind is Pipeline:
        return all(map(_is_own, estimator.named_steps.values()))
    own = kind.__module__.startswith(_OWN) or isinstance(estimator, str | None)
    if kind in (GridSearchCV, RandomizedSearchCV) or (
        own and hasattr(estimator, "best_estimator_")
    ):
        return _is_own(getattr(estimator, "best_estimator_", estimator.estimator))
    return bool(own)


# --------------------------------------------------------------------------------------------------


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
    max_copies: int = 1,
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
        max_copies: how often one record may occur in the table, as you guarantee; noise grows with it.
        budget: what it is charged to; None for the one that the estimator holds, if it holds one.

    Raises:
        EstimatorRefused (OS102): no classifier, one that is not fitted or is charged at predict, a
            wrapper whose fits are not counted (``model_selection.md``), or labels of another kind than
            its classes. InputRefused (OS602): no table; (OS607): other
            columns than those of the fit. BudgetError (OS402): the budget refuses. Nothing was charged.
    """
    check_estimator(estimator)
    inside = [*all_inside(estimator), *estimator.get_params(deep=True).values()]
    charged = any(getattr(each, "charges_at_predict", False) for each in inside)
    if not is_classifier(estimator) or charged:
        raise EstimatorRefused(
            "OS102", "estimator",
            expected="a classifier whose predictions are free functions of a row",
            got=type(estimator).__name__, hint="only accuracies are released here.",
        )  # fmt: skip
    check_fitted(estimator)
    check_accounted(estimator)
    array, labels = checked_table(estimator, X, reset=False), label_array(y, "y")
    check_pairs(array, labels)
    check_kind(estimator, labels, y)
    names = names_for(estimator, X)
    if budget is None:
        budget = one_budget(
            inside, "one budget", "say which one pays: private_score(..., budget=budget)."
        )
    tally = _Tally(
        epsilon=epsilon,
        delta=delta,
        measure=measure,
        unit=unit,
        max_rows=max_rows,
        max_copies=max_copies,
        budget=budget,
    )
    return tally.score_of(lambda: right(estimator, array, labels, names), len(array), groups)


class _Tally(PrivateEstimator):
    """Counts of right and wrong records, with noise."""

    _charged_as = "private_score"

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
