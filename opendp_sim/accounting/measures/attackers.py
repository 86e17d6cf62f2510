"""Bound an attacker's power and advantage under a claim.

The attacker knows every other record, the mechanism and its output, and tests whether one record (or a
group) was in the data. Under Gaussian DP the bound is the trade-off function itself, certified; under
other measures it is the best that follows from the claim alone. Proofs: ``attackers.md``, beside this
file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.budget import MeasureName
from opendp_sim.accounting.measures.normal_tail import root_bounds, upper_tail
from opendp_sim.core.arithmetic.rounding import float_up, up_text

RATES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
"""False-positive rates at which a certificate states the trade-off curve."""
VERY_WEAK = "very weak"
WORDS = ((60, "strong"), (75, "moderate"), (90, "weak"), (100, VERY_WEAK))
"""Guesses in 100 that are right at most, and the word for the protection: the one scale of all texts."""
_BITS = 80
_ULPS = 1 + 1e-12
"""Float formulas below err by a few parts in 2**50."""


@dataclass(frozen=True, slots=True)
class Attacker:
    """Bound the tests of a claim, rounded up.

    Attributes:
        measure: the claim's measure.
        loss: (mu squared / 2,), (rho,), (epsilon,), (rho, delta) or (epsilon, delta).
        exact: whether some neighbours reach the bound, as far as the claims say: every release is
            Gaussian DP by its own claim. A pure one joins with an upper bound of its mu.
    """

    measure: MeasureName
    loss: tuple[float, ...]
    exact: bool = False

    def power(self, rate: float) -> float:
        """Return the greatest true-positive rate at false-positive ``rate`` (Lemma A1)."""
        first = self.loss[0]
        if math.isinf(first):
            return 1.0
        if self.measure == "gdp":
            return _gaussian_power(2 * Fraction(first), rate)
        delta = self.loss[1] if len(self.loss) > 1 else 0.0
        if self.measure in ("pure", "approx"):
            return _up(_box(first, delta, rate))
        inner = min(1.0, rate / (1 - delta)) if delta < 1 else 1.0
        return _up((1 - delta) * _renyi_power(first, inner) + delta)

    @property
    def advantage(self) -> float:
        """The greatest true-positive rate less false-positive rate, over all rates (Lemma A2)."""
        first = self.loss[0]
        if math.isinf(first):
            return 1.0
        if self.measure == "gdp":
            square = 2 * Fraction(first) / 4
            return 0.0 if square == 0 else float_up(1 - 2 * upper_tail(square, _BITS)[0])
        delta = self.loss[1] if len(self.loss) > 1 else 0.0
        if self.measure in ("pure", "approx"):
            return _up(math.tanh(first / 2) + 2 * delta / (math.exp(min(first, 700.0)) + 1))
        return _up((1 - delta) * _renyi_advantage(first) + delta)

    @property
    def right(self) -> str:
        """Return the right guesses in 100 at even odds (Lemma A3)."""
        value = 50 * (1 + self.advantage)
        digits = 3 if value < 99 else 4 if value < 99.9 else 6
        return up_text(min(100.0, value * (1 - 1e-12)), digits)

    @property
    def strength(self) -> str:
        """One word for how much protection that leaves."""
        right = 50 * (1 + self.advantage)
        return next((word for most, word in WORDS if right <= most), VERY_WEAK)

    @property
    def words(self) -> str:
        """Return all words for protection with their largest right guesses."""
        told = ", ".join(f"{word} up to {most}" for most, word in WORDS[:-1])
        return f"by such guesses: {told}, {VERY_WEAK} above"

    def plain(self) -> dict[str, Any]:
        """Return the advantage and the trade-off curve at ``RATES``."""
        return {
            "exact": self.exact,
            "advantage": self.advantage,
            "tpr_at_fpr": {f"{rate:g}": self.power(rate) for rate in RATES},
        }

    def found(self, rate: float) -> str:
        """Return the records found in 100 at false-positive rate ``rate``."""
        return up_text(min(100.0, 100 * self.power(rate) * (1 - 1e-12)), 3)


@lru_cache(maxsize=256)
def attacker_of(measure: MeasureName, loss: tuple[float, ...], *, exact: bool = False) -> Attacker:
    """Return a total's attacker; ``gdp`` losses are mu squared over 2."""
    return Attacker(measure, loss, exact)


def _up(value: float) -> float:
    return min(1.0, value * _ULPS)


# --- Gaussian: certified --------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _gaussian_power(m: Fraction, rate: float) -> float:
    """Return ``Q(z - mu)`` with ``Q(z) = rate``, rounded up."""
    mu = Fraction(root_bounds(m, _BITS)[1], 1 << _BITS) if m else Fraction(0)
    argument = _quantile_down(rate) - mu
    return min(1.0, float_up(upper_tail(argument**2, _BITS, negative=argument < 0)[1]))


@lru_cache(maxsize=64)
def _quantile_down(rate: float) -> Fraction:
    """Return a z with ``Q(z) >= rate``, certified, and 2**-60 from the greatest."""
    low, high, wanted = Fraction(-40), Fraction(40), Fraction(rate)
    for _ in range(70):
        z = (low + high) / 2
        enough = upper_tail(z**2, _BITS, negative=z < 0)[0] >= wanted
        low, high = (z, high) if enough else (low, z)
    return low


# --- pure, approximate ----------------------------------------------------------------------------


def _box(epsilon: float, delta: float, rate: float) -> float:
    slope = math.exp(min(epsilon, 700.0))
    return min(1.0, slope * rate + delta, 1 - (1 - delta - rate) / slope)


# --- zero-concentrated: every binary pair within the Rényi bounds -----------------------------------


@lru_cache(maxsize=1)
def _orders() -> NDArray[np.float64]:
    return 1 + np.geomspace(1e-3, 1e4, 160)


def _within(p: float, q: float, rho: float) -> bool:
    """Return whether two coins satisfy all listed Rényi bounds."""
    if not (0 < p < 1 and 0 < q < 1):
        return False
    orders = _orders()
    first = orders * math.log(p) + (1 - orders) * math.log(q)
    second = orders * math.log1p(-p) + (1 - orders) * math.log1p(-q)
    return bool((np.logaddexp(first, second) <= (orders - 1) * orders * rho + 1e-13).all())


@lru_cache(maxsize=1024)
def _renyi_power(rho: float, rate: float) -> float:
    low, high = rate, 1.0
    while (t := (low + high) / 2) not in (low, high):
        fits = t < 1 and _within(t, rate, rho) and _within(rate, t, rho)
        low, high = (t, high) if fits else (low, t)
    return high


@lru_cache(maxsize=256)
def _renyi_advantage(rho: float) -> float:
    """Return the best pair's advantage (Lemma A2)."""
    low, high = 0.0, 1.0
    while (v := (low + high) / 2) not in (low, high):
        fits = v < 1 and _within((1 + v) / 2, (1 - v) / 2, rho)
        low, high = (v, high) if fits else (low, v)
    return high
