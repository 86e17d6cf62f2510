"""Moment tree: centred moments per dyadic node with geometric budgets, for exact sums of distances.

Proof of the stability map and of the estimator: ``moment_tree.md``, beside this file.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches.distances.parts.axes import splits
from opendp_sim.sketches.distances.parts.moment_reader import MomentReader
from opendp_sim.sketches.parts.classes import PerLabel
from opendp_sim.spaces.checks import grid_rows
from opendp_sim.spaces.sketch import Sketch

__all__ = ["MomentTree", "make_moment_tree", "then_moment_tree"]


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
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
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
        reader = MomentReader(rows, self.levels, self.p, self.tuned_for, self.per_label)
        features = [int(v) for v in (reader.multipliers * reader.reach).ravel()]
        block = Block(
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
