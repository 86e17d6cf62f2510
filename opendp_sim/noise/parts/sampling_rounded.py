"""Exact rounded Gaussian magnitudes: a strip from a table, a lazy fraction, one coin.

The law is that of round(t Z), Z standard normal. The float stage only decides what its proved error
leaves no doubt about; the rest is settled in integers. Lemmas R1 to R5 in ``../rounded_gaussian.md``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.exp_bounds import exp_neg_bounds
from opendp_sim.noise.parts.rounded_plan import OPEN, WORD_MAX, RoundedPlan, strip_ends
from opendp_sim.noise.parts.sampling_accept import CELLS, DOUBT, FLOAT_END, exp_neg_floats
from opendp_sim.noise.parts.sampling_bytes import Bytes

__all__ = ["rounded_magnitudes"]

_COIN_BYTES = 6
"""Bytes of the coin, and of y, that the float stage sees."""
_COIN_BITS = 8 * _COIN_BYTES
_FLAT = 9
"""A strip is below 2**8, so one this much narrower than an integer rounds to 0."""


def rounded_magnitudes(plan: RoundedPlan, count: int, source: Bytes) -> NDArray[np.uint64]:
    """Return ``count`` independent draws of ``min(round(|t Z|), 2**64 - 1)`` (Lemma R5)."""
    words, again = _candidates(plan, count, source)
    while again.size:
        fresh, still = _candidates(plan, again.size, source)
        words[again] = fresh
        again = again[still]
    return words


def _candidates(
    plan: RoundedPlan, count: int, source: Bytes
) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Return magnitudes of ``count`` candidates and the places of the rejected ones."""
    prefix = source.take(2 * count).view("<u2")
    strip = plan.strips[prefix]
    coin = source.take(count)
    digits = _digits(plan, count, source)
    doubtful = np.flatnonzero(coin >= plan.sure[strip])  # every open strip is among them
    words = _magnitudes(plan, strip.astype(np.uint64), digits)
    if not doubtful.size:
        return words, doubtful
    settled, rare = _settled(plan, prefix[doubtful], strip[doubtful], source)
    for i in np.flatnonzero(strip[doubtful] == OPEN).tolist():
        at = int(doubtful[i])
        words[at] = _magnitude(plan, int(settled[i]), int(digits[at]))
    kept = _accepted(plan, settled, coin[doubtful], digits[doubtful], rare, source)
    return words, doubtful[~kept]


def _digits(plan: RoundedPlan, count: int, source: Bytes) -> NDArray[Any]:
    """Draw the places of y that rounding may need; none where a strip ends at every half (Lemma R3)."""
    if plan.digits is None:
        return np.zeros(count, np.uint8)
    kind = np.dtype(plan.digits).newbyteorder("<")
    return source.take(count * kind.itemsize).view(kind)


def _magnitudes(
    plan: RoundedPlan, strip: NDArray[np.uint64], digits: NDArray[Any]
) -> NDArray[np.uint64]:
    """Return ``floor(2**shift (c + y) + 1/2)`` from c and the first shift + 1 places of y (Lemma R3)."""
    if plan.shift <= -_FLAT:
        return np.zeros(len(strip), np.uint64)
    if plan.shift < 0:
        return (strip + np.uint64(1 << -plan.shift - 1)) >> np.uint64(-plan.shift)
    kind = plan.digits
    first = digits >> kind(8 * np.dtype(kind).itemsize - plan.shift - 1)
    strip <<= np.uint64(plan.shift)
    strip += first >> kind(1)  # (first + 1) // 2, without a carry out of the word
    strip += first & kind(1)
    return strip


def _magnitude(plan: RoundedPlan, c: int, digits: int) -> int:
    """Return the same of one strip, however far out, capped at a word."""
    if plan.shift < 0:
        return min(WORD_MAX, c + (1 << -plan.shift - 1) >> -plan.shift)
    first = digits >> int(8 * np.dtype(plan.digits).itemsize) - plan.shift - 1
    return min(WORD_MAX, (c << plan.shift) + (first + 1 >> 1))


