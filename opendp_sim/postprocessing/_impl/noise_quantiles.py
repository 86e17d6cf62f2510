"""Return interval quantiles, in deviations of the noise (``noise_quantiles.md``)."""

from __future__ import annotations

import math

from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.released import Released


def laplace_quantile(release: Released, confidence: float) -> float:
    """Return a unit Laplace variable's quantile, or 0.

    0 under noise of another law. One cell (the total's) may carry nearly all of an estimate's noise,
    and its tails are then those of the interval: ``P[|L| > t] = exp(-sqrt(2) t)``.
    """
    if release.noise is None or release.noise.family != "discrete_laplace":
        return 0.0
    return -math.log1p(-confidence) / math.sqrt(2)


def quantile(release: Released, confidence: float) -> float:
    """Return the interval's reach in deviations of either noise."""
    normal = float(special.ndtri(0.5 + confidence / 2))
    return max(normal, laplace_quantile(release, confidence))


def reach(release: Released, confidence: float) -> float:
    """Return the reach for integer noise (Lemma 1)."""
    noise, least = release.noise, quantile(release, confidence)
    if noise is None or release.deviation < 1e-100:
        return least
    farther = noise.scale * (math.sqrt(2) if noise.family == "discrete_laplace" else 1.0)
    scale = max(1.0, farther / release.deviation)  # the real law's deviation is the larger one
    return least * scale + float(noise.step) / 2 / release.deviation
