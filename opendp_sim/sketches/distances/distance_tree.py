"""Distance tree: noisy counts of dyadic intervals, the published structure for sums of distances.

Proof of the stability map and of the estimator: ``distance_tree.md``, beside this file.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches.distances.parts.axes import fits, splits
from opendp_sim.sketches.distances.parts.tree_reader import TreeReader
from opendp_sim.sketches.parts.classes import PerLabel
from opendp_sim.spaces.checks import grid_rows
from opendp_sim.spaces.sketch import Sketch

__all__ = ["DistanceTree", "make_distance_tree", "then_distance_tree"]


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
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
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
        fits(self.key, max(times))
        block = Block(
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