def _settled(
    plan: RoundedPlan, prefix: NDArray[np.uint16], strip: NDArray[np.uint8], source: Bytes
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Settle the strips that sixteen bits left open; ``rare`` marks those beyond the tables."""
    c = strip.astype(np.int64)
    rare = np.zeros(len(c), np.bool_)
    left = np.flatnonzero(strip == OPEN)
    if left.size:
        whole = prefix[left].astype(np.uint64) << np.uint64(48)
        whole |= source.take(8 * left.size).view("<u8") >> np.uint64(16)  # two bytes go unused
        # Certainly beyond end c: v >= high[c]. Certainly within it: v + 1 <= low[c].
        beyond = np.searchsorted(plan.high, whole, side="right")
        within = np.searchsorted(plan.low, whole, side="right")
        c[left] = within
        listed = min(OPEN, plan.low.size)
        for i in np.flatnonzero((beyond != within) | (within >= listed)).tolist():
            rare[left[i]] = True
            c[left[i]] = _strip_of(plan.rate, int(whole[i]), source)
    return c, rare


def _strip_of(rate: Fraction, prefix: int, source: Bytes) -> int:
    """Extend the uniform, 64 bits so far, until its strip is certain, in integers (Lemma R2)."""
    bits = 64
    while True:
        for c, (low, high) in enumerate(zip(*strip_ends(rate, bits), strict=True)):
            if prefix + 1 <= low:
                return c
            if prefix < high:
                break  # open between c and what follows
        prefix = prefix << 8 | int(source.take(1)[0])
        bits += 8


def _accepted(
    plan: RoundedPlan,
    c: NDArray[np.int64],
    coin: NDArray[np.uint8],
    digits: NDArray[Any],
    rare: NDArray[np.bool_],
    source: Bytes,
) -> NDArray[np.bool_]:
    """Compare the uniform whose first byte is ``coin`` with ``e**(-a y (2 c + y))`` (Lemma R4)."""
    uniform = _extended(coin.astype(np.float64), _COIN_BYTES - 1, source)
    size = 0 if plan.digits is None else np.dtype(plan.digits).itemsize
    known = digits.astype(np.uint64) >> np.uint64(max(0, 8 * size - _COIN_BITS))
    place = _extended(known.astype(np.float64), max(0, _COIN_BYTES - size), source)
    y = place * 2.0**-_COIN_BITS
    exponent = float(CELLS * plan.rate) * y * (2.0 * c.astype(np.float64) + y)
    chance = exp_neg_floats(np.minimum(exponent, FLOAT_END)) * 2.0**_COIN_BITS
    kept = uniform + 1.0 <= chance * (1.0 - DOUBT)
    settled = kept | (uniform >= chance * (1.0 + DOUBT))
    settled &= (exponent < FLOAT_END) & ~rare
    for i in np.flatnonzero(~settled).tolist():
        y_known = (int(digits[i]), 64) if size == 8 else (int(place[i]), _COIN_BITS)
        kept[i] = _decided(plan.rate, int(c[i]), y_known, int(uniform[i]), source)
    return kept


def _extended(prefix: NDArray[np.float64], further: int, source: Bytes) -> NDArray[np.float64]:
    """Append bytes to prefixes: whole numbers below 2**48, exact as floats."""
    for extra in source.take(prefix.size * further).reshape(further, prefix.size):
        prefix = prefix * 256.0 + extra
    return prefix


def _decided(rate: Fraction, c: int, y_known: tuple[int, int], uniform: int, source: Bytes) -> bool:
    """Extend y and the uniform a byte at a time until they settle the coin, in rationals (Lemma R4)."""
    (y, y_bits), bits = y_known, _COIN_BITS
    while True:
        y_low, y_high = Fraction(y, 1 << y_bits), Fraction(y + 1, 1 << y_bits)
        if uniform + 1 <= exp_neg_bounds(rate * y_high * (2 * c + y_high), bits)[0]:
            return True
        if uniform >= exp_neg_bounds(rate * y_low * (2 * c + y_low), bits)[1]:
            return False
        further = source.take(2)
        y, y_bits = y << 8 | int(further[0]), y_bits + 8
        uniform, bits = uniform << 8 | int(further[1]), bits + 8
