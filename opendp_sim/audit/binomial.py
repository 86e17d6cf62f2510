"""Clopper-Pearson limits: the second, independently coded way to certify what betting found."""

from __future__ import annotations

import math

from scipy.stats import beta as beta_law

__all__ = ["certified_delta", "certified_epsilon", "lower_limit", "upper_limit"]


def lower_limit(hits: int, runs: int, risk: float) -> float:
    """Return p with P[Binomial(runs, p) >= hits] = risk: a lower confidence limit."""
    return 0.0 if hits == 0 else float(beta_law.ppf(risk, hits, runs - hits + 1))


def upper_limit(hits: int, runs: int, risk: float) -> float:
    """Return p with P[Binomial(runs, p) <= hits] = risk: an upper confidence limit."""
    return 1.0 if hits == runs else float(beta_law.ppf(1 - risk, hits + 1, runs - hits))


def certified_delta(
    hits: tuple[int, int], runs: tuple[int, int], epsilon: float, risk: float
) -> float:
    """Return a lower confidence bound on ``P[A in S] - e^eps P[B in S]`` for a fixed event."""
    high = lower_limit(hits[0], runs[0], risk / 2)
    low = upper_limit(hits[1], runs[1], risk / 2)
    return high - math.exp(min(epsilon, 700.0)) * low


def certified_epsilon(
    hits: tuple[int, int], runs: tuple[int, int], delta: float, risk: float
) -> float:
    """Return a lower confidence bound on epsilon at ``delta`` from a fixed event; 0 if none."""
    high = lower_limit(hits[0], runs[0], risk / 2) - delta
    low = upper_limit(hits[1], runs[1], risk / 2)
    return max(0.0, math.log(high / low)) if high > 0 else 0.0
