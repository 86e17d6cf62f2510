"""Moments sketch: count, sum and squared norm, for squared l2 distances and class means.

Proof of the stability map and of the estimator: ``moments_sketch.md``, beside this file.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from opendp_sim.core.claims import Block, Stable
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.sketches.distances.parts.moments_reader import MomentsReader
from opendp_sim.sketches.parts.classes import PerLabel
from opendp_sim.spaces.checks import grid_rows
from opendp_sim.spaces.sketch import Sketch

__all__ = ["MomentsSketch", "make_moments_sketch", "then_moments_sketch"]

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
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
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
            Block(
                "sums",
                (reader.classes, rows.width),
                l1=u1 * longest,
                l2_squared=u1**2 * square,
                linf=u1 * min(math.isqrt(square), reader.largest),
            ),
            Block("total", (reader.classes,), l1=u0, l2_squared=u0**2, linf=u0),
        ]
        if self.squares:
            top = u2 * height
            blocks.append(Block("squares", (reader.classes,), l1=top, l2_squared=top**2, linf=top))
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
