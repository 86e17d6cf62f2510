"""The reader of a weighted sum of kernels: its terms' readers, weighted.

The proofs are in ``exponential_sum.md``, beside the mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays
from opendp_sim.core.claims import Stable
from opendp_sim.core.kernel_sums import KernelEstimates, KernelSums
from opendp_sim.sketches.kernels.parts.kernels import Rational

__all__ = ["SumReader"]


@dataclass(frozen=True)
class SumReader:
    """Builds the terms of one bound sketch, and reads a release of it."""

    limit: Rational
    """The kernel 1/(1+z) that the sum comes near to."""
    accuracy: float
    """How near, at most."""
    claims: tuple[Stable, ...]
    weights: NDArray[np.float64]
    noise: tuple[int, ...]
    biased: bool
    """Whether the terms have truncation errors, which may all point one way."""

    @cached_property
    def terms(self) -> tuple[KernelSums, ...]:
        """The terms' own readers."""
        return tuple(claim.capabilities["kernel_sums"] for claim in self.claims)

    @property
    def labels(self) -> tuple[str | int, ...] | None:
        """The public labels of the classes, or None."""
        return self.terms[0].labels

    @property
    def distance(self) -> str:
        """The distance that the kernel is a function of."""
        return self.terms[0].distance

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``, term after term."""
        start = 0
        for claim in self.claims:
            size = claim.output.size  # type: ignore[attr-defined]
            claim.accumulate(data, out[start : start + size])  # type: ignore[misc]
            start += size

    def _own(self, released: Arrays, index: int) -> Arrays:
        prefix = f"t{index}_"
        return {n.removeprefix(prefix): a for n, a in released.items() if n.startswith(prefix)}

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return the weighted sum of the terms' estimates (Lemma 2)."""
        found = [
            term.estimate(self._own(released, index), queries, groups)
            for index, term in enumerate(self.terms)
        ]
        scaled = zip(self.weights, found, strict=True)
        sums = sum(weight * one.groups for weight, one in scaled)
        total = sum(w * w * one.variance for w, one in zip(self.weights, found, strict=True))
        sampled = [w * w * one.plain_variance for w, one in zip(self.weights, found, strict=True)]
        least = np.min([one.freedom.min() for one in found if one.freedom.size], initial=math.inf)
        return KernelEstimates(
            np.asarray(sums),
            np.asarray(total),
            found[0].repetitions,
            np.asarray(least),
            jump=np.asarray(sum(w * one.jump for w, one in zip(self.weights, found, strict=True))),
            grain=np.asarray(
                sum(w * one.grain for w, one in zip(self.weights, found, strict=True))
            ),
            sampled=np.asarray(sum(sampled)),
            skew=max(one.skew for one in found),
        )

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the mean of the terms' sizes, each weighted by its precision."""
        precision = self._precision()
        sizes = np.array(
            [term.totals(self._own(released, i))[0] for i, term in enumerate(self.terms)]
        )
        mean = (sizes * precision[:, None]).sum(axis=0) / precision.sum()
        return mean, self.count_factor()

    def medians_of(self, groups: int) -> int:
        """Return how many groups `estimate` makes where that many are asked for; 1 without draws."""
        return self.terms[0].medians_of(groups)

    def count_factor(self) -> float:
        """Return the deviation of the released number of records per unit of cell noise."""
        return float(self._precision().sum() ** -0.5)

    def _precision(self) -> NDArray[np.float64]:
        factors = np.array([term.count_factor() for term in self.terms])
        precision: NDArray[np.float64] = (factors * np.array(self.noise)) ** -2.0
        return precision

    def with_count(self) -> float:
        """Return the covariance of an estimate and the number, per unit of a cell's variance."""
        own = np.array([term.with_count() for term in self.terms]) * np.square(self.noise)
        precision = self._precision()
        return float((self.weights * own * precision).sum() / precision.sum())

    def noise_factor(self) -> float:
        """Return the noise deviation of an estimate per unit of cell noise (Lemma 3)."""
        factors = np.array([term.noise_factor() for term in self.terms])
        return float(np.linalg.norm(self.weights * factors * np.array(self.noise)))

    def bias(self, queries: Any = None) -> float:
        """Return the largest error of one record's kernel value: the sum's own and its terms'."""
        del queries
        terms = zip(self.weights, self.terms, strict=True)
        return self.accuracy + float(sum(w * float(term.bias()) for w, term in terms))

    def change(self, moved: float) -> float:
        """Bound the change of one record's kernel value when its distance changes by ``moved``."""
        return min(moved * self.limit.slope, 1.0)

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return 1/(1+z), which the estimate approximates within the stated accuracy."""
        return self.limit.value(distance)

    def approximated(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of exponentials at real distances: what the terms' estimates add up to."""
        terms = zip(self.weights, self.terms, strict=True)
        found: NDArray[np.float64] = sum(
            (weight * term.kernel(distance) for weight, term in terms), np.zeros_like(distance)
        )
        return found

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the deviation without noise: the terms' bounds, and the kernel's own error."""
        terms = [
            weight * term.sketch_deviation(distance)
            for weight, term in zip(self.weights, self.terms, strict=True)
        ]
        # Random errors of different terms are independent; truncations may all point one way.
        bound: NDArray[np.float64] = (
            np.sum(terms, axis=0) if self.biased else np.sqrt(np.square(terms).sum(axis=0))
        )
        return bound + len(distance) * self.accuracy
