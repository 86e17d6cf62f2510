"""Define kernels as public integer ladders.

A weight is the number of rungs that an exact score reaches. Transcendental functions differ in the
last bit between positions of a vector, so none is applied to data. Each kernel is inverted once, on
public numbers: rung ``j`` is the least integer score with ``kernel >= j / levels``. Comparing integers
is row-local whatever the machine does.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.mechanism import Option, param

_FAINTEST = 1 / 256

_BANDWIDTH = {
    "symbol": "h",
    "unit": "distance between rows (unit vectors when normalised)",
    "gt": 0.0,
    "hint": "1 suits unit vectors; with an automatic threshold little depends on it.",
}


class VoteKernel(Option):
    """Decrease with distance, or increase with the inner product."""

    angular: ClassVar[bool] = False
    """Whether the score is the inner product; else it is minus the squared distance, in steps."""

    def reach(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest squared distance (least product) with kernel at least ``value``."""
        return value

    def least(self, value: Any, unit: float) -> NDArray[np.int64]:
        """Return the least integer score with kernel at least ``value``."""
        with np.errstate(all="ignore"):
            steps = self.reach(np.asarray(value, dtype=np.float64)) / unit**2
        steps = np.nan_to_num(steps, nan=0.0)  # infinite bandwidth times no distance
        steps = np.clip(steps, -(2.0**62), 2.0**62)
        score = np.ceil(steps) if self.angular else -np.floor(steps)
        return score.astype(np.int64)

    def faintest(self, unit: float) -> int:
        """Return the least score of a neighbour, below any automatic threshold."""
        return int(self.least(_FAINTEST, unit))

    def ladder(self, levels: int, unit: float) -> NDArray[np.int64]:
        """Return the ascending scores at which the weight reaches 1 to ``levels``."""
        return np.atleast_1d(self.least(np.arange(1, levels + 1) / levels, unit))


class Cosine(VoteKernel):
    """Inner product of unit vectors."""

    key: ClassVar[str] = "cosine"
    angular: ClassVar[bool] = True


class Rbf(VoteKernel):
    """``exp(-r**2 / (2 h**2))``; the record has ``h sqrt(2)``."""

    key: ClassVar[str] = "rbf"
    bandwidth: Annotated[
        float,
        param(
            "Distance h at which the kernel is exp(-1/2); `make_`, `then_` and records take h sqrt(2).",
            default=1.0,
            **_BANDWIDTH,
        ),
    ] = 1.0

    def reach(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Invert the exponential."""
        return -(np.float64(self.bandwidth) ** 2) * np.log(value)


class Student(VoteKernel):
    """``1 / (1 + distance**2 / bandwidth**2)``."""

    key: ClassVar[str] = "student"
    bandwidth: Annotated[
        float, param("Distance at which the kernel is 1/2.", default=1.0, **_BANDWIDTH)
    ] = 1.0

    def reach(self, value: NDArray[np.float64]) -> NDArray[np.float64]:
        """Invert the fraction."""
        return np.float64(self.bandwidth) ** 2 * (1.0 / value - 1.0)


VOTE_KERNELS = (Cosine, Rbf, Student)
