"""Define locality-sensitive hash families and their collision probabilities."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.mechanism import Option, param
from opendp_sim.core.system.lazy_import import special

_WIDTH = param(
    "Bucket width r, in the units of the data.", symbol="r", unit="data units", gt=0,
    hint="the kernel is near 1 well below the width and near 0 well above; 1 to 4 typical distances.",
)  # fmt: skip
_JOINED = param(
    "Hashes joined in one repetition; the kernel is raised to this power.", symbol="m",
    unit="hashes", default=1, ge=1, le=16,
    hint="1 is the plain kernel; 2 to 4 make its tail fall faster (use it for classification).",
)  # fmt: skip
_NO_TAIL = 40.0
"""Deviations beyond which a normal law has less than the smallest double: scipy is not loaded for it."""


class Family(Option):
    """Hash to ``floor(x . a + b)`` over joined projections."""

    distance: ClassVar[str]

    @property
    @abstractmethod
    def projections(self) -> int:
        """Projections a repetition."""

    @abstractmethod
    def draw(
        self, generator: np.random.Generator, width: int, columns: int, unit: float, magnitude: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the matrix (d, C) per grid step and offsets, in phases."""

    @abstractmethod
    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability that two points at this distance share a bucket."""


class PStable(Family):
    """Hash to ``floor((w . x + b) / r)`` with stable w.

    A stable law makes ``w . x`` grow with a norm.
    """

    law: ClassVar[str]
    """numpy's name of the law."""
    width: Annotated[float, _WIDTH]
    joined: Annotated[int, _JOINED] = 1

    @property
    def projections(self) -> int:
        """One for each joined hash."""
        return self.joined

    def draw(
        self, generator: np.random.Generator, width: int, columns: int, unit: float, magnitude: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Directions from the law and uniform offsets."""
        del magnitude
        directions = getattr(generator, self.law)((width, columns)) * (unit / self.width)
        return directions, generator.random(columns)


class PStableL2(PStable):
    """Hash to ``floor((w . x + b) / r)`` with Gaussian w.

    A kernel of the L2 distance.
    """

    key: ClassVar[str] = "p_stable_l2"
    distance: ClassVar[str] = "l2"
    law = "standard_normal"

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """``1 - 2 Phi(-t) - 2 (1 - exp(-t^2 / 2)) / (sqrt(2 pi) t)`` with ``t = r / distance``."""
        t = self.width / np.maximum(distance, 1e-12 * self.width)
        tail = 2.0 / (np.sqrt(2 * np.pi) * t) * -np.expm1(-t * t / 2)
        beyond = special.ndtr(-t) if t.min(initial=np.inf) < _NO_TAIL else 0.0
        value: NDArray[np.float64] = np.clip(1.0 - 2.0 * beyond - tail, 0.0, 1.0)
        return value**self.joined


class PStableL1(PStable):
    """Hash to ``floor((w . x + b) / r)`` with Cauchy w.

    A kernel of the L1 distance.
    """

    key: ClassVar[str] = "p_stable_l1"
    distance: ClassVar[str] = "l1"
    law = "standard_cauchy"

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """``(2 / pi) atan(t) - ln(1 + t^2) / (pi t)`` with ``t = r / distance``."""
        t = self.width / np.maximum(distance, 1e-12 * self.width)
        value = 2.0 / np.pi * np.arctan(t) - np.log1p(t * t) / (np.pi * t)
        return np.clip(value, 0.0, 1.0) ** self.joined


class SignedProjections(Family):
    """Hash to the signs of ``bits`` Gaussian projections.

    A kernel of the angle.
    """

    key: ClassVar[str] = "srp"
    distance: ClassVar[str] = "angle"
    bits: Annotated[
        int,
        param(
            "Signs joined in one repetition.", symbol="p", unit="bits", ge=1, le=16,
            hint="4 to 8 is usual; with 2**bits <= buckets no rehash is needed.",
        ),
    ]  # fmt: skip

    @property
    def projections(self) -> int:
        """One for each sign."""
        return self.bits

    def draw(
        self, generator: np.random.Generator, width: int, columns: int, unit: float, magnitude: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw Gaussian directions with phases in (-1, 1), floored to signs."""
        del unit
        directions = generator.standard_normal((width, columns))
        reach = np.abs(directions).sum(axis=0) * (2.0 * max(magnitude, 1))
        return directions / reach, np.zeros(columns)

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """``(1 - angle / pi) ** bits``, the distance being an angle in radians."""
        return np.clip(1.0 - distance / np.pi, 0.0, 1.0) ** self.bits


HASH_FAMILIES = (PStableL2, PStableL1, SignedProjections)
