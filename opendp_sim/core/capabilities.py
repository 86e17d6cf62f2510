"""What can be asked of a release: protocols between sketches and queries, which never meet.

A sketch's claim offers objects by name; a query mechanism asks for one by name. Neither room imports the
other. The names are open: these are the ones that the package itself uses, and a plugin that brings a
sketch and a query of its own states its protocol beside them and takes any name that is free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.class_means import ReleasedSums

__all__ = [
    "Arrays",
    "ClassMeans",
    "ClassScores",
    "Counted",
    "DistanceReading",
    "DistanceSums",
    "IntervalCounts",
    "ItemCounts",
    "Linear",
    "SecondMomentSums",
    "Sliced",
    "SurrogateLoss",
    "sliced",
]

Arrays = Mapping[str, NDArray[Any]]
"""The released blocks by name."""


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
    """Released numbers of records: shape (L,), and their deviation in units of a cell's."""

    sizes: NDArray[np.float64]
    factor: float


@dataclass(frozen=True)
class DistanceReading:
    """Sums of distances from one release, prepared once for any number of batches of queries.

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
    """How far sums of l2 distances are off over the draw of the directions that a sketch takes itself.

    Attributes:
        relative: deviation of a sum, as a share of it.
        by_record: what is added for each record, in squares, in data units.
    """

    relative: float
    by_record: float


def sliced(sums: Any) -> Sliced | None:
    """Return ``sums.sliced``: of sums of l2 distances; None for those of single columns' powers."""
    return getattr(sums, "sliced", None)


class DistanceSums(Protocol):
    """``distance_sums``: sums of distances from queries to all records.

    One of l2 distances has ``sliced`` too.
    """

    labels: tuple[str | int, ...] | None
    exponents: str
    """Which exponents p it answers, in words."""
    power: float
    """The sketch's own exponent, for p None."""

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Return the largest deviation of a sum inside the box per unit of cell deviation.

        None if the sketch cannot answer sums of ``|x - y|^p`` (p None: the sketch's own distance).
        ``alpha`` is the width of the far-end intervals of structures that need one.
        """
        ...

    def bias(self, p: float | None) -> float:
        """Return the largest error besides noise, per record, at queries on the grid in the box."""
        ...

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Prepare the sums for an exponent that ``spread`` does not refuse."""
        ...

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records per class."""
        ...

    def count_factor(self) -> float:
        """Return that number's deviation in units of a cell's: it needs no release."""
        ...


class IntervalCounts(Protocol):
    """``interval_counts``: how many records have one coordinate in an interval."""

    labels: tuple[str | int, ...] | None

    def count(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> Linear:
        """Count records with ``lower <= x <= upper`` in ``column``, in steps: shapes (q,)."""

    def around(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> tuple[Linear, Linear]:
        """Count the cells that lie in an interval, and those that meet it."""

    def widest(self, column: int) -> float:
        """Bound the variance of every such count, in units of one cell's variance."""


@dataclass(frozen=True)
class ItemCounts:
    """``item_counts``: one cell an item of a public catalogue.

    Attributes:
        items: the catalogue, in the order of the cells.
        block: the released array that holds them, shape (m,).
    """

    items: tuple[str | int, ...]
    block: str


class ClassMeans(Protocol):
    """``class_means``: one mean a class."""

    labels: tuple[str | int, ...] | None
    has_squares: bool
    """Whether ``class_sums`` comes with sums of squares."""

    def class_sums(self, released: Arrays, deviation: float) -> ReleasedSums:
        """Return the noisy sums and sizes, in steps, for cells whose noise has this deviation."""
        ...


class ClassScores(Protocol):
    """``class_scores``: one score a class, as far as a released model tells."""

    labels: tuple[str | int, ...]

    def scores(self, released: Arrays, queries: Any) -> NDArray[np.float64]:
        """Return the logit of each class, shape (q, L), for queries on the model's own input space."""
        ...

    def without_noise(self, rows: Any) -> Arrays:
        """Return what the same fit would release of these rows without noise: for public data only."""
        ...


# --- regression -----------------------------------------------------------------------------------


class SecondMomentSums(Protocol):
    """``second_moments``: sums of products of columns, for least squares."""

    width: int
    """Number of data columns d."""

    def gram(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the (d+1, d+1) sums for columns scaled to [-1, 1], constant first.

        And the deviation of an entry per unit of cell noise.
        """
        ...

    def noise_factor(self) -> float:
        """Return that deviation alone."""
        ...

    def to_data(self, coefficients: NDArray[np.float64], target: int) -> NDArray[np.float64]:
        """Return data-unit coefficients, intercept first, from those of the scaled columns."""
        ...


class SurrogateLoss(Protocol):
    """``surrogate_loss``: an angle-based regression loss, readable at any direction."""

    width: int

    def loss(self, released: Arrays, directions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the summed loss (k,) of directions (k, d+1) over the scaled columns."""
        ...

    def noise_factor(self) -> float:
        """Return the loss's noise deviation per unit of cell noise."""
        ...

    def to_data(self, coefficients: NDArray[np.float64], target: int) -> NDArray[np.float64]:
        """Return data-unit coefficients, intercept first, from those of the scaled columns."""
        ...
