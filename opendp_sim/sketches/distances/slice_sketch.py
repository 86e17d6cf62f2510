"""Slice sketch: centred thresholds on random directions, for sums of l2 distances.

Proof of the stability map and of the estimator: ``slice_sketch.md``, beside this file.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.shared_parameters import Seed
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches.distances.parts.slice_reader import SliceReader
from opendp_sim.sketches.parts.classes import PerLabel
from opendp_sim.spaces.checks import grid_rows, kept_distance
from opendp_sim.spaces.rows import GridRows
from opendp_sim.spaces.sketch import Sketch

__all__ = ["SliceSketch", "make_slice_sketch", "then_slice_sketch"]


@register
class SliceSketch(Mechanism):
    r"""Sum, for thresholds on random directions, whether a record is above, less a public share.

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
    source: ClassVar[Source] = Source(key="own", where="Lemma 2")
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
            Block(
                "slices",
                (reader.classes, slices.count, self.thresholds),
                l1=u1 * slices.longest_l1,
                l2_squared=u1**2 * slices.longest,
                linf=u1 * slices.largest,
            ),
            Block("total", (reader.classes,), l1=u0, l2_squared=u0**2, linf=u0),
            Block("squares", (reader.classes,), l1=half, l2_squared=half**2, linf=half),
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
