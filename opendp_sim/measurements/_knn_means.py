"""Class means of seen rows: one Gaussian release that answers any number of queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.rounding import sqrt_up
from opendp_sim.measurements._knn_features import Lens
from opendp_sim.measurements._knn_noise import noisy
from opendp_sim.measurements._knn_public import Seen

__all__ = ["ClassMeans", "means_scale"]

_COUNT_WEIGHT = 0.3
"""Weight of a class's count beside its sum, in lengths of a row: 8 % of the budget."""
_LEAST_COUNT = 8.0


def _weight(lens: Lens) -> int:
    return max(1, round(_COUNT_WEIGHT * lens.norm))


def means_scale(lens: Lens, rho: Fraction) -> float:
    """Return the noise scale at which sums and weighted counts cost at most ``rho`` a record.

    Lemma 1 of ``hybrid_knn.md``.
    """
    square = Fraction(lens.norm) ** 2 + _weight(lens) ** 2
    # 2**-40 is room for OpenDP's own outward rounding of the map.
    return sqrt_up(square / (2 * rho) * (1 + Fraction(1, 2**40)))


@dataclass(frozen=True)
class ClassMeans:
    """Released sums of seen rows, shape (L, d), and weighted counts, shape (L,). Public."""

    lens: Lens
    scale: float
    cells: NDArray[np.int64]

    @classmethod
    def release(
        cls, lens: Lens, rows: NDArray[Any], labels: NDArray[Any], classes: int, rho: Fraction
    ) -> ClassMeans:
        """Add up seen rows by class, exactly, and add noise."""
        cells = np.zeros((classes, rows.shape[1] + 1), dtype=np.int64)
        for label in range(classes):
            mine = labels == label
            cells[label, :-1] = rows[mine].sum(axis=0, dtype=np.float64).astype(np.int64)
            cells[label, -1] = _weight(lens) * int(mine.sum())
        scale = means_scale(lens, rho)
        return cls(lens, scale, noisy(cells.ravel(), scale).reshape(cells.shape))

    def scores(self, queries: Seen) -> NDArray[np.float64]:
        """Return minus half the squared distance to each noisy mean, up to a constant: (m, L)."""
        counts = np.maximum(self.cells[:, -1] / _weight(self.lens), _LEAST_COUNT)
        means = self.cells[:, :-1] / counts[:, None]
        # The noise makes a mean longer than it is, by a known amount on average.
        length = np.square(means).sum(axis=1) - means.shape[1] * (self.scale / counts) ** 2
        product = np.einsum("md,ld->ml", queries.rows.astype(np.float64), means)
        scores: NDArray[np.float64] = (product - np.maximum(length, 0.0) / 2) * self.lens.unit**2
        return scores

    @staticmethod
    def leaders(scores: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the two leading classes of each query, shape (m, 2), and the gap between them."""
        order = np.argsort(-scores, axis=1, kind="stable")[:, :2]
        top = np.take_along_axis(scores, order, axis=1)
        return order, top[:, 0] - top[:, -1] if top.shape[1] > 1 else np.full(len(scores), math.inf)
