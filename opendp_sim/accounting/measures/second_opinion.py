"""Convert and compose losses independently of OpenDP.

It is the second opinion. OpenDP decides every bound. What is here re-derives the same numbers from the
types, in exact rationals where the formula is rational, so that a mistake in either place shows as a
disagreement.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from opendp_sim.accounting.measures.gaussian import mu_squared_of_pure
from opendp_sim.core import dp
from opendp_sim.core.arithmetic.rounding import float_up, least
from opendp_sim.core.bridge import plain_measurement

Exact = Fraction | int
_NEAR = 20.0
"""Below -20 the scaled function overflows, and nothing cancels."""


def laplace_epsilon(l1: Exact, d_in: int, scale: float) -> Fraction:
    """Return ``d_in * l1 / scale``, exactly (the scale is the rational that the float is)."""
    return Fraction(l1) * d_in / Fraction(scale)


def gaussian_rho(l2_squared: Exact, d_in: int, scale: float) -> Fraction:
    """Return ``d_in^2 * l2^2 / (2 scale^2)``, exactly."""
    return Fraction(l2_squared) * d_in * d_in / (2 * Fraction(scale) ** 2)


def pure_to_zcdp(epsilon: Exact) -> Fraction:
    """Return ``epsilon^2 / 2`` (Bun and Steinke, Proposition 1.4)."""
    return Fraction(epsilon) ** 2 / 2


def zcdp_to_epsilon(rho: float, delta: float) -> float:
    """Return the least epsilon implied by rho-zCDP at delta (one Rényi order).

    Minimises ``a rho + log((a - 1) / a) - (log(delta) + log(a)) / (a - 1)`` over orders a > 1:
    Canonne, Kamath and Steinke, Proposition 12 with Corollary 13. Its derivative is
    ``rho + (log(delta) + log(a)) / (a - 1)^2``, which changes its sign once; clipped at 0.
    """
    if rho <= 0 or delta >= 1:
        return 0.0
    if math.isinf(rho) or delta <= 0:
        return math.inf
    start = math.log(delta)
    high = max(math.sqrt(-start / rho), 1e-150)
    excess = least(lambda x: rho * x * x + start + math.log1p(x) >= 0, 0.0, high)
    order = 1.0 + excess
    value = order * rho - math.log1p(1.0 / excess) - (start + math.log1p(excess)) / excess
    return max(0.0, value)


def gdp_to_epsilon(square: float, delta: float) -> float:
    """Return the least epsilon with ``delta(epsilon) <= delta`` on the Gaussian curve, in floats.

    ``delta = phi(a) (R(a) - R(b))``, R Mills' ratio by scipy's scaled complementary error function.
    """
    if square <= 0:
        return 0.0
    if math.isinf(square) or delta <= 0:
        return math.inf

    from scipy.special import erfcx, log_ndtr, ndtr  # noqa: PLC0415 - slow to import

    mu, root = math.sqrt(square), math.sqrt(2.0)

    def fits(epsilon: float) -> bool:
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        if a < -_NEAR:
            return bool(ndtr(-a) - math.exp(min(0.0, epsilon + log_ndtr(-b))) <= delta)
        gap = float(erfcx(a / root) - erfcx(b / root)) / 2
        return gap <= 0 or math.log(gap) - a * a / 2 <= math.log(delta)

    if fits(0.0):
        return 0.0
    high = 1.0
    while not fits(high):
        high *= 2
    return least(fits, 0.0, high)


# --------------------------------------------------------------------------------------------------
# The one cast that OpenDP does not have: a pure loss as Gaussian DP, at its exact mu.
#
# Lemma N5 of ``gaussian.md``: epsilon-DP is mu-GDP with ``Q(mu / 2) = 1 / (1 + e**epsilon)``, so
# ``mu**2 / 2``-zCDP, which is the form in which OpenDP composes Gaussian losses.


def gaussian_of_pure(measurement: dp.Measurement) -> dp.Measurement:
    """Return a pure measurement with its loss stated as ``mu**2 / 2``, rounded outward."""

    def half_mu_squared(d_in: Any) -> float:
        epsilon = measurement.map(d_in)
        if not math.isfinite(epsilon):
            return math.inf
        return float_up(mu_squared_of_pure(Fraction(epsilon)) / 2)

    return plain_measurement(
        measurement.input_domain,
        measurement.input_metric,
        dp.zero_concentrated_divergence(),
        measurement,
        half_mu_squared,
    )
