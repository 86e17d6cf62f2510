"""Threshold sketch: signs against public thresholds, for sums of l1 distances at one query's price.

Proof of the stability map and of the estimator: ``threshold_sketch.md``, beside this file.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches.distances.parts.axes import splits
from opendp_sim.sketches.distances.parts.threshold_reader import ThresholdReader
from opendp_sim.sketches.parts.classes import PerLabel
from opendp_sim.spaces.checks import grid_rows
from opendp_sim.spaces.sketch import Sketch

__all__ = ["ThresholdSketch", "make_threshold_sketch", "then_threshold_sketch"]

_EMBEDDED = (
    "for sums of l2 distances `slice_sketch`, in the place of the embedding and of this sketch, has two "
    "thirds of the noise in two columns and a quarter from 16 on."
)


@register
class ThresholdSketch(Mechanism):
    r"""Sum, for every public threshold, +1 for a record at or below it and -1 for one above.

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
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
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
            Block("signs", (reader.classes, cells), l1=cells, l2_squared=cells, linf=1),  # Lemma 1
            Block("total", (reader.classes,), l1=weight, l2_squared=weight**2, linf=weight),
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
