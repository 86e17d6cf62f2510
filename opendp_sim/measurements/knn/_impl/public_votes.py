"""Set thresholds and votes from the public transcript alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.row_products import exact_products, squared_norms
from opendp_sim.measurements.knn._impl.features import Lens

REMEMBERED = 2048
"""Answers that vote again, at least; older ones are forgotten, in memory as in a store."""
_WEIGHED = 1024
"""Reference queries that the estimate of the mean weight looks at."""
_FEW = 10
"""Queries above a threshold from which their number is no longer luck."""
_NOBODY = np.iinfo(np.int64).min + 1


@dataclass(frozen=True)
class QueryRows:
    """Hold public queries (m, d) in the view, with squared norms (m,)."""

    rows: NDArray[Any]
    norms: NDArray[np.int64]

    @classmethod
    def of(cls, rows: NDArray[Any]) -> QueryRows:
        """Attach the exact squared norms."""
        return cls(rows, squared_norms(rows).astype(np.int64))

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.rows)

    def take(self, which: slice) -> QueryRows:
        """Return some of the queries."""
        return QueryRows(self.rows[which], self.norms[which])


def scores_between(left: QueryRows, right: QueryRows, *, angular: bool) -> NDArray[np.int64]:
    """Return integer scores (m, r), products or minus squared distances."""
    product = exact_products(left.rows, right.rows).astype(np.int64)
    if angular:
        return product
    return 2 * product - left.norms[:, None] - right.norms[None, :]


def weights_of(ladder: NDArray[np.int64], scores: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rungs reached by each score, from 1 for neighbours."""
    return np.searchsorted(ladder, scores, side="right").clip(1)


@dataclass(frozen=True)
class Reference:
    """Hold public queries that represent typical strangers."""

    seen: QueryRows
    share: float
    faintest: int
    _tails: dict[bool, float] = field(default_factory=dict, repr=False, compare=False)

    def thresholds(self, queries: QueryRows, *, angular: bool) -> NDArray[np.int64]:
        """Return each query's score that a share of other queries reaches.

        Where that is a handful, their scores are luck, and a threshold that nobody reaches is
        worth nothing: the share that all queries together suggest is taken where it is lower. At
        least the faintest score, so that nobody dissimilar is ever selected.
        """
        scores = self._strangers(queries, angular=angular)
        rank = self.share * len(self.seen)
        place = min(max(1, round(rank)), len(self.seen)) - 1
        found = -np.partition(-scores, place, axis=1)[:, place]
        if rank < _FEW:
            centre, spread = _moments(scores)
            usual = np.rint(centre + spread * self._tail(angular=angular)).astype(np.int64)
            found = np.minimum(found, usual)
        return np.maximum(found, self.faintest)

    def _strangers(self, queries: QueryRows, *, angular: bool) -> NDArray[np.int64]:
        """Return queries' scores with the reference, copies left out."""
        scores = scores_between(queries, self.seen, angular=angular)
        distances = (
            scores if not angular else (2 * scores - queries.norms[:, None] - self.seen.norms)
        )
        scores[distances == 0] = _NOBODY
        return scores

    def _tail(self, *, angular: bool) -> float:
        """Return the share's start in deviations above mean scores, over all queries.

        The few highest scores of one query are luck; those of all, each on its own scale, are not.
        """
        if angular not in self._tails:
            scores = self._strangers(self.seen.take(slice(0, _WEIGHED)), angular=angular)
            centre, spread = _moments(scores)
            high = ((scores - centre[:, None]) / spread[:, None])[scores != _NOBODY]
            share = max(self.share, 1.0 / len(self.seen))
            self._tails[angular] = float(np.quantile(high, 1.0 - share)) if high.size else 0.0
        return self._tails[angular]

    def mean_weight(self, ladder: NDArray[np.int64], *, angular: bool) -> float:
        """Return selected public queries' root mean square weight."""
        some = self.seen.take(slice(0, _WEIGHED))
        limits = self.thresholds(some, angular=angular)
        scores = scores_between(some, some, angular=angular)
        np.fill_diagonal(scores, np.iinfo(np.int64).min)
        weights = weights_of(ladder, scores[scores >= limits[:, None]])
        if not weights.size:
            return 1.0 / len(ladder)
        return float(np.sqrt(np.square(weights, dtype=np.float64).mean())) / len(ladder)


def _moments(scores: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each row's mean and positive deviation, (m,), without copies."""
    counted = scores != _NOBODY
    many = np.maximum(counted.sum(axis=1), 1)
    centre = np.where(counted, scores, 0).sum(axis=1) / many
    apart = np.where(counted, scores - centre[:, None], 0.0)
    return centre, np.maximum(np.sqrt(np.square(apart).sum(axis=1) / many), 1.0)


@dataclass
class Answered:
    """Released predictions, reused as public neighbours that cost nothing."""

    lens: Lens
    rows: list[NDArray[Any]] = field(default_factory=list)
    norms: list[NDArray[np.int64]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def add(self, queries: QueryRows, labels: list[int]) -> None:
        """Add answered queries."""
        self.rows.append(queries.rows)
        self.norms.append(queries.norms)
        self.labels.extend(labels)
        while len(self.labels) - len(self.norms[0]) >= REMEMBERED:
            del self.labels[: len(self.norms[0])], self.rows[0], self.norms[0]

    def with_batch(self, queries: QueryRows) -> QueryRows:
        """Return earlier queries followed by those of this batch."""
        return QueryRows(
            np.concatenate([*self.rows, queries.rows]), np.concatenate([*self.norms, queries.norms])
        )
