"""The one cast that OpenDP does not have: a pure loss as Gaussian DP, at its exact mu.

Lemma N5 of ``gaussian_curve.md``: epsilon-DP is mu-GDP with ``Q(mu / 2) = 1 / (1 + e**epsilon)``, so
``mu**2 / 2``-zCDP, which is the form in which OpenDP composes Gaussian losses.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from opendp_sim.accounting.gaussian_curve import mu_squared_of_pure
from opendp_sim.core import dp
from opendp_sim.core.bridge import plain_measurement
from opendp_sim.core.rounding import float_up

__all__ = ["gaussian_of_pure"]


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
