"""Share a nearest-neighbour service's messages, reference, failures and store."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import BudgetError, DataError, InternalError
from opendp_sim.core.randomness import fingerprint
from opendp_sim.domains.rows import GridRows, as_rows
from opendp_sim.io.origin import NOTHING_PRIVATE, origin_of, refuse_private
from opendp_sim.measurements.knn._impl.features import grid_queries
from opendp_sim.measurements.knn._impl.stored import kept_predictions, replaying
from opendp_sim.measurements.knn._impl.vote import Charges
from opendp_sim.measurements.knn._impl.vote_noise import uncopied

LEAST_REFERENCE = 50
"""A first batch of at least this many queries is its own reference."""
_BATCH = 256

Payload = Mapping[str, NDArray[Any]]


class Store(Protocol):
    """Where a session's charges and transcript are kept (``accounting.session_store``)."""

    def entries(self) -> list[tuple[str, Payload]]:
        """Return every committed entry in order, perhaps without old answers."""
        ...

    @property
    def answered(self) -> int:
        """How many answers were committed, those that are gone included."""
        ...

    def purses(self) -> NDArray[np.int64] | None:
        """Return the purses after the last commit; None for a new store."""
        ...

    def commit(
        self,
        kind: str,
        payload: Payload,
        charges: Charges,
        snapshot: Callable[[], NDArray[np.int64]],
    ) -> None:
        """Make an entry and its charges durable, both or neither (OS407)."""
        ...

    def published(self, key: bytes) -> tuple[bytes, Payload] | None:
        """Return a key's question and answer, or None (OS407)."""
        ...

    def hold(self) -> None:
        """Keep the next answers in memory until ``publish``."""
        ...

    def publish(self, key: bytes, question: bytes, answer: Payload) -> None:
        """Make what waits durable, with its key, all or nothing (OS407)."""
        ...

    def let_go(self) -> bool:
        """Discard what still waits, and return whether there was anything."""
        ...


class _NotKept(Exception):  # noqa: N818 - never seen outside
    """Report that the store has the charge and no answer left."""

    def __init__(self, refusal: BudgetError) -> None:
        self.refusal = refusal


@dataclass(frozen=True)
class Predictions:
    """Answers to a batch, in order.

    Attributes:
        labels: the predicted public labels.
        counts: shape (m,); noisy numbers of neighbours, whole numbers; NaN where nobody was counted.
        votes: shape (m, L); noisy kernel weight of each class, earlier answers included; -inf for a
            class that was not asked about. Where nobody was counted, scores of released means.
        deviations: shape (m,); deviation of the noise on the votes; NaN where no noise was drawn for
            this answer, because an earlier release gave it.
    """

    labels: tuple[str | int, ...]
    counts: NDArray[np.int64] | NDArray[np.float64]
    votes: NDArray[np.float64]
    deviations: NDArray[np.float64]


