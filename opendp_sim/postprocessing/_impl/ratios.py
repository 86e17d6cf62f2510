"""Bound ratios of noisy numbers (``density.md``, Lemmas 7, 8; ``distance.md``, Lemma 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.system.lazy_import import special

Floats = NDArray[np.float64]
_POINTS = 1000
"""Quantiles of a normal variable over which an error is averaged."""


def interval_of_ratio(
    sums: Floats, sizes: Floats, square: Any, together: Any, of_size: Any
) -> tuple[Floats, Floats]:
    """Return the two ends of a ratio's interval (Fieller's set).

    All A with ``(sums - A sizes)**2 <= square - 2 A together + A**2 of_size``; where it is no interval,
    the whole line. ``square``, ``together`` and ``of_size`` are the sums' variance, their covariance
    with the sizes and the sizes' variance, each times the squared number of deviations that is reached;
    all broadcast to ``sums``.
    """
    rest = np.square(sizes) - of_size
    known = rest > 0
    rest = np.where(known, rest, 1.0)
    middle = sums * sizes - together
    half = np.sqrt(np.maximum(np.square(middle) - rest * (np.square(sums) - square), 0.0))
    low = np.where(known, (middle - half) / rest, -np.inf)
    high = np.where(known, (middle + half) / rest, np.inf)
    return low, high


def ratio_error(
    mean: Floats, size: float, least: float, variance: Any, together: Any, of_size: float
) -> tuple[Floats, Floats, float]:
    """Return bias and deviation of ``(S + X) / max(N + Y, F)`` from ``S / N``.

    And the root mean square of ``1 / max(N + Y, F)``, by which other errors of a sum count. ``mean`` is
    S / N, one a query, ``least`` F; X and Y are normal with these variances and covariance.
    """
    count = _POINTS if of_size else 1
    normal = special.ndtri((np.arange(count) + 0.5) / count)
    shift = np.sqrt(of_size) * normal
    divided = 1.0 / np.maximum(size + shift, least)
    slope = together / of_size if of_size else np.zeros_like(mean)
    rest = np.maximum(variance - slope * together, 0.0)
    of_shift = (mean * size + np.multiply.outer(shift, slope * np.ones_like(mean))) * divided[
        :, None
    ]
    square = float(np.square(divided).mean())
    off = of_shift.mean(axis=0) - mean
    return off, np.sqrt(of_shift.var(axis=0) + rest * square), float(np.sqrt(square))
