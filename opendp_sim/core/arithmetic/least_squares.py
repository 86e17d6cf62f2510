"""Fit a line to noisy sums, and improve it by noisy gradients.

Lemmas 2 to 4 of ``postprocessing/regress.md``. Post-processing only: every number here was released or is
public.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_STRENGTHS = 13
"""Candidate fits: slopes as large as the target's variance allows, then half as large in square, ..."""


@dataclass(frozen=True)
class CentredSums:
    """Hold noisy sums of products, centred by their own means.

    Attributes:
        count: the noisy number of records, at least 0.
        means: shape (d,), of the regressors, in [-1, 1].
        mean: of the target.
        inner: shape (d, d), centred sums of products of the regressors.
        cross: shape (d,), with the target.
        total: the target's centred square.
        noise: the deviation of a sum.
    """

    count: float
    means: NDArray[np.float64]
    mean: float
    inner: NDArray[np.float64]
    cross: NDArray[np.float64]
    total: float
    noise: float

    @classmethod
    def of(cls, gram: NDArray[np.float64], target: int, noise: float) -> CentredSums:
        """Centre sums of products of columns by their means.

        ``gram`` (d + 2, d + 2) has columns in [-1, 1], the constant first; ``target`` is at least 1, and
        ``noise`` is the deviation of an entry.
        """
        others = np.delete(np.arange(1, len(gram)), target - 1)
        count = max(float(gram[0, 0]), 0.0)
        # Lemma 2: a mean in [-1, 1] with the least largest risk; also what keeps 1 / count finite.
        share = count / (count * count + noise * noise) if count > 0.0 else 0.0
        means = np.clip(gram[0] * share, -1.0, 1.0)
        centred = gram - np.outer(gram[0], gram[0]) * share
        return cls(
            count,
            means[others],
            float(means[target]),
            centred[np.ix_(others, others)],
            centred[others, target],
            float(centred[target, target]),
            noise,
        )

    @property
    def _spread(self) -> float:
        """Variance of a centred product over that of a product."""
        return 1.0 + float(np.square(self.means).mean()) if len(self.means) else 1.0

    def fit(self) -> NDArray[np.float64]:
        """Return the line, the intercept before the slopes.

        Shape (d + 1,), in the units of the sums.
        """
        # Centring adds the noise of the means to that of the products.
        noise = self.noise * self.noise * self._spread
        of_cross = noise * (1.0 + self.mean**2)
        slopes = _slopes(self.inner, self.cross, self.total, of_cross, noise * self._spread)
        start = self.mean - float((slopes * self.means).sum())
        return np.concatenate([[start], slopes])

    def step(
        self, gradient: NDArray[np.float64], noise: float, largest: float
    ) -> NDArray[np.float64]:
        """Return the step of a noisy gradient, shape (d + 1,).

        ``gradient`` (d + 1,) is the sum of (1, x) times a residual of at most ``largest``, and ``noise``
        the deviation of an entry.
        """
        variance = noise * noise
        slopes = _slopes(
            self.inner,
            gradient[1:] - self.means * gradient[0],
            self.count * largest**2,
            variance * self._spread,
            self.noise * self.noise * self._spread**2,
        )
        count = self.count
        shift = float(gradient[0]) * count / (count * count + variance) if count > 0.0 else 0.0
        return np.concatenate([[shift - float((slopes * self.means).sum())], slopes])


def _slopes(
    inner: NDArray[np.float64],
    cross: NDArray[np.float64],
    total: float,
    of_cross: float,
    of_inner: float,
) -> NDArray[np.float64]:
    """Return the slopes of least estimated risk (Lemmas 3, 4)."""
    eigenvalues, vectors = np.linalg.eigh(inner)
    along = (vectors * cross[:, None]).sum(axis=0)
    largest = float(eigenvalues.max(initial=0.0))
    usable = eigenvalues > 1e-12 * max(1.0, largest)
    kept = np.where(usable, eigenvalues, 0.0)
    best, chosen = 0.0, np.zeros(len(kept))
    most = max(total, 0.0) / max(float(kept.sum()), 1e-12)
    for strength in range(_STRENGTHS):
        size = most * 0.5**strength
        noise = of_cross + of_inner * len(kept) * size
        divisor = size * kept * kept + noise
        filtered = np.where(usable, size * kept / np.where(divisor > 0.0, divisor, 1.0), 0.0)
        found = filtered * along
        taken = 2.0 * (of_cross + of_inner * float(np.square(found).sum())) * filtered
        risk = float((kept * found * found - 2.0 * along * found + taken).sum())
        if risk < best:
            best, chosen = risk, found
    return (vectors * chosen).sum(axis=1)
