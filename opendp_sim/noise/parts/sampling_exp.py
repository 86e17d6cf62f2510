"""Certified bounds for e**-x in integers, and probabilities known one byte at a time.

Nothing here rounds silently: every function brackets the true value between two integers.
Lemmas E1 and E2 in ``bulk_laplace.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from opendp_sim.core.exp_bounds import Bracket, exp_neg_bounds

__all__ = [
    "Bounds",
    "Threshold",
    "exp_threshold",
    "logistic_bounds",
    "logistic_threshold",
    "nonzero_threshold",
]

Bounds = Callable[[int], Bracket]
"""``bits -> (low, high)`` with ``low <= p * 2**bits <= high``; the gap stays below a few units."""


def logistic_bounds(x: Fraction, bits: int) -> Bracket:
    """Bracket ``2**bits / (1 + e**x)`` between two integers, for rational x > 0 (Lemma E1)."""
    low, high = exp_neg_bounds(x, bits + 2)
    one = 1 << bits + 2  # q / (1 + q) grows with q = e**-x
    return (low << bits) // (one + low), -(-(high << bits) // (one + high))


class Threshold:
    """An irrational probability whose binary places are certified as they are asked for.

    The known bytes are a cache of a public constant: extending it twice gives the same bytes.
    """

    __slots__ = ("_bounds", "_known")

    def __init__(self, bounds: Bounds) -> None:
        """Take the bracket of an *irrational* number in (0, 1); a rational one never settles."""
        self._bounds = bounds
        self._known = b""

    def byte(self, position: int) -> int:
        """Return the byte of index ``position`` after the binary point (Lemma E2)."""
        known = self._known
        if position >= len(known):
            known = self._known = self._certified(max(8, 2 * position))
        return known[position]

    def _certified(self, count: int) -> bytes:
        bits = 8 * count
        extra = 16
        while True:
            low, high = self._bounds(bits + extra)
            if low >> extra == high >> extra:
                return (low >> extra).to_bytes(count, "big")
            extra *= 2


@lru_cache(maxsize=4096)
def logistic_threshold(x: Fraction) -> Threshold:
    """Return 1 / (1 + e**x), irrational for rational x != 0 by Lindemann's theorem."""
    return Threshold(lambda bits: logistic_bounds(x, bits))


@lru_cache(maxsize=4096)
def nonzero_threshold(x: Fraction) -> Threshold:
    """Return 2 / (1 + e**x), the probability that discrete Laplace noise of scale 1/x is not 0."""

    def bounds(bits: int) -> Bracket:
        return logistic_bounds(x, bits + 1)

    return Threshold(bounds)


@lru_cache(maxsize=4096)
def exp_threshold(x: Fraction) -> Threshold:
    """Return e**-x, irrational for rational x != 0."""
    return Threshold(lambda bits: exp_neg_bounds(x, bits))
