"""Test whether outputs' laws differ, by Kolmogorov and Smirnov."""

from __future__ import annotations

import warnings
from typing import Any

from scipy import stats

from opendp_sim.audit.outputs.encoding import encode

_CELLS = 400


def surely_differ(one: list[Any], two: list[Any], risk: float) -> bool:
    """Return whether two samples differ in law, wrong at most at risk."""
    first, second = encode(one).cells, encode(two).cells
    if first.shape[1] != second.shape[1]:
        return not any(isinstance(v, (list, dict, str, bytes)) for v in (*one, *two))
    cells = range(0, first.shape[1], first.shape[1] // _CELLS + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of cells with few numbers, or none
        return any(
            stats.ks_2samp(first[:, i], second[:, i], method="asymp", nan_policy="omit").pvalue
            <= risk / len(cells)
            for i in cells
        )
