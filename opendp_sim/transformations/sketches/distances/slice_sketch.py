"""Release centred thresholds on random directions, for l2 distances (``slice_sketch.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.directions import (
    length_of_normal,
    orthogonal_blocks,
    spread_of_blocks,
)
from opendp_sim.core.arithmetic.grid import PhaseProjection, chunks, chunks_in_room
from opendp_sim.core.arithmetic.lazy_matrices import AT_ONCE, Drawn
from opendp_sim.core.arithmetic.linear import public_product
from opendp_sim.core.capabilities import Arrays, Counted, DistanceReading, Linear, Sliced
from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.memory import check_memory
from opendp_sim.core.randomness import public_generator
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.centre import Centre, nearest_centre
from opendp_sim.domains.checks import grid_rows, kept_distance
from opendp_sim.domains.rows import GridRows, as_rows, floats_of
from opendp_sim.domains.sketch import Sketch
from opendp_sim.transformations.sketches._impl.classes import PerClassReader, PerLabel
from opendp_sim.transformations.sketches.distances._impl.axes import check_fits

# --------------------------------------------------------------------------------------------------
# The public numbers of a slice sketch: directions, dithers, shares, and how long a record can be.
#
# Proofs: ``slice_sketch.md``, Lemmas 1 and 2.

_SLICES_KEY = "slice_sketch"
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
    """Fix the public directions and thresholds of a sketch.

    From the seed and the rows' type, before any record is seen.

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
        """Return the origin of projections, zero or the box's middle."""
        return nearest_centre(self.rows)

    @cached_property
    def bound(self) -> float:
        """Return B, the largest distance from the centre, in steps."""
        return max(math.sqrt(self.centre.longest_squared) * (1 + 2.0**-50), 1.0)

    @property
    def count(self) -> int:
        """Return k, the number of directions, in whole blocks if possible."""
        return self.asked // self.rows.width * self.rows.width or self.asked

    @property
    def ends(self) -> float:
        """Return the ends of the levels, in norm bounds."""
        return min(_DEVIATIONS, length_of_normal(self.rows.width))

    @property
    def scale(self) -> float:
        """Return the levels per step on a direction of length 1."""
        return self.thresholds / (2 * self.ends * self.bound)

    @property
    def length(self) -> float:
        """The length of a direction, in levels a step."""
        return length_of_normal(self.rows.width) * self.scale

    @property
    def farthest(self) -> int:
        """Return H, the largest distance from the middle level (Lemma 1)."""
        return math.floor(self.length * self.bound * (1 + _SLACK)) + 2

    @cached_property
    def dithers(self) -> NDArray[np.int64]:
        """Return the dithers, added before rounding down, in 2**-16 levels."""
        generator = public_generator(self.seed, _SLICES_KEY, "dithers")
        return generator.integers(0, 2**_FINE_DITHERS, size=self.count)

    @cached_property
    def projection(self) -> PhaseProjection:
        """Return directions and offsets whose phases' floors are levels (Lemma 1)."""
        generator = public_generator(self.seed, _SLICES_KEY, "directions")
        matrix = orthogonal_blocks(generator, self.rows.width, self.count)
        matrix *= self.length
        offset = self.dithers.astype(np.float64) * 2.0**-_FINE_DITHERS + self.thresholds // 2
        found = PhaseProjection.fit(matrix, offset, self.magnitude, f"{_SLICES_KEY}.input_domain")
        self._certify(found)
        return found

    @property
    def magnitude(self) -> int:
        """The largest distance of a coordinate from the centre's."""
        return max(*self.centre.reach, 1)

    def _certify(self, found: PhaseProjection) -> None:
        """Refuse directions that exceed Lemma 1's length, by row sums."""
        width, most = self.rows.width, self.length**2 * (1 + _SLACK / 2)
        for start in range(0, self.count, width):
            block = found.folded[start : start + width, :-1]
            gram = np.abs(public_product(block, block.T)).sum(axis=1)
            if not float(gram.max()) <= most or int(found.bits.min()) < _FINE_DITHERS:
                raise ParameterError(
                    "OS102", f"{_SLICES_KEY}.seed", expected="directions that floats hold orthonormal",
                    got="others", hint="take another seed, or quantize to fewer bits.",
                )  # fmt: skip

    def check(self) -> None:
        """Refuse a grid too coarse for orthonormal directions."""
        width = self.rows.width
        reach = math.sqrt(width) * self.length * (1 + 2.0**-10) * self.magnitude
        bits = math.floor(50 - math.log2(reach + self.thresholds + 3))
        off = width * 2.0 ** -(bits + 1)
        if bits < _FINE_DITHERS or off > self.length * _SLACK / 8:
            raise SpaceError(
                "OS203", f"{_SLICES_KEY}.input_domain", expected="a grid on which directions round well",
                got=f"a longest row of 2**{math.log2(self.bound):.1f} steps",
                hint="quantize to fewer bits.",
            )  # fmt: skip

    # --- the table of levels --------------------------------------------------------------------

    @property
    def fine(self) -> int:
        """Return the step of the shares, for squared lengths below 2**33."""
        return int(2 ** min(6, (33 - (self.count * self.thresholds).bit_length()) // 2))

    @cached_property
    def shares(self) -> NDArray[np.int64]:
        """Return normal shares above thresholds (deviation B), times ``fine``."""
        at = (np.arange(self.thresholds) + 0.5) / self.thresholds * 2 - 1
        above: NDArray[np.float64] = special.ndtr(-at * self.ends)
        return np.rint(self.fine * above).astype(np.int64)

    @cached_property
    def squares(self) -> NDArray[np.int64]:
        """Return each level's share of a squared length, shape (T + 1,)."""
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
        """Return the largest squared query whose level fits (Lemma 4)."""
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
        """Bound ``values`` by level, the middle the table's (Lemma 2)."""
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


# --------------------------------------------------------------------------------------------------
# How a slice sketch is built from rows and read after its release.
#
# Proofs: ``slice_sketch.md``. Reading is post-processing.

_KEY = "slice_sketch"
_TOGETHER = 256
"""Directions that share one chunk: chunks are then long enough for the counting."""
_CELLS = 2**22
"""Most cells of a histogram of levels that is held at once."""
_DITHER = 2.0**-16
"""Of a level: how far from uniform a dither is."""


@dataclass(frozen=True)
class SliceReader(PerClassReader):
    """Build one sketch from public directions, and read its release."""

    slices: Slices
    per_label: bool

    exponents = "none: it adds up l2 distances"
    power = 1.0

    @classmethod
    def bound(
        cls, rows: GridRows, directions: int, thresholds: int, seed: int, *, per_label: bool
    ) -> SliceReader:
        """Return the reader on this grid; many directions are drawn later."""
        slices = Slices(rows, directions, thresholds, seed)
        slices.check()
        count, width = slices.count, rows.width
        needed = 16 * width * count + 8 * min(count, width) ** 2
        check_memory(needed, _KEY, "the directions", "`directions`, or the columns")
        made = cls(slices, per_label)
        check_memory(8 * made.cells, _KEY, "the sketch", "`directions`, `thresholds` or the labels")
        check_fits(_KEY, max(made.multipliers[0], made.half))
        if count * width * min(count, width) <= 8 * AT_ONCE:
            _ = slices.projection
        return made

    @property
    def rows(self) -> GridRows:
        """The grid."""
        return self.slices.rows

    @property
    def cells(self) -> int:
        """Cells of the sums of slices."""
        return self.classes * self.slices.count * self.slices.thresholds

    @property
    def matrices(self) -> Drawn:
        """The public matrix, for the release's fingerprint."""
        nbytes = 8 * (self.rows.width + 1) * self.slices.count
        return Drawn(nbytes, lambda: (self.slices.projection.folded,))

    # --- weights --------------------------------------------------------------------------------

    @property
    def middle(self) -> int:
        """Return the middle of possible squared lengths, which is taken off."""
        return (self.slices.longest + self.slices.least) // 2

    @property
    def half(self) -> int:
        """How far from it a squared length can be."""
        return max(self.slices.longest - self.middle, self.middle - self.slices.least, 1)

    @cached_property
    def multipliers(self) -> tuple[int, int]:
        """Return the integers u_0 (count) and u_1 (slices) beside 1 (Lemma 4)."""
        longest, half = self.slices.longest, self.half
        count = math.sqrt(self.middle + longest) * math.sqrt(half)
        return max(1, round(count)), max(1, round(math.sqrt(2 * half)))

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows, slices, classes = as_rows(data), self.slices, self.classes
        labels = rows.labels if self.per_label else None
        sizes = np.bincount(
            np.zeros(len(rows), dtype=np.int64) if labels is None else labels, minlength=classes
        )
        u0, u1 = self.multipliers
        cells = out[: self.cells].reshape(classes, slices.count, slices.thresholds)
        total, squares = out[self.cells :].reshape(2, classes)
        room = 1 << (2 * slices.farthest).bit_length()
        together = max(1, min(_TOGETHER, _CELLS // (classes * room)))
        matrix = slices.projection.workspace()
        for start in range(0, slices.count, together):
            some = slice(start, min(start + together, slices.count))
            counts = self._levels(rows.values, labels, matrix[some], some, room)
            squares += (counts * slices.squares).sum(axis=(0, 2))
            above = counts[:, :, :0:-1].cumsum(axis=2)[:, :, ::-1].transpose(1, 0, 2)
            away = sizes[:, None] * slices.shares
            cells[:, some] += u1 * (slices.fine * above - away[:, None])
        total += u0 * sizes
        squares -= self.middle * sizes

    def _levels(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.int64] | None,
        matrix: NDArray[np.float64],
        some: slice,
        room: int,
    ) -> NDArray[np.int64]:
        """Count records by level, shape (directions, L, T + 1)."""
        slices = self.slices
        raw = np.zeros((len(matrix), self.classes, room), dtype=np.int64)
        centre = slices.centre.values() if slices.centre.moved else None
        for part, held in chunks_in_room(len(values), self.rows.width, len(matrix)):
            own = None if labels is None else labels[part]
            near = values[part] if centre is None else values[part] - centre
            slices.projection.count(near, own, raw, matrix=matrix, room=held, modulus=room)
        # Ids carry `base`, modulo `room`: the levels from H below the middle one to H above it.
        half, far = slices.thresholds // 2, slices.farthest
        first = slices.projection.base[some] + half - far
        places = (first[:, None] + np.arange(2 * far + 1)) & (room - 1)
        found = np.take_along_axis(raw, places[:, None], axis=2)
        low, high = far - half, far + half
        out = found[:, :, low : high + 1].copy()
        out[:, :, 0] += found[:, :, :low].sum(axis=2)
        out[:, :, -1] += found[:, :, high + 1 :].sum(axis=2)
        return out

    # --- reading --------------------------------------------------------------------------------

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of a cell's."""
        return 1.0 / self.multipliers[0]

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records per class."""
        sizes = np.asarray(released["total"], dtype=np.float64) / self.multipliers[0]
        return Counted(sizes, self.count_factor())

    @cached_property
    def _unit(self) -> float:
        """What a unit of squared length is in data units (Lemma 3)."""
        slices = self.slices
        level = math.sqrt(math.pi / 2) * self.rows.unit / slices.scale
        return level / slices.count / slices.fine**2

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Return the expanded squares, looked up by level."""
        del p, alpha  # only the l2 distance, and no far ends
        slices, sizes = self.slices, self.counted(released).sizes
        cells = np.asarray(released["slices"], dtype=np.float64) / self.multipliers[1]
        tables = np.zeros((*cells.shape[:2], slices.thresholds + 1))
        np.cumsum(cells, axis=2, out=tables[:, :, 1:])
        tables *= slices.fine
        tables -= (cells * slices.shares).sum(axis=2)[:, :, None]
        fixed = np.asarray(released["squares"], dtype=np.float64)
        return DistanceReading(1.0, lambda queries: self._read(tables, fixed, sizes, queries))

    def _read(
        self,
        tables: NDArray[np.float64],
        fixed: NDArray[np.float64],
        sizes: NDArray[np.float64],
        queries: Any,
    ) -> Linear:
        """Look up every level of a query."""
        slices, values = self.slices, floats_of(queries)
        crossed, (own, far) = np.zeros((self.classes, len(values))), np.zeros((2, len(values)))
        flat, width = tables.reshape(self.classes, -1), slices.thresholds + 1
        starts = np.arange(slices.count)[:, None] * width
        for part in chunks(len(values), slices.count):
            asked = np.floor(slices.projection.phases(values[part] - slices.centre.values()))
            levels = np.clip(asked, 0, slices.thresholds)
            far[part] = np.abs(asked - levels).sum(axis=0)
            where = levels.astype(np.int64)
            own[part] = slices.squares[where].sum(axis=0)
            where += starts
            for out, table in zip(crossed, flat, strict=True):
                out[part] = table[where].sum(axis=0)
        (u0, u1), unit = self.multipliers, self._unit
        count = self.middle + own + far * slices.fine**2
        sums = fixed[:, None] + sizes[:, None] * count - 2 * crossed
        variance = np.square(count / u0) + 4 * own / u1**2 + 1.0
        return Linear(sums * unit, variance * unit**2, count * unit / u0**2, self.bias(None))

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Return the deviation at a near query, per unit of a cell's."""
        del alpha
        if p is not None:
            return None
        (u0, u1), own = self.multipliers, float(self.slices.longest_asked)
        return self._unit * math.sqrt(((self.middle + own) / u0) ** 2 + 4 * own / u1**2 + 1)

    def bias(self, p: float | None) -> float:
        """Bound the cost of clipping and dithers, per record."""
        del p
        slices = self.slices
        dither = (_DITHER * slices.count + 0.5) * self._atom
        if slices.ends < 4.0 or slices.length * slices.bound <= slices.thresholds / 2:
            return dither
        tail, density = float(special.ndtr(-4.0)), math.exp(-8.0) / math.sqrt(2 * math.pi)
        mean, square = 2 * (density - 4 * tail), 2 * (17 * tail - 4 * density)
        cut = mean + 3 * math.sqrt(square / slices.count)
        return dither + math.sqrt(math.pi / 2) * slices.bound * self.rows.unit * cut

    @cached_property
    def sliced(self) -> Sliced:
        """The deviation over the draw of directions and dithers (Lemma 3)."""
        slices, given = self.slices, self.rows.distortion
        relative = spread_of_blocks(self.rows.width, slices.count)
        if given and given[0] == 2:  # projected before: half of a square's error
            relative = math.hypot(relative, given[1] / 2)
        return Sliced(relative, self._atom * math.sqrt(slices.count) / 2)

    @property
    def _atom(self) -> float:
        """Return the least change of a record's distance."""
        return self._unit * self.slices.fine**2

    @property
    def expected(self) -> dict[str, float]:
        """Facts for the plan."""
        return {
            "distance deviation per cell deviation, at the norm bound": self.spread(None, 0.0)
            or 0.0,
            "distance bias per record, at most": self.bias(None),
            "relative deviation of the directions": self.sliced.relative,
        }


# --------------------------------------------------------------------------------------------------


@register
class SliceSketch(Mechanism):
    r"""Sum threshold indicators on random directions, less a public share.

    Space
        Input: rows of d columns on an integer grid, with or without labels, under symmetric distance.
        Output: a flat int64 vector of the blocks ``slices`` of shape (L, k, T), the sums over class l
        of :math:`u_1 \varphi_{jt}(x) = u_1 (f [s_j(x) > t] - p_t)`, where :math:`s_j` is the exact
        projection of a row on direction j, rounded to one of T + 1 levels; ``total`` of shape (L,),
        :math:`u_0 n`; and ``squares`` of shape (L,), :math:`\sum (|\varphi(x)|^2 - m)` for a public
        middle m. k is ``directions``, or as many of them as make whole blocks of d.

    Stability
        .. math:: L_2^2 = u_0^2 + u_1^2 S + h^2

        per added or removed record, where S bounds the squared length of :math:`\varphi` of every row
        that the type allows, and h how far from m it can be. Exact in integers; rows were found that
        reach 0.9 of S with 128 thresholds and 256 directions or more.

    Privacy
        None on its own. Chain with noise: Gaussian noise of budget rho gives a sum of distances at the
        rows' norm bound B from their centre about the deviation :math:`3.1 B / \sqrt{2 \rho}`, for
        every k.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): an odd number of thresholds.
        (OS103): more directions or cells than memory holds. SpaceError (OS201, OS202): not grid rows,
        another metric. (OS203): the grid is too fine. (OS204): `per_label` without labels.

    Source
        [own] Lemma 2 in ``slice_sketch.md``; l2 distances by random directions as in Theorem 6.1 of
        Backurs et al.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> sketch = (space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
        ...     >> sim.then_slice_sketch(directions=6, thresholds=4, seed=1))
        >>> len(sketch(np.zeros((5, 2))))
        26
    """

    key: ClassVar[str] = "slice_sketch"
    in_short: ClassVar[str] = (
        "Look at the records from many public directions, and count them at thresholds of each."
    )
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 2")
    room = "sketches"
    offers = ("distance_sums",)

    directions: Annotated[
        int,
        param(
            "Number of random directions; of more than columns, whole blocks of as many as columns.",
            symbol="k", unit="directions", default=8192, ge=1, le=65536,
            hint="relative deviation 0.26 / sqrt(k), and the same noise from one direction a column on; "
            "as many as time allows.",
        ),
    ] = 8192  # fmt: skip
    thresholds: Annotated[
        int,
        param(
            "Thresholds on each direction, an even number.", symbol="T", unit="cells", default=128,
            ge=2, le=1024,
            hint="128 costs 2 % of noise over many more, and 64 five times that.",
        ),
    ] = 128  # fmt: skip
    seed: Seed
    per_label: PerLabel = False

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 2 of ``slice_sketch.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        if self.thresholds % 2:
            raise ParameterError(
                "OS102", f"{self.key}.thresholds", expected="an even number", got=self.thresholds,
                hint=f"write thresholds: {self.thresholds + 1}.",
            )  # fmt: skip
        reader = SliceReader.bound(
            rows, self.directions, self.thresholds, self.seed, per_label=self.per_label
        )
        slices, half, (u0, u1) = reader.slices, reader.half, reader.multipliers
        blocks = (
            SketchBlock(
                "slices",
                (reader.classes, slices.count, self.thresholds),
                l1=u1 * slices.longest_l1,
                l2_squared=u1**2 * slices.longest,
                linf=u1 * slices.largest,
            ),
            SketchBlock("total", (reader.classes,), l1=u0, l2_squared=u0**2, linf=u0),
            SketchBlock("squares", (reader.classes,), l1=half, l2_squared=half**2, linf=half),
        )
        output = Sketch(self.key, blocks)
        return Stable(
            output=output,
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"distance_sums": reader},
            matrices=reader.matrices,
            constants=(*slices.shares.tolist(), u0, u1, reader.middle),
            expected=reader.expected,
            advice=(*kept_distance(rows, "l2"), *self._advice(rows)),
        )

    def _advice(self, rows: GridRows) -> tuple[str, ...]:
        told: tuple[str, ...] = ()
        if rows.width == 1:
            told = (
                "in one column `threshold_sketch` has about the same noise, and no directions.",
            )
        if self.directions < rows.width:
            few = f"{self.directions} directions in {rows.width} columns"
            told = (f"{few} cost more noise than one a column: raise `directions`.",)
        return told


make_slice_sketch, then_slice_sketch = constructors(SliceSketch)
