"""How many deviations of the noise an interval reaches, by the law of the noise.

Proof: ``quantiles.md``, beside this file.
"""

from __future__ import annotations

import math

from opendp_sim.core.on_use import special
from opendp_sim.spaces.released import Released

__all__ = ["laplace_quantile", "quantile"]


def laplace_quantile(release: Released, confidence: float) -> float:
    """Return the reach for one cell of Laplace noise, in its deviations, or 0 under another law.

    One cell (the total's) may carry nearly all of an estimate's noise, and its tails are then those of
    the interval: ``P[|L| > t] = exp(-t / scale)``.
    """
    noise = release.noise
    if noise is None or noise.family != "discrete_laplace" or not noise.scale:
        return 0.0
    return _reach(release, -math.log1p(-confidence) * noise.scale)


def quantile(release: Released, confidence: float) -> float:
    """Return how many deviations an interval reaches: the larger of a normal's and a Laplace's."""
    normal = float(special.ndtri(0.5 + confidence / 2))
    if release.noise is None or not release.deviation:
        return normal
    scale = max(release.noise.scale, release.deviation)
    return max(_reach(release, normal * scale), laplace_quantile(release, confidence))


def _reach(release: Released, continuous: float) -> float:
    """Return, in deviations, the reach of the continuous law and half a step of the noise (Lemma 1)."""
    assert release.noise is not None  # noqa: S101 - the callers asked
    return (continuous + float(release.noise.step) / 2) / release.deviation
