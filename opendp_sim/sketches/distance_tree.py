"""Distance tree: noisy counts of dyadic intervals, the published structure for sums of distances.

Proof of the stability map and of the estimator: ``distance_tree.md``, beside this file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, Counted, DistanceReading, Linear
from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.grid import chunks, count_ids
from opendp_sim.core.linear import public_product
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches._axes import Dyadic, columns_of, interval_sums
from opendp_sim.sketches._far_ends import consistent, consistent_variance, far_ends, node_weights
from opendp_sim.spaces.checks import grid_rows
from opendp_sim.spaces.rows import GridRows, as_rows
from opendp_sim.spaces.sketch import Sketch

__all__ = ["DistanceTree", "make_distance_tree", "then_distance_tree"]

_FINENESS = 16
_CELLS = 2**22
"""Weights on leaves that are held at once: 32 MiB."""
_SAMPLED = 17
"""Positions at which the plan's noise is computed: powers of two and between."""


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
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "sketches"

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
    per_label: Annotated[
        bool,
        param(
            "One structure for each public label; classes are disjoint, so the faces do not grow.",
            symbol="c", unit="none", default=False, hint="needs rows with labels.",
        ),
    ] = False  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``distance_tree.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        reader = TreeReader(self, rows)
        times, depth = reader.multipliers, self.levels + 1
        block = Block(
            "counts", reader.shape, l1=depth * int(times.sum()),
            l2_squared=depth * int(np.square(times).sum()), linf=int(times.max()),
        )  # fmt: skip
        output = Sketch(self.key, (block,), monotone=True)
        return Stable(
            output=output,
            accumulate=reader.accumulate,
            faces=output.faces,
            capabilities={"distance_sums": reader, "interval_counts": reader},
            expected={"distance bias per record, at most": reader.bias(1.0)},
        )


