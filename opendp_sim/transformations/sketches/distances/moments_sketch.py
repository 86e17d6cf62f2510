"""Release count, sum and squared norm, for squared distances (``moments_sketch.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.class_means import ReleasedSums
from opendp_sim.core.arithmetic.countable import LARGEST_FEATURE
from opendp_sim.core.arithmetic.linear import public_product
from opendp_sim.core.arithmetic.row_products import squared_norms
from opendp_sim.core.capabilities import Arrays, Counted, DistanceReading, Linear
from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.core.system.lazy_import import sparse
from opendp_sim.domains.centre import Centre, nearest_centre
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.rows import GridRows, as_rows, floats_of
from opendp_sim.domains.sketch import Sketch
from opendp_sim.transformations.sketches._impl.classes import PerClassReader, PerLabel
from opendp_sim.transformations.sketches.distances._impl.axes import check_fits, powered

# --------------------------------------------------------------------------------------------------
# Exact per-class sums of grid rows: integers in float64, added in a fixed order or any other.
#
# Integer-valued float64 numbers add exactly while every partial sum stays below 2**53, so the order of
# additions (and so blocks, threads and memory layout) cannot change a bit.

_ROWS = 2**20
"""Rows whose sum is taken in float64; with coordinates below 2**32 it stays below 2**53."""


class ClassSums:
    """The sum of each class's rows, added up block by block.

    Args:
        classes: number of classes L.
        columns: number of columns d.
        rows: the most rows a block has, at most 2**20.
    """

    def __init__(self, classes: int, columns: int, rows: int) -> None:
        self.totals = np.zeros((classes, columns), dtype=np.int64)
        self._rows = min(rows, _ROWS)
        # One entry a column of the class-by-row matrix: every row is added to its class, streaming.
        # It is made once for all full blocks; only the classes in it change.
        self._member = self._matrix(self._rows) if classes > 1 else None

    def _matrix(self, rows: int) -> Any:
        where = np.zeros(rows, dtype=np.int32), np.arange(rows + 1, dtype=np.int32)
        return sparse.csc_array((np.ones(rows), *where), shape=(len(self.totals), rows))

    def add(self, values: NDArray[np.float64], labels: NDArray[np.int64] | None) -> None:
        """Add integer rows (n, d) below 2**32 to their classes (n,).

        ``labels`` are below the number of classes; None puts all rows in the first.
        """
        for start in range(0, len(values), self._rows):
            part = values[start : start + self._rows]
            if labels is None or self._member is None:
                self.totals[0] += part.sum(axis=0).astype(np.int64)
                continue
            member = self._member if len(part) == self._rows else self._matrix(len(part))
            member.indices[:] = labels[start : start + len(part)]
            self.totals += member.dot(part).astype(np.int64)


# --------------------------------------------------------------------------------------------------
# How a moments sketch is built from rows and read after its release.
#
# Proofs: ``moments_sketch.md``. Reading is post-processing.

_KEY = "moments_sketch"
_COUNT_SHARE = 1 / 20
_CELLS = 2**18
"""Cells of a chunk: they stay in the cache between the norm and the sum."""


@dataclass(frozen=True)
class MomentsReader(PerClassReader):
    """Build one sketch from public multipliers, and read its release.

    Attributes: as the mechanism's parameters, on the grid ``rows``.
    """

    rows: GridRows
    squares: bool
    radius: float | None
    per_label: bool

    exponents = "p = 2, squared l2"
    power = 2.0

    @cached_property
    def _about(self) -> Centre:
        return nearest_centre(self.rows)

    @cached_property
    def centre(self) -> NDArray[np.float64]:
        """Return norms' public centre (d,), zero or the middle, in whole steps."""
        return self._about.values()

    @property
    def l1(self) -> int:
        """The L1 distance of the box's farthest corner from the centre."""
        return sum(self._about.reach)

    @property
    def largest(self) -> int:
        """The largest distance of a coordinate from the centre."""
        return max(self._about.reach)

    @cached_property
    def longest_squared(self) -> int:
        """Return the type's least squared L2 bound from the centre."""
        longest = self._about.longest_squared
        if longest >= 2**53:
            raise SpaceError(
                "OS203", f"{_KEY}.input_domain", expected="squared norms below 2**53",
                got=f"a bound of 2**{math.log2(longest):.1f}", hint="quantize to fewer bits.",
            )  # fmt: skip
        return longest

    @cached_property
    def bound_squared(self) -> int:
        """Return B**2, the bound of the added rows."""
        return self.longest_squared if self.reach is None else self.reach**2

    @cached_property
    def reach(self) -> int | None:
        """Return the radius in whole steps, None if no row is longer."""
        if self.radius is None:
            return None
        steps = int(min(self.radius / self.rows.unit, 2.0**40))
        if steps < 1:
            raise ParameterError(
                "OS102", f"{_KEY}.radius", expected=f"a radius of one grid step, {self.rows.unit:.3g}, "
                "or more", got=self.radius, hint="give a larger radius, or quantize to more bits.",
            )  # fmt: skip
        return steps if steps**2 < self.longest_squared else None

    @cached_property
    def shift(self) -> int:
        """The binary digits t of a squared norm that are dropped."""
        return max(0, (2 * self.bound_squared).bit_length() - LARGEST_FEATURE.bit_length() + 1)

    @cached_property
    def multipliers(self) -> tuple[int, int, int]:
        """Return the integers u_0, u_1, u_2 (Lemma 3).

        Shares 1/4, 1/2, 1/4 of rho, or 1/20 and 19/20.
        """
        square = self.bound_squared
        fine = max(1, min(64, LARGEST_FEATURE // (2 * max(square, 1))))
        bound = math.sqrt(square)
        if not self.squares:
            u0 = bound * math.sqrt(_COUNT_SHARE / (1 - _COUNT_SHARE))
            shares = round(16 * u0), 16, 0
            check_fits(_KEY, 16 * bound)
        else:
            check_fits(_KEY, math.sqrt(2) * square / 2**self.shift)
            first = math.sqrt(2) * bound * fine / 2**self.shift
            shares = round(square * fine / 2**self.shift), round(first), fine
        return max(shares[0], 1), max(shares[1], 1), shares[2]

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows, classes = as_rows(data), self.classes
        labels = rows.labels if self.per_label else None
        step = max(1, _CELLS // self.rows.width)
        sums = ClassSums(classes, self.rows.width, step)
        where = np.zeros(len(rows), dtype=np.int64) if labels is None else labels
        sizes = np.bincount(where, minlength=classes)
        squares = np.zeros(classes, dtype=np.int64)
        early = self._moved and not self._moves_late
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            values = rows.values[part]
            if early:
                values = values - self.centre
            if self.reach is not None:
                values = shorten_to_radius(values, self.reach)
            sums.add(values, None if labels is None else labels[part])
            if self.squares:
                norms = squared_norms(values).astype(np.int64)
                np.add.at(squares, where[part], norms >> self.shift)
        totals = sums.totals
        if self._moved and not early:
            centre = self.centre.astype(np.int64)
            squares += sizes * (centre * centre).sum() - 2 * (totals * centre).sum(axis=1)
            totals = totals - sizes[:, None] * centre
        u0, u1, u2 = self.multipliers
        parts = [u1 * totals.ravel(), u0 * sizes, u2 * squares]
        out += np.concatenate(parts[: 3 if self.squares else 2])

    @property
    def _moves_late(self) -> bool:
        """Return whether sums can be centred afterwards (Lemma 1)."""
        farthest = math.isqrt(self.rows.width * self.rows.magnitude**2) + 1
        return self.reach is None and self.shift == 0 and farthest < 2**26

    # --- reading --------------------------------------------------------------------------------

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of a cell's."""
        return 1.0 / self.multipliers[0]

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records per class."""
        u0 = self.multipliers[0]
        return Counted(np.asarray(released["total"], dtype=np.float64) / u0, self.count_factor())

    @property
    def has_squares(self) -> bool:
        """Whether squared norms are released."""
        return self.squares

    def class_sums(self, released: Arrays, deviation: float) -> ReleasedSums:
        """Return the noisy sums and sizes, in steps from the centre."""
        u0, u1, _ = self.multipliers
        counted = self.counted(released)
        second = self._second(released, counted.sizes) if self.squares else None
        sums = np.asarray(released["sums"], dtype=np.float64) / u1
        return ReleasedSums(
            sums, counted.sizes, deviation / u1, deviation / u0, self.centre, second
        )

    def _second(self, released: Arrays, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums of squared norms."""
        found: NDArray[np.float64] = (
            2.0**self.shift * np.asarray(released["squares"]) / self.multipliers[2]
        )
        return found + sizes * self.bias_steps

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Return the deviation at ``|y - c| = B`` per unit of cell deviation (Lemma 3)."""
        del alpha
        if p not in (None, 2.0):
            return None
        u0, u1, u2 = self.multipliers
        square = float(self.bound_squared)
        worst = 4.0**self.shift / u2**2 + 4 * square / u1**2 + square**2 / u0**2
        return self._area * math.sqrt(worst)

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Return the expanded square."""
        del p, alpha  # only squared l2, and exact: no far ends
        u0, u1, u2 = self.multipliers
        first = np.asarray(released["sums"], dtype=np.float64) / u1
        sizes = self.counted(released).sizes
        second = self._second(released, sizes)
        area = self._area

        def at(queries: Any) -> Linear:
            values = self._from_centre(queries)
            norms = np.square(values).sum(axis=1)
            cross = public_product(first, values.T)
            sums = second[:, None] - 2 * cross + sizes[:, None] * norms
            with_count = (norms + self.bias_steps) / u0**2
            variance = (
                4.0**self.shift / u2**2 + 4 * norms / u1**2 + (norms + self.bias_steps) * with_count
            )
            missed = self._missed(norms)
            return Linear(sums * area, variance * area**2, with_count * area, missed)

        return DistanceReading(2.0, at)

    def _from_centre(self, queries: Any) -> NDArray[np.float64]:
        values = floats_of(queries)
        return values - self.centre if self._moved else values

    @property
    def _moved(self) -> bool:
        return self._about.moved

    def _missed(self, norms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound dropped digits and radius's cut per record, ``(q,)`` (Lemma 2)."""
        cut, length = np.zeros(len(norms)), np.sqrt(norms)
        if self.reach is not None:
            longest = math.sqrt(self.longest_squared)
            moved = longest - self.reach * (1 - 2.0**-39) + math.sqrt(self.rows.width)
            cut = min(moved, longest) * (longest + self.reach + 2 * length)
        lost: NDArray[np.float64] = (self.bias_steps + cut) * self._area
        return lost

    def bias(self, p: float | None) -> float:
        """Bound the same at ``|y - c| = B``."""
        del p
        return float(self._missed(np.array([float(self.bound_squared)]))[0])

    @property
    def _area(self) -> float:
        return powered(_KEY, self.rows.unit, 2.0)

    @property
    def bias_steps(self) -> float:
        """Return half the largest dropped part, in squared steps."""
        return (2.0**self.shift - 1) / 2

    @property
    def expected(self) -> dict[str, float]:
        """Return bias, and deviation at ``|y - c| = B`` per cell's (Lemma 3)."""
        if not self.squares:
            return {}
        return {
            "distance deviation per cell deviation, at the norm bound": self.spread(None, 0.0)
            or 0.0,
            "distance bias per record, at most": self.bias(None),
        }


def shorten_to_radius(values: NDArray[np.float64], radius: int) -> NDArray[np.float64]:
    """Return rows shortened to at most ``radius`` whole steps (Lemma 1).

    The squared norm is an exact integer; the factor is taken a little too small and the products are
    rounded toward zero, so no rounding can leave a row too long. Elementwise: row-local bit for bit.
    """
    norms = squared_norms(values)
    long = norms > float(radius) ** 2
    if not long.any():
        return values
    out = values.copy()
    factor = radius * (1.0 - 2.0**-40) / np.sqrt(norms[long])
    out[long] = np.trunc(values[long] * factor[:, None]) + 0.0
    return out


# --------------------------------------------------------------------------------------------------

_SHORTENED = (
    "the bias allows for every row being as long as the type says; how many the radius shortens is "
    "private, so no interval can say less."
)


@register
class MomentsSketch(Mechanism):
    r"""Add up the rows, their number and their squared norms.

    Space
        Input: rows on an integer grid, with or without labels, under symmetric distance. Their L2
        distances from a public centre c (zero, or the middle of the box where that is nearer) are at
        most B steps: by their type, or because ``radius`` shortens them.
        Output: a flat int64 vector of the blocks ``sums`` of shape (L, d), :math:`u_1 \sum (x - c)`;
        ``total`` of shape (L,), :math:`u_0 n`; and, with ``squares``, ``squares`` of shape (L,),
        :math:`u_2 \sum \lfloor \|x - c\|^2 / 2^t \rfloor`. The public integers u realise the split
        of the budget; t is 0 unless the grid is finer than 2**-31 of the squared bound.

    Stability
        .. math:: L_1 = u_0 + u_1 \lfloor \sqrt{d} B \rfloor + u_2 \lfloor B^2 / 2^t \rfloor,\quad
           L_2^2 = u_0^2 + u_1^2 B^2 + u_2^2 \lfloor B^2 / 2^t \rfloor^2

        per added or removed record; L_inf is the largest of the three blocks' largest features.
        Exact in integers. Tight for L2.

    Privacy
        None on its own. Chain with noise: Gaussian noise of budget rho gives a sum of squared
        distances at ``|y - c| <= B`` at most the deviation :math:`2\sqrt{2} B^2 / \sqrt{\rho}`.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): a radius below one step.
        SpaceError (OS201, OS202): not grid rows, another metric. (OS203): the grid is too fine.
        (OS204): `per_label` without labels.

    Source
        [own] Lemma 1 in ``moments_sketch.md``; class means as in Section 11 of Backurs et al.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
        >>> moments = (space >> sim.then_clip_rows(norm="l2", bound=1.0)
        ...     >> sim.then_quantize(bits=4) >> sim.then_moments_sketch())
        >>> len(moments(np.array([[0.5, 0.0], [0.0, -1.0]])))
        4
    """

    key: ClassVar[str] = "moments_sketch"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("class_means", "distance_sums")

    squares: Annotated[
        bool,
        param(
            "Also release the sum of squared norms, which distances need and class means do not.",
            symbol="u", unit="none", default=True,
            hint="false for classification by nearest mean: a smaller share goes to the counts.",
        ),
    ] = True  # fmt: skip
    radius: Annotated[
        float | None,
        param(
            "Shorten rows to this L2 distance from the centre before they are added.", symbol="r",
            unit="data units", default=None, ge=2.0**-500, le=2.0**500,
            hint="after jl_projection, whose type allows far longer rows than occur; nothing when the "
            "type's own bound is tight. Sums of distances pay for what it may cut off.",
        ),
    ] = None  # fmt: skip
    per_label: PerLabel = False

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``moments_sketch.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        reader = MomentsReader(rows, self.squares, self.radius, self.per_label)
        u0, u1, u2 = reader.multipliers
        square, height = reader.bound_squared, reader.bound_squared >> reader.shift
        longest = min(math.isqrt(rows.width * square), reader.l1)
        blocks = [
            SketchBlock(
                "sums",
                (reader.classes, rows.width),
                l1=u1 * longest,
                l2_squared=u1**2 * square,
                linf=u1 * min(math.isqrt(square), reader.largest),
            ),
            SketchBlock("total", (reader.classes,), l1=u0, l2_squared=u0**2, linf=u0),
        ]
        if self.squares:
            top = u2 * height
            blocks.append(
                SketchBlock("squares", (reader.classes,), l1=top, l2_squared=top**2, linf=top)
            )
        output = Sketch(self.key, tuple(blocks))
        offers = {"class_means": reader} | ({"distance_sums": reader} if self.squares else {})
        return Stable(
            output=output,
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities=offers,
            expected=reader.expected,
            advice=() if reader.reach is None or not self.squares else (_SHORTENED,),
        )


make_moments_sketch, then_moments_sketch = constructors(MomentsSketch)
