"""Bound the discrete Gaussian's tail and hockey-stick curve.

From above, in floats. A stability test releases a set when an integer gap plus discrete Gaussian noise
reaches a threshold. Its delta is a tail of that law, so an upper bound on the tail is a privacy claim.
Proofs: ``gaussian_tail.md``, beside this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.rounding import least_int
from opendp_sim.core.system.lazy_import import special

_SLACK = 1e-9
"""Relative room for the rounding of exp, sums and products below; the true error is under 1e-10."""
_FINE_SLACK = 2e-12
"""The same for the normal tail, which is one evaluation and no sum."""
_REACH = 38.0
"""Deviations after which the law weighs less than 1e-300."""
_LARGEST_TABLE = 2**14
"""Scales above this use the normal tail half a step further in, and a bound on what differs."""
_TINY = 1e-300


@dataclass(frozen=True)
class Tail:
    """``Pr[N >= j]`` for N with mass proportional to ``exp(-n**2 / (2 scale**2))`` on the integers.

    Attributes:
        scale: the law's parameter.
        above: shape (reach + 1,); the tail at j = 0, 1, ..., without slack.
    """

    scale: float
    above: NDArray[np.float64]

    def __call__(self, j: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return an upper bound on ``Pr[N >= j]``, elementwise (Lemma 1)."""
        return np.minimum(self._value(j) * (1 + self.slack) + _TINY, 1.0)

    def lower(self, j: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return a lower bound on the same."""
        return np.maximum(self._value(j, outward=False) * (1 - self.slack) - _TINY, 0.0)

    @property
    def slack(self) -> float:
        """Relative room for rounding."""
        return _SLACK if self.above.size else _FINE_SLACK

    def _value(self, j: NDArray[np.int64] | int, *, outward: bool = True) -> NDArray[np.float64]:
        j = np.asarray(j, dtype=np.int64)
        # Pr[N >= j] = 1 - Pr[N >= 1 - j] by symmetry.
        up, down = (
            self._upper_half(np.maximum(j, 1), outward),
            self._upper_half(np.maximum(1 - j, 1), not outward),
        )
        return np.where(j >= 1, up, 1.0 - down)

    def _upper_half(self, j: NDArray[np.int64], outward: bool) -> NDArray[np.float64]:
        if self.above.size:
            return self.above[np.minimum(j, self.above.size - 1)]
        u = (j - 0.5) / self.scale
        apart = (np.minimum(u, _REACH) ** 2 + 4.0) / (12.0 * self.scale**2)  # Lemma 1
        return special.ndtr(-u) * (1.0 + apart if outward else 1.0 - apart)

    def hockey_stick(self, x: NDArray[np.float64], shift: int) -> NDArray[np.float64]:
        """Bound ``sup_S Pr[N in S] - e**x Pr[N + shift in S]`` at each x >= 0 (Lemma 2)."""
        if shift == 0:
            return np.zeros_like(x)
        best = np.ceil(x * self.scale**2 / shift - shift / 2.0)
        best = np.minimum(best, 2.0**53).astype(np.int64)
        # One step to either side makes the float position of the maximum immaterial.
        at = np.stack([best - 1, best, best + 1])
        with np.errstate(over="ignore", invalid="ignore"):
            second = np.exp(np.minimum(x, 700.0)) * self.lower(at + shift)
        return np.clip(
            (self(at) - second).max(axis=0) + self.slack * self(at).max(axis=0), 0.0, 1.0
        )


@lru_cache(maxsize=256)
def tail_of(scale: float) -> Tail:
    """Return the tail of the discrete Gaussian with parameter ``scale``."""
    if scale > _LARGEST_TABLE:
        return Tail(scale, np.empty(0))
    reach = math.ceil(_REACH * scale) + 2
    mass = np.exp(-0.5 * (np.arange(reach) / scale) ** 2)
    total = 2.0 * math.fsum(mass[:0:-1]) + 1.0
    above = np.cumsum(mass[::-1])[::-1] / total
    return Tail(scale, np.append(above, 0.0))


def threshold_for(scale: float, delta: float, distance: int) -> int:
    """Return the least integer T with ``Pr[N >= T - distance] <= delta``, by the upper bound."""
    return least_threshold(tail_of(scale), delta, distance)


def least_threshold(tail: Callable[[int], NDArray[np.float64]], delta: float, distance: int) -> int:
    """Return the least integer T above ``distance`` with ``tail(T - distance) <= delta``."""
    return least_int(lambda level: float(tail(level)) <= delta) + distance