class Service:
    """Answer queries from private records, with secret state.

    Args:
        setting: the mechanism record.
        domain: the grid of the rows.
        store: keeps charges durable; nothing for a service that lives in memory only.
    """

    def __init__(self, setting: Any, domain: GridRows, store: Store | None) -> None:
        self._setting, self._domain, self._store = setting, domain, store
        self._over, self._lost = False, False
        self._private = NOTHING_PRIVATE
        self._turn, self._process = RLock(), os.getpid()

    def __repr__(self) -> str:
        """Nothing that depends on data."""
        return f"{type(self).__name__}({self._setting.key}, secret)"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copies and pickles (OS407)."""
        raise uncopied("a service")

    @property
    @abstractmethod
    def _ready(self) -> bool:
        """Whether a reference, if one is needed, is in force."""

    @abstractmethod
    def _set_reference(self, queries: NDArray[np.float64]) -> None:
        """Take public queries as the reference, and keep them."""

    @abstractmethod
    def _batch(self, queries: NDArray[np.float64], allowed: Any) -> Predictions:
        """Answer up to 256 queries, charges first."""

    @abstractmethod
    def _purses_now(self) -> NDArray[np.int64]:
        """Return all purses."""

    @abstractmethod
    def _spend_all(self) -> NDArray[np.int64]:
        """Empty all purses, and return them."""

    def _admit(self, queries: int) -> None:
        """Refuse a number of queries that was not paid for."""

    def ask(self, message: Any) -> Any:
        """Answer one message.

        Rows to predict, or ``{"reference": rows}`` before the first of them.

        Raises:
            DataError (OS607): not such a message, or a small first batch without a reference.
            ReleaseError (OS704): the reference is memory of the records.
            BudgetError (OS406): a failure or an interruption has ended the release, or this process's
                part in it. (OS407): the store cannot be written; nothing was answered.
            InternalError (OS902): a failure inside; no record's budget is left from here on.
        """
        if isinstance(message, dict):
            if set(message) == {"reference"}:
                return self.refer(message["reference"])
            if set(message) != {"predict"}:
                raise unreadable()
            message = message["predict"]
        return self.predict(message)

    def refer(self, rows: Any) -> bool:
        """Set the first public reference queries, returning whether they apply."""
        queries = self._public(rows)
        with self._alone():
            return self._refer(queries)

    def _public(self, rows: Any) -> NDArray[np.float64]:
        """Return queries on the grid, or refuse private rows (OS704)."""
        if not self._ready:
            refuse_private(origin_of(as_rows(rows).values), self._private, "reference")
        return grid_queries(self._domain, rows)

    def _refer(self, queries: NDArray[np.float64]) -> bool:
        if self._ready or len(queries) < 2:
            return False
        self._guard(lambda: self._set_reference(queries))
        self._private = NOTHING_PRIVATE  # the records themselves need not be kept for it any longer
        return True

    def predict(self, rows: Any, allowed: NDArray[np.bool_] | None = None) -> Predictions:
        """Predict labels of public queries ``(m, d)`` in the input space.

        ``allowed`` (m, L) are the labels that may vote and win on each query. Public.
        """
        queries = self._public(rows)
        with self._alone():
            return self._predict(queries, allowed)

    def predict_once(self, rows: Any, key: bytes) -> Predictions:
        """Predict once for each key, and replay the answer after that.

        ``key`` has 32 bytes. Needs a store (``accounting/session/store.md``, Lemma 7).

        Raises:
            BudgetError (OS408): the key belongs to another question. Others as ``ask``.
        """
        queries, store = self._public(rows), self._store
        if store is None:
            raise unreadable()
        question = bytes.fromhex(fingerprint([queries]))
        with self._locked():
            if self._lost:  # its store may hold another history
                self._refuse_if_over()
            found = store.published(key)
            if found is not None:
                return self._again(question, *found)
            self._refuse_if_over()
            store.hold()
            try:
                answers = self._predict(queries, None)
                self._guard(lambda: self._publish(store, key, question, answers))
            finally:
                if store.let_go():  # an interruption, or no memory: nothing has left
                    self._over = self._lost = True
            return answers

    def _again(self, question: bytes, asked: bytes, payload: Payload) -> Predictions:
        """Return a published answer to the same question."""
        if question != asked:
            raise BudgetError(
                "OS408", self._setting.key, expected="the question that this key was used for",
                got="another question",
                hint="nothing was charged: use a new key for every new question.",
            )  # fmt: skip
        labels = self._domain.labels or ()
        with replaying():
            winners, *rest = kept_predictions(self._domain, payload)
            return Predictions(tuple(labels[winner] for winner in winners), *rest)

    def _publish(self, store: Store, key: bytes, question: bytes, answers: Predictions) -> None:
        classes = {label: place for place, label in enumerate(self._domain.labels or ())}
        winners = [classes[label] for label in answers.labels]
        payload = {"labels": np.array(winners, dtype=np.int64), "counts": answers.counts}
        payload |= {"votes": answers.votes, "deviations": answers.deviations}
        try:
            store.publish(key, question, payload)
        except BudgetError as error:
            raise _NotKept(error) from None

    def _predict(self, queries: NDArray[np.float64], allowed: Any) -> Predictions:
        if not self._ready:
            if len(queries) < LEAST_REFERENCE:
                raise DataError(
                    "OS607", self._setting.key, expected=f"a first batch of {LEAST_REFERENCE} queries "
                    "or more, or a reference", got="a smaller one",
                    hint="begin with more queries, or with public ones as a reference (in Python "
                    '`.reference(queries)`, of a queryable {"reference": queries}), or set '
                    "`threshold` and `centre: false`.",
                )  # fmt: skip
            self._guard(lambda: self._set_reference(queries))
            self._private = NOTHING_PRIVATE
        self._admit(len(queries))
        parts = [slice(i, i + _BATCH) for i in range(0, len(queries), _BATCH)]
        return _joined(
            [
                self._guard(
                    lambda part=part: self._batch(  # type: ignore[misc]
                        queries[part], None if allowed is None else allowed[part]
                    )
                )
                for part in parts
            ],
            len(self._domain.labels or ()),
        )

    def _guard(self, step: Callable[[], Any]) -> Any:
        """Run a step on data, whose failure ends the release, charged.

        Where the store failed, or somebody interrupted, nothing has left: the store goes on from what
        it holds, this object does not, for its purses may differ.
        """
        try:
            with np.errstate(all="ignore"):  # whether a warning appears depends on the data
                return step()
        except _NotKept as error:
            self._over = self._lost = True
            refusal = error.refusal.with_traceback(None)  # its frames hold charges
        except Exception:  # noqa: BLE001 - whatever it says may be about the data
            self._end()
            refusal = None
        except BaseException:
            self._over, self._lost = True, self._store is not None
            raise
        if refusal is not None:
            refusal.alone()
        raise InternalError(
            "OS902", self._setting.key, expected="an answer", got="a failure inside the mechanism",
            hint="the text is withheld, and no record has budget left; a new store costs it again.",
        )  # fmt: skip

    def _end(self) -> None:
        self._over = True
        purses = self._spend_all()
        if self._store is not None:
            try:
                self._store.commit("failure", {}, [], lambda: purses)
            except Exception:  # noqa: BLE001 - the store itself failed; nothing left this process
                return

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the budgets for one question or update of an open release."""
        with self._locked():
            self._refuse_if_over()
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the budgets, except in forks.

        Two threads would both find a purse full, and a fork is a second set of purses.
        """
        if os.getpid() != self._process:
            raise uncopied("a service, by a fork")
        with self._turn:
            yield

    def _refuse_if_over(self) -> None:
        if self._lost:
            raise BudgetError(
                "OS406", self._setting.key, expected="a session that keeps what it charges",
                got="one whose store failed, or that was interrupted",
                hint="close it and open it again: it goes on from the stored history.",
            )  # fmt: skip
        if self._over:
            raise BudgetError(
                "OS406", self._setting.key, expected="an open release", got="one that has ended",
                hint="an earlier failure ended it, charged in full; a new one costs the budget again.",
            )  # fmt: skip

    def _keep(self, kind: str, payload: Payload, charges: Charges | None = None) -> None:
        if self._store is None:
            return
        try:
            self._store.commit(kind, payload, charges or [], self._purses_now)
        except BudgetError as error:
            raise _NotKept(error) from None


def _joined(parts: list[Predictions], classes: int) -> Predictions:
    if not parts:
        none = np.empty(0)
        return Predictions((), none.astype(np.int64), np.empty((0, classes)), none)
    return Predictions(
        tuple(label for part in parts for label in part.labels),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.votes for part in parts]),
        np.concatenate([part.deviations for part in parts]),
    )


def unreadable() -> DataError:
    """Return the refusal of a query that has none of the forms."""
    return DataError(
        "OS607", "queries", expected='rows, {"predict": rows} or {"reference": rows}',
        got="another message", hint="send rows of the mechanism's own input space.",
    )  # fmt: skip
