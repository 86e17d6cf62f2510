"""Release centred moments per dyadic node, for distances (``moment_tree.md``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.countable import LARGEST_FEATURE
from opendp_sim.core.arithmetic.grid import chunks, count_ids
from opendp_sim.core.capabilities import Arrays, Counted, DistanceReading, Linear
from opendp_sim.core.claims import SketchBlock, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import grid_rows
from opendp_sim.domains.rows import GridRows, Rows, as_rows, floats_of
from opendp_sim.domains.sketch import Sketch
from opendp_sim.transformations.sketches._impl.classes import PerClassReader, PerLabel
from opendp_sim.transformations.sketches.distances._impl.axes import (
    ColumnBounds,
    Dyadic,
    by_column,
    check_fits,
    column_bounds,
    interval_sums,
    powered,
    splits,
)

# --------------------------------------------------------------------------------------------------
# The levels of a moment tree: widths, sensitivities, and the integers that realise their budgets.
#
# Proofs: ``moment_tree.md``. All of it is public: no function here sees a record.

_FINENESS = 64
"""Least multiplier: rounding the level budgets to integers costs under one percent."""


@dataclass(frozen=True)
class MomentLevels:
    """Hold a column's dyadic tree with moments 0 to p.

    Attributes:
        rows: the grid. height: levels H below the root. p: exponent.
        tuned_for: the noise for which budgets are split over levels and orders.
    """

    rows: GridRows
    height: int
    p: int
    tuned_for: Literal["laplace", "gaussian"]

    @cached_property
    def axes(self) -> tuple[Dyadic, ...]:
        """The tree of each column."""
        lower, upper = column_bounds(self.rows)
        height, known = self.height, {}  # type: ignore[var-annotated]
        for pair in zip(lower.tolist(), upper.tolist(), strict=True):
            known.setdefault(pair, Dyadic(pair[0], pair[1] - pair[0] + 1, height))
        return tuple(known[pair] for pair in zip(lower.tolist(), upper.tolist(), strict=True))

    @cached_property
    def widths(self) -> NDArray[np.int64]:
        """Return the widest node by column and level, (d, H)."""
        levels = range(1, self.height + 1)
        found = {axis: [axis.width(level) for level in levels] for axis in set(self.axes)}
        return np.array([found[axis] for axis in self.axes], dtype=np.int64)

    @cached_property
    def reach(self) -> NDArray[np.object_]:
        """Return the largest ``|2x - 2c|**k`` exactly, shape (d, H, p + 1)."""
        most = self.widths.astype(object) - 1
        return np.stack([most**order for order in range(self.p + 1)], axis=2)

    @cached_property
    def steepest(self) -> NDArray[np.float64]:
        """Return moments' largest factors, ``steps**p``, shape ``(d, H, p + 1)`` (Lemma 2)."""
        p, far = self.p, 3.0 * self.widths
        return np.stack([math.comb(p, k) * far ** (p - k) / 2.0**p for k in range(p + 1)], axis=2)

    @cached_property
    def multipliers(self) -> NDArray[np.object_]:
        """Return Lemma 3's integers u_jlk, shape ``(d, H, p + 1)``."""
        reach = self.reach.astype(np.float64)
        power = 2 / 3 if self.tuned_for == "laplace" else 1 / 2
        # A moment that is always zero costs nothing and is never read: leave it out of the scaling.
        some = reach > 0
        share = np.where(some, (self.steepest * reach) ** power, 0.0)
        ideal = np.divide(share, reach, out=np.zeros_like(share), where=some)
        ideal /= ideal[some].min()
        largest = float((ideal * reach).max())
        check_fits("moment_tree", largest)
        fine = min(_FINENESS, 2 ** int(math.log2(LARGEST_FEATURE / largest)))
        whole = np.maximum(np.rint(ideal * fine), 1.0)
        return np.frompyfunc(int, 1, 1)(whole)

    @cached_property
    def centres(self) -> NDArray[np.int64]:
        """Return twice the centre of every node, shape (d, nodes)."""
        levels = range(1, self.height + 1)
        found = {
            axis: np.concatenate([axis.doubled_centre(level) for level in levels])
            for axis in set(self.axes)
        }
        return np.stack([found[axis] for axis in self.axes])

    @cached_property
    def level_scale(self) -> NDArray[np.float64]:
        """Return each level's worth of one integer step, or 0."""
        inverse = 1.0 / self.multipliers.astype(np.float64)
        return np.where(self.reach.astype(np.float64) == 0, 0.0, inverse)

    def node_scale(self) -> NDArray[np.float64]:
        """Return one over multipliers, shape ``(d, p + 1, nodes)``, 0 if unread."""
        inverse = np.where(self.reach == 0, 0.0, 1.0 / self.multipliers.astype(np.float64))
        repeats = 2 ** np.arange(1, self.height + 1)
        return np.repeat(inverse.astype(np.float64), repeats, axis=1).transpose(0, 2, 1)


