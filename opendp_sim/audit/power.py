"""What a run would have seen: the planning formula of the event tests, solved for the excess."""

from __future__ import annotations

import math

from scipy.stats import norm

__all__ = ["draws_needed", "smallest_excess"]


def draws_needed(claimed: float, true: float, beta: float, power: float = 0.95) -> float:
    """Return how many draws a side certify ``true`` > ``claimed`` epsilon.

    The event has probability 1/2 on one side and e^-true / 2 on the other, as a half-line has under
    a shifted Laplace law; log-rates are compared (delta method).
    """
    p, q = 0.5, 0.5 * math.exp(-true)
    width = float(norm.isf(beta / 2) + norm.isf(1 - power))
    return width**2 * ((1 - p) / p + (1 - q) / q) / (true - claimed) ** 2


def smallest_excess(claimed: float, rounds: int, beta: float) -> float:
    """Return the smallest true epsilon that ``rounds`` draws a side would have shown; inf if none."""
    if rounds == 0:
        return math.inf
    low, high = claimed, claimed + 1e-3
    while draws_needed(claimed, high, beta) > rounds:
        low, high = high, claimed + 2 * (high - claimed)
        if high - claimed > 50:
            return math.inf
    for _ in range(50):
        middle = (low + high) / 2
        if middle == claimed or draws_needed(claimed, middle, beta) > rounds:
            low = middle
        else:
            high = middle
    return high
