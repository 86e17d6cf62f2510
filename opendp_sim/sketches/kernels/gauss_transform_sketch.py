"""Gauss transform sketch: moments of the records of each cell, for Gaussian sums in low dimension.

Proof of the stability map and of the error: ``gauss_transform_sketch.md``, beside this file.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches.kernels.parts.gauss_reader import (
    DIGITS,
    MOST_COLUMNS,
    GaussReader,
    largest_moments,
)
from opendp_sim.sketches.parts.classes import PerLabel
from opendp_sim.spaces.checks import grid_rows, kept_distance
from opendp_sim.spaces.sketch import Sketch

__all__ = ["GaussTransformSketch", "make_gauss_transform_sketch", "then_gauss_transform_sketch"]


@register
class GaussTransformSketch(Mechanism):
    r"""Sum, cell by cell, the monomials of a record's place in its cell.

    Space
        Input: rows of d <= 3 columns on an integer grid, with or without labels, under symmetric
        distance. Output: a flat int64 vector of two blocks: ``moments`` of shape
        (L, M_1, ..., M_d, r, ..., r), where the last d axes are the exponents of the residual in
        units of a cell, times 2**16 and truncated; and ``total`` of shape (L,), ``count_weight``
        times the number of records of class l. L is 1 without ``per_label``.

    Stability
        .. math:: L_1 = \sum_{|j|} m_j + w,\quad L_2^2 = \sum_{|j|} m_j^2 + w^2,\quad
                  L_\infty = \max(2^{16}, w),\qquad m_j = \lfloor 2^{16 - |j|} \rfloor

        over exponents :math:`j \in \{0..r-1\}^d`, per added or removed record: a residual is at most
        half a cell. Exact in integers. Within a part in the steps of a cell of attained.

    Privacy
        None on its own. Chain with noise.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): cells are smaller than two
        grid steps, or too many. SpaceError (OS201, OS202): not grid rows of at most three columns,
        another metric. (OS204): `per_label` without labels.

    Source
        [own] Lemma 1 in ``gauss_transform_sketch.md``; the expansion is Greengard and Strain's, the
        private sum of it is Wagner, Naamad and Mishra's.

    Example
        >>> import opendp.prelude as dp, numpy as np
        >>> from opendp.extras.numpy import array2_domain
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = array2_domain(num_columns=1, nan=False, T=float), dp.symmetric_distance()
        >>> sketch = (space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0))
        ...     >> sim.then_gauss_transform_sketch(bandwidth=0.5, order=3, count_weight=5))
        >>> sketch(np.zeros((4, 1)))[-1], sketch.map(1)
        (20, 114693)
    """

    key: ClassVar[str] = "gauss_transform_sketch"
    in_short: ClassVar[str] = (
        "Divide space into cells, and add up where in its cell every record lies."
    )
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "sketches"
    offers = ("kernel_sums",)

    bandwidth: Annotated[
        float,
        param(
            "Bandwidth of the kernel exp(-(|x - y|_2 / sigma)**2).", symbol="sigma",
            unit="data units", gt=0,
            hint="the distance at which two records count as near; cells grow with it.",
        ),
    ]  # fmt: skip
    order: Annotated[
        int,
        param(
            "Exponents per column.", symbol="r", unit="terms", default=8, ge=1, le=14,
            hint="6 to 10: the error per record is 1e-3 at 6, 4e-5 at 8, 1e-6 at 10.",
        ),
    ] = 8  # fmt: skip
    side: Annotated[
        float,
        param(
            "Side of a cell in bandwidths, rounded to whole grid steps.", symbol="h",
            unit="bandwidths", default=0.75, gt=0, le=2,
            hint="0.75 has the least noise under zCDP; larger cells are fewer and need more terms.",
        ),
    ] = 0.75  # fmt: skip
    per_label: PerLabel = False
    count_weight: Annotated[
        int | None,
        param(
            "Integer weight of the total count's own cell.", symbol="w", unit="none", default=None,
            ge=1, le=2**20, hint="default: a twentieth of the moments' squared L2 norm.",
        ),
    ] = None  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Stable:
        """State Lemma 1 of ``gauss_transform_sketch.md`` for this grid, or refuse it."""
        rows = grid_rows(self.key, domain, metric, needs_labels=self.per_label)
        if rows.width > MOST_COLUMNS:
            raise SpaceError(
                "OS201", f"{self.key}.input_domain", expected=f"at most {MOST_COLUMNS} columns",
                got=f"{rows.width} columns",
                hint="the sketch grows as a power of the columns: use `fourier_sketch`.",
            )  # fmt: skip
        most = largest_moments(self.order, rows.width)
        l1, l2_squared = sum(most), sum(m * m for m in most)
        weight = self.count_weight or max(1, round(math.sqrt(l2_squared / 20)))
        reader = GaussReader.fit(self, rows, weight)
        blocks = (
            Block("moments", reader.shape, l1=l1, l2_squared=l2_squared, linf=2**DIGITS),
            Block("total", (reader.classes,), l1=weight, l2_squared=weight**2, linf=weight),
        )  # Lemma 1
        return Stable(
            output=(output := Sketch(self.key, blocks)),
            accumulate=reader.accumulate,
            sensitivity=output.sensitivity,
            capabilities={"kernel_sums": reader},
            expected={
                "noise per unit of cell noise": reader.noise_factor(),
                "error per record": reader.truncation(),
                "kernel steepness": 2.0 / math.e,
            },
            advice=kept_distance(rows, reader.distance),
        )


make_gauss_transform_sketch, then_gauss_transform_sketch = constructors(GaussTransformSketch)
