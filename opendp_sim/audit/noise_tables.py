"""Whole noise from a table of its distribution function, cut to 64 bits: fast, with a bounded error.

OpenDP's exact samplers take some twenty microseconds a draw, a table a twentieth of one. A value's
probability is off by less than 2^-64, so a draw is within ``entries * 2^-64`` of the law in total
variation: with 2^16 entries and a million draws that is 4e-9 in all (``trace.md``, lemma 2).
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from os import urandom  # the original: the one of the module may be on the tape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.laws import Law

__all__ = ["MOST_ENTRIES", "NoiseTable"]

MOST_ENTRIES = 2**16
_BITS, _DIGITS = 64, 60
_TAIL = 2.0**-70


class NoiseTable:
    """The distribution function of a whole law, times 2^64 and rounded down."""

    def __init__(self, law: Law) -> None:
        """Add the weights up with sixty digits."""
        window = law.window(_TAIL)
        self.low = window.start
        weights = _weights(law.family, law.scale, len(window) // 2)
        with localcontext() as digits:
            digits.prec = _DIGITS
            total, so_far, cuts = sum(weights), Decimal(0), []
            for weight in weights[:-1]:
                so_far += weight
                cuts.append(min(int(so_far * 2**_BITS / total), 2**_BITS - 1))
        self.cuts: NDArray[np.uint64] = np.array(cuts, dtype=np.uint64)

    @staticmethod
    def fits(law: Law) -> bool:
        """Say whether the law is whole, and narrow enough for a table."""
        return law.whole and law.scale < MOST_ENTRIES and len(law.window(_TAIL)) <= MOST_ENTRIES

    def draw(self, count: int) -> list[Any]:
        """Return fresh noise, from the operating system's randomness."""
        uniform = np.frombuffer(urandom(8 * count), dtype=np.uint64)
        spots = np.searchsorted(self.cuts, uniform, side="right")
        return list((spots + self.low).tolist())


def _weights(family: str, scale: float, reach: int) -> list[Decimal]:
    """Return what the values from ``-reach`` to ``reach`` weigh; the middle one weighs 1."""
    with localcontext() as digits:
        digits.prec = _DIGITS
        exact = Decimal(scale)  # a float is a fraction of two whole numbers
        if family == "laplace":
            step, turn = (-1 / exact).exp(), Decimal(1)
        else:  # exp(-(z + 1)^2 / 2s^2) is exp(-z^2 / 2s^2) times exp(-(2z + 1) / 2s^2)
            step, turn = (-1 / (2 * exact * exact)).exp(), (-1 / (exact * exact)).exp()
        half = [Decimal(1)]
        for _ in range(reach):
            half.append(half[-1] * step)
            step *= turn
    return half[:0:-1] + half
