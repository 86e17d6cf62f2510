"""Read class means from released sums and counts.

Unequal means are shrunk to their common one. The rule and what it guarantees: ``class_means.md``,
beside this file. Post-processing only: every number here was released or is public.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.linear import public_product

_EQUAL = 2.0
"""Ratio of the released sizes below which classes count as equal: nothing is shrunk (Lemma 5)."""
_TOLD = 0.15
"""Share of what sets the sums apart that noise does not explain, below which only directions are read."""


@dataclass(frozen=True)
class ReleasedSums:
    """Hold released sums by class and their noise, in steps.

    Attributes:
        sums: shape (L, d), the noisy sums of ``x - centre``.
        counts: shape (L,), the noisy numbers of records.
        of_sum: deviation of the noise in a coordinate of a sum, in steps.
        of_count: deviation of the noise in a count.
        centre: shape (d,), public; what was taken from every row.
        squares: shape (L,), the noisy sums of ``|x - centre|**2`` where they were released.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    of_sum: float
    of_count: float
    centre: NDArray[np.float64]
    squares: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class ShrunkMeans:
    """Estimate one mean a class with the margin's certainty.

    Means: Lemma 1. Classes that may win: Lemma 2.

    Attributes:
        means: shape (L, d), in steps from ``centre``.
        kept: shape (L,), how much of a class's distance from the common mean is left, in [0, 1].
        sizes: shape (L,), the counts, at least 1 and at least their noise.
        noise: shape (L,), variance of the noise in a coordinate of a class's sum over its size.
        wins: shape (L,), whether the class may win a query.
        of_size: shape (L,), relative deviation of each size.
        centre: shape (d,).
        excess: shape (L,), what is taken off a mean's squared length; 0 where means are shrunk.
        about: shape (d,), the common mean where only directions are read (Lemma 6); else None.
        within: variance of a coordinate within a class, 0 where it was not released.
    """

    means: NDArray[np.float64]
    kept: NDArray[np.float64]
    sizes: NDArray[np.float64]
    noise: NDArray[np.float64]
    wins: NDArray[np.bool_]
    of_size: NDArray[np.float64]
    centre: NDArray[np.float64]
    excess: NDArray[np.float64]
    about: NDArray[np.float64] | None = None
    within: float = 0.0

    @classmethod
    def of(cls, found: ReleasedSums) -> ShrunkMeans:
        """Shrink every class's mean towards the mean of all records (positive-part James-Stein)."""
        if _noise_dominates(found):
            return cls._directions(found)
        width, counts = found.sums.shape[1], found.counts
        sizes = np.maximum(counts, max(1.0, found.of_count))
        raw = found.sums / sizes[:, None]
        noise = np.square(found.of_sum / sizes)
        some = counts > 0.0
        total = max(float(counts[some].sum()), 1.0)
        common = found.sums[some].sum(axis=0) / total
        # The common mean holds a share of the class's own noise: this is the difference's variance.
        share = np.where(some, sizes / total, 0.0)
        apart = noise * (1.0 - 2.0 * share) + some.sum() * (found.of_sum / total) ** 2
        away = raw - common
        squared = np.square(away).sum(axis=1)
        kept = np.ones(len(counts))
        if width > 2:
            lost = (width - 2) * np.maximum(apart, 0.0)
            kept = np.maximum(
                0.0, 1.0 - np.divide(lost, squared, out=lost * 0.0, where=squared > 0.0)
            )
        spread = float(
            (sizes * np.square(kept) * squared)[some].sum() / max(sizes[some].sum(), 1.0)
        )
        unknown = (kept == 0.0) & (width * noise >= spread)
        wins = (counts > 2.0 * found.of_count) & ~unknown
        wins[int(np.argmax(counts))] = True
        excess = np.zeros(len(counts))
        if _equal(found):
            kept, wins, excess = np.ones(len(counts)), np.full(len(counts), True), width * noise
        means = common + kept[:, None] * away
        within = _within(found, means, total)
        of_size = found.of_count / sizes
        return cls(means, kept, sizes, noise, wins, of_size, found.centre, excess, within=within)

    @classmethod
    def _directions(cls, found: ReleasedSums) -> ShrunkMeans:
        """Read only each sum's direction from the classes' mean (Lemma 6)."""
        classes, width = found.sums.shape
        total = max(float(found.counts.sum()), classes**0.5 * found.of_count, 1.0)
        common = found.sums.sum(axis=0) / total
        lost, square = width * classes * (found.of_sum / total) ** 2, float(np.square(common).sum())
        about = common * (1.0 - lost / square if square > lost else 0.0)
        sizes = np.full(classes, total / classes)
        apart = (found.sums - found.sums.mean(axis=0)) / sizes[:, None]
        wins = found.counts > 0.0
        wins[int(np.argmax(found.counts))] = True
        return cls(
            about + apart,
            np.ones(classes),
            sizes,
            np.square(found.of_sum / sizes),
            wins,
            found.of_count / sizes,
            found.centre,
            np.square(apart).sum(axis=1),
            about,
        )

    def scores(self, queries: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return minus half the squared distance to each mean, shape (q, L)."""
        values = np.asarray(queries, dtype=np.float64) - self.centre
        own = np.square(self.means).sum(axis=1) - self.excess
        out: NDArray[np.float64] = public_product(values, self.means.T) - own / 2
        out -= np.square(values).sum(axis=1)[:, None] / 2
        return out

    @property
    def prior(self) -> NDArray[np.float64]:
        """Return the sizes' share of the scores, shape (L,) (Lemma 3)."""
        return self.within * np.log(self.sizes / self.sizes.sum())

    def leaders(self, scores: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the two leading classes of each query, shape (q, 2).

        One column if there is one class. Classes that may not win come after all that may; ties go to
        the first label.
        """
        order = np.lexsort((-scores, np.broadcast_to(~self.wins, scores.shape)), axis=1)
        return order[:, :2]

    def gaps(self, scores: NDArray[np.float64], order: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the lead of the first over the second class.

        Infinite for one class. Below 0 where the second may not win: it is nearer, and not told from
        noise.
        """
        if order.shape[1] < 2:
            return np.full(len(scores), np.inf)
        top = np.take_along_axis(scores, order, axis=1)
        return top[:, 0] - top[:, 1]

    def gap_deviation(
        self, queries: NDArray[np.float64], order: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Return the noise deviation of a gap, shape (q,) (Lemma 4)."""
        values = np.asarray(queries, dtype=np.float64) - self.centre
        if self.about is not None:  # exact, and no matter which two classes lead
            away = np.square(values - self.about).sum(axis=1)
            return np.sqrt(order.shape[1] * float(self.noise[0]) * away)
        width, variance = values.shape[1], np.zeros(len(values))
        own = np.square(self.means).sum(axis=1)
        along = public_product(values, self.means.T) - own
        far = np.square(values).sum(axis=1)[:, None] - 2 * along - own
        for column in order.T:
            kept, noise = self.kept[column], self.noise[column]
            away = np.maximum(np.take_along_axis(far, column[:, None], axis=1)[:, 0], 0.0)
            radial = np.take_along_axis(along, column[:, None], axis=1)[:, 0]
            variance += np.square(kept) * noise * away
            variance += np.square(kept * radial * self.of_size[column])
            variance += kept**4 * np.square(noise) * width / 2
        return np.sqrt(variance)


def _noise_dominates(found: ReleasedSums) -> bool:
    """Return whether noise explains nearly all differences of the sums."""
    classes, width = found.sums.shape
    if classes < 2 or width < 3:
        return False
    whole = float(np.square(found.sums - found.sums.mean(axis=0)).sum())
    return bool((classes - 1) * width * found.of_sum**2 > (1.0 - _TOLD) * whole)


def _equal(found: ReleasedSums) -> bool:
    """Return whether the public sizes differ by less than ``_EQUAL``."""
    counts = found.counts
    seen = bool((counts > 2.0 * found.of_count).all())
    return seen and float(counts.max()) < _EQUAL * float(counts.min())


def _within(found: ReleasedSums, means: NDArray[np.float64], total: float) -> float:
    """Return a coordinate's variance within a class, or 0."""
    if found.squares is None:
        return 0.0
    some = found.counts > 0.0
    between = float((found.counts * np.square(means).sum(axis=1))[some].sum())
    inside: float = (float(found.squares[some].sum()) - between) / total
    return float(max(inside, 0.0) / means.shape[1])
