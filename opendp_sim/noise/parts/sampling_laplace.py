"""Exact discrete Laplace magnitudes by the binary digits of a geometric variable.

Lemmas L1 to L4 in ``bulk_laplace.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opendp_sim.noise.parts.sampling_bytes import Bytes, bernoulli
from opendp_sim.noise.parts.sampling_exp import (
    Threshold,
    exp_threshold,
    logistic_threshold,
    nonzero_threshold,
)

__all__ = ["LARGEST", "MAX_SCALE", "LaplaceDigits", "Magnitudes", "laplace_digits", "magnitudes"]

MAX_SCALE = 2**59
"""Up to this the digits fit a 64-bit word and a capped magnitude is far in the tail (Lemma G2)."""
LARGEST = 2**64 - 1

_SPREAD = 4  # digits reach up to 4 scales; e**-4 of the cells take a second round beyond them


@dataclass(frozen=True, slots=True)
class LaplaceDigits:
    """The public thresholds of one scale."""

    nonzero: Threshold
    digits: tuple[Threshold, ...]
    beyond: Threshold


@dataclass(frozen=True, slots=True)
class Magnitudes:
    """Absolute values of noise: exact in ``words`` except where ``exact`` overrides."""

    words: NDArray[np.uint64]
    """Shape (count,); holds min(magnitude, 2**64 - 1)."""
    exact: dict[int, int]
    """Index to magnitude where it passes 2**64 - 1: empty in any run anyone will see."""


@lru_cache(maxsize=1024)
def laplace_digits(rate: Fraction) -> LaplaceDigits:
    """Return the thresholds for the law proportional to ``e**(-rate * |k|)``."""
    count = max(0, -(-_SPREAD * rate.denominator // rate.numerator) - 1).bit_length()
    return LaplaceDigits(
        nonzero=nonzero_threshold(rate),
        digits=tuple(logistic_threshold(rate * 2**i) for i in range(count)),
        beyond=exp_threshold(rate * 2**count),
    )


def magnitudes(plan: LaplaceDigits, count: int, source: Bytes) -> Magnitudes:
    """Draw ``count`` independent magnitudes of discrete Laplace noise (Lemma L3)."""
    words = _low_digits(plan.digits, count, source)
    words += np.uint64(1)
    words *= bernoulli(plan.nonzero, count, source)
    return Magnitudes(words, _add_high(plan, words, source))


def _low_digits(digits: tuple[Threshold, ...], count: int, source: Bytes) -> NDArray[np.uint64]:
    """Draw the independent binary digits (Lemma L1), eight to a byte of the result."""
    words = np.zeros(count, "<u8")
    planes = words.view(np.uint8).reshape(count, 8)
    for place in range(0, len(digits), 8):
        plane = np.zeros(count, np.uint8)
        for digit in reversed(digits[place : place + 8]):
            plane += plane
            plane |= bernoulli(digit, count, source)
        planes[:, place // 8] = plane
    return words.astype(np.uint64, copy=False)


def _add_high(plan: LaplaceDigits, words: NDArray[np.uint64], source: Bytes) -> dict[int, int]:
    """Add the part above the digits, one unit at a time (Lemma L2); zero cells stay zero."""
    step = 1 << len(plan.digits)
    room = np.uint64(LARGEST - step)
    exact: dict[int, int] = {}
    cells = np.flatnonzero(bernoulli(plan.beyond, words.size, source))
    cells = cells[words[cells] > 0]
    while cells.size:
        full = words[cells] > room
        for cell in cells[full].tolist():
            exact[cell] = exact.get(cell, int(words[cell])) + step
        words[cells[full]] = LARGEST
        words[cells[~full]] += np.uint64(step)
        cells = cells[bernoulli(plan.beyond, cells.size, source)]
    return exact
