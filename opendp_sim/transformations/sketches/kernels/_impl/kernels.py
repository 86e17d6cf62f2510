"""Define shift-invariant kernels, their frequencies and errors."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.directions import orthogonal_blocks
from opendp_sim.core.mechanism import Option, param

_BANDWIDTH = param(
    "Bandwidth h: gaussian is exp(-r^2 / (2 h^2)), others are of r / h. In `make_`, `then_` and "
    "records, gaussian takes h sqrt(2).", symbol="sigma", unit="data units", gt=0,
    hint="the distance at which two records count as near; half a typical distance is a start.",
)  # fmt: skip

Array = NDArray[np.float64]
NORMAL_SQUARE = math.sqrt(8.0)
"""The skewness of a normal variable's square."""


class DensityKernel(Option):
    """A kernel ``k(x, y)`` of a distance, in data units."""

    @property
    @abstractmethod
    def metric(self) -> str:
        """Return the kernel's distance, ``l1`` or ``l2``."""

    @property
    @abstractmethod
    def steepness(self) -> float:
        """Return ``sup_r |r k'(r)|``, the change per relative change of distance."""

    @property
    @abstractmethod
    def slope(self) -> float:
        """Return ``sup_r |k'(r)|``, per data unit of distance."""

    @abstractmethod
    def split(self, count: int, where: str) -> tuple[Term, ...]:
        """Write it as a sum, ``count`` frequencies split between the terms.

        ``where`` is the parameter to name in a refusal.
        """

    @abstractmethod
    def value(self, distance: Array) -> Array:
        """Return the kernel at real distances."""


class OneKernel(DensityKernel):
    """A positive definite kernel with a bandwidth and ``k(x, x) = 1``."""

    bandwidth: Annotated[float, _BANDWIDTH]

    @property
    @abstractmethod
    def skewness(self) -> float:
        """Return the largest skewness of ``cos(w . x)`` near x = 0."""

    def split(self, count: int, where: str) -> tuple[Term, ...]:
        """Itself, with all frequencies."""
        del where
        return (Term(1.0, self, slice(0, count)),)

    @abstractmethod
    def frequencies(self, generator: np.random.Generator, width: int, count: int) -> Array:
        """Draw ``count`` frequencies, radians per data unit, shape (width, count)."""

    def orthogonal(self, generator: np.random.Generator, width: int, count: int) -> Array:
        """Draw frequencies orthogonal in blocks if the law allows."""
        return self.frequencies(generator, width, count)


class Term(NamedTuple):
    """A weighted kernel, and its place among the frequencies of a sketch."""

    weight: float
    kernel: OneKernel
    place: slice

    @property
    def size(self) -> int:
        """How many frequencies it has."""
        return int(self.place.stop - self.place.start)


class GaussianKernel(OneKernel):
    """``exp(-r^2 / (2 h^2))``, r the L2 distance; the record has ``sigma = h sqrt(2)``."""

    key: ClassVar[str] = "gaussian"

    @property
    def metric(self) -> str:
        """L2."""
        return "l2"

    @property
    def steepness(self) -> float:
        """``2 / e``."""
        return 2.0 / math.e

    @property
    def slope(self) -> float:
        """``sqrt(2 / e) / sigma``, at ``z = 1 / sqrt(2)``."""
        return math.sqrt(2.0 / math.e) / self.bandwidth

    @property
    def skewness(self) -> float:
        """Return ``sqrt(8)``, a squared normal variable's skewness."""
        return NORMAL_SQUARE

    def frequencies(self, generator: np.random.Generator, width: int, count: int) -> Array:
        """Normal with variance ``2 / sigma^2``."""
        return generator.standard_normal((width, count)) * (math.sqrt(2.0) / self.bandwidth)

    def orthogonal(self, generator: np.random.Generator, width: int, count: int) -> Array:
        """Uniform directions, orthogonal in blocks, times lengths of independent normal vectors."""
        directions = orthogonal_blocks(generator, width, count)
        lengths = np.zeros(count)
        for _ in range(width):  # row after row: no library's order
            lengths += np.square(generator.standard_normal(count))
        return directions * (np.sqrt(2.0 * lengths) / self.bandwidth)

    def value(self, distance: Array) -> Array:
        """Return ``exp(-z^2)`` for ``z = distance / sigma``."""
        return np.exp(-np.square(distance / self.bandwidth))


