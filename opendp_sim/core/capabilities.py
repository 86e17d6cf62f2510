"""Define the protocols between sketches and queries.

A capability is what a query may ask of a release. A sketch's claim offers objects by name; a query
mechanism asks for one by name. Neither room imports the other. The names are open: these are the ones
that the package itself uses, and a plugin that brings a sketch and a query of its own states its
protocol beside them and takes any name that is free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.class_means import ReleasedSums

Arrays = Mapping[str, NDArray[Any]]
"""The released blocks by name."""
Place = NDArray[np.intp]
"""Indices of frequencies."""


@dataclass(frozen=True)
class Linear:
    """Linear functions of the released cells, one a class and question.

    Attributes:
        values: shape (L, q).
        variance: the noise's variance, in units of one cell's variance; broadcasts to (L, q).
        with_count: the noise's covariance with the released number of records, in the same units.
        missed: the largest error besides noise, per record: shape (q,), or one number.
    """

    values: NDArray[np.float64]
    variance: NDArray[np.float64]
    with_count: NDArray[np.float64]
    missed: NDArray[np.float64] | float = 0.0


@dataclass(frozen=True)
class Counted:
    """Hold released numbers of records, shape (L,), and deviation in cells'."""

    sizes: NDArray[np.float64]
    factor: float


@dataclass(frozen=True)
class DistanceReading:
    """Read sums of distances from one release, batch by batch.

    Attributes:
        power: the exponent p of these sums.
        at: queries on the sketch's own input space to their sums.
        stretch: without noise and bias the sum lies between the truth and ``stretch`` times it.
    """

    power: float
    at: Callable[[Any], Linear]
    stretch: float = 1.0


@dataclass(frozen=True)
class Sliced:
    """Bound errors of l2 distance sums over the drawn directions.

    Attributes:
        relative: deviation of a sum, as a share of it.
        by_record: what is added for each record, in squares, in data units.
    """

    relative: float
    by_record: float


def sliced(sums: Any) -> Sliced | None:
    """Return ``sums.sliced`` for l2 distances, None for single columns' powers."""
    return getattr(sums, "sliced", None)


