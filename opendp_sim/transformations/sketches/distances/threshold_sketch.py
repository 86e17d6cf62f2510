"""Release signs against public thresholds, for l1 distances (``threshold_sketch.md``)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.compiled import INTERPOLATED
from opendp_sim.core.arithmetic.grid import chunks, count_ids
from opendp_sim.core.capabilities import Arrays, Counted, DistanceReading, Linear
from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.rows import GridRows, as_rows, floats_of
from opendp_sim.domains.sketch import Sketch
from opendp_sim.transformations.sketches._impl.classes import PerClassReader, PerLabel
from opendp_sim.transformations.sketches.distances._impl.axes import (
    by_column,
    column_bounds,
    grouped,
    in_and_around,
    splits,
)

# --------------------------------------------------------------------------------------------------
# How a threshold sketch is built from rows and read after its release.
#
# Proofs: ``threshold_sketch.md``. Reading is post-processing.


@dataclass(frozen=True)
class ThresholdReader(PerClassReader):
    """Build one sketch from public thresholds, and read its release.

    Attributes: as the mechanism's parameters, on the grid ``rows``.
    """

    rows: GridRows
    thresholds: int
    count_weight: int | None
    per_label: bool

    exponents = "p = 1"
    power = 1.0

    @cached_property
    def lower(self) -> NDArray[np.float64]:
        """Smallest grid value of each column."""
        return column_bounds(self.rows)[0].astype(np.float64)

    @cached_property
    def span(self) -> NDArray[np.int64]:
        """Range R_j of each column, in steps."""
        lower, upper = column_bounds(self.rows)
        return upper - lower

    @cached_property
    def reals(self) -> NDArray[np.float64]:
        """Return the thresholds as floats, as sums would leave int64."""
        return self.span.astype(np.float64)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Return the thresholds m_j of each column, in proportion to ranges."""
        widest = int(self.span.max())
        most = min(self.thresholds, max(widest, 1))
        return np.maximum(-(-self.span * most // max(widest, 1)), 1)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Return the start of each column's thresholds, shape (d + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def weight(self) -> int:
        """The weight of the count's cell that is in force."""
        return self.count_weight or max(1, round(math.sqrt(self.counts.sum())))

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows = as_rows(data)
        labels = rows.labels if self.per_label else None
        width = int(self.counts.max()) + 1
        table = np.zeros((self.rows.width, self.classes, width), dtype=np.int64)
        exact = bool((self.counts == self.span).all())
        ratio = None if exact else self.counts / np.maximum(self.span, 1)
        for part in chunks(len(rows), self.rows.width):
            levels = grouped(rows.values[part], self.lower, ratio)
            count_ids(levels, None if labels is None else labels[part], table)
        sizes = table[0].sum(axis=1)
        np.cumsum(table, axis=2, out=table)
        signs = out[: self.classes * int(self.offsets[-1])].reshape(self.classes, -1)
        for column, count in enumerate(self.counts):
            start = self.offsets[column]
            signs[:, start : start + count] += 2 * table[column, :, :count] - sizes[:, None]
        out[signs.size :] += self.weight * sizes

    # --- reading --------------------------------------------------------------------------------

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of a cell's."""
        return 1.0 / self.weight

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records per class."""
        sizes = np.asarray(released["total"], dtype=np.float64) / self.weight
        return Counted(sizes, self.count_factor())

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Return the running integrals as a function of queries."""
        del p, alpha  # only p = 1, and exact: no far ends
        sizes = self.counted(released).sizes
        table = _running_integrals(
            np.asarray(released["signs"]), sizes, self.span, self.counts, self.offsets
        )
        rises = np.diff(table, axis=1, append=0.0)
        rises[:, self.offsets[1:] + np.arange(self.rows.width)] = (
            0.0  # nothing follows the last level
        )
        table -= rises * np.concatenate([np.arange(count + 1.0) for count in self.counts])
        tables = np.stack([table, rises])
        return DistanceReading(1.0, lambda q: self._read(tables, sizes, q))

    def _read(
        self, tables: NDArray[np.float64], sizes: NDArray[np.float64], queries: Any
    ) -> Linear:
        """Look up and interpolate, O(d) a query and class."""
        values = floats_of(queries)
        sums, beyond = np.zeros((self.classes, len(values))), np.zeros(len(values))
        for part, columns in by_column(values):
            self._add_columns(tables, columns, sums[:, part], beyond[part])
        sums += sizes[:, None] * beyond
        unit, count = self.rows.unit, (self.reals.sum() / 2 + beyond) / self.weight
        variance = (count**2 + self._sign_variance) * unit**2
        return Linear(sums * unit, variance, count * unit / self.weight, self.bias(None))

    def _add_columns(
        self,
        tables: NDArray[np.float64],
        columns: NDArray[np.float64],
        sums: NDArray[np.float64],
        beyond: NDArray[np.float64],
    ) -> None:
        """Add columns' sums to ``sums``, distances to the box to ``beyond``."""
        upper, ratio = self.lower + self.span, self.counts / np.maximum(self.span, 1)
        starts = (self.offsets + np.arange(self.rows.width + 1)).tolist()
        inside = (columns.min(axis=1) >= self.lower) & (columns.max(axis=1) <= upper)
        compiled = INTERPOLATED.after(columns.size * len(sums))
        if compiled is not None:
            self._clip_columns(columns, np.flatnonzero(~inside), beyond)
            scales = np.stack([self.lower, ratio], axis=1)
            compiled(columns, scales, np.array(starts), tables, sums)
            return
        low, rise = np.empty((2, columns.shape[1]))
        level = np.empty(columns.shape[1], dtype=np.int64)
        for column, asked in enumerate(columns):
            if not inside[column]:
                self._clip_columns(columns, [column], beyond)
            place = np.subtract(asked, self.lower[column], out=asked)
            place *= ratio[column]
            np.copyto(level, place, casting="unsafe")  # cut off: no place is below 0
            own = tables[:, :, starts[column] : starts[column + 1]]
            for out, at, to_next in zip(sums, *own, strict=True):
                # Every level is one of the table's: clipping only spares numpy a buffer.
                at.take(level, out=low, mode="clip")
                to_next.take(level, out=rise, mode="clip")
                rise *= place
                low += rise
                np.add(out, low, out=out)

    def _clip_columns(
        self, columns: NDArray[np.float64], which: Iterable[int], beyond: NDArray[np.float64]
    ) -> None:
        """Clip columns' queries to the box, adding distances to ``beyond``."""
        for column in which:
            asked, low = columns[column], float(self.lower[column])
            high = low + int(self.span[column])
            outside = np.flatnonzero((asked < low) | (asked > high))
            far = asked[outside]
            inside = np.clip(far, low, high)
            beyond[outside] += np.abs(far - inside)
            asked[outside] = inside

    def count(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> Linear:
        """Count records in a column's intervals by two thresholds' difference."""
        count = int(self.counts[column])
        ratio = count / max(int(self.span[column]), 1)
        # Beyond the ends every level is alike: clipped, so that a vast radius fits an integer.
        from_, to = ((x - self.lower[column]) * ratio for x in (lower, upper))
        first = np.clip(np.ceil(from_), -2, count + 2).astype(np.int64) - 1
        last = np.maximum(np.clip(np.floor(to), -2, count + 2).astype(np.int64), first)
        return self._between(released, column, first, last)

    def around(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> tuple[Linear, Linear]:
        """Count levels inside an interval, and levels that intersect it."""
        ratio = float(self.counts[column]) / max(int(self.span[column]), 1)
        low, own = self.lower[column : column + 1], np.array([ratio])

        def level(steps: NDArray[np.int64]) -> NDArray[np.int64]:
            found: NDArray[np.int64] = grouped(steps[:, None].astype(np.float64), low, own)[0]
            return found

        ends = (int(self.lower[column]), int(self.lower[column] + self.span[column]))
        inner, outer = (
            self._between(released, column, first - 1, last - 1)
            for first, last in in_and_around(level, ends, lower, upper)
        )
        return inner, outer

    def widest(self, column: int) -> float:
        """Bound a count's variance by two thresholds, or half the records."""
        del column
        return max(0.5, 0.25 + 0.25 / self.weight**2, 1.0 / self.weight**2)

    def _between(
        self, released: Arrays, column: int, first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> Linear:
        """Count records above level ``first`` and up to level ``last``."""
        count, start = int(self.counts[column]), int(self.offsets[column])
        sizes = self.counted(released).sizes[:, None]
        signs = np.asarray(released["signs"])[:, start : start + count]
        # Records up to level i: none before the first, all from the last on, else (N + sign) / 2.
        ends = [(np.where(i < 0, 0.0, np.where(i >= count, 1.0, 0.5)), i) for i in (last, first)]
        (share, above), (less, below) = ends
        inside = [np.where(part == 0.5, 0.5, 0.0) for part in (share, less)]
        values = (share - less) * sizes
        values += inside[0] * signs[:, np.clip(above, 0, count - 1)]
        values -= inside[1] * signs[:, np.clip(below, 0, count - 1)]
        same = np.where(above == below, 0.0, inside[0] ** 2 + inside[1] ** 2)
        with_count = (share - less) / self.weight**2
        return Linear(values, same + (share - less) * with_count, with_count)

    @cached_property
    def _sign_variance(self) -> float:
        return float((self.reals**2 / self.counts).sum()) / 4

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Return a sum's deviation inside the box, per unit deviation (Lemma 3)."""
        del alpha
        if p not in (None, 1.0):
            return None
        count = float(self.reals.sum()) / (2 * self.weight)
        return self.rows.unit * math.sqrt(count**2 + self._sign_variance)

    def bias(self, p: float | None) -> float:
        """Return the threshold grid's largest error per record (Lemma 2)."""
        del p
        moved = np.where(self.counts >= self.span, 0.0, self.span / (2 * self.counts))
        return float(self.rows.unit * moved.sum())


def _running_integrals(
    signs: NDArray[np.int64],
    sizes: NDArray[np.float64],
    span: NDArray[np.int64],
    counts: NDArray[np.int64],
    offsets: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return columns' sums of distances at ``m_j + 1`` levels.

    In steps; shape (L, M + d). Level i of column j: ``N R / 2 + R / (2 m) * (sum of signs below level
    i - those from it on)``.
    """
    out = np.empty((len(signs), int(offsets[-1]) + len(span)))
    for column, (reach, count) in enumerate(zip(span, counts, strict=True)):
        start = offsets[column]
        below = np.zeros((len(signs), count + 1), dtype=np.int64)
        np.cumsum(signs[:, start : start + count], axis=1, out=below[:, 1:])
        twice = 2 * below - below[:, -1:]
        place = slice(start + column, start + column + count + 1)
        out[:, place] = sizes[:, None] * (reach / 2) + twice * (reach / (2 * count))
    return out


# --------------------------------------------------------------------------------------------------

_EMBEDDED = (
    "for sums of l2 distances `slice_sketch`, in the place of the embedding and of this sketch, has two "
    "thirds of the noise in two columns and a quarter from 16 on."
)


@register
class ThresholdSketch(Mechanism):
    r"""Sum each record's signs against public thresholds.

    +1 for a record at or below the threshold, -1 for one above.

    Space
        Input: rows on an integer grid, with or without labels, under symmetric distance.
        Output: a flat int64 vector of two blocks: ``signs`` of shape (L, M), the thresholds of all
        d columns side by side, and ``total`` of shape (L,), ``count_weight`` times the number of
        records of class l. L is 1 without ``per_label``. Column j has :math:`m_j` thresholds in
        proportion to its range, so all thresholds are equally far apart and :math:`M = \sum m_j`.

    Stability
        .. math:: L_1 = M + w,\quad L_2 = \sqrt{M + w^2},\quad L_\infty = \max(1, w)

        per added or removed record: it adds 1 or -1 to every threshold of its own class, and w to
        that class's total. Exact in integers. Tight. Not monotone.

    Privacy
        None on its own. Chain with noise: Gaussian noise of budget rho gives every sum of distances
        the deviation :math:`\sum_j R_j / \sqrt{2\rho}`, whatever the number of thresholds.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS204): `per_label` without labels.

    Source
        [own] Lemma 1 in ``threshold_sketch.md``.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=1, nan=False, T=float), dp.symmetric_distance()
        >>> sketch = (space >> sim.then_quantize(bits=4, bounds=(0.0, 1.0))
        ...     >> sim.then_threshold_sketch(thresholds=4, count_weight=2))
        >>> sketch(np.array([[0.0], [0.6]])), sketch.map(1)
        ([0, 0, 2, 2, 4], 6)
    """

    key: ClassVar[str] = "threshold_sketch"
    in_short: ClassVar[str] = (
        "Count, at public thresholds of every column, the records below and above."
    )
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("distance_sums", "interval_counts")

    thresholds: Annotated[
        int,
        param(
            "Thresholds on the widest column; narrower columns have proportionally fewer.",
            symbol="m", unit="cells", ge=1, le=2**24,
            hint="256 to 4,096; the grid bias is at most range / (2 m) a record, the noise the same.",
        ),
    ]  # fmt: skip
    per_label: PerLabel = False
    count_weight: Annotated[
        int | None,
        param(
            "Integer weight of the count's own cell.", symbol="w", unit="none", default=None,
            ge=1, le=2**20, hint="default round(sqrt(M)): half of a zCDP budget, the best split.",
        ),
    ] = None  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``threshold_sketch.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        splits(self.key, rows, self.thresholds)
        reader = ThresholdReader(rows, self.thresholds, self.count_weight, self.per_label)
        cells, weight = int(reader.counts.sum()), reader.weight
        blocks = (
            SketchBlock(
                "signs", (reader.classes, cells), l1=cells, l2_squared=cells, linf=1
            ),  # Lemma 1
            SketchBlock("total", (reader.classes,), l1=weight, l2_squared=weight**2, linf=weight),
        )
        output = Sketch(self.key, blocks)
        return Stable(
            output=output,
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"distance_sums": reader, "interval_counts": reader},
            expected={
                "distance deviation per cell deviation": reader.spread(None, 0.0) or 0.0,
                "distance bias per record, at most": reader.bias(None),
            },
            advice=(_EMBEDDED,) if rows.distortion and rows.distortion[0] == 1.0 else (),
        )


make_threshold_sketch, then_threshold_sketch = constructors(ThresholdSketch)
