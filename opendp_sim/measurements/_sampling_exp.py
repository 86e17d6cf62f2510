"""Certified bounds for e**-x in integers, and probabilities known one byte at a time.

Nothing here rounds silently: every function brackets the true value between two integers.
Lemmas E1 and E2 in ``bulk_laplace.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

__all__ = [
    "Bounds",
    "Bracket",
    "Threshold",
    "exp_neg_bounds",
    "exp_threshold",
    "logistic_bounds",
    "logistic_threshold",
    "nonzero_threshold",
]

Bracket = tuple[int, int]
Bounds = Callable[[int], Bracket]
"""``bits -> (low, high)`` with ``low <= p * 2**bits <= high``; the gap stays below a few units."""

_GUARD_BITS = 24


def exp_neg_bounds(x: Fraction, bits: int) -> Bracket:
    """Bracket ``e**-x * 2**bits`` between two integers (Lemma E1).

    Args:
        x: a rational, at least 0.
        bits: binary places wanted, at least 1.
    """
    if x == 0:
        return 1 << bits, 1 << bits
    if x > bits:  # e**-x < 2**-x < 2**-bits, so the product lies strictly between 0 and 1
        return 0, 1
    halvings = max(0, int(x).bit_length() + 1)
    work = bits + halvings + _GUARD_BITS
    low, high = _exp_of_small(x / (1 << halvings), work)
    for _ in range(halvings):
        low, high = low * low >> work, -(-high * high >> work)
    one = 1 << work + bits
    return one // high, -(-one // low)


def _exp_of_small(y: Fraction, work: int) -> Bracket:
    """Bracket ``e**y * 2**work`` for 0 < y <= 1/2 by its series; all terms are positive."""
    term_low = term_high = total_low = total_high = 1 << work
    y_low = (y.numerator << work) // y.denominator
    y_high = -((-y.numerator << work) // y.denominator)
    order = 0
    while term_high > 1:
        order += 1
        term_low = term_low * y_low // (order << work)
        term_high = -(-term_high * y_high // (order << work))
        total_low += term_low
        total_high += term_high
    # With y <= 1/2 and order >= 1 the terms left out sum to less than the last one kept.
    return total_low, total_high + term_high


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
