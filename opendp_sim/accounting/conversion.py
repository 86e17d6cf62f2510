"""Conversions and compositions in this package's own arithmetic: the second opinion.

OpenDP decides every bound. What is here re-derives the same numbers from the types, in exact
rationals where the formula is rational, so that a mistake in either place shows as a disagreement.
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["gaussian_rho", "laplace_epsilon", "pure_to_zcdp", "zcdp_to_epsilon"]

Exact = Fraction | int


def laplace_epsilon(l1: Exact, d_in: int, scale: float) -> Fraction:
    """Return ``d_in * l1 / scale``, exactly (the scale is the rational that the float is)."""
    return Fraction(l1) * d_in / Fraction(scale)


def gaussian_rho(l2_squared: Exact, d_in: int, scale: float) -> Fraction:
    """Return ``d_in^2 * l2^2 / (2 scale^2)``, exactly."""
    return Fraction(l2_squared) * d_in * d_in / (2 * Fraction(scale) ** 2)


def pure_to_zcdp(epsilon: Exact) -> Fraction:
    """Return ``epsilon^2 / 2``: Bun and Steinke, Proposition 1.4."""
    return Fraction(epsilon) ** 2 / 2


def zcdp_to_epsilon(rho: float, delta: float) -> float:
    """Return the least epsilon with (epsilon, delta) implied by rho-zCDP through one Rényi order.

    Minimises ``a rho + log((a - 1) / a) - (log(delta) + log(a)) / (a - 1)`` over orders a > 1:
    Canonne, Kamath and Steinke, Proposition 12 with Corollary 13. The objective has one minimum
    between its ends in ``log(a - 1)``; golden-section search, then clipped at 0.
    """
    if rho <= 0:
        return 0.0
    if math.isinf(rho) or delta <= 0:
        return math.inf

    def objective(t: float) -> float:
        excess = math.exp(t)
        order = 1.0 + excess
        return (
            order * rho + math.log(excess / order) - (math.log(delta) + math.log1p(excess)) / excess
        )

    best = _golden(objective, -25.0, 60.0)
    return max(0.0, objective(best))


def _golden(objective: object, low: float, high: float) -> float:
    f = objective
    assert callable(f)  # noqa: S101 - for the type checker
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = f(a), f(b)
    while high - low > 1e-10:
        if fa <= fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = f(a)
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = f(b)
    return (low + high) / 2
