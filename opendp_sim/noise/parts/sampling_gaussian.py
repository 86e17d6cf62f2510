"""Exact discrete Gaussian magnitudes: rejection from discrete Laplace with a certified e**-x.

Lemmas G1 and G2 in ``bulk_gaussian.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opendp_sim.noise.parts.sampling_accept import CELLS, exp_coins
from opendp_sim.noise.parts.sampling_bytes import Bytes
from opendp_sim.noise.parts.sampling_laplace import (
    LaplaceDigits,
    Magnitudes,
    laplace_digits,
    magnitudes,
)

__all__ = ["GaussianPlan", "gaussian_magnitudes", "gaussian_plan"]

_INT64_MAX = 2**63 - 1
_FACTOR_CAP = Fraction(2**40)  # any exponent this large is settled in integers


@dataclass(frozen=True, slots=True)
class GaussianPlan:
    """The public numbers of one scale: proposal, peak and the factor of the exponent."""

    proposal: LaplaceDigits
    peak: int
    rate: Fraction
    """1 / (2 scale**2)."""
    factor: float
    """``CELLS * rate`` as a float, capped."""

    def exponent(self, magnitude: int) -> Fraction:
        """Return x of the acceptance probability e**-x, exactly (Lemma G1)."""
        return self.rate * ((magnitude - self.peak) * (magnitude - self.peak - 1))


@lru_cache(maxsize=1024)
def gaussian_plan(scale: Fraction) -> GaussianPlan:
    """Return the plan for the law proportional to ``e**(-k**2 / (2 scale**2))``."""
    rate = 1 / (2 * scale * scale)
    peak = scale.numerator // scale.denominator
    factor = float(min(CELLS * rate, _FACTOR_CAP))
    return GaussianPlan(laplace_digits(rate * (2 * peak + 1)), peak, rate, factor)


def gaussian_magnitudes(plan: GaussianPlan, count: int, source: Bytes) -> Magnitudes:
    """Draw ``count`` independent magnitudes: the first ``count`` accepted candidates (Lemma G2)."""
    words = np.empty(count, np.uint64)
    exact: dict[int, int] = {}
    done = 0
    while done < count:
        wanted = count - done
        candidates = magnitudes(plan.proposal, wanted + wanted // 3 + 16, source)
        kept = np.flatnonzero(_accepted(plan, candidates, source))[:wanted]
        words[done : done + kept.size] = candidates.words[kept]
        for cell in candidates.exact.keys() & set(kept.tolist() if candidates.exact else ()):
            exact[done + int(np.searchsorted(kept, cell))] = candidates.exact[cell]
        done += kept.size
    return Magnitudes(words, exact)


def _accepted(plan: GaussianPlan, candidates: Magnitudes, source: Bytes) -> NDArray[np.bool_]:
    """Flip each candidate's acceptance coin."""
    words = candidates.words
    # A word above int64 has an exponent of at least 32 at any scale up to MAX_SCALE, so capping it
    # here only sends the cell to ``exact``, which knows the whole magnitude.
    gap = np.minimum(words, np.uint64(_INT64_MAX)).view(np.int64)
    gap -= plan.peak
    exponents = gap.astype(np.float64)
    exponents *= exponents - 1.0
    exponents *= plan.factor

    def exact(cell: int) -> Fraction:
        return plan.exponent(candidates.exact.get(cell, int(words[cell])))

    return exp_coins(exponents, exact, source)
