"""Add Gaussian noise to integer vectors (``gaussian.md``)."""

from __future__ import annotations

from typing import ClassVar

from opendp_sim.core import dp
from opendp_sim.core.claims import Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.measurements.noise._impl.bulk import bulk_gaussian, weighted_space
from opendp_sim.measurements.noise._impl.sampled import AskedSampler, CellScale, sampled, sampler_of


@register
class Gaussian(Mechanism):
    r"""Add discrete Gaussian noise to every cell of an integer vector.

    Space
        Input: a flat int64 vector (a sketch) under L2 distance, plain or weighted by blocks.
        Output: an int64 array of the same shape.

    Stability
        Not a transformation.

    Privacy
        .. math:: \rho(d_{in}) = d_{in}^2 / (2 s^2)

        under zero-concentrated divergence; OpenDP's own map at scale s. Exact noise, rounds
        outward, tight.

    Raises
        ParameterError (OS101): the scale is not positive and finite. (OS102): `sampler: opendp` for
        weighted blocks. SpaceError (OS201, OS202): not an integer vector, not L2 distance.

    Source
        [own] Lemma 1 in ``gaussian.md``; OpenDP's ``make_gaussian``.

    Example
        >>> import opendp.prelude as dp
        >>> dp.enable_features("contrib")
        >>> space = dp.vector_domain(dp.atom_domain(T="i64"), 3), dp.l2_distance(T=float)
        >>> noise = space >> then_gaussian(scale=2.0)
        >>> noise.map(1.0), noise([1, 2, 3]).shape
        (0.125, (3,))
    """

    key: ClassVar[str] = "gaussian"
    in_short: ClassVar[str] = "Add a random whole number to every count, drawn from a bell curve."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "measurements"

    scale: CellScale
    sampler: AskedSampler = "auto"

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma 1 of ``gaussian.md``."""
        norm = weighted_space(self.key, domain, metric, "l2")
        sampler = sampler_of(self.key, self.sampler, domain, norm)
        bulk = bulk_gaussian(self.key, self.scale, domain, metric)
        return sampled(bulk, domain, sampler, dp.m.make_gaussian, self.scale)


make_gaussian, then_gaussian = constructors(Gaussian)