class _ExpOfDistance(OneKernel):
    """``exp(-z)`` for ``z = distance / sigma``."""

    @property
    def steepness(self) -> float:
        """``1 / e``."""
        return 1.0 / math.e

    @property
    def slope(self) -> float:
        """``1 / sigma``, at 0."""
        return 1.0 / self.bandwidth

    @property
    def skewness(self) -> float:
        """Return infinity, as the spectrum has no variance."""
        return math.inf

    def value(self, distance: Array) -> Array:
        """Return ``exp(-z)``."""
        return np.exp(-distance / self.bandwidth)


class Exponential(_ExpOfDistance):
    """``exp(-|x - y|_2 / sigma)``."""

    key: ClassVar[str] = "exponential"

    @property
    def metric(self) -> str:
        """L2."""
        return "l2"

    def frequencies(self, generator: np.random.Generator, width: int, count: int) -> Array:
        """Draw from the multivariate Cauchy law, a ratio of normals."""
        return _cauchy_vectors(generator, width, count) / self.bandwidth


class Laplacian(_ExpOfDistance):
    """``exp(-|x - y|_1 / sigma)``."""

    key: ClassVar[str] = "laplacian"

    @property
    def metric(self) -> str:
        """L1."""
        return "l1"

    def frequencies(self, generator: np.random.Generator, width: int, count: int) -> Array:
        """Independent Cauchy coordinates."""
        return generator.standard_cauchy((width, count)) / self.bandwidth


class Rational(OneKernel):
    """``1 / (1 + z)`` for z one of ``|x - y|_2 / sigma``, its square, or ``|x - y|_1 / sigma``.

    As ``1 / (1 + z) = E exp(-t z)`` for t exponential with mean 1, a random bandwidth for each
    frequency makes it one release like any other (Lemma 3 of ``fourier_sketch.md``).
    """

    key: ClassVar[str] = "rational"
    distance: Annotated[
        Literal["l2", "l2_squared", "l1"],
        param(
            "Which distance z is.", symbol="z", unit="none", default="l2_squared",
            hint="l2_squared is the Cauchy kernel; l2 and l1 have heavier tails and a cusp.",
        ),
    ] = "l2_squared"  # fmt: skip

    @property
    def metric(self) -> str:
        """L1 for ``l1``, else L2."""
        return "l1" if self.distance == "l1" else "l2"

    @property
    def steepness(self) -> float:
        """``1/2`` for the squared distance, else ``1/4``."""
        return 0.5 if self.distance == "l2_squared" else 0.25

    @property
    def slope(self) -> float:
        """``3 sqrt(3) / 8 / sigma`` for the squared distance, at ``1 / sqrt(3)``; else ``1 / sigma``."""
        return (math.sqrt(27.0) / 8 if self.distance == "l2_squared" else 1.0) / self.bandwidth

    @property
    def skewness(self) -> float:
        """Return ``592 / 20**1.5``, a squared normal's times an exponential."""
        return 592.0 / 20.0**1.5 if self.distance == "l2_squared" else math.inf

    def frequencies(self, generator: np.random.Generator, width: int, count: int) -> Array:
        """Draw exponential-kernel frequencies at ``sigma / t``, one t a column."""
        rate = generator.standard_exponential(count)
        if self.distance == "l2_squared":
            normal = generator.standard_normal((width, count))
            return normal * (np.sqrt(2.0 * rate) / self.bandwidth)
        if self.distance == "l1":
            return generator.standard_cauchy((width, count)) * (rate / self.bandwidth)
        return _cauchy_vectors(generator, width, count) * (rate / self.bandwidth)

    def value(self, distance: Array) -> Array:
        """Return ``1 / (1 + z)``."""
        z = distance / self.bandwidth
        return 1.0 / (1.0 + (z * z if self.distance == "l2_squared" else z))


def _cauchy_vectors(generator: np.random.Generator, width: int, count: int) -> Array:
    normal = generator.standard_normal((width, count))
    return normal / np.abs(generator.standard_normal(count))


DENSITY_KERNELS = (GaussianKernel, Exponential, Laplacian, Rational)
