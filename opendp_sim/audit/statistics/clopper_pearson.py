"""Compute confidence limits and required numbers of runs.

Clopper-Pearson limits of an event's probability. Clopper-Pearson limits are the second, independently
coded way to certify what betting found; the planning formula of the event tests, solved for the
excess, says what a run would have seen.
"""

from __future__ import annotations

import math

from scipy.stats import beta as beta_law, norm


def lower_limit(hits: int, runs: int, risk: float) -> float:
    """Return the lower confidence limit of a probability at ``risk``."""
    return 0.0 if hits == 0 else float(beta_law.ppf(risk, hits, runs - hits + 1))


def upper_limit(hits: int, runs: int, risk: float) -> float:
    """Return the upper confidence limit of a probability at ``risk``."""
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
    """Return a lower confidence bound on epsilon of a fixed event."""
    high = lower_limit(hits[0], runs[0], risk / 2) - delta
    low = upper_limit(hits[1], runs[1], risk / 2)
    return max(0.0, math.log(high / low)) if high > 0 else 0.0


_BETTING = 2.0
"""Draws that betting takes for each that counting would: it must learn the event, and may stop early.
Measured with an event known beforehand: 1.3 shows it in 46 to 56 of 60 runs, 1.6 in 56 to 60, 2 in 60."""


def draws_needed(
    claimed: float, true: float, beta: float, power: float = 0.95, delta: float = 0.0
) -> float:
    """Return the draws a side that detect a larger epsilon.

    ``true`` > ``claimed``; inf if none do. The event has probability 1/2 on one side and e^-true / 2
    on the other, as a half-line has under a shifted Laplace law. Where the claim allows ``delta``
    beside epsilon, only what exceeds it shows.
    """
    p, q = 0.5, 0.5 * math.exp(-true)
    width = float(norm.isf(beta / 2) + norm.isf(1 - power))
    excess = p * -math.expm1(claimed - true) - delta
    if excess <= 0:
        return math.inf
    variance = p * (1 - p) + math.exp(min(2 * claimed - true, 700.0)) * (1 - q) / 2
    # Bernstein's second term, for the largest loss of a round: what counts at a large epsilon, where
    # events are rare and learned slowly (measured: 4 times it, or half of what is promised is missed)
    rare = 4 * width * math.exp(min(claimed, 700.0)) / excess
    return _BETTING * (width**2 * variance / excess**2 + rare)


def smallest_excess(claimed: float, rounds: int, beta: float, delta: float = 0.0) -> float:
    """Return the smallest epsilon that ``rounds`` draws a side detect, or inf."""
    if rounds == 0:
        return math.inf
    low, high = claimed, claimed + 1e-3
    while draws_needed(claimed, high, beta, delta=delta) > rounds:
        low, high = high, claimed + 2 * (high - claimed)
        if high - claimed > 50:
            return math.inf
    for _ in range(50):
        middle = (low + high) / 2
        if middle == claimed or draws_needed(claimed, middle, beta, delta=delta) > rounds:
            low = middle
        else:
            high = middle
    return high


def smallest_chance(claimed: float, rounds: int, beta: float, delta: float = 0.0) -> float:
    """Return the smallest detectable probability of a one-sided event.

    The other side never has it; inf if none is detectable. What too few draws for any event of
    probability 1/2 would still have shown.
    """

    def needed(chance: float) -> float:
        excess = chance - delta
        if excess <= 0:
            return math.inf
        width = float(norm.isf(beta / 2) + norm.isf(0.05))
        rare = 4 * width * math.exp(min(claimed, 700.0)) / excess
        return _BETTING * (width**2 * chance * (1 - chance) / excess**2 + rare)

    if needed(1.0) > rounds:
        return math.inf
    low, high = delta, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if needed(middle) <= rounds else (middle, high)
    return high
