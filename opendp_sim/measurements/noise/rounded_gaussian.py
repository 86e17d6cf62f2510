"""Add rounded Gaussian noise in bulk, exactly Gaussian DP (``rounded_gaussian.md``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.measures.gaussian import delta_up
from opendp_sim.core.arithmetic.rounding import whole_distance
from opendp_sim.core.claims import Noise, Private
from opendp_sim.core.constructors import constructors
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.measurements.noise._impl.bulk import (
    flat_cells,
    gaussian_map,
    runs_of,
    weighted_space,
)
from opendp_sim.measurements.noise._impl.samplers import MAX_SCALE, NoiseRun, add_rounded

_COARSE = 2.9
"""Below this scale rounding to whole cells costs more than 0.5 % of deviation."""
_FINE = Fraction(2999, 1000)
"""What a factor lifts a smaller scale to: 3, less what a float's last digit may lack."""
_MOST = 1024
_HALF = 2**62


@register
class RoundedGaussian(Mechanism):
    r"""Add a rounded normal variable to every integer cell.

    Gaussian DP, exactly.

    Space
        Input: a flat int64 vector (a bare one or a sketch, any size, also empty) under L2 distance,
        plain or with integer weights per run of cells.
        Output: an int64 array of the same shape, or with a factor k above 1 a float64 array of
        multiples of 1/k; cell j has noise :math:`round(k s w_j Z) / k`, Z standard normal, independent
        between cells; sums beyond int64 saturate.

    Stability
        Not a transformation.

    Privacy
        .. math:: \mu(d_{in}) = d_{in} / s

        of Gaussian differential privacy, exactly, where d_in is the distance of the input metric (each
        cell's difference over its weight). With ``accounting: zcdp`` it is stated as
        :math:`\rho(d_{in}) = d_{in}^2 / (2 s^2)` under zero-concentrated divergence, by OpenDP's own map,
        and a program with ``measure: gdp`` converts the total by the exact curve. With
        ``accounting: curve`` it is that curve itself,
        :math:`\delta(\epsilon) = \Phi(-\epsilon/\mu + \mu/2) - e^{\epsilon} \Phi(-\epsilon/\mu - \mu/2)`,
        under smoothed max divergence. Exact noise; rounds outward; tight.

    Raises
        ParameterError (OS101): the scale is zero, negative, NaN or above 2**59. (OS102): it is so
        after the largest weight and the factor. SpaceError (OS201, OS202): not an integer vector, not
        L2 distance. DataError (OS602): the data is not a flat int64 vector of the declared size.

    Source
        [own] Lemmas R1 to R6 in ``rounded_gaussian.md``; Gaussian DP is that of Dong, Roth and Su
        (2019), the curve that of Balle and Wang (2018).

    Example
        >>> import opendp.prelude as dp
        >>> import opendp_sim.prelude as sim
        >>> dp.enable_features("contrib")
        >>> space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
        >>> noise = space >> sim.then_rounded_gaussian(scale=4.0)
        >>> noise.map(1.0), noise([3, 4]).shape
        (0.03125, (2,))
        >>> curve = space >> sim.then_rounded_gaussian(scale=4.0, accounting="curve")
        >>> print(f"{curve.map(1.0).epsilon(1e-6):.4f}")
        1.0607
    """

    key: ClassVar[str] = "rounded_gaussian"
    in_short: ClassVar[str] = "Add a random whole number to every count, drawn from a bell curve."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma R6")
    room = "measurements"

    scale: Annotated[
        float,
        param(
            "Noise scale of a cell of weight 1, exactly the rational number that the float is.",
            symbol="s", unit="units of one cell", gt=0, le=float(MAX_SCALE),
            hint="mu is d_in / scale; the language solves it from the budget: `scale: solve`.",
        ),
    ]  # fmt: skip
    factor: Annotated[
        int | None,
        param(
            "A public whole number that cells are multiplied by first: noise is rounded to 1/k.",
            symbol="k", unit="none", default=None, ge=1, le=_MOST,
            hint="leave it out: 1, or more where the scale is below 2.9; 1 keeps whole numbers.",
        ),
    ] = None  # fmt: skip
    accounting: Annotated[
        Literal["zcdp", "curve"],
        param(
            "How the loss is stated.", symbol="-", unit="none", default="zcdp",
            hint="zcdp where releases are composed, also under gdp; curve for one release to OpenDP.",
        ),
    ] = "zcdp"  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Private:
        """State Lemma R6 of ``rounded_gaussian.md`` for this vector, or refuse it."""
        norm = weighted_space(self.key, domain, metric, "l2")
        factor = self.factor or _factor_for(self.scale, norm.weights)
        runs = runs_of(self.key, self.scale, norm, factor)
        single = self.accounting == "curve"
        square = 1 / Fraction(self.scale) ** 2
        return Private(
            measure="smoothed_max_divergence" if single else "zero_concentrated_divergence",
            privacy_map=_curve(square) if single else gaussian_map(self.scale),
            function=partial(_release, domain, Fraction(self.scale) * factor, runs, factor),
            noise=Noise(
                "rounded_gaussian",
                self.scale,
                norm.weights,
                sampler="bulk",
                step=Fraction(1, factor),
            ),
            core=partial(_noiseless, domain, factor),
            output=domain,
            reason=_why(factor),
            mu_squared=None if single else square,
        )


def _factor_for(scale: float, weights: tuple[tuple[int, int], ...]) -> int:
    """Return the least k with ``k scale >= 3``."""
    least = Fraction(scale) * min((weight for _, weight in weights), default=1)
    factor = 1 if least >= _COARSE else math.ceil(_FINE / least)
    return factor if factor <= _MOST else 1


def _why(factor: int) -> str:
    if factor == 1:
        return ""
    return (
        f"noise this small is rounded to 1/{factor} of a cell, not to whole cells: the same loss with "
        "less noise, and answers that are no whole numbers (`factor: 1` keeps them whole)"
    )


def _curve(square: Fraction) -> Callable[[float | Fraction], Callable[[float], float]]:
    """Return the map to the whole curve."""
    where = "rounded_gaussian.map"
    return lambda d_in: partial(delta_up, whole_distance(d_in, where) ** 2 * square)


def _noiseless(domain: Domain, factor: int, data: Any) -> NDArray[Any]:
    """Return the cells, clipped so that products stay within 2**62."""
    cells = flat_cells(domain, data)
    return cells if factor == 1 else np.clip(cells, -_HALF // factor, _HALF // factor) / 1.0


def _release(
    domain: Domain, scale: Fraction, runs: tuple[NoiseRun, ...], factor: int, data: Any
) -> NDArray[Any]:
    cells = flat_cells(domain, data)
    if factor == 1:
        return add_rounded(cells, runs or ((cells.size, scale),))
    # Clipping first keeps the product within 2**62, and moves no two cells apart.
    widened = np.clip(cells, -_HALF // factor, _HALF // factor) * factor
    return add_rounded(widened, runs or ((cells.size, scale),)) / factor


make_rounded_gaussian, then_rounded_gaussian = constructors(RoundedGaussian)
