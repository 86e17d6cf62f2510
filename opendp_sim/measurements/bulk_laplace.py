"""Discrete Laplace noise in bulk: OpenDP's law and map, hundreds of times faster per cell.

Proof of the law and of the map: ``bulk_laplace.md``, beside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Annotated, ClassVar

import opendp.prelude as dp

from opendp_sim.core.claims import Noise, Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.rounding import float_up
from opendp_sim.core.space import Domain, Metric
from opendp_sim.measurements._bulk import cells_of, noisy, runs_of, weighted_space
from opendp_sim.measurements._sampling_laplace import MAX_SCALE
from opendp_sim.measurements._sampling_noise import add_laplace

__all__ = ["BulkLaplace", "laplace_map", "make_bulk_laplace", "then_bulk_laplace"]


@register
class BulkLaplace(Mechanism):
    r"""Add discrete Laplace noise to every cell of an integer vector, in bulk.

    Space
        Input: a flat int64 vector (a bare one or a sketch, any size, also empty) under L1 distance,
        plain or with integer weights per run of cells.
        Output: an int64 array of the same shape; cell j has noise k with probability proportional
        to :math:`e^{-|k| / (s w_j)}`, independent between cells; sums beyond int64 saturate.

    Stability
        Not a transformation.

    Privacy
        .. math:: \varepsilon(d_{in}) = d_{in} / s

        under max divergence, where d_in is the distance of the input metric (each cell's difference
        over its weight). It is the value of OpenDP's own Laplace map at scale s, bit for bit;
        rounded outward; tight.

    Raises
        ParameterError (OS101): the scale is zero, negative, NaN or above 2**59. (OS102): it is so
        after the largest weight. SpaceError (OS201, OS202): not an integer vector, not L1 distance.
        DataError (OS602): the data is not a flat int64 vector of the declared size.

    Source
        [own] Lemmas L1 to L5 in ``bulk_laplace.md``.

    Example
        >>> import opendp.prelude as dp
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        >>> noise = space >> sim.then_bulk_laplace(scale=2.0)
        >>> noise.map(1), noise([3, 4]).shape
        (0.5, (2,))
    """

    key: ClassVar[str] = "bulk_laplace"
    source: ClassVar[Source] = Source(key="own", where="Lemma L5")
    room = "measurements"

    scale: Annotated[
        float,
        param(
            "Noise scale of a cell of weight 1, exactly the rational number that the float is.",
            symbol="s", unit="units of one cell", gt=0, le=float(MAX_SCALE),
            hint="epsilon is d_in / scale; the deviation of a cell is about 1.41 times the scale.",
        ),
    ]  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma L5 of ``bulk_laplace.md`` for this vector, or refuse it."""
        norm = weighted_space(self.key, domain, metric, "l1")
        runs = runs_of(self.key, self.scale, norm)
        return Private(
            measure="max_divergence",
            privacy_map=laplace_map(self.scale),
            function=noisy(domain, self.scale, runs, add_laplace),
            noise=Noise("discrete_laplace", self.scale, norm.weights, sampler="bulk"),
            core=partial(cells_of, domain),
            output=domain,
        )


def laplace_map(scale: float) -> Callable[[float | Fraction], float]:
    """Return OpenDP's own privacy map of Laplace noise; fractional distances are rounded up."""
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    whole = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale)
    fractional = dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale)

    def privacy_map(d_in: float | Fraction) -> float:
        if isinstance(d_in, int):
            return float(whole.map(d_in))
        return float(fractional.map(float_up(d_in)))

    return privacy_map


make_bulk_laplace, then_bulk_laplace = constructors(BulkLaplace)
