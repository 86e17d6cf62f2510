"""Compute the privacy curve of a claim.

The largest ``P[M(x) in S] - e^eps P[M(x') in S]`` of any event S.

Every measure of OpenDP is brought to this one form, ``delta(eps)``, without giving anything away:
for the Rényi family the curve is the exact support function of all binary pairs (p, q) that the
claim permits, which is never looser than the usual conversions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import AuditError

_ALPHAS = np.concatenate([1 + np.geomspace(1e-3, 1, 24)[:-1], np.geomspace(2, 400, 40)])
_Q = np.concatenate([np.geomspace(1e-7, 0.2, 600), np.linspace(0.2, 1, 300)[1:]])
_HALVINGS = 36


@dataclass(frozen=True)
class Curve:
    """Describe a claim ``delta(eps)`` at one distance, with a grid of eps."""

    delta: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    grid: NDArray[np.float64]
    text: str

    @property
    def deltas(self) -> NDArray[np.float64]:
        """The curve on its own grid."""
        return self.delta(self.grid)


def approx_curve(epsilon: float, delta: float) -> Curve:
    """Return the curve of (eps, delta)-DP, one point.

    Below eps it is the reduction to randomised response, which is attained. A lower eps would allow
    events that a pure claim forbids.
    """

    def curve(grid: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore"):
            inner = (np.exp(epsilon) - np.exp(grid)) / (1 + np.exp(epsilon))
        inner = np.where(np.isnan(inner), 1.0, np.clip(inner, 0.0, 1.0))
        return np.asarray(np.minimum(1.0, delta + (1 - delta) * inner))

    grid = np.array([epsilon]) if epsilon < 60 else np.array([60.0])
    return Curve(curve, grid, f"epsilon {epsilon:.6g}" + (f", delta {delta:.3g}" if delta else ""))


def renyi_curve(bound: Callable[[float], float], delta: float, text: str) -> Curve:
    """Return the largest hockey-stick divergence under a Rényi bound.

    Of binary pairs with D_alpha <= bound(alpha) for all alpha. By data processing any event of a
    mechanism within the claim is such a pair. ``delta`` is the mass of an approximate claim, added on
    top.
    """
    bounds = np.array([float(bound(float(a))) for a in _ALPHAS])
    bounds = np.where(np.isnan(bounds), np.inf, bounds)  # what is no number claims nothing
    p = _largest(tuple(bounds.tolist()))
    low = np.concatenate(
        [[0.0], _Q[:-1]]
    )  # p(q) is increasing: on a cell, p <= p(right), q >= left

    def curve(grid: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            slopes = np.exp(np.asarray(grid, dtype=float))
        free = np.maximum(p[None, :] - slopes[:, None] * low[None, :], 0.0).max(axis=1)
        least = np.minimum(free, _converted(bounds, np.asarray(grid, dtype=float)))
        return np.asarray(np.minimum(1.0, delta + (1 - delta) * least))

    return Curve(curve, _useful(curve), text)


def _converted(bounds: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the conversion of Canonne, Kamath and Steinke (2020)."""
    alphas = _ALPHAS[:, None]
    logs = (alphas - 1) * (bounds[:, None] - grid) + alphas * np.log1p(-1 / alphas)
    return np.asarray(np.exp(np.minimum(logs - np.log(alphas - 1), 0.0)).min(axis=0))


@lru_cache(maxsize=64)
def _largest(bounds: tuple[float, ...]) -> NDArray[np.float64]:
    """Return the largest p for each q under binary Rényi bounds.

    Divergences rise with p, so what is within its bound at the upper end of a bracket is not asked again.
    The upper end is returned: it is too large by 2 ** -_HALVINGS at most.
    """
    low, high = _Q.copy(), np.ones_like(_Q)
    order, cell = np.indices((_ALPHAS.size, _Q.size)).reshape(2, -1)
    alphas, limit = _ALPHAS[order], np.array(bounds)[order] + 1e-12
    other = (1 - alphas) * np.log(_Q)[cell]
    other_rest = (1 - alphas) * np.log(np.maximum(1 - _Q, 1e-300))[cell]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        log, log_rest = np.log(middle), np.log(np.maximum(1 - middle, 1e-300))
        both = np.logaddexp(alphas * log[cell] + other, alphas * log_rest[cell] + other_rest)
        broken = both / (alphas - 1) > limit
        above = np.zeros(_Q.size, dtype=bool)
        above[cell[broken]] = True
        low, high = np.where(above, low, middle), np.where(above, middle, high)
        kept = broken | ~above[cell]
        if not kept.all():
            alphas, limit, other, other_rest, cell = (
                part[kept] for part in (alphas, limit, other, other_rest, cell)
            )
    high.flags.writeable = False  # it is remembered
    return high


def _useful(curve: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the eps with delta from about .5 to 1e-4."""
    grid = np.concatenate([np.linspace(0, 3, 25), np.linspace(3.25, 12, 24)])
    delta = curve(grid)
    keep = (delta < 0.98) & (delta > 1e-4)
    return grid[keep] if keep.any() else grid[[int(np.argmin(np.abs(delta - 0.05)))]]


def claimed_curve(measure: Any, d_out: Any) -> Curve:
    """Read an OpenDP measure and a distance in it.

    Raises:
        AuditError: OS501, a measure without a known meaning.
    """
    kind = str(measure.type)
    if kind.startswith("Approximate"):
        inner, delta = d_out
        return _approximate(str(measure.inner_measure.type), inner, float(delta))
    if kind.startswith("SmoothedMaxDivergence"):
        profile = getattr(d_out, "delta", d_out)

        def curve(grid: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.array([min(1.0, max(0.0, float(profile(float(e))))) for e in grid])

        return Curve(curve, _useful(curve), "a privacy profile")
    if kind.startswith("FixedSmoothedMaxDivergence"):
        return approx_curve(float(d_out[0]), float(d_out[1]))
    return _approximate(kind, d_out, 0.0)


def _approximate(kind: str, d_out: Any, delta: float) -> Curve:
    mass = f", delta {delta:.3g}" if delta else ""
    if kind.startswith("MaxDivergence"):
        return approx_curve(float(d_out), delta)
    if kind.startswith("ZeroConcentratedDivergence"):
        rho = float(d_out)
        return renyi_curve(lambda alpha: alpha * rho, delta, f"rho {rho:.6g}{mass}")
    if kind.startswith("RenyiDivergence"):
        return renyi_curve(lambda alpha: float(d_out(alpha)), delta, f"a Rényi curve{mass}")
    raise AuditError(
        "OS501",
        "audit.curves.measure",
        expected="pure, approximate, zCDP, Rényi or smoothed max divergence",
        got=kind,
        hint="wrap the object in audit.Subject with a curve of your own.",
    )


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return delta of a Gaussian shift of ``mu`` deviations in closed form."""
    if mu == 0:
        return 0.0
    tail = 0.5 * math.erfc((epsilon / mu - mu / 2) / math.sqrt(2))
    # e^eps times a tiny tail: logs, or it overflows before it vanishes
    other = _log_normal_tail(epsilon / mu + mu / 2)
    return max(0.0, tail - math.exp(min(epsilon + other, 700.0)))


def _log_normal_tail(z: float) -> float:
    from scipy.special import log_ndtr  # noqa: PLC0415

    return float(log_ndtr(-z))
