"""The running predictor: records, purses and transcript behind one interface.

The order of a batch is fixed: public work, exact products, then query after query the sequential
part, then the charges and the transcript into the store, and only then the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.individual_filter import IndividualFilter
from opendp_sim.core.errors import BudgetError, DataError, InternalError
from opendp_sim.measurements._knn_features import Lens, grid_queries
from opendp_sim.measurements._knn_hash import SignHashes, Tables, chosen
from opendp_sim.measurements._knn_noise import noisy
from opendp_sim.measurements._knn_owners import Owners
from opendp_sim.measurements._knn_pool import Pool
from opendp_sim.measurements._knn_public import (
    Answered,
    Reference,
    Seen,
    scores_between,
    weights_of,
)
from opendp_sim.measurements._knn_vote import Charges, Near, Outcome, vote
from opendp_sim.spaces.rows import GridRows, Rows, as_rows

__all__ = ["LEAST_REFERENCE", "Predictions", "Predictor", "Store"]

LEAST_REFERENCE = 50
"""A first batch of at least this many queries is its own reference."""
_BATCH = 256

Payload = Mapping[str, NDArray[Any]]


class Store(Protocol):
    """Where a session's charges and transcript are kept (``accounting.session_store``)."""

    def entries(self) -> list[tuple[str, Payload]]:
        """Return everything that was committed, in order."""
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
        """Make an entry and its charges durable, both or neither."""
        ...


@dataclass(frozen=True)
class Predictions:
    """Answers to a batch, in order.

    Attributes:
        labels: the predicted public labels.
        counts: shape (m,); noisy numbers of neighbours.
        votes: shape (m, L); noisy kernel weight of each class, earlier answers included.
        deviations: shape (m,); deviation of the noise on the votes.
    """

    labels: tuple[str | int, ...]
    counts: NDArray[np.int64]
    votes: NDArray[np.float64]
    deviations: NDArray[np.float64]


