"""Estimate the records that a classifier needs at a loss."""

from __future__ import annotations

import math

_ENOUGH = 200.0
"""Records times the root of twice rho from which on a linear model, or class means, are worth it."""


_RARE = 8.0
"""The same product for one class, below which a linear model found 0 to 6 of 100 of its records.

Measured on MNIST, on newsgroups and on 16 columns of them
(``benchmarks/results/linear/rare-classes.json``); where classes are far apart it finds smaller ones.
"""


def rare_records(rho: float) -> int:
    """Return the records a class needs to be predicted at all."""
    return math.ceil(_RARE / math.sqrt(2 * rho))


def needed_records(rho: float) -> int:
    """Return the records a classifier needs to work well."""
    return math.ceil(_ENOUGH / math.sqrt(2 * rho))


def too_few(size: int, rho: float) -> str:
    """Return a warning if ``size`` records are too few, or nothing."""
    if size >= needed_records(rho):
        return ""
    return (
        f"with about {size:,} records at this loss no classifier works well: a linear model needs some "
        f"{needed_records(rho):,}"
    )
