"""The running hybrid: released class means, and Ind-KNN for the queries they are unsure of."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.knn.parts.doubt import Doubt
from opendp_sim.knn.parts.kept import kept_answers, kept_cells, kept_reference, replaying
from opendp_sim.knn.parts.means import ClassMeans
from opendp_sim.knn.parts.predictor import Predictor
from opendp_sim.knn.parts.public import Seen
from opendp_sim.knn.parts.service import Predictions, Store, unreadable
from opendp_sim.knn.parts.updates import FixedRecords
from opendp_sim.spaces.rows import GridRows, Rows

__all__ = ["Hybrid"]


class Hybrid(FixedRecords):
    """Answers from the class means where they are sure, else asks neighbours about the two leaders.

    Args:
        setting: the mechanism record (``HybridKnn``).
        domain: the grid of the rows.
        data: the records.
        store: keeps charges, the reference and the means.
    """

    def __init__(
        self, setting: Any, domain: GridRows, data: Rows, store: Store | None = None
    ) -> None:
        super().__init__(setting, domain, store)
        self._inner = Predictor(setting.neighbours_setting, domain, data, store)
        self._means: ClassMeans | None = None
        self._reference: NDArray[np.float64] | None = None
        self._doubt = Doubt()
        if store is not None:
            with replaying():
                self._replay(store)
            self._set_out_again()

    def _set_out_again(self) -> None:
        """Look again at the public queries that the store was shown."""
        if self._reference is not None:
            self._guard(self._set_out)

    def _replay(self, store: Store) -> None:
        """Bring the means, and what they taught, to where the store is."""
        for kind, payload in store.entries():
            if kind == "reference":
                self._reference = kept_reference(self._domain, payload)
            elif kind == "means":
                self._means = ClassMeans(self._lens, *kept_cells(self._domain, payload))
            elif kind == "easy":
                self._doubt = Doubt.of(payload["doubt"])
            elif kind == "answers" and self._means is not None:
                queries, votes, deviations = kept_answers(self._domain, payload)
                _, order, _ = self._lead(self._means, queries)
                self._doubt.learn(_leads(order, votes, deviations))
            elif kind == "failure":
                self._over = True

    @property
    def _ready(self) -> bool:
        return self._means is not None

    def _purses_now(self) -> NDArray[np.int64]:
        return self._inner._purses_now()  # noqa: SLF001 - its other half

    def _spend_all(self) -> NDArray[np.int64]:
        return self._inner._spend_all()  # noqa: SLF001 - its other half

    @property
    def _lens(self) -> Any:
        pool = self._inner._pool  # noqa: SLF001 - its other half
        if pool is None:
            raise unreadable()
        return pool.lens

    def _set_reference(self, queries: NDArray[np.float64]) -> None:
        self._inner._set_reference(queries)  # noqa: SLF001 - its other half
        self._reference = queries
        self._set_out()

    def _set_out(self) -> None:
        """Release the means, unless the store has them, and read off what a sure answer is."""
        pool = self._inner._pool  # noqa: SLF001 - its other half
        if pool is None or self._reference is None:
            raise unreadable()
        if self._means is None:
            share: Fraction = self._setting.means_rho
            labels = pool.labels[: pool.size]
            classes = len(self._domain.labels or ())
            means = ClassMeans.release(pool.lens, pool.seen_rows, labels, classes, share)
            self._keep("means", {"scale": np.array(means.scale), "cells": means.cells})
            self._means = means
        _, _, gaps = self._lead(self._means, self._reference)
        self._cut = float(np.quantile(gaps, self._setting.hard))

    def _lead(
        self, means: ClassMeans, queries: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
        """Return scores by the means (m, L), the two leading classes (m, 2), and their gap (m,)."""
        scores = means.scores(self._see(queries), prior=self._setting.prior == "released")
        return scores, *means.leaders(scores)

    def _see(self, queries: NDArray[np.float64]) -> Seen:
        pool = self._inner._pool  # noqa: SLF001 - its other half
        if pool is None:
            raise unreadable()
        return Seen.of(pool.lens.see_queries(queries, pool.dtype))

    def _batch(self, queries: NDArray[np.float64], allowed: Any) -> Predictions:
        del allowed
        if self._means is None:
            raise unreadable()
        scores, order, gaps = self._lead(self._means, queries)
        hard = np.flatnonzero(gaps < self._cut)
        winners, votes = order[:, 0].copy(), scores.copy()
        counts, deviations = (np.full(len(queries), np.nan) for _ in range(2))
        if hard.size:
            may = np.zeros((hard.size, scores.shape[1]), dtype=np.bool_)
            np.put_along_axis(may, order[hard], values=True, axis=1)
            found = self._inner._batch(queries[hard], may)  # noqa: SLF001 - its other half
            leads = _leads(order[hard], found.votes, found.deviations)
            self._doubt.learn(leads)
            winners[hard] = np.where(self._doubt.overturned(leads), order[hard, 1], order[hard, 0])
            votes[hard], counts[hard] = found.votes, found.counts
            deviations[hard] = found.deviations
        easy = np.delete(np.arange(len(queries)), hard)
        self._keep(
            "easy",
            {
                "rows": queries[easy],
                "labels": winners[easy],
                "labels_of_the_rest": winners[hard],
                "doubt": self._doubt.state,
            },
        )
        labels = self._domain.labels or ()
        return Predictions(tuple(labels[w] for w in winners), counts, votes, deviations)


def _leads(
    order: NDArray[np.intp], votes: NDArray[np.float64], deviations: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the lead of the first class over the second, in deviations of its noise: (k,)."""
    top = np.take_along_axis(votes, order, axis=1)
    leads: NDArray[np.float64] = (top[:, 0] - top[:, 1]) / (np.sqrt(2.0) * deviations)
    return leads