class Predictor:
    """Answers queries from private records. Everything but the answers is secret.

    Args:
        setting: the mechanism record (``IndKnn``).
        domain: the grid of the rows.
        data: the records.
        store: keeps charges durable; nothing for a predictor that lives in memory only.
    """

    def __init__(
        self, setting: Any, domain: GridRows, data: Rows, store: Store | None = None
    ) -> None:
        self._setting, self._domain, self._store = setting, domain, store
        self._rule = setting.rule
        self._angular: bool = setting.kernel.angular
        self._owners = Owners(data.ids)
        self._purses = IndividualFilter(setting.rho, 0)
        self._purses.open(self._owners.count if data.ids is not None else len(data))
        self._waiting: list[Rows] | None = [data]
        self._pool: Pool | None = None
        self._over = False
        if not setting.needs_reference:
            self._look(None)
        if store is not None:
            self._replay(store)

    def __repr__(self) -> str:
        """Nothing that depends on data."""
        return f"Predictor({self._setting.key}, secret)"

    # --- what an analyst may ask ----------------------------------------------------------------

    def ask(self, message: Any) -> Any:
        """Answer one message: rows to predict, or ``{"reference": rows}`` before the first of them.

        Raises:
            DataError (OS607): not such a message, or a small first batch without a reference.
            BudgetError (OS406): a failure has ended the release.
            InternalError (OS902): a failure inside; every purse is empty from here on.
        """
        if isinstance(message, dict):
            if set(message) == {"reference"}:
                return self.refer(message["reference"])
            if set(message) != {"predict"}:
                raise _unreadable()
            message = message["predict"]
        return self.predict(message)

    def refer(self, rows: Any) -> bool:
        """Set the public reference queries; returns whether they are in force (only the first are)."""
        queries = grid_queries(self._domain, rows)
        self._refuse_if_over()
        if self._pool is not None or len(queries) < 2:
            return False
        self._guard(lambda: self._set_reference(queries))
        return True

    def predict(self, rows: Any, allowed: NDArray[np.bool_] | None = None) -> Predictions:
        """Predict labels of public queries, shape (m, d), in order.

        Args:
            rows: the queries, on the mechanism's own input space.
            allowed: shape (m, L); the labels that may vote and win on each query. Public.
        """
        queries = grid_queries(self._domain, rows)
        self._refuse_if_over()
        if self._pool is None:
            if len(queries) < LEAST_REFERENCE:
                raise DataError(
                    "OS607", self._setting.key, expected=f"a first batch of {LEAST_REFERENCE} queries "
                    "or more, or a reference", got="a smaller one",
                    hint='send {"reference": public queries} first, or set `threshold` and '
                    "`centre: false`.",
                )  # fmt: skip
            self._guard(lambda: self._set_reference(queries))
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
            len(self._classes),
        )

    # --- what the curator may change ------------------------------------------------------------

    def insert(self, rows: Rows) -> None:
        """Add records of persons, between queries; a person known before keeps their purse."""
        self._refuse_if_over()
        self._updatable(rows)
        self._guard(lambda: self._insert(rows, "insert"))

    def relabel(self, rows: Rows) -> None:
        """Replace all records of the persons in ``rows`` by these; purses stay as they are."""
        self._refuse_if_over()
        self._updatable(rows)
        self._guard(lambda: self._insert(rows, "relabel"))

    def delete(self, ids: Any) -> None:
        """Remove all records of some persons. Free, immediate, and silent about who existed."""
        self._refuse_if_over()
        if not self._domain.ids:
            raise _no_ids(self._setting.key)
        self._guard(lambda: self._delete(np.asarray(ids)))

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _classes(self) -> tuple[str | int, ...]:
        return self._domain.labels or ()

    def _guard(self, step: Callable[[], Any]) -> Any:
        """Run a step that touches data; a failure ends the release, charged in full."""
        try:
            return step()
        except Exception:  # noqa: BLE001 - whatever it says may be about the data
            self._end()
        except BaseException:
            self._over = True
            raise
        raise InternalError(
            "OS902", self._setting.key, expected="an answer", got="a failure inside the mechanism",
            hint="the text is withheld and every purse is empty; start a new session.",
        )  # fmt: skip

    def _end(self) -> None:
        self._over = True
        self._purses.retire()
        if self._store is not None:
            try:
                self._store.commit("failure", {}, [], self._purses.snapshot)
            except Exception:  # noqa: BLE001 - the store itself failed; nothing left this process
                return

    def _refuse_if_over(self) -> None:
        if self._over:
            raise BudgetError(
                "OS406", self._setting.key, expected="an open release", got="one that has ended",
                hint="an earlier failure ended it, charged in full; start a new one.",
            )  # fmt: skip

    def _keep(self, kind: str, payload: Payload, charges: Charges | None = None) -> None:
        if self._store is not None:
            self._store.commit(kind, payload, charges or [], self._purses.snapshot)

    def _set_reference(self, queries: NDArray[np.float64]) -> None:
        self._look(queries)
        self._keep("reference", {"rows": queries})

    def _look(self, queries: NDArray[np.float64] | None) -> None:
        """Fix lens, ladder, reference and scales, and see every record through them."""
        setting = self._setting
        lens = Lens.plain(self._domain, normalise=setting.normalise)
        if setting.centre and queries is not None:
            lens = lens.centred_on(queries)
        self._dtype = lens.dtype(setting.key)
        self._ladder = setting.kernel.ladder(setting.levels, lens.unit)
        self._fixed = None
        if setting.threshold is not None:
            self._fixed = int(setting.kernel.least(setting.threshold, lens.unit))
        self._reference, weight = None, setting.threshold or 1.0
        if queries is not None:
            seen = Seen.of(lens.see_queries(queries, self._dtype))
            self._reference = Reference(seen, self._rule.share, setting.kernel.faintest(lens.unit))
            weight = self._reference.mean_weight(self._ladder, angular=self._angular)
        self._scales = setting.scales(weight)
        self._answered = Answered(lens)
        self._pool = Pool(lens, self._dtype, self._tables(lens))
        for rows in self._waiting or ():
            self._join(rows)
        self._waiting = None

    def _tables(self, lens: Lens) -> Tables | None:
        search = self._setting.search
        if not isinstance(search, SignHashes):
            return None
        size = chosen(search, self._typical_cosine(lens), self._domain.width)
        return None if size is None else Tables.draw(search.seed, *size, self._domain.width)

    def _typical_cosine(self, lens: Lens) -> float:
        """Return the cosine of a typical threshold: public."""
        if self._reference is None:
            score = float(self._fixed or 0)
        else:
            some = self._reference.seen.take(slice(0, 256))
            score = float(np.median(self._limits(some)))
        side = 1.0 / lens.unit
        return score / side**2 if self._angular else 1.0 + score / (2 * side**2)

    def _limits(self, seen: Seen) -> NDArray[np.int64]:
        if self._fixed is not None or self._reference is None:
            return np.full(len(seen), self._fixed or 0, dtype=np.int64)
        return self._reference.thresholds(seen, angular=self._angular)

    def _join(self, rows: Rows) -> None:
        if self._pool is None:
            self._waiting = [*(self._waiting or []), rows]
            return
        if rows.labels is None:
            raise _unreadable()
        self._pool.add(rows.values, rows.labels, self._owners.of(rows.ids, len(rows)))

    def _batch(self, queries: NDArray[np.float64], allowed: Any) -> Predictions:
        pool = self._pool
        if pool is None:
            raise _unreadable()
        seen = Seen.of(pool.lens.see_queries(queries, self._dtype))
        limits = self._limits(seen)
        friends = self._friends(seen, limits)
        near = self._finder(pool, seen, limits)
        charges: Charges = []
        outcomes: list[Outcome] = []
        votes: list[NDArray[np.float64]] = []
        winners: list[int] = []
        for i in range(len(seen)):
            may = None if allowed is None else allowed[i]
            outcome = vote(
                self._select(pool, *near(i), may), len(self._classes), self._scales,
                self._purses, noisy, charges,
            )  # fmt: skip
            total = outcome.votes + self._public_votes(friends, i, winners)
            total = total if may is None else np.where(may, total, -np.inf)
            outcomes.append(outcome)
            votes.append(total / len(self._ladder))
            winners.append(int(np.argmax(total)))
        answers = Predictions(
            tuple(self._classes[w] for w in winners),
            np.array([o.count for o in outcomes], dtype=np.int64),
            np.array(votes),
            np.array([o.scale for o in outcomes]) / len(self._ladder),
        )
        self._keep(
            "answers",
            {"rows": queries, "labels": np.array(winners), "counts": answers.counts,
             "votes": answers.votes, "deviations": answers.deviations},
            charges,
        )  # fmt: skip
        if self._setting.reuse:
            self._answered.add(seen, winners)
        return answers

    def _finder(
        self, pool: Pool, seen: Seen, limits: NDArray[np.int64]
    ) -> Callable[[int], tuple[NDArray[np.intp], NDArray[np.int64]]]:
        """Return the function from a query's number to the records near it and their scores."""
        if pool.tables is None:
            products = pool.all_products(seen.rows)
            return lambda i: pool.nearby(
                products[i], int(seen.norms[i]), int(limits[i]), angular=self._angular
            )
        codes = pool.tables.codes(seen.rows)
        return lambda i: pool.nearby_hashed(
            seen.rows[i], codes[:, i], int(seen.norms[i]), int(limits[i]), angular=self._angular
        )

    def _select(
        self, pool: Pool, found: NDArray[np.intp], scores: NDArray[np.int64], may: Any
    ) -> Near:
        labels = pool.labels[found]
        if may is not None:
            keep = may[labels]
            found, scores, labels = found[keep], scores[keep], labels[keep]
        weights = weights_of(self._ladder, scores)
        return Near(pool.owners[found], labels, weights, pool.one_each)

    def _friends(self, seen: Seen, limits: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the weights of earlier queries, and of earlier ones in this batch, as neighbours."""
        if not self._setting.reuse:
            return None
        scores = scores_between(seen, self._answered.with_batch(seen), angular=self._angular)
        weights = weights_of(self._ladder, scores)
        return np.where(scores >= limits[:, None], weights, 0)

    def _public_votes(
        self, friends: NDArray[np.int64] | None, i: int, winners: list[int]
    ) -> NDArray[np.float64]:
        size = len(self._classes)
        if friends is None:
            return np.zeros(size)
        labels = [*self._answered.labels, *winners]
        weights = friends[i, : len(labels)]
        return np.bincount(np.array(labels, dtype=np.int64), weights=weights, minlength=size)

    def _updatable(self, rows: Rows) -> None:
        if not self._domain.ids:
            raise _no_ids(self._setting.key)
        self._domain.check(as_rows(rows))

    def _insert(self, rows: Rows, kind: str) -> None:
        payload = {"values": rows.values, "labels": rows.labels, "ids": np.asarray(rows.ids)}
        if payload["ids"].dtype == object:
            payload["ids"] = payload["ids"].astype(str)
        self._apply(kind, payload)  # type: ignore[arg-type]
        self._keep(kind, payload)  # type: ignore[arg-type]

    def _delete(self, ids: NDArray[Any]) -> None:
        payload = {"ids": ids.astype(str) if ids.dtype == object else ids}
        self._apply("delete", payload)
        self._keep("delete", payload)

    def _apply(self, kind: str, payload: Payload) -> None:
        if kind in ("delete", "relabel"):
            gone = self._owners.known(payload["ids"])
            if self._pool is not None:
                self._pool.remove(gone)
            else:
                self._waiting = [_without(r, payload["ids"]) for r in self._waiting or ()]
        if kind in ("insert", "relabel"):
            rows = Rows(payload["values"], payload["labels"], payload["ids"])
            self._purses.open(self._owners.meet(rows.ids))
            self._join(rows)

    def _replay(self, store: Store) -> None:
        """Bring memory to where the store is: the same steps, without answering or charging."""
        for kind, payload in store.entries():
            if kind == "reference":
                self._look(payload["rows"])
            elif kind == "answers":
                if self._setting.reuse and self._pool is not None:
                    rows = self._pool.lens.see_queries(payload["rows"], self._dtype)
                    self._answered.add(Seen.of(rows), payload["labels"].tolist())
            elif kind == "failure":
                self._over = True
            else:
                self._apply(kind, payload)
        purses = store.purses()
        if purses is not None:
            self._purses.restore(purses)


def _without(rows: Rows, ids: NDArray[Any]) -> Rows:
    keep = ~np.isin(np.asarray(rows.ids), ids)
    labels = None if rows.labels is None else rows.labels[keep]
    return Rows(rows.values[keep], labels, np.asarray(rows.ids)[keep])


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


def _unreadable() -> DataError:
    return DataError(
        "OS607", "queries", expected='rows, {"predict": rows} or {"reference": rows}',
        got="another message", hint="send rows of the mechanism's own input space.",
    )  # fmt: skip


def _no_ids(key: str) -> DataError:
    return DataError(
        "OS607", key, expected="records that name their person", got="records without ids",
        hint="give a column `role: privacy_id`: a lifetime budget needs to know whose it is.",
    )  # fmt: skip
