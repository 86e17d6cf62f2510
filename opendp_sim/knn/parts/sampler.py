"""The running baseline: a private Poisson sample, its k nearest records, noisy votes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.session_mark import damaged
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.randomness import private_bytes
from opendp_sim.knn.parts.features import Lens
from opendp_sim.knn.parts.kept import kept_labels, kept_reference, replaying
from opendp_sim.knn.parts.noise import Stock, discrete
from opendp_sim.knn.parts.pool import Pool
from opendp_sim.knn.parts.public import Seen
from opendp_sim.knn.parts.service import Predictions, Store, unreadable
from opendp_sim.knn.parts.subsampled_votes import dyadic_rate
from opendp_sim.knn.parts.updates import FixedRecords
from opendp_sim.spaces.rows import GridRows, Rows

__all__ = ["Sampler", "coins", "nearest"]

_NO_PURSES = np.zeros(0, dtype=np.int64)


def coins(count: int, rate: int) -> NDArray[np.bool_]:
    """Return independent coins that are true with probability ``rate / 2**32``, exactly."""
    words = private_bytes(4 * count).view(np.uint32).astype(np.int64)
    return words < rate


def nearest(scores: NDArray[np.int64], labels: NDArray[np.int64], count: int) -> NDArray[np.intp]:
    """Return the places of the ``count`` highest scores; of equal scores, of the lowest labels.

    Records that are equal in both have the same vote, so the votes of those found are a function of
    the multiset of records: their order is no part of it. One record more displaces at most one.
    """
    if len(scores) <= count:
        return np.arange(len(scores))
    limit = np.partition(scores, len(scores) - count)[len(scores) - count]
    above = np.flatnonzero(scores > limit)
    tied = np.flatnonzero(scores == limit)
    tied = tied[np.argsort(labels[tied], kind="stable")]
    return np.concatenate([above, tied[: count - len(above)]])


class Sampler(FixedRecords):
    """Answers a fixed number of queries, each from a fresh sample. Everything but answers is secret.

    Args:
        setting: the mechanism record (``PrivateKnn``).
        domain: the grid of the rows.
        data: the records.
        scale: noise on each vote.
        store: keeps the number of answered queries; nothing for memory only.
    """

    def __init__(
        self, setting: Any, domain: GridRows, data: Rows, scale: float, store: Store | None = None
    ) -> None:
        super().__init__(setting, domain, store)
        self._data, self._scale = data, scale
        self._rate = dyadic_rate(setting.rate)
        self._stock = Stock(discrete)
        self._answered = 0
        self._pool: Pool | None = None
        if not setting.centre:
            self._look(None)
        if store is not None:
            with replaying():
                self._replay(store)

    def _replay(self, store: Store) -> None:
        """Bring memory to where the store is."""
        for kind, payload in store.entries():
            if kind == "reference":
                self._look(kept_reference(self._domain, payload))
            elif kind == "failure":
                self._over = True
            elif kind == "answers":
                kept_labels(self._domain, payload["labels"])
            else:
                raise damaged()
        self._answered = store.answered  # those that were folded away count as well

    @property
    def _ready(self) -> bool:
        return self._pool is not None

    def _purses_now(self) -> NDArray[np.int64]:
        return _NO_PURSES

    def _spend_all(self) -> NDArray[np.int64]:
        self._answered = self._setting.queries
        return _NO_PURSES

    def _admit(self, queries: int) -> None:
        if self._answered + queries > self._setting.queries:
            raise BudgetError(
                "OS406", self._setting.key, expected=f"at most {self._setting.queries} queries in all",
                got=f"{queries} after {self._answered}",
                hint="the accountant was promised no more; ind_knn answers any number.",
            )  # fmt: skip

    def _set_reference(self, queries: NDArray[np.float64]) -> None:
        self._look(queries)
        self._keep("reference", {"rows": queries})

    def _look(self, queries: NDArray[np.float64] | None) -> None:
        lens = Lens.plain(self._domain, normalise=self._setting.normalise)
        lens = lens if queries is None else lens.centred_on(queries)
        self._pool = Pool(lens, lens.dtype(self._setting.key), None)
        labels = self._data.labels if self._data.labels is not None else _NO_PURSES
        self._pool.add(self._data.values, labels, np.arange(len(self._data)))

    def _batch(self, queries: NDArray[np.float64], allowed: Any) -> Predictions:
        del allowed
        if self._pool is None:
            raise unreadable()
        pool, classes = self._pool, self._domain.labels or ()
        seen = Seen.of(pool.lens.see_queries(queries, pool.dtype))
        self._answered += len(queries)
        votes = np.array(
            [self._votes(pool, product, len(classes)) for product in pool.products(seen.rows)]
        )
        answers = Predictions(
            tuple(classes[winner] for winner in votes.argmax(axis=1)),
            np.full(len(votes), np.nan),  # a parameter says how many vote
            votes.astype(np.float64),
            np.full(len(votes), self._scale),
        )
        self._keep("answers", {"rows": queries, "labels": votes.argmax(axis=1), "votes": votes})
        return answers

    def _votes(self, pool: Pool, products: NDArray[Any], classes: int) -> NDArray[np.int64]:
        sample = np.flatnonzero(coins(pool.size, self._rate))
        labels = pool.labels[sample]
        found = nearest(pool.closeness(products, sample), labels, self._setting.neighbours)
        return self._stock.noisy(np.bincount(labels[found], minlength=classes), self._scale)
