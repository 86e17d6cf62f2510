"""The public numbers of a slice sketch: directions, dithers, shares, and how long a record can be.

Proofs: ``slice_sketch.md``, Lemmas 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.directions import length_of_normal, orthogonal_blocks
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.grid import PhaseProjection
from opendp_sim.core.linear import public_product
from opendp_sim.core.on_use import special
from opendp_sim.core.randomness import public_generator
from opendp_sim.spaces.centre import Centre, nearest_centre
from opendp_sim.spaces.rows import GridRows

__all__ = ["Slices"]

_KEY = "slice_sketch"
_DEVIATIONS = 4.0
"""Where the levels end, in norm bounds: a projection passes it with probability 6e-5 at most."""
_PARTS = 16
"""Parts of a level to which dithers are known to Lemma 2."""
_SLACK = 2.0**-14
"""How much longer than asked for a projection may be: directions are orthonormal only as floats are."""
_FINE_DITHERS, _FINE_SLOPES = 16, 16
"""Binary digits of a dither, and of a slope of Lemma 2."""


@dataclass(frozen=True)
class Slices:
    """What a seed and the type of the rows decide before any record is seen.

    Attributes:
        rows: the grid. asked: directions that the spec allows. thresholds: of one direction, even.
        seed: of the directions and the dithers.
    """

    rows: GridRows
    asked: int
    thresholds: int
    seed: int

    # --- geometry -------------------------------------------------------------------------------

    @cached_property
    def centre(self) -> Centre:
        """Where projections are taken from: zero, or the middle of the box."""
        return nearest_centre(self.rows)

    @cached_property
    def bound(self) -> float:
        """B: no row is farther from the centre, in steps."""
        return max(math.sqrt(self.centre.longest_squared) * (1 + 2.0**-50), 1.0)

    @property
    def count(self) -> int:
        """k: whole blocks of as many directions as there are columns, where one fits."""
        return self.asked // self.rows.width * self.rows.width or self.asked

    @property
    def ends(self) -> float:
        """Where the levels end, in norm bounds; up to 16 columns no projection is longer."""
        return min(_DEVIATIONS, length_of_normal(self.rows.width))

    @property
    def scale(self) -> float:
        """Levels in one step of a projection on a direction of length 1."""
        return self.thresholds / (2 * self.ends * self.bound)

    @property
    def length(self) -> float:
        """The length of a direction, in levels a step."""
        return length_of_normal(self.rows.width) * self.scale

    @property
    def farthest(self) -> int:
        """H: the level of a record is within H of the middle one before it is clipped (Lemma 1)."""
        return math.floor(self.length * self.bound * (1 + _SLACK)) + 2

    @cached_property
    def dithers(self) -> NDArray[np.int64]:
        """What is added to each projection before it is rounded down, in 2**-16 of a level."""
        generator = public_generator(self.seed, _KEY, "dithers")
        return generator.integers(0, 2**_FINE_DITHERS, size=self.count)

    @cached_property
    def projection(self) -> PhaseProjection:
        """Directions, and offsets such that the floor of a phase is a level (Lemma 1)."""
        generator = public_generator(self.seed, _KEY, "directions")
        matrix = orthogonal_blocks(generator, self.rows.width, self.count)
        matrix *= self.length
        offset = self.dithers.astype(np.float64) * 2.0**-_FINE_DITHERS + self.thresholds // 2
        found = PhaseProjection.fit(matrix, offset, self.magnitude, f"{_KEY}.input_domain")
        self._certify(found)
        return found

    @property
    def magnitude(self) -> int:
        """The largest distance of a coordinate from the centre's."""
        return max(*self.centre.reach, 1)

    def _certify(self, found: PhaseProjection) -> None:
        """Refuse directions of whose blocks one is longer than Lemma 1 allows: by row sums."""
        width, most = self.rows.width, self.length**2 * (1 + _SLACK / 2)
        for start in range(0, self.count, width):
            block = found.folded[start : start + width, :-1]
            gram = np.abs(public_product(block, block.T)).sum(axis=1)
            if not float(gram.max()) <= most or int(found.bits.min()) < _FINE_DITHERS:
                raise ParameterError(
                    "OS102", f"{_KEY}.seed", expected="directions that floats hold orthonormal",
                    got="others", hint="take another seed, or quantize to fewer bits.",
                )  # fmt: skip

    def check(self) -> None:
        """Refuse a grid on which rounded directions could not be orthonormal, before they are drawn."""
        width = self.rows.width
        reach = math.sqrt(width) * self.length * (1 + 2.0**-10) * self.magnitude
        bits = math.floor(50 - math.log2(reach + self.thresholds + 3))
        off = width * 2.0 ** -(bits + 1)
        if bits < _FINE_DITHERS or off > self.length * _SLACK / 8:
            raise SpaceError(
                "OS203", f"{_KEY}.input_domain", expected="a grid on which directions round well",
                got=f"a longest row of 2**{math.log2(self.bound):.1f} steps",
                hint="quantize to fewer bits.",
            )  # fmt: skip

    # --- the table of levels --------------------------------------------------------------------

    @property
    def fine(self) -> int:
        """The step of the shares: small enough that squared lengths stay below 2**33."""
        return int(2 ** min(6, (33 - (self.count * self.thresholds).bit_length()) // 2))

    @cached_property
    def shares(self) -> NDArray[np.int64]:
        """p_t times ``fine``: the share of a normal law of deviation B above each threshold."""
        at = (np.arange(self.thresholds) + 0.5) / self.thresholds * 2 - 1
        above: NDArray[np.float64] = special.ndtr(-at * self.ends)
        return np.rint(self.fine * above).astype(np.int64)

    @cached_property
    def squares(self) -> NDArray[np.int64]:
        """L: what a direction adds to the squared length of a record, by level (T + 1,)."""
        found: NDArray[np.int64] = (self._features**2).sum(axis=1)
        return found

    @property
    def _features(self) -> NDArray[np.int64]:
        above = np.arange(self.thresholds + 1)[:, None] > np.arange(self.thresholds)
        features: NDArray[np.int64] = self.fine * above - self.shares
        return features

    @property
    def least(self) -> int:
        """The least squared length of a record."""
        return self.count * int(self.squares.min())

    @cached_property
    def longest(self) -> int:
        """The largest squared length of a record (Lemma 2)."""
        return self._most(self.squares)

    @cached_property
    def longest_asked(self) -> int:
        """The same of a query in the ball, whose level is not clipped (Lemma 4)."""
        beyond = np.arange(1, max(self.farthest - self.thresholds // 2, 0) + 1) * self.fine**2
        ends = self.squares[0] + beyond[::-1], self.squares[-1] + beyond
        return self._most(np.concatenate([ends[0], self.squares, ends[1]]))

    @cached_property
    def longest_l1(self) -> int:
        """The largest L1 length of a record."""
        return self._most(np.abs(self._features).sum(axis=1))

    @property
    def largest(self) -> int:
        """The largest feature of a record."""
        return int(np.abs(self._features).max())

    def _most(self, values: NDArray[np.int64]) -> int:
        """Bound a sum over the directions of ``values`` at a record's levels (Lemma 2).

        Args:
            values: by level, the middle one being the table's.
        """
        levels = np.arange(len(values)) - len(values) // 2
        known = np.arange(_PARTS)[:, None]
        above, below = _PARTS * levels - known - 1, known - _PARTS * (levels + 1)
        nearest = np.square(np.maximum(np.maximum(above, below), 0))
        each: list[int] = np.bincount(self.dithers >> 12, minlength=_PARTS).tolist()
        blocks = -(-self.count // self.rows.width)
        reach = _PARTS * self.length * self.bound
        limit = math.ceil(blocks * reach * reach * (1 + 2 * _SLACK))
        fine = values << _FINE_SLOPES

        def bound(slope: int) -> int:
            tops: list[int] = (fine - slope * nearest).max(axis=1).tolist()
            return sum(n * top for n, top in zip(each, tops, strict=True)) + slope * limit

        low, high = 0, int(fine.max()) * 64 // (_PARTS * self.thresholds) ** 2 + 1
        while high - low > 2:  # convex in the slope, and sound at every one
            third = (high - low) // 3
            if bound(low + third) <= bound(high - third):
                high -= third
            else:
                low += third
        return int(min(bound(slope) for slope in range(low, high + 1)) >> _FINE_SLOPES)