@dataclass(frozen=True)
class TreeReader:
    """The public tree of one bound sketch: builds it, and reads a release of it."""

    mechanism: DistanceTree
    rows: GridRows

    exponents = "any p >= 1"

    @property
    def labels(self) -> tuple[str | int, ...] | None:
        """The public labels of the classes, or None."""
        return self.rows.labels if self.mechanism.per_label else None

    @property
    def classes(self) -> int:
        """L."""
        return 1 if self.labels is None else len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (L, d, nodes); node i of level l is at ``2**l - 1 + i``."""
        return self.classes, self.rows.width, 2 ** (self.mechanism.levels + 1) - 1

    @cached_property
    def axes(self) -> tuple[Dyadic, ...]:
        """The tree of each column."""
        lower, upper = columns_of(self.rows)
        pairs = zip(lower.tolist(), upper.tolist(), strict=True)
        return tuple(Dyadic(low, top - low + 1, self.mechanism.levels) for low, top in pairs)

    @cached_property
    def spans(self) -> NDArray[np.int64]:
        """Grid values of each column: shape (d,)."""
        return np.array([axis.span for axis in self.axes], dtype=np.int64)

    @cached_property
    def multipliers(self) -> NDArray[np.int64]:
        """The integers u_j: a column's share of a zCDP budget is in proportion to its range."""
        if (self.spans == self.spans[0]).all():
            return np.ones(len(self.spans), dtype=np.int64)
        whole = np.rint(_FINENESS * np.sqrt(self.spans / self.spans.min()))
        return np.asarray(whole, dtype=np.int64)

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows, height = as_rows(data), self.mechanism.levels
        level = np.zeros((self.rows.width, self.classes, 2**height), dtype=np.int64)
        for part in chunks(len(rows), self.rows.width):
            steps = rows.values[part].T.astype(np.int64)
            leaves = np.stack(
                [axis.leaves(column) for axis, column in zip(self.axes, steps, strict=True)]
            )
            labels = rows.labels if self.mechanism.per_label else None
            count_ids(leaves, None if labels is None else labels[part], level)
        counts, times = out.reshape(self.shape), self.multipliers[:, None]
        nodes = level.transpose(1, 0, 2)
        for depth in range(height, -1, -1):
            counts[..., 2**depth - 1 : 2 ** (depth + 1) - 1] += times * nodes
            nodes = nodes.reshape(*nodes.shape[:2], -1, 2).sum(axis=3) if depth else nodes

    # --- reading --------------------------------------------------------------------------------

    def nodes(self, released: Arrays) -> NDArray[np.float64]:
        """Return the counts of all nodes, after least squares if asked: shape (L, d, nodes)."""
        counts = np.asarray(released["counts"]) / self.multipliers[:, None]
        return consistent(counts, self.mechanism.levels) if self.mechanism.consistent else counts

    def counted(self, released: Arrays) -> Counted:
        """Return the released number of records per class: the best mean of the columns' roots."""
        return self._counted(self.nodes(released))

    def _counted(self, nodes: NDArray[np.float64]) -> Counted:
        squares = np.square(self.multipliers).astype(np.float64)
        # Least squares knows the root from every level: leaves / (2 leaves - 1) of the variance.
        leaves = 2.0**self.mechanism.levels
        gain = leaves / (2 * leaves - 1) if self.mechanism.consistent else 1.0
        sizes = (nodes[:, :, 0] * squares).sum(axis=1) / squares.sum()
        return Counted(sizes, math.sqrt(gain / squares.sum()))

    def spread(self, p: float | None, alpha: float) -> float | None:
        """Return the largest deviation of a sum over evenly spaced positions, per cell deviation."""
        power, height = 1.0 if p is None else p, self.mechanism.levels
        asked = np.unique(np.linspace(0, 2**height - 1, _SAMPLED).astype(np.int64))
        worst = float(self._squares(asked, power, alpha).max())
        steps = (self.spans * (self.rows.unit / 2**height)) ** power
        return math.sqrt(worst * float(np.square(steps / self.multipliers).sum()))

    def reading(self, released: Arrays, p: float | None, alpha: float) -> DistanceReading:
        """Return the far-end estimator (Lemma 2): between the truth and ``1 + alpha`` times it."""
        power = 1.0 if p is None else p
        nodes = self.nodes(released)
        counted = self._counted(nodes)

        def at(queries: Any) -> Linear:
            values = np.asarray(as_rows(queries).values, dtype=np.float64)
            return self._sum(nodes, counted, values, power, alpha)

        return DistanceReading(at, self.bias(power), 1.0 + alpha)

    def _sum(
        self, nodes: NDArray[np.float64], counted: Counted, values: NDArray[np.float64],
        power: float, alpha: float,
    ) -> Linear:  # fmt: skip
        lower, upper = (bound.astype(np.float64) for bound in columns_of(self.rows))
        # For p = 1 a query outside is answered at the nearest end, and the rest of the way is counted
        # once for each record; for other exponents the intervals start outside.
        near = np.clip(values, lower, upper) if power == 1 else values
        beyond = (np.abs(values - near) * self.rows.unit).sum(axis=1)
        places = np.floor((near - lower) * (2**self.mechanism.levels / self.spans)).T
        asked, where = np.unique(places.astype(np.int64), return_inverse=True)
        where = where.reshape(places.shape)
        table, squares, totals = self._tables(nodes, asked, power, alpha)
        steps = (self.spans * (self.rows.unit / 2**self.mechanism.levels)) ** power
        sums = beyond * counted.sizes[:, None]
        shared = np.zeros(len(values))
        variance = np.zeros(len(values))
        for column, step in enumerate(steps):
            sums += step * table[:, column, where[column]]
            variance += (step / self.multipliers[column]) ** 2 * squares[where[column]]
            shared += step * totals[where[column]] / float(np.square(self.multipliers).sum())
        variance += 2 * beyond * shared + (beyond * counted.factor) ** 2
        return Linear(sums, variance, shared + beyond * counted.factor**2)

    def _squares(self, asked: NDArray[np.int64], power: float, alpha: float) -> NDArray[np.float64]:
        """Return the variance of the sums at leaf positions, in leaf widths, per cell variance."""
        height = self.mechanism.levels
        if self.mechanism.consistent:
            return consistent_variance(far_ends(asked, height, power, alpha))
        squares = node_weights(asked, height, power, alpha).power(2).sum(axis=1)
        return np.asarray(squares, dtype=np.float64)

    def _tables(
        self, nodes: NDArray[np.float64], asked: NDArray[np.int64], power: float, alpha: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the sums in leaf widths at leaf positions (L, d, len(asked)), and their noise.

        The noise is the variance, and the covariance with the column's own root (Lemma 3).
        """
        height = self.mechanism.levels
        flat = nodes.reshape(-1, nodes.shape[2]).T
        table = np.empty((flat.shape[1], len(asked)))
        squares, totals = np.zeros((2, len(asked)))
        step = max(1, _CELLS >> height)
        for start in range(0, len(asked), step):
            part = slice(start, start + step)
            if self.mechanism.consistent:
                dense = far_ends(asked[part], height, power, alpha)
                table[:, part] = public_product(dense, flat[-(2**height) :]).T
                squares[part] = consistent_variance(dense)
                totals[part] = dense.sum(axis=1) / (2.0 ** (height + 1) - 1)
            else:
                weights = node_weights(asked[part], height, power, alpha)
                table[:, part] = weights.dot(flat).T
                squares[part] = weights.power(2).sum(axis=1)
        return table.reshape(*nodes.shape[:2], -1), squares, totals

    def bias(self, power: float) -> float:
        """Bound the rounding to leaves, per record, for p = 1: one leaf a column."""
        wide = self.spans / 2**self.mechanism.levels
        lost = np.where(wide > 1, wide, 0.0) * self.rows.unit
        reach = self.spans * self.rows.unit
        return float((power * lost * reach ** (power - 1)).sum())

    def count(
        self, released: Arrays, column: int, lower: NDArray[Any], upper: NDArray[Any]
    ) -> Linear:
        """Count records in intervals of one column by the counts of maximal nodes."""
        axis = self.axes[column]
        first, last = axis.covering(lower, upper)
        sums = interval_sums(self.nodes(released)[:, column], (first, last), axis.height, root=True)
        if self.mechanism.consistent:
            place = np.arange(2**axis.height)
            inside = (place >= first[:, None]) & (place < last[:, None])
            spread = consistent_variance(inside.astype(np.float64))
        else:
            spread = interval_sums(
                np.ones((1, self.shape[2])), (first, last), axis.height, root=True
            )[0]
        variance = spread / float(self.multipliers[column]) ** 2
        return Linear(sums, variance, np.zeros(len(variance)))


make_distance_tree, then_distance_tree = constructors(DistanceTree)
