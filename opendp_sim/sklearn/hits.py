"""Which records a classifier predicts right, each as a function of that record alone.

A product of matrices rounds by the shape of the whole batch: predicted together, a record that comes or
goes could turn another one's close call. So a foreign classifier sees one record at a time. The
package's own see many, in batches of one shape in which a record's place is its own hash: Lemma 1 of
``scoring.md``, beside this file.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from contextvars import ContextVar
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline

from opendp_sim.sklearn.fitted_form import as_given
from opendp_sim.sklearn.refusals import InputRefused
from opendp_sim.sklearn.tables import numbers_of

__all__ = ["check_pairs", "is_scoring", "right"]

_PLACES = 128
"""Records in one batch; what a record's hash is cut to."""
_OWN = "opendp_sim.sklearn."
_SCORING = ContextVar("_SCORING", default=False)


def is_scoring() -> bool:
    """Whether this thread predicts private records: what is charged at predict refuses then."""
    return _SCORING.get()


def check_pairs(array: NDArray[Any], labels: NDArray[Any]) -> None:
    """Refuse labels that are more or fewer than the records (OS602)."""
    if len(array) != len(labels):
        raise InputRefused(
            "OS602",
            "y",
            expected="one label a record",
            got="another number of them",
            hint="X and y need one entry a record.",
        )


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
    """Return one prediction a record, None for one that fails; equal records are asked once."""
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
    if own and _asked(estimator, nobody.copy()) is not None:
        found = _by_places(alone, list(first), known, nobody)
    else:
        found = [alone.asked(row) for row in known]
    return [found[at] for at in which]


class _Alone:
    """A classifier that is asked about one record at a time, from one buffer."""

    def __init__(self, estimator: Any, rows: NDArray[Any], names: list[str] | None) -> None:
        self.estimator, self._names = estimator, names
        self._buffer = np.empty((1, rows.shape[1]), dtype=rows.dtype)

    def asked(self, row: NDArray[Any]) -> Any:
        """Return the prediction, None if it fails."""
        self._buffer[0] = row
        found = _asked(self.estimator, self._buffer, self._names)
        return None if found is None else found[0]


def _by_places(
    alone: _Alone, keys: list[bytes], rows: NDArray[Any], nobody: NDArray[Any]
) -> list[Any]:
    """Return the predictions of different records, each at the place that its own bits say."""
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
    """Return the predictions of a batch: rows at their places, and nobody at the others."""
    batch[:] = 0
    batch[list(here)] = rows[list(here.values())]
    return _asked(estimator, batch)


def _asked(estimator: Any, table: NDArray[Any], names: list[str] | None = None) -> list[Any] | None:
    """Return the predictions of a table, one a row; None if they fail, or are fewer or more."""
    try:
        found = list(estimator.predict(as_given(table, names)))
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
    """Whether rows of a table do not meet in its ``predict``: the package's own code, nothing else."""
    kind = type(estimator)
    if kind is Pipeline:
        return all(map(_is_own, estimator.named_steps.values()))
    own = kind.__module__.startswith(_OWN) or isinstance(estimator, str | None)
    if kind in (GridSearchCV, RandomizedSearchCV) or (
        own and hasattr(estimator, "best_estimator_")
    ):
        return _is_own(getattr(estimator, "best_estimator_", estimator.estimator))
    return bool(own)
