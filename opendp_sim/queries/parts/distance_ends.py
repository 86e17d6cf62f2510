"""The ends of intervals of sums and of means of distances.

Proof: Lemma 2 of ``distance.md``, beside the query.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Linear
from opendp_sim.queries.parts.ratios import interval_of_ratio

__all__ = ["ends_of_mean", "interval", "least_counted", "mean_of"]


def least_counted(of_count: float) -> float:
    """Return the released size below which a class is not told from noise, and is not divided by."""
    return max(1.0, 4.0 * of_count)


def mean_of(
    found: Linear, sizes: NDArray[np.float64], factor: float, least: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means and their variance to first order, in units of a cell's (Lemma 2)."""
    divisor = np.maximum(sizes, least)
    values = found.values / divisor
    of_size = values * (values * factor**2 - 2 * found.with_count)
    variance = found.variance + np.where(sizes > least, of_size, 0.0)
    return values, np.maximum(variance, 0.0) / divisor**2


def ends_of_mean(
    found: Linear,
    sizes: NDArray[np.float64],
    factor: float,
    reach: float,
    relative: float,
    drawn: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of a mean's interval, infinite where no size bounds it (Lemma 2).

    ``reach`` is the reached number of deviations times that of a cell; a projection's share of a sum
    is one of the mean times the released size, and ``drawn`` what it adds for the records.
    """
    times, share = reach**2, relative * sizes
    square = times * np.asarray(found.variance) + np.square(drawn)
    together = times * np.asarray(found.with_count)
    return interval_of_ratio(found.values, sizes, square, together, times * factor**2 + share**2)


def interval(
    values: NDArray[np.float64], reach: NDArray[np.float64], share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return all S with ``(values - S)**2 <= reach**2 + (share S)**2``, as two ends (Lemma 2).

    With a share of 1 or more (three random directions or fewer) nothing is too large.
    """
    rest = 1.0 - share**2
    if rest <= 0:
        return np.zeros_like(values), np.full_like(values, np.inf)
    half = np.sqrt(np.square(share * values) + rest * np.square(reach))
    return (values - half) / rest, (values + half) / rest
