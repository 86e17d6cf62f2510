"""Define the noise of a gate's test.

Steep above, wide below: something private follows only if the test fails. ``N = G - H`` with G
geometric and H a discrete Gaussian cut at 0. A pass ends the release, so the right tail may fall at
the rate of the whole release; a failure composes with what follows, so the left tail is Gaussian, and
it begins slowly, because a failure that is sure costs what follows in full. Both tails are bounded
here from both sides, in floats. Proofs: ``gate_tail.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.system.lazy_import import signal

_SLACK = 3e-9
"""Relative room for the rounding of the sums below; the true error is under 2e-9."""
_TINY = 1e-300
_REACH = 38.0
"""Parameters of H beyond its mode after which its law weighs less than 1e-300."""
_LEAD = 1.5
"""Parameters of H from 0 to its mode: with none, peeling needs up to a tenth more noise, with two the
gap that passes is up to a tenth larger, at one loss."""
LARGEST_ARGUMENT = 2.0**15.5
"""Largest parameter of H for which the table is made."""


@dataclass(frozen=True)
class GateTail:
    """``Pr[N >= j]`` and ``Pr[N < j]`` of ``N = G - H``.

    Attributes:
        right: b; Pr[G >= g] = exp(-g / b) for g >= 0.
        left: t; Pr[H = z] is proportional to exp(-(z - m)**2 / (2 t**2)) for z >= 0, m = lead_of(t).
        below: shape (reach + 1,); Pr[N < -m] at m = 0, 1, ..., without slack.
        above: the same shape; Pr[N >= -m], summed apart so that neither loses digits.
    """

    right: float
    left: float
    below: NDArray[np.float64]
    above: NDArray[np.float64]

    def __call__(self, j: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return an upper bound on ``Pr[N >= j]``, elementwise (Lemma 1)."""
        return np.minimum(self._passes(j) * (1 + _SLACK) + _TINY, 1.0)

    def lower(self, j: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return a lower bound on the same."""
        return np.maximum(self._passes(j) * (1 - _SLACK) - _TINY, 0.0)

    def fails(self, j: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return an upper bound on ``Pr[N < j]``, elementwise."""
        return np.minimum(self._fails(j) * (1 + _SLACK) + _TINY, 1.0)

    def fails_lower(self, j: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return a lower bound on the same."""
        return np.maximum(self._fails(j) * (1 - _SLACK) - _TINY, 0.0)

    def level(self, chance: float) -> int:
        """Return the largest j with ``Pr[N >= j]`` about ``chance`` or more."""
        if self.above[0] >= chance:
            return math.floor(self.right * math.log(self.above[0] / chance))
        return -int(np.searchsorted(self.above, chance))

    def _passes(self, j: NDArray[np.int64] | int) -> NDArray[np.float64]:
        up, down = self._sides(j)
        steep = self.above[0] * np.exp(-up / self.right)
        return np.asarray(np.where(up > 0, steep, self.above[down]), dtype=np.float64)

    def _fails(self, j: NDArray[np.int64] | int) -> NDArray[np.float64]:
        up, down = self._sides(j)
        between = self.above[0] * -np.expm1(-up / self.right)
        return np.asarray(self.below[down] + between, dtype=np.float64)

    def _sides(self, j: NDArray[np.int64] | int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        j = np.asarray(j, dtype=np.int64)
        down = np.minimum(np.maximum(-j, 0), len(self.below) - 1)
        return np.maximum(j, 0).astype(np.float64), down


def lead_of(left: float) -> int:
    """Return the mode m of H."""
    return math.floor(_LEAD * left)


@lru_cache(maxsize=8)  # up to 29 MB each
def gate_tail(right: float, left: float) -> GateTail:
    """Return the tails of ``G - H`` for parameters up to ``LARGEST_ARGUMENT``."""
    lead = lead_of(left)
    reach = lead + math.ceil(_REACH * left) + 2
    drop = np.exp(-0.5 * ((np.arange(reach) - lead) / left) ** 2)
    drop /= math.fsum(drop)
    # at[n] = sum over z >= n of drop[z] q**(z - n); Pr[N = -n] = (1 - q) at[n] for n >= 0.
    at = signal.lfilter([1.0], [1.0, -math.exp(-1.0 / right)], drop[::-1])[::-1]
    mass = -math.expm1(-1.0 / right) * at
    below = np.append(np.cumsum(mass[:0:-1])[::-1], [0.0, 0.0])
    above = np.cumsum(np.concatenate([at[:1], mass[1:], [0.0]]))
    return GateTail(right, left, below, above)
