"""Release dyadic intervals' noisy counts, published for distances (``distance_tree.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.grid import chunks, count_ids
from opendp_sim.core.arithmetic.linear import public_product
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
    ColumnBounds,
    Dyadic,
    check_fits,
    column_bounds,
    interval_sums,
    splits,
)
from opendp_sim.transformations.sketches.distances._impl.tree_sums import (
    FarEnds,
    NearestCells,
    consistent,
    consistent_variance,
)

# --------------------------------------------------------------------------------------------------
# How a tree of counts is built from rows and read after its release.
#
# Proofs: ``distance_tree.md``. Reading is post-processing.

_FINENESS = 16
_CELLS = 2**22
"""Weights on leaves that are held at once: 32 MiB."""
_SAMPLED = 17
"""Positions at which the plan's noise is computed: powers of two and between."""


@dataclass(frozen=True)
class _Known:
    """Hold a release's sums (L, columns, cells) and noise."""

    done: NDArray[np.bool_]
    sums: NDArray[np.float64]
    squares: NDArray[np.float64]
    totals: NDArray[np.float64]


@dataclass(frozen=True)
class TreeReader(PerClassReader):
    """Build one sketch's public tree, and read its release.

    Attributes:
        rows: the grid. height: levels H below the root.
        consistent: whether the release is read through the least-squares tree.
        per_label: whether there is one structure a label.
    """

    rows: GridRows
    height: int
    consistent: bool
    per_label: bool

    exponents = "any p >= 1"
    power = 1.0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (L, d, nodes); node i of level l is at ``2**l - 1 + i``."""
        return self.classes, self.rows.width, 2 ** (self.height + 1) - 1

    @cached_property
    def axes(self) -> tuple[Dyadic, ...]:
        """The tree of each column."""
        lower, upper = column_bounds(self.rows)
        pairs = zip(lower.tolist(), upper.tolist(), strict=True)
        return tuple(Dyadic(low, top - low + 1, self.height) for low, top in pairs)

    @cached_property
    def cells(self) -> NearestCells:
        """The cells that the leaves tell apart."""
        return NearestCells(self.rows, self.height)

    @cached_property
    def multipliers(self) -> NDArray[np.int64]:
        """Return the integers u_j, from ranges' shares of a zCDP budget."""
        spans = self.cells.spans
        if (spans == spans[0]).all():
            return np.ones(len(spans), dtype=np.int64)
        whole = np.rint(_FINENESS * np.sqrt(spans / spans.min()))
        return np.asarray(whole, dtype=np.int64)

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows, height = as_rows(data), self.height
        level = np.zeros((self.rows.width, self.classes, 2**height), dtype=np.int64)
        for part in chunks(len(rows), self.rows.width):
            steps = rows.values[part].T.astype(np.int64)
            leaves = np.stack(
                [axis.leaves(column) for axis, column in zip(self.axes, steps, strict=True)]
            )
            labels = rows.labels if self.per_label else None
            count_ids(leaves, None if labels is None else labels[part], level)
        counts, times = out.reshape(self.shape), self.multipliers[:, None]
        nodes = level.transpose(1, 0, 2)
        for depth in range(height, -1, -1):
            counts[..., 2**depth - 1 : 2 ** (depth + 1) - 1] += times * nodes
            nodes = nodes.reshape(*nodes.shape[:2], -1, 2).sum(axis=3) if depth else nodes

    # --- reading --------------------------------------------------------------------------------

    def nodes(self, released: Arrays) -> NDArray[np.float64]:
        """Return all nodes' counts, shape (L, d, nodes), perhaps by least squares."""
        return self._made_consistent(np.asarray(released["counts"]) / self.multipliers[:, None])

    def _made_consistent(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        return consistent(counts, self.height) if self.consistent else counts

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of a cell's."""
        squares = np.square(self.multipliers.astype(np.float64))
        # Least squares knows the root from every level: leaves / (2 leaves - 1) of the variance.
        leaves = 2.0**self.height
        gain = leaves / (2 * leaves - 1) if self.consistent else 1.0
        return math.sqrt(gain / squares.sum())

    def counted(self, released: Arrays) -> Counted:
        """Return the released records per class, the best mean of roots."""
        return self._counted(self.nodes(released))

    def _counted(self, nodes: NDArray[np.float64]) -> Counted:
        squares = np.square(self.multipliers.astype(np.float64))
        sizes = (nodes[:, :, 0] * squares).sum(axis=1) / squares.sum()
        return Counted(sizes, self.count_factor())

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Return the far-end estimator, up to ``1 + alpha`` times the truth (Lemma 2)."""
        power = 1.0 if p is None else p
        nodes = self.nodes(released)
        counted = self._counted(nodes)
        known: dict[int, _Known] = {}

        def at(queries: Any) -> Linear:
            return self._sum(nodes, counted, floats_of(queries), power, alpha, known)

        return DistanceReading(power, at, 1.0 + alpha)

    def _sum(
        self,
        nodes: NDArray[np.float64],
        counted: Counted,
        values: NDArray[np.float64],
        power: float,
        alpha: float,
        known: dict[int, _Known],
    ) -> Linear:
        places, beyond, missed = self.cells.located(values, power)
        steps, squared = (
            self.cells.powers(power),
            float(np.square(self.multipliers.astype(np.float64)).sum()),
        )
        sums = beyond * counted.sizes[:, None]
        variance, shared = np.zeros((2, len(values)))
        for cells in np.unique(
            self.cells.counts
        ):  # columns with equally many cells share all weights
            columns = np.flatnonzero(self.cells.counts == cells)
            where, (table, squares, totals) = self._looked_up(
                nodes[:, columns], places[columns], int(cells), (power, alpha), known
            )
            for row, column in enumerate(columns):
                step, own = steps[column], where[row]
                for label in range(self.classes):
                    sums[label] += step * table[label, row].take(own)
                variance += (step / self.multipliers[column]) ** 2 * squares.take(own)
                shared += step / squared * totals.take(own)
        variance += 2 * beyond * shared + (beyond * counted.factor) ** 2
        return Linear(sums, variance, shared + beyond * counted.factor**2, missed)

    def _looked_up(
        self,
        nodes: NDArray[np.float64],
        places: NDArray[np.int64],
        cells: int,
        of: tuple[float, float],
        known: dict[int, _Known],
    ) -> tuple[NDArray[np.int64], tuple[NDArray[np.float64], ...]]:
        """Return tables of sums and noise, and the places' indices.

        For p = 1 places are cells of the column, worked out once a release.
        """
        power, alpha = of
        if power != 1:
            asked, where = np.unique(places, return_inverse=True)
            tables = self._tables(nodes, asked, self._ends(cells, asked, power, alpha))
            return where.reshape(places.shape), tables
        kept = known.get(cells)
        if kept is None:
            shape = *nodes.shape[:2], cells
            kept = known[cells] = _Known(
                np.zeros(cells, dtype=bool), np.zeros(shape), *np.zeros((2, cells))
            )
        new = np.zeros(cells, dtype=bool)
        new[places.ravel()] = True
        asked = np.flatnonzero(new & ~kept.done)
        if asked.size:
            ends = self._ends(cells, np.array([0, cells - 1]), power, alpha)
            kept.sums[..., asked], kept.squares[asked], kept.totals[asked] = self._tables(
                nodes, asked, ends
            )
            kept.done[asked] = True
        return places, (kept.sums, kept.squares, kept.totals)

    def _ends(self, cells: int, asked: NDArray[np.int64], power: float, alpha: float) -> FarEnds:
        reach = np.maximum(np.abs(asked), np.abs(cells - 1 - asked)).max(initial=0)
        return FarEnds(cells, self.height, power, alpha, float(reach))

    def _tables(
        self, nodes: NDArray[np.float64], asked: NDArray[np.int64], ends: FarEnds
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return sums (L, columns, len(asked)) at cells in widths, and noise.

        The noise is the variance, and the covariance with the column's own root (Lemma 3).
        """
        flat = nodes.reshape(-1, nodes.shape[2]).T
        table = np.empty((flat.shape[1], len(asked)))
        squares, totals = np.zeros((2, len(asked)))
        step = max(1, _CELLS >> self.height)
        for start in range(0, len(asked), step):
            part = slice(start, start + step)
            if self.consistent:
                dense = ends.dense(asked[part])
                table[:, part] = public_product(dense, flat[-(2**self.height) :]).T
                squares[part] = consistent_variance(dense)
                totals[part] = dense.sum(axis=1) / (2.0 ** (self.height + 1) - 1)
            else:
                weights = ends.nodes(asked[part])
                table[:, part] = weights.dot(flat).T
                squares[part] = weights.power(2).sum(axis=1)
        return table.reshape(*nodes.shape[:2], -1), squares, totals

    # --- what is known before a release ---------------------------------------------------------

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Return a sum's largest deviation per cell deviation."""
        power, worst = 1.0 if p is None else p, np.zeros(self.rows.width)
        for cells in np.unique(self.cells.counts):
            asked = np.unique(np.linspace(0, cells - 1, _SAMPLED).astype(np.int64))
            ends = self._ends(int(cells), asked, power, alpha)
            if self.consistent:
                squares = consistent_variance(ends.dense(asked))
            else:
                squares = np.asarray(ends.nodes(asked).power(2).sum(axis=1))
            worst[self.cells.counts == cells] = squares.max()
        steps = self.cells.powers(power) / self.multipliers
        return math.sqrt(float((np.square(steps) * worst).sum()))

    def bias(self, p: float | None) -> float:
        """Bound the rounding to cells, per record, at grid queries."""
        return self.cells.most_lost(1.0 if p is None else p)

    def count(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> Linear:
        """Count records in a column's intervals by maximal nodes."""
        return self._between(released, column, self.axes[column].covering(lower, upper))

    def around(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> tuple[Linear, Linear]:
        """Count leaves inside an interval, and leaves that intersect it."""
        inner, outer = self.axes[column].in_and_around(lower, upper)
        return self._between(released, column, inner), self._between(released, column, outer)

    def widest(self, column: int) -> float:
        """Bound a count's variance by two nodes below the first level."""
        nodes = max(1, self.height, 2 * (self.height - 1))
        return nodes / float(self.multipliers[column]) ** 2

    def _between(self, released: Arrays, column: int, leaves: ColumnBounds) -> Linear:
        axis, (first, last) = self.axes[column], leaves
        counts = np.asarray(released["counts"])[:, column] / self.multipliers[column]
        nodes = self._made_consistent(counts)  # of this column alone: each is its own tree
        sums = interval_sums(nodes, (first, last), axis.height, root=True)
        if self.consistent:
            place, step = np.arange(2**axis.height), max(1, _CELLS >> axis.height)
            spread = np.empty(len(first))
            for part in (slice(at, at + step) for at in range(0, len(first), step)):
                inside = (place >= first[part, None]) & (place < last[part, None])
                spread[part] = consistent_variance(inside.astype(np.float64))
        else:
            spread = interval_sums(
                np.ones((1, self.shape[2])), (first, last), axis.height, root=True
            )[0]
        variance = spread / float(self.multipliers[column]) ** 2
        return Linear(sums, variance, np.zeros(len(variance)))


# --------------------------------------------------------------------------------------------------


@register
class DistanceTree(Mechanism):
    r"""Count the records in every dyadic interval of every column.

    Space
        Input: rows on an integer grid, with or without labels, under symmetric distance.
        Output: a flat int64 vector of one block, ``counts`` of shape (L, d, nodes): for class l,
        column j and a node v, :math:`u_j` times the records of v. The public integers u share the
        budget between columns in proportion to their ranges; they are 1 when all ranges are equal.

    Stability
        .. math:: L_1 = (H + 1) \sum_j u_j,\quad L_2^2 = (H + 1) \sum_j u_j^2,\quad
           L_\infty = \max_j u_j

        per added or removed record, which lies in one node on each of the H + 1 levels, the root
        included. H is public; the number of records is not used. Exact in integers. Tight. Monotone.

    Privacy
        None on its own. Chain with noise.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS204): `per_label` without labels.

    Source
        [own] Lemma 1 in ``distance_tree.md``; Algorithms 1 to 4 of Backurs et al.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=1, nan=False, T=float), dp.symmetric_distance()
        >>> tree = (space >> sim.then_quantize(bits=4, bounds=(0.0, 1.0))
        ...     >> sim.then_distance_tree(levels=2))
        >>> tree(np.array([[0.0], [0.6]])), tree.map(1)
        ([2, 1, 1, 1, 0, 1, 0], 3)
    """

    key: ClassVar[str] = "distance_tree"
    in_short: ClassVar[str] = "Count the records in ever smaller intervals of every column."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("distance_sums", "interval_counts")

    levels: Annotated[
        int,
        param(
            "Height of the tree: 2**levels leaves a column, a public number.", symbol="H",
            unit="levels", ge=1, le=20, hint="10 to 12; the noise grows with the height.",
        ),
    ]  # fmt: skip
    consistent: Annotated[
        bool,
        param(
            "Read the release through the least-squares tree in which parents equal their children.",
            symbol="z", unit="none", default=False,
            hint="true for less noise; false for the published estimator. Privacy is the same.",
        ),
    ] = False  # fmt: skip
    per_label: PerLabel = False

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``distance_tree.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        splits(self.key, rows, 2**self.levels)
        reader = TreeReader(rows, self.levels, self.consistent, self.per_label)
        times, depth = [int(u) for u in reader.multipliers], self.levels + 1
        check_fits(self.key, max(times))
        block = SketchBlock(
            "counts",
            reader.shape,
            l1=depth * sum(times),
            l2_squared=depth * sum(u * u for u in times),
            linf=max(times),
        )
        output = Sketch(self.key, (block,), monotone=True)
        return Stable(
            output=output,
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"distance_sums": reader, "interval_counts": reader},
            constants=tuple(times),
            expected={"distance bias per record, at most": reader.bias(None)},
        )


make_distance_tree, then_distance_tree = constructors(DistanceTree)