# --------------------------------------------------------------------------------------------------
# A released moment tree as polynomials: between the starts of two leaves every answer is one.
#
# A query's path, and so which nodes are read, changes only where a leaf starts; on one leaf Lemma 2 of
# ``moment_tree.md`` is a polynomial of degree p in the query, and the variance one of degree 2 p.
# They are
# added up once a release, from the root to the leaves, so that a query reads one of each column.

Polynomials = NDArray[np.float64]
"""Shape (L, d, degree + 1, pieces), lowest degree first, in steps from where a piece begins."""


@dataclass(frozen=True)
class MomentTable:
    """Hold one release's polynomials by piece.

    Pieces are below the column, its leaves, and above it.

    Attributes:
        axes: the tree of each column.
        origins: where each piece begins, in steps: shape (d, pieces).
        sums: of the answers. variance, counted: L is 1; the variance, and the sum of factors on counts
            of records at the root's children.
    """

    axes: tuple[Dyadic, ...]
    origins: NDArray[np.float64]
    sums: Polynomials
    variance: Polynomials
    counted: Polynomials

    @classmethod
    def of(
        cls,
        axes: tuple[Dyadic, ...],
        centres: NDArray[np.int64],
        cells: NDArray[np.float64],
        scale: NDArray[np.float64],
    ) -> MomentTable:
        """Add up the polynomials of released moments ``(L, d, p + 1, nodes)``.

        ``axes`` are trees of one height, ``centres`` (d, nodes) twice their nodes', level 1 first, and
        ``scale`` (d, H, p + 1) the deviation of a moment of each level.
        """
        height, p = axes[0].height, cells.shape[2] - 1
        firsts = np.stack([axis.starts[:1] for axis in axes]).astype(np.float64)
        lasts = np.stack([axis.starts[-1:] for axis in axes]).astype(np.float64) - 1
        inside = [np.zeros((n, len(axes), q + 1, 1)) for n, q in _sizes(len(cells), p)]
        outside = [np.zeros((n, len(axes), q + 1, 2)) for n, q in _sizes(len(cells), p)]
        starts, ends = firsts, np.concatenate([firsts, lasts], axis=1)
        for level in range(1, height + 1):
            before, own = np.repeat(starts, 2, axis=1), np.arange(2**level)
            starts = np.stack([axis.nodes(level)[0] for axis in axes]).astype(np.float64)
            inside = [_moved(np.repeat(one, 2, axis=3), starts - before) for one in inside]
            read = (centres, cells, scale[:, level - 1], 2**level - 2, level == 1)
            _add(inside, starts, own ^ 1, np.where(own & 1, -1.0, 1.0) ** p, read)
            if level == 1:  # outside, both halves are read and nothing else
                for node in (own, own ^ 1):
                    _add(outside, ends, node, np.array([1.0, -1.0]) ** p, read)
        joined = [
            np.concatenate([out[..., :1], one, out[..., 1:]], axis=3)
            for one, out in zip(inside, outside, strict=True)
        ]
        sums, *public = joined
        origins = np.concatenate([firsts, starts, lasts], axis=1)
        return cls(axes, _once(origins, 0), sums, *(_once(one, 1) for one in public))

    def pieces(self, values: NDArray[np.float64], column: int) -> NDArray[np.int64]:
        """Return which piece of a column each value is on."""
        axis = self.axes[column]
        low, high = axis.lower, axis.lower + axis.span - 1
        steps = np.clip(values, low, high)
        np.floor(steps, out=steps)
        place: NDArray[np.int64]
        if axis.span << axis.height < 2**53:  # a quotient of such integers is floored exactly
            steps -= low
            steps *= 2.0**axis.height
            steps /= axis.span
            place = steps.astype(np.int64)
        else:
            place = axis.leaves(steps.astype(np.int64))
        place += 1
        if len(values) and (values.min() < low or values.max() > high):
            place[values < low] = 0
            place[values > high] = self.origins.shape[1] - 1
        return place

    @cached_property
    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return pieces' first and last integers (d, pieces), beyond queries outside."""
        starts = np.stack([axis.starts for axis in self.axes]).astype(np.float64)
        none = np.full((len(self.axes), 1), np.inf)
        first = np.concatenate([none, starts[:, :-1], none], axis=1)
        last = np.concatenate([-none, starts[:, 1:] - 1, -none], axis=1)
        return _once(first, 0), _once(last, 0)

    def farthest(
        self, values: NDArray[np.float64], place: NDArray[np.int64], column: int
    ) -> NDArray[np.float64]:
        """Return the largest distance to an end of the own leaf."""
        first, last = (end[column].take(place) for end in self.ends)
        np.subtract(values, first, out=first)
        np.subtract(last, values, out=last)
        found: NDArray[np.float64] = np.maximum(np.maximum(first, last, out=first), 0.0, out=first)
        return found

    def at(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Return answers (L, q) with variances and bounds (q,).

        The bounds: sums of factors, and the most that own leaves may hold. The last is per record, in
        steps: the farther end of the own leaf of each column, to the power p.
        """
        sums = np.zeros((len(self.sums), len(values)))
        variance, counted, missed = np.zeros((3, 1, len(values)))
        tables = ((self.sums, sums), (self.variance, variance), (self.counted, counted))
        p = self.sums.shape[2] - 1
        for part, columns in by_column(values):
            for column, asked in enumerate(columns):
                place = self.pieces(asked, column)
                far = self.farthest(asked, place, column)
                missed[0, part] += far if p == 1 else far**p
                steps = np.subtract(asked, self.origins[column].take(place), out=asked)
                for table, out in tables:
                    for label, own in enumerate(table[:, column]):
                        out[label, part] += _value(own, place, steps)
        return sums, variance[0], counted[0], missed[0]


def _once(tables: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return all columns' tables, or one cached table."""
    first = tables.take([0], axis=axis)
    return np.broadcast_to(first, tables.shape) if (tables == first).all() else tables


def _sizes(classes: int, p: int) -> Sequence[tuple[int, int]]:
    """Return number and degree of sums, variances and factor sums."""
    return (classes, p), (1, 2 * p), (1, p)


def _value(
    own: NDArray[np.float64], place: NDArray[np.int64], steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    found: NDArray[np.float64] = own[-1].take(place)
    for part in own[-2::-1]:
        found *= steps
        found += part.take(place)
    return found


def _moved(one: Polynomials, by: NDArray[np.float64]) -> Polynomials:
    """Return the polynomials with places shifted ``by``, shape (d, pieces)."""
    degree = one.shape[2] - 1
    out = np.zeros_like(one)
    for to in range(degree + 1):
        for high in range(to, degree + 1):
            out[:, :, to] += math.comb(high, to) * by ** (high - to) * one[:, :, high]
    return out


def _add(
    tables: Sequence[Polynomials],
    starts: NDArray[np.float64],
    node: NDArray[np.int64],
    sign: NDArray[np.float64],
    read: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], int, bool],
) -> None:
    """Add ``sign 2^-p sum_k binom(p, k) (gap - 2 t)^(p - k) M_k`` for one node of each piece."""
    (sums, variance, counted), (centres, cells, scale, base, top) = tables, read
    p = cells.shape[2] - 1
    gap = centres[:, base + node] - 2 * starts
    for order in range(p + 1):
        times = math.comb(p, order) / 2.0**p
        for degree, part in enumerate(_power(gap, p - order)):
            sums[:, :, degree] += sign * times * part * cells[:, :, order, base + node]
            if top and order == 0:
                counted[0, :, degree] += sign * times * part
        for degree, part in enumerate(_power(gap, 2 * (p - order))):
            variance[0, :, degree] += np.square(times * scale[:, order, None]) * part