class DistanceSums(Protocol):
    """Answer ``distance_sums`` to all records, those of l2 with ``sliced``."""

    labels: tuple[str | int, ...] | None
    exponents: str
    """Which exponents p it answers, in words."""
    power: float
    """The sketch's own exponent, for p None."""

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Return the largest deviation of a sum inside the box.

        Per unit of cell deviation. None if the sketch cannot answer sums of ``|x - y|^p`` (p None: the
        sketch's own distance). ``alpha`` is the width of the far-end intervals of structures that need
        one.
        """
        ...

    def bias(self, p: float | None) -> float:
        """Return the largest error besides noise, per record, at grid queries."""
        ...

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Prepare the sums for an exponent that ``spread`` does not refuse."""
        ...

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records per class."""
        ...

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of a cell's."""
        ...


class IntervalCounts(Protocol):
    """Answer ``interval_counts``, the records with a coordinate in an interval."""

    labels: tuple[str | int, ...] | None

    def count(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> Linear:
        """Count records with ``lower <= x <= upper`` in ``column``, in steps, (q,)."""

    def around(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> tuple[Linear, Linear]:
        """Count cells inside an interval, and cells that intersect it."""

    def widest(self, column: int) -> float:
        """Bound every interval count's variance in units of a cell's."""


@dataclass(frozen=True)
class ItemCounts:
    """Answer ``item_counts``, one cell an item of a public catalogue.

    Attributes:
        items: the catalogue, in the order of the cells.
        block: the released array that holds them, shape (m,).
    """

    items: tuple[str | int, ...]
    block: str


class OffersClassMeans(Protocol):
    """Answer ``class_means``, one mean a class."""

    labels: tuple[str | int, ...] | None
    has_squares: bool
    """Whether ``class_sums`` comes with sums of squares."""

    def class_sums(self, released: Arrays, deviation: float) -> ReleasedSums:
        """Return noisy sums and sizes by class, in steps, at this deviation."""
        ...


class ClassScores(Protocol):
    """Answer ``class_scores`` from a released model, one a class."""

    labels: tuple[str | int, ...]

    def scores(self, released: Arrays, queries: Any) -> NDArray[np.float64]:
        """Return each class's logit of queries on the input space, (q, L)."""
        ...

    def without_noise(self, rows: Any) -> Arrays:
        """Return the same fit of public rows without noise."""
        ...


# --- regression -----------------------------------------------------------------------------------


class SecondMomentSums(Protocol):
    """Answer ``second_moments``, sums of products of columns, for least squares."""

    width: int
    """Number of data columns d."""

    def gram(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return sums (d+1, d+1), constant first, and an entry's unit deviation.

        Columns are scaled to [-1, 1]; the deviation is per unit of cell noise.
        """
        ...

    def noise_factor(self) -> float:
        """Return that deviation alone."""
        ...

    def bounds(self, column: int) -> tuple[float, float]:
        """Return a data column's public bounds in data units."""
        ...

    def to_data(self, coefficients: NDArray[np.float64], target: int) -> NDArray[np.float64]:
        """Return data-unit coefficients, intercept first, from those of the scaled columns."""
        ...


class LineFit(Protocol):
    """Answer ``line``, a released linear fit of one column on the others."""

    @property
    def width(self) -> int:
        """Number of data columns d."""
        ...

    @property
    def target(self) -> int:
        """Index of the column that is predicted."""
        ...

    def bounds(self, column: int) -> tuple[float, float]:
        """Return a data column's public bounds in data units."""
        ...

    def coefficients(self, released: Arrays) -> NDArray[np.float64]:
        """Return the intercept, then the slopes, in data units."""
        ...


class SurrogateLoss(Protocol):
    """Answer ``surrogate_loss``, an angle-based regression loss in any direction."""

    width: int

    def loss(self, released: Arrays, directions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the loss (k,) of directions (k, d+1), summed."""
        ...

    def noise_factor(self) -> float:
        """Return the loss's noise deviation per unit of cell noise."""
        ...

    def bounds(self, column: int) -> tuple[float, float]:
        """Return a data column's public bounds in data units."""
        ...

    def to_data(self, coefficients: NDArray[np.float64], target: int) -> NDArray[np.float64]:
        """Return data-unit coefficients, intercept first, from those of the scaled columns."""
        ...


# --------------------------------------------------------------------------------------------------
# What can be asked of a release that adds up kernels: a protocol of ``capabilities``.


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
        """Return the unbiased sample variance, which an interval's may exceed."""
        return self.variance if self.sampled is None else self.sampled


@dataclass(frozen=True)
class HalfOfDraws:
    """Read kernel sums from one half of a sketch's draws.

    The cells of what is not drawn belong to both halves.

    Attributes:
        place: indices of its cells among those of the block ``features``, shape (F,).
        sums: the same kernel sums, read from the total and these features alone; unbiased.
        cells: points (m, d) on the grid to their own integer features there, shape (m, F, 2), or to
            those at some of the F places.
    """

    place: Place
    sums: Any
    cells: Callable[..., NDArray[np.int64]]


def halves_of(sums: Any) -> tuple[HalfOfDraws, HalfOfDraws] | None:
    """Return two halves of independent draws, or None for too few."""
    return getattr(sums, "halves", None)


class MomentsOfRows(Protocol):
    """Read moments that a sketch may have beside its features."""

    def gram(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return sums of [-1, 1] columns, constant first, and entries' unit deviation."""
        ...


def moments_of(sums: Any) -> MomentsOfRows | None:
    """Return the moments beside a sketch's features, or None."""
    found: MomentsOfRows | None = getattr(sums, "moments", None)
    return found


class KernelSums(Protocol):
    """Answer ``kernel_sums`` for any number of queries from one release."""

    labels: tuple[str | int, ...] | None
    distance: str
    """Which distance the kernel is a function of: ``l1``, ``l2``, ``angle``."""

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return unbiased estimates for queries on the sketch's own input space."""
        ...

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of rows to the flat vector ``out``."""
        ...

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the records per class (L,) and their noise per scale."""
        ...

    def medians_of(self, groups: int) -> int:
        """Return the number of groups of ``estimate``, 1 without draws."""
        ...

    def count_factor(self) -> float:
        """Return the noise of the count alone."""
        ...

    def with_count(self) -> float:
        """Return the noise covariance of count and estimate, per cell variance."""
        ...

    def noise_factor(self) -> float:
        """Return an estimate's standard deviation per unit of cell noise."""
        ...

    def bias(self, queries: Any = None) -> float | NDArray[np.float64]:
        """Return the largest kernel error that repetitions do not show.

        For one record's kernel value. Without queries a number that holds for all of them inside the
        data's box; with queries that number where it holds everywhere, or one a query, shape (q,).
        """
        ...

    def change(self, moved: float) -> float:
        """Bound a kernel value's change when its distance changes by ``moved``.

        A minimum of a multiple of it and a number, or a mean of such: so the root mean square of a change
        is at most that of the distance's (Lemma 9 of ``density.md``).
        """
        ...

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel that is estimated, at real distances."""
        ...

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the deviation without noise, per query, of distances (n, q)."""
        ...


# --- distances ------------------------------------------------------------------------------------
