"""Bound e**-x in integers (Lemma E1 of ``bulk_laplace.md``)."""

from __future__ import annotations

from fractions import Fraction

Bracket = tuple[int, int]
"""Two integers with the true value, times a power of two, between them."""

_GUARD_BITS = 24


def exp_neg_bounds(x: Fraction, bits: int) -> Bracket:
    """Bracket ``e**-x * 2**bits``, x >= 0 rational, between two integers (Lemma E1)."""
    if x == 0:
        return 1 << bits, 1 << bits
    if x > bits:  # e**-x < 2**-x < 2**-bits, so the product lies strictly between 0 and 1
        return 0, 1
    halvings = max(0, int(x).bit_length() + 1)
    work = bits + halvings + _GUARD_BITS
    low, high = exp_of_small(x / (1 << halvings), work)
    for _ in range(halvings):
        low, high = low * low >> work, -(-high * high >> work)
    one = 1 << work + bits
    return one // high, -(-one // low)


def exp_of_small(y: Fraction, work: int) -> Bracket:
    """Bracket ``e**y * 2**work`` for 0 < y <= 1/2 by its positive series."""
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