def _power(gap: NDArray[np.float64], power: int) -> list[NDArray[np.float64]]:
    """Return the coefficients of ``(gap - 2 t)**power``, lowest degree first."""
    return [
        math.comb(power, degree) * (-2.0) ** degree * gap ** (power - degree)
        for degree in range(power + 1)
    ]


# --------------------------------------------------------------------------------------------------
# How a moment tree is built from rows and read after its release.
#
# Proofs: ``moment_tree.md``. Reading is post-processing.


@dataclass(frozen=True)
class MomentTreeReader(PerClassReader, MomentLevels):
    """Build one sketch's public tree, and read its release."""

    per_label: bool

    @property
    def exponents(self) -> str:
        """The only exponent."""
        return f"p = {self.p}"

    @property
    def power(self) -> float:
        """The same, as a number."""
        return float(self.p)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return ``(L, d, p + 1, nodes)``, a level's nodes from ``2**l - 2`` on."""
        nodes = 2 ** (self.height + 1) - 2
        return self.classes, self.rows.width, self.p + 1, nodes

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows = as_rows(data)
        height = self.height
        moments = self._leaves(rows)
        view, times = out.reshape(self.shape), self.multipliers.astype(np.int64)
        for level in range(height, 0, -1):
            base = 2**level - 2
            view[..., base : base + 2**level] += moments * times[:, level - 1, :, None]
            if level > 1:
                moments = self._merge(moments, level)

    def _leaves(self, rows: Rows) -> NDArray[np.int64]:
        """Return the leaves' own moments, shape (L, d, p + 1, 2**H)."""
        height, p = self.height, self.p
        out = np.zeros((p + 1, self.rows.width, self.classes, 2**height), dtype=np.int64)
        for part in chunks(len(rows), self.rows.width):
            steps = rows.values[part].T.astype(np.int64)
            leaves = np.stack(
                [axis.leaves(column) for axis, column in zip(self.axes, steps, strict=True)]
            )
            labels = rows.labels[part] if self.per_label and rows.labels is not None else None
            for column, axis in enumerate(self.axes):
                if axis.width(height) > 1:
                    self._add_powers(axis, steps[column], leaves[column], labels, out[:, column])
            count_ids(leaves, labels, out[0])
        return out.transpose(2, 1, 0, 3)

    def _add_powers(
        self,
        axis: Dyadic,
        steps: NDArray[np.int64],
        leaves: NDArray[np.int64],
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
    ) -> None:
        """Add a column's leaf moments of order 1 to p."""
        centred = 2 * steps - axis.doubled_centre(axis.height)[leaves]
        ids = leaves if labels is None else leaves + labels.astype(np.int64) * out.shape[2]
        for order in range(1, len(out)):
            sums = np.bincount(ids, weights=centred**order, minlength=out[order].size)
            out[order] += sums.astype(np.int64).reshape(out[order].shape)

    def _merge(self, moments: NDArray[np.int64], level: int) -> NDArray[np.int64]:
        """Return parents' moments from their children's (Lemma 2)."""
        parents = self.centres[:, 2 ** (level - 1) - 2 : 2**level - 2]
        shift = self.centres[:, 2**level - 2 : 2 ** (level + 1) - 2] - np.repeat(parents, 2, axis=1)
        moved = np.zeros_like(moments)
        for order in range(moments.shape[2]):
            for lower in range(order + 1):
                factor = math.comb(order, lower) * shift ** (order - lower)
                moved[:, :, order] += factor * moments[:, :, lower]
        merged: NDArray[np.int64] = moved.reshape(*moved.shape[:3], -1, 2).sum(axis=4)
        return merged

    # --- reading --------------------------------------------------------------------------------

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of a cell's."""
        return self.counted_factor

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records, the best mean of halves."""
        times = self.multipliers[:, 0, 0].astype(np.float64)
        halves = np.asarray(released["moments"])[:, :, 0, :2].sum(axis=2)
        sizes = (halves * times).sum(axis=1) / np.square(times).sum()
        return Counted(sizes, self.counted_factor)

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Return Lemma 2's polynomials between leaf starts, once a release."""
        del p, alpha  # only the tree's own exponent, and exact: no far ends
        cells = np.asarray(released["moments"]) * self.node_scale()
        table = MomentTable.of(self.axes, self.centres, cells, self.level_scale)
        scale = self._area

        def at(queries: Any) -> Linear:
            sums, variance, counted, missed = table.at(floats_of(queries))
            with_count = counted * (self.counted_factor**2 / 2)
            return Linear(sums * scale, variance * scale**2, with_count * scale, missed * scale)

        return DistanceReading(float(self.p), at)

    @cached_property
    def counted_factor(self) -> float:
        """Deviation of the released number of records per unit of cell deviation."""
        return math.sqrt(2.0 / np.square(self.multipliers[:, 0, 0].astype(np.float64)).sum())

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Bound a sum's deviation inside the box, per unit deviation (Lemma 3)."""
        del alpha
        if p not in (None, float(self.p)):
            return None
        worst = np.square(self.steepest * self.level_scale).sum()
        return float(self._area * math.sqrt(worst))

    def bias(self, p: float | None) -> float:
        """Bound dropped leaves' share per record at grid queries (Lemma 2)."""
        del p
        lost = self.widths[:, -1].astype(np.float64) - 1
        return float((lost**self.p).sum()) * self._area

    @property
    def _area(self) -> float:
        return powered("moment_tree", self.rows.unit, self.p)

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
        """Bound a count's variance by halves, or two nodes a level."""
        levels = [
            float(self.node_scale()[column, 0, 2**level - 2]) ** 2
            for level in range(1, self.height + 1)
        ]
        return max(2 * levels[0], levels[0] + sum(levels[1:]), 2 * sum(levels[1:]))

    def _between(self, released: Arrays, column: int, leaves: ColumnBounds) -> Linear:
        axis = self.axes[column]
        cells = (np.asarray(released["moments"]) * self.node_scale())[:, column, 0]
        variance = np.square(self.node_scale()[column, 0])[None, :]
        sums = interval_sums(cells, leaves, axis.height, root=False)
        spread = interval_sums(variance, leaves, axis.height, root=False)
        return Linear(sums, spread[0], np.zeros(sums.shape[1]))


