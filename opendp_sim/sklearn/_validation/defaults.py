"""Set the estimators' defaults, independent of the data."""

from __future__ import annotations

from opendp_sim.accounting.budget import MeasureName

MEASURE: MeasureName = "gdp"
"""Gaussian DP: exact for Gaussian noise, so the least noise for an epsilon at a delta."""
