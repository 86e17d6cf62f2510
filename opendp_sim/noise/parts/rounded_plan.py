"""The public numbers of one scale of rounded Gaussian noise: strips, and certified tables of them.

Lemmas R1 and R2 in ``../rounded_gaussian.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.exp_bounds import exp_neg_bounds

__all__ = ["OPEN", "WORD_MAX", "RoundedPlan", "rounded_plan", "strip_ends"]

OPEN = 255
"""Table mark: sixteen bits do not settle the strip."""
WORD_MAX = 2**64 - 1
_STRIPS_A_SCALE = 16
"""A strip is between 1/32 and 1/16 of the scale wide."""
_WORD = 64
_GUARD = 40
_PLANS = 128
"""Plans kept: a plan is 67 KiB."""


@dataclass(frozen=True, slots=True)
class RoundedPlan:
    """The public numbers of one scale t."""

    shift: int
    """A strip is 2**shift wide: |t Z| = 2**shift (c + y), c whole, 0 <= y < 1."""
    rate: Fraction
    """a = 4**shift / (2 t**2): strip c has weight e**(-a c**2) and accepts with e**(-a y (2 c + y))."""
    strips: NDArray[np.uint8]
    """Sixteen bits of the uniform to the strip, or OPEN: shape (65536,)."""
    sure: NDArray[np.uint8]
    """Strip to the number of first bytes of the coin that accept whatever y is; 0 for OPEN."""
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    """Floor and ceiling of certified bounds of 2**64 times the upper ends of strips 0, 1, ..."""
    digits: Any
    """The unsigned word that y's places before and just after the point come in; None: no such place."""


@lru_cache(maxsize=_PLANS)
def rounded_plan(scale: Fraction) -> RoundedPlan:
    """Return the plan for round(scale * Z)."""
    shift = _log2_floor(scale / _STRIPS_A_SCALE)
    rate = (Fraction(2) ** shift / scale) ** 2 / 2
    kinds = (np.uint8, np.uint16, np.uint32, np.uint64)
    fits = [kind for kind in kinds if shift + 1 <= 8 * np.dtype(kind).itemsize]
    strips, sure, low, high = _tables(rate)
    return RoundedPlan(shift, rate, strips, sure, low, high, None if shift < 0 else fits[0])


@lru_cache(maxsize=_PLANS)
def _tables(rate: Fraction) -> tuple[NDArray[Any], ...]:
    """Return strips, sure bytes and both ends: scales that differ by a power of two share them."""
    low, high = strip_ends(rate, _WORD)
    ends = (np.array([min(end, WORD_MAX) for end in each], np.uint64) for each in (low, high))
    return _strips(low, high), _sure(rate), *ends


def strip_ends(rate: Fraction, bits: int) -> tuple[list[int], list[int]]:
    """Bracket ``2**bits Pr[strip <= c]`` for c = 0, 1, ..., as far as these bits can see (Lemma R2)."""
    lows, highs, rest = _weights(rate, bits + 12)
    all_low, all_high = sum(lows), sum(highs) + rest
    below_low = below_high = 0
    out_low, out_high = [], []
    for low, high in zip(lows, highs, strict=True):
        below_low += low
        below_high += high
        # F = B / (B + A) grows with B, the weights up to c, and falls with A, those above.
        above_low, above_high = all_low - below_low, all_high - below_high
        out_low.append((below_low << bits) // (below_low + above_high))
        out_high.append(min(1 << bits, -(-(below_high << bits) // (below_high + above_low))))
    return out_low, out_high


def _weights(rate: Fraction, bits: int) -> tuple[list[int], list[int], int]:
    """Bracket ``2**bits e**(-rate c**2)`` for c = 0, 1, ...; then bound the sum of the rest."""
    work = bits + _GUARD
    low = high = 1 << work
    step_low, step_high = exp_neg_bounds(rate, work)
    twice_low, twice_high = step_low * step_low >> work, -(-step_high * step_high >> work)
    lows, highs = [], []
    while high >= 1 << _GUARD:
        lows.append(low >> _GUARD)
        highs.append(-(-high >> _GUARD))
        # weight(c + 1) = weight(c) e**(-a (2 c + 1))
        low, high = low * step_low >> work, -(-high * step_high >> work)
        step_low, step_high = step_low * twice_low >> work, -(-step_high * twice_high >> work)
    # Ratios of neighbours fall: what is left sums to at most high / (1 - step).
    rest = -(-(high << work) // ((1 << work) - step_high))
    return lows, highs, -(-rest >> _GUARD)


def _strips(low: list[int], high: list[int]) -> NDArray[np.uint8]:
    """Tabulate the strips that sixteen bits settle whatever the other 48 are."""
    table = np.full(1 << 16, OPEN, np.uint8)
    start = 0  # the least prefix that is certainly above the strips before
    for c, (lower, upper) in enumerate(zip(low[:OPEN], high, strict=False)):
        table[start : max(start, lower >> 48)] = c
        start = -(-upper >> 48)
    return table


def _sure(rate: Fraction) -> NDArray[np.uint8]:
    """Tabulate the coin's first bytes below ``e**(-a (2 c + 1))``, what y = 1 would accept with."""
    sure = np.zeros(OPEN + 1, np.uint8)
    least = exp_neg_bounds(rate, _WORD)[0]
    twice = least * least >> _WORD
    for c in range(OPEN):
        sure[c] = min(255, least >> _WORD - 8)
        least = least * twice >> _WORD
    return sure


def _log2_floor(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1