# --------------------------------------------------------------------------------------------------


@register
class MomentTree(Mechanism):
    r"""Sum centred powers of positions in every dyadic interval of every column.

    Space
        Input: rows on an integer grid, with or without labels, under symmetric distance.
        Output: a flat int64 vector of one block, ``moments`` of shape (L, d, p + 1, nodes): for
        class l, column j, order k and a node v of the H levels below the root,
        :math:`u_{jvk} \sum_{x_j \in v} (2 x_j - 2 c_v)^k`, c being the node's centre in steps. The
        public integers u depend on the level's width alone: they realise the level budgets.

    Stability
        .. math:: L_1 = \sum_{j,l,k} u_{jlk} (w_{jl} - 1)^k,\quad
           L_2^2 = \sum_{j,l,k} u_{jlk}^2 (w_{jl} - 1)^{2k},\quad
           L_\infty = \max_{j,l,k} u_{jlk} (w_{jl} - 1)^k

        per added or removed record, which lies in one node of each level; w is the level's widest
        node in steps. Exact in integers. Tight when all nodes of a level are equally wide.

    Privacy
        None on its own. Chain with noise: for p = 1 Laplace noise of budget epsilon gives a sum of
        distances in one column of range R at most the deviation :math:`8.5 R / \varepsilon`, at
        every query and every size of the tree.

    Raises
        ParameterError (OS101): a parameter is outside its range. SpaceError (OS201, OS202): not grid
        rows, another metric. (OS203): the grid is too fine for this p. (OS204): `per_label` without
        labels.

    Source
        [own] Lemma 1 in ``moment_tree.md``; the tree of counts is Algorithm 1 of Backurs et al.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=1, nan=False, T=float), dp.symmetric_distance()
        >>> tree = (space >> sim.then_quantize(bits=4, bounds=(0.0, 1.0))
        ...     >> sim.then_moment_tree(levels=2))
        >>> len(tree(np.array([[0.0], [0.6]]))), tree.map(2) == 2 * tree.map(1)
        (12, True)
    """

    key: ClassVar[str] = "moment_tree"
    in_short: ClassVar[str] = (
        "Add up where the records lie, in ever smaller intervals of every column."
    )
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("distance_sums", "interval_counts")

    levels: Annotated[
        int,
        param(
            "Height of the tree: 2**levels leaves a column, a public number.", symbol="H",
            unit="levels", ge=1, le=20,
            hint="12, or one more than the bits of `quantize`: then nothing is lost in the leaves.",
        ),
    ]  # fmt: skip
    p: Annotated[
        int,
        param(
            "Exponent: sums of |x - y|**p, by moments of order 0 to p.", symbol="p", unit="none",
            default=1, ge=1, le=8, hint="1 for l1; with 2, moments_sketch has less noise in l2 balls.",
        ),
    ] = 1  # fmt: skip
    tuned_for: Annotated[
        Literal["laplace", "gaussian"],
        param(
            "The noise for which the split over levels and orders is best; either may follow.",
            symbol="u", unit="none", default="laplace",
            hint="laplace for pure DP; under zCDP threshold_sketch has half the noise for p = 1.",
        ),
    ] = "laplace"  # fmt: skip
    per_label: PerLabel = False

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``moment_tree.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        splits(self.key, rows, 2**self.levels)
        reader = MomentTreeReader(rows, self.levels, self.p, self.tuned_for, self.per_label)
        features = [int(v) for v in (reader.multipliers * reader.reach).ravel()]
        block = SketchBlock(
            "moments",
            reader.shape,
            l1=sum(features),
            l2_squared=sum(v * v for v in features),
            linf=max(features),
        )
        output = Sketch(self.key, (block,))
        return Stable(
            output=output,
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"distance_sums": reader, "interval_counts": reader},
            constants=tuple(features),
            expected={
                "distance deviation per cell deviation, at most": reader.spread(None, 0.0) or 0.0,
                "distance bias per record, at most": reader.bias(None),
            },
        )


make_moment_tree, then_moment_tree = constructors(MomentTree)
