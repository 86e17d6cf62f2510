"""What can be asked of a release: protocols between sketches and queries, which never meet.

A sketch's claim offers objects under these names; a query mechanism asks for one by name. Neither
room imports the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "KernelEstimates", "KernelSums"]

Arrays = Mapping[str, NDArray[Any]]
"""The released blocks by name."""


@dataclass(frozen=True)
class KernelEstimates:
    """Estimates of ``sum_x k(x, q)`` per group of repetitions, class and query.

    Attributes:
        groups: shape (G, L, q): the mean over each of G groups of repetitions.
        variance: shape (L, q): sample variance of one repetition (sketch and noise together).
        repetitions: how many repetitions there are in all.
    """

    groups: NDArray[np.float64]
    variance: NDArray[np.float64]
    repetitions: int


class KernelSums(Protocol):
    """``kernel_sums``: any number of kernel-sum queries from one release."""

    labels: tuple[str | int, ...] | None
    distance: str
    """Which distance the kernel is a function of: ``l1``, ``l2``, ``angle``."""

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return unbiased estimates for queries on the sketch's own input space."""
        ...

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the released number of records per class (L,), and its noise per unit of scale."""
        ...

    def noise_factor(self) -> float:
        """Return the standard deviation of an estimate per unit of cell noise deviation."""
        ...

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel at real distances: what the estimate is unbiased for."""
        ...

    def sketch_deviation(self, kernel_values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predicted deviation without noise, from kernel values of shape (n, q)."""
        ...
