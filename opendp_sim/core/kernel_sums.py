"""What can be asked of a release that adds up kernels: a protocol of ``capabilities``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays

__all__ = ["KernelEstimates", "KernelSums"]


@dataclass(frozen=True)
class KernelEstimates:
    """Estimates of ``sum_x k(x, q)`` per group of repetitions, class and query.

    Attributes:
        groups: shape (G, L, q): the mean over each of G groups of repetitions, at most as many as
            were asked for.
        variance: shape (L, q): sample variance of one repetition (sketch and noise together);
            infinite where a single one cannot tell.
        repetitions: how many repetitions there are in all.
        freedom: how many degrees of freedom ``variance`` has; broadcasts to (L, q). Infinite where it
            is no estimate.
        jump: shape (L,): the length of the interval that one repetition is in, as far as the release
            tells; 0 where no repetition can miss what another one shows.
        jump_noise: deviations of a cell that noise may have added to ``jump``.
        grain: shape (L,): as ``jump``, of what the steps of the features alone add to a repetition. It
            is seen in every repetition of one sketch, but not in those of a difference of two.
        sampled: shape (L, q): ``variance`` without what only intervals add; None where nothing is.
        skew: the largest skewness of the mean over repetitions, besides what ``jump`` is for.
        noise_share: the share of an estimate's noise variance that ``variance`` shows.
    """

    groups: NDArray[np.float64]
    variance: NDArray[np.float64]
    repetitions: int
    freedom: NDArray[np.float64]
    jump: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    jump_noise: float = 0.0
    grain: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    sampled: NDArray[np.float64] | None = None
    skew: float = 0.0
    noise_share: float = 1.0

    @property
    def plain_variance(self) -> NDArray[np.float64]:
        """The unbiased sample variance: that of an interval may be larger."""
        return self.variance if self.sampled is None else self.sampled


class KernelSums(Protocol):
    """``kernel_sums``: any number of kernel-sum queries from one release."""

    labels: tuple[str | int, ...] | None
    distance: str
    """Which distance the kernel is a function of: ``l1``, ``l2``, ``angle``."""

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return unbiased estimates for queries on the sketch's own input space."""
        ...

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of rows to the flat vector ``out``, as the sketch is built."""
        ...

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the released number of records per class (L,), and its noise per unit of scale."""
        ...

    def medians_of(self, groups: int) -> int:
        """Return how many groups ``estimate`` makes where that many are asked for; 1 without draws."""
        ...

    def count_factor(self) -> float:
        """Return that noise alone: it needs no release."""
        ...

    def with_count(self) -> float:
        """Return the covariance of that noise and an estimate's, per unit of a cell's variance."""
        ...

    def noise_factor(self) -> float:
        """Return the standard deviation of an estimate per unit of cell noise deviation."""
        ...

    def bias(self, queries: Any = None) -> float | NDArray[np.float64]:
        """Return the largest error of one record's kernel value that no repetition shows.

        Without queries a number that holds for all of them inside the data's box; with queries that
        number where it holds everywhere, or one a query, shape (q,).
        """
        ...

    def change(self, moved: float) -> float:
        """Bound the change of one record's kernel value when its distance changes by ``moved``."""
        ...

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel at real distances: what the estimate is unbiased for."""
        ...

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the deviation without noise, per query, from real distances of shape (n, q)."""
        ...


# --- distances ------------------------------------------------------------------------------------
