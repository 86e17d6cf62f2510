"""Compose bounded-range rounds exactly, as a certified curve.

A profile is ``D(x) = sup over neighbours and events of P(E) - e**x Q(E)`` for a real x; delta at
epsilon is ``D(epsilon)``. One draw of the exponential mechanism has bounded range, so its worst pairs
are generalised randomised responses, and adaptive composition is one maximum over their one
parameter. Everything is kept on a grid of x as upper bounds. Proofs: ``peeling_profile.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_ULP = 2.0**-52
_WIDE = 30.0
"""Grid steps, in nats, from which on e**step is divided out: it overflows at 709."""
MOST_ROUNDS = 2**12
"""Rounds that a curve is offered for: it is composed round by round."""
_MOST_POINTS = 2**15
"""Grid points of a curve; the last bound holds beyond, which costs only where losses are vast."""
_DEVIATIONS = 6.0
"""Half ranges times root rounds after which a composition weighs less than 1e-31."""


@dataclass(frozen=True)
class Profile:
    """Bound a profile at ``x = step * (0, 1, ..., n)``, flat beyond.

    Attributes:
        step: distance of grid points, in nats.
        values: shape (n + 1,).
    """

    step: float
    values: NDArray[np.float64]

    def at(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return upper bounds at any real x (Lemma 2)."""
        size = np.abs(np.asarray(x, dtype=np.float64))
        # A point just right of a grid value may be read just left of it: that only raises the bound.
        place = np.minimum(size / self.step * (1 - 4 * _ULP), len(self.values) - 1.0)
        left = np.minimum(place.astype(np.int64), max(len(self.values) - 2, 0))
        right = np.minimum(left + 1, len(self.values) - 1)
        share = _chord(np.minimum(place - left, 1.0), self.step)
        value = self.values[left] * (1 - share) + self.values[right] * share
        value = np.minimum(value * (1 + 16 * _ULP), 1.0)
        mirrored = -np.expm1(-size) * (1 + 4 * _ULP) + np.exp(-size) * value
        return np.where(np.asarray(x) >= 0, value, np.minimum(mirrored, 1.0))

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at ``epsilon >= 0``."""
        return float(self.at(np.array(max(epsilon, 0.0))))


def _chord(part: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Return ``(e**(part step) - 1) / (e**step - 1)``; a wide step rounds it down, which is safe."""
    if step <= _WIDE:
        return np.expm1(part * step) / np.expm1(step)
    # The same with e**step divided out, which does not overflow; exp's argument is off by ulps of step.
    down = max(0.0, 1 - 8 * _ULP * (1 + step))
    return np.exp((part - 1.0) * step) * np.expm1(-part * step) / math.expm1(-step) * down


def zero_profile(step: float, size: int) -> Profile:
    """Return the zero profile of releasing nothing, 0 for x >= 0."""
    return Profile(step, np.zeros(size))


def peeling_profile(rounds: int, range_: float) -> Profile:
    """Return the profile of ``rounds`` adaptive draws of bounded range (Lemma 4)."""
    return _peeling(rounds, range_)


@lru_cache(maxsize=64)
def _peeling(rounds: int, range_: float) -> Profile:
    if rounds == 0 or range_ == 0:
        return zero_profile(1.0, 2)
    cells = _cells(rounds)
    top = min(rounds * range_, reach_of(rounds, range_))
    start = zero_profile(range_ / cells, min(math.ceil(top / range_ * cells) + 2, _MOST_POINTS))
    return after_rounds(start, rounds, range_)


def reach_of(rounds: int, range_: float) -> float:
    """Return an x beyond which losses weigh below 1e-31 (Azuma).

    Only a choice of grid: whatever it is, the profile beyond stays an upper bound.
    """
    return rounds * range_**2 / 8 + _DEVIATIONS * math.sqrt(rounds) * range_


def _cells(rounds: int) -> int:
    """Return the grid points a range."""
    return 32 if rounds <= 16 else 16 if rounds <= 128 else 8


def after_rounds(profile: Profile, rounds: int, range_: float) -> Profile:
    """Compose ``rounds`` draws of bounded range before ``profile``, adaptively.

    The grid step must divide ``range_`` evenly.
    """
    values = profile.values
    if range_ == 0:
        return profile
    step = _step(profile.step, round(range_ / profile.step), range_)
    for _ in range(rounds):
        values = step(values)
    return Profile(profile.step, values)


def _step(
    step: float, cells: int, range_: float
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return the map that adds one draw before a profile (Lemma 3).

    With t in cell [t_a, t_a + step] and v = exp(t_a - t), the chords make the value
    ``(alpha - beta / v) (A + B v) + (1 - alpha + beta / v) (A' + B' v)``, whose maximum over v is at
    an end of the cell or where its derivative is zero.
    """
    alpha = -1.0 / math.expm1(-range_)
    chord = -math.expm1(-step)
    least = math.exp(-step)
    # alpha multiplies differences of values over `chord`; this is their rounding, with room.
    slack = 1 + 64 * _ULP * alpha / chord

    def chance(t: float) -> float:
        return min(1.0, max(0.0, -math.expm1(t - range_) * alpha))

    def apply(values: NDArray[np.float64]) -> NDArray[np.float64]:
        size = len(values)
        wide = _extended(values, cells, step)  # wide[cells + i] is the value at x = i * step
        near = [wide[cells - a : cells - a + size] for a in range(cells + 1)]
        far = [wide[2 * cells - a : 2 * cells - a + size] for a in range(cells + 1)]
        best = np.zeros(size)
        for a in range(cells + 1):
            p = chance(a * step)
            np.maximum(best, p * near[a] + (1 - p) * far[a], out=best)
        for a in range(cells):
            beta = alpha * math.exp(a * step - range_)
            b, b2 = (near[a] - near[a + 1]) / chord, (far[a] - far[a + 1]) / chord
            c1 = alpha * b + (1 - alpha) * b2
            c2 = beta * ((far[a] - b2) - (near[a] - b))
            with np.errstate(invalid="ignore", divide="ignore"):
                v = np.sqrt(c2 / c1)
                inside = (c1 < 0) & (c2 < 0) & (v > least) & (v < 1.0)
                v = np.where(inside, v, 1.0)
                weight = alpha - beta / v
                found = weight * (near[a] + b * (v - 1.0)) + (1 - weight) * (
                    far[a] + b2 * (v - 1.0)
                )
            np.maximum(best, np.where(inside, found, 0.0), out=best)
        return np.minimum(best * slack + 1e-300, 1.0)

    return apply


def _extended(values: NDArray[np.float64], cells: int, step: float) -> NDArray[np.float64]:
    """Extend values to negative x and beyond the end."""
    x = np.arange(cells, 0, -1) * step
    mirror = values[np.minimum(np.arange(cells, 0, -1), len(values) - 1)]
    below = np.minimum((-np.expm1(-x) + np.exp(-x) * mirror) * (1 + 8 * _ULP), 1.0)
    return np.concatenate([below, values, np.full(cells, values[-1])])
