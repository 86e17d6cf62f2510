"""The public half of a prediction: thresholds from public queries, votes of earlier answers.

Nothing here sees a record; everything is a function of the transcript.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.row_products import exact_products, squared_norms
from opendp_sim.measurements._knn_features import Lens

__all__ = ["Answered", "Reference", "Seen", "scores_between", "weights_of"]

_WEIGHED = 1024
"""Reference queries that the estimate of the mean weight looks at."""


@dataclass(frozen=True)
class Seen:
    """Public queries as they are compared: rows (m, d) and their squared norms (m,)."""

    rows: NDArray[Any]
    norms: NDArray[np.int64]

    @classmethod
    def of(cls, rows: NDArray[Any]) -> Seen:
        """Attach the exact squared norms."""
        return cls(rows, squared_norms(rows).astype(np.int64))

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.rows)

    def take(self, which: slice) -> Seen:
        """Return some of the queries."""
        return Seen(self.rows[which], self.norms[which])


def scores_between(left: Seen, right: Seen, *, angular: bool) -> NDArray[np.int64]:
    """Return integer scores, shape (m, r): products, or minus squared distances."""
    product = exact_products(left.rows, right.rows).astype(np.int64)
    if angular:
        return product
    return 2 * product - left.norms[:, None] - right.norms[None, :]


def weights_of(ladder: NDArray[np.int64], scores: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many rungs each score reaches; a neighbour has a weight of at least 1."""
    return np.searchsorted(ladder, scores, side="right").clip(1)


@dataclass(frozen=True)
class Reference:
    """Public queries that say how similar to a query a typical stranger is."""

    seen: Seen
    share: float
    faintest: int

    def thresholds(self, queries: Seen, *, angular: bool) -> NDArray[np.int64]:
        """Return for each query the score that a share of the *other* public queries reaches.

        At least the faintest score, so that nobody dissimilar is ever selected.
        """
        scores = scores_between(queries, self.seen, angular=angular)
        distances = scores if not angular else (
            2 * scores - queries.norms[:, None] - self.seen.norms
        )  # fmt: skip
        # A query may itself be in the reference: its copies are no strangers.
        scores[distances == 0] = np.iinfo(np.int64).min + 1
        rank = min(max(1, round(self.share * len(self.seen))), len(self.seen))
        found = -np.partition(-scores, rank - 1, axis=1)[:, rank - 1]
        return np.maximum(found, self.faintest)

    def mean_weight(self, ladder: NDArray[np.int64], *, angular: bool) -> float:
        """Return the root mean square kernel weight of a selected public query, in (0, 1]."""
        some = self.seen.take(slice(0, _WEIGHED))
        limits = self.thresholds(some, angular=angular)
        scores = scores_between(some, some, angular=angular)
        np.fill_diagonal(scores, np.iinfo(np.int64).min)
        weights = weights_of(ladder, scores[scores >= limits[:, None]])
        if not weights.size:
            return 1.0 / len(ladder)
        return float(np.sqrt(np.square(weights, dtype=np.float64).mean())) / len(ladder)


@dataclass
class Answered:
    """Released predictions, reused as public neighbours that cost nothing."""

    lens: Lens
    rows: list[NDArray[Any]] = field(default_factory=list)
    norms: list[NDArray[np.int64]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def add(self, queries: Seen, labels: list[int]) -> None:
        """Add answered queries."""
        self.rows.append(queries.rows)
        self.norms.append(queries.norms)
        self.labels.extend(labels)

    def with_batch(self, queries: Seen) -> Seen:
        """Return the earlier queries and, behind them, those of the batch being answered."""
        return Seen(
            np.concatenate([*self.rows, queries.rows]), np.concatenate([*self.norms, queries.norms])
        )
