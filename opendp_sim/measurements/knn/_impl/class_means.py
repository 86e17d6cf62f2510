"""Release class means of the viewed rows once, for any queries."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.class_means import ReleasedSums, ShrunkMeans
from opendp_sim.core.arithmetic.rounding import sqrt_up
from opendp_sim.measurements.knn._impl.features import Lens
from opendp_sim.measurements.knn._impl.public_votes import QueryRows
from opendp_sim.measurements.knn._impl.vote_noise import add_rounded_gaussian

_COUNT_WEIGHT = 0.3
"""Weight of a class's count beside its sum, in lengths of a row: 8 % of the budget."""


def _weight(lens: Lens) -> int:
    return max(1, round(_COUNT_WEIGHT * lens.norm))


def means_scale(lens: Lens, rho: Fraction) -> float:
    """Return the noise scale of a record's cost ``rho`` (``hybrid_knn.md``, Lemma 1)."""
    square = Fraction(lens.norm) ** 2 + _weight(lens) ** 2
    # 2**-40 is room for OpenDP's own outward rounding of the map.
    return sqrt_up(square / (2 * rho) * (1 + Fraction(1, 2**40)))


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """Hold released sums (L, d) and weighted counts (L,) of viewed rows."""

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
        return cls(lens, scale, add_rounded_gaussian(cells.ravel(), scale).reshape(cells.shape))

    @cached_property
    def shrunk(self) -> ShrunkMeans:
        """The means as ``core/arithmetic/class_means.md`` reads them from the cells."""
        weight, width = _weight(self.lens), self.cells.shape[1] - 1
        counts = self.cells[:, -1] / weight
        # Seen rows of one length have it as their second moment.
        square = self.lens.norm**2 if self.lens.normalise else 0.0
        found = ReleasedSums(
            self.cells[:, :-1].astype(np.float64),
            counts,
            self.scale,
            self.scale / weight,
            np.zeros(width),
            counts * square if square else None,
        )
        return ShrunkMeans.of(found)

    def scores(self, queries: QueryRows, *, prior: bool = False) -> NDArray[np.float64]:
        """Return minus half the squared distances to means, (m, L), with sizes."""
        found = self.shrunk.scores(queries.rows) + (self.shrunk.prior if prior else 0.0)
        scores: NDArray[np.float64] = found * self.lens.unit**2
        return scores

    def leaders(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return two leading classes (m, 2) and their gap."""
        order = self.shrunk.leaders(scores)
        return order, self.shrunk.gaps(scores, order)
