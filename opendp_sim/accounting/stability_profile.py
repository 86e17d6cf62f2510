"""Privacy profiles of stability tests: the maximum over two cases, not their sum.

Either the tested set is the same on both datasets, and the release is post-processing of one noisy
gap; or it differs, and then both releases fail except with probability delta. One pair of datasets is
in one of the two cases, so a single release pays for the worse one. Proofs: ``stability_profile.md``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.gaussian_tail import Tail, tail_of
from opendp_sim.accounting.peeling_profile import Profile, after_rounds, reach_of

__all__ = ["chosen_profile", "gate_fits", "gated_delta", "stable_profile"]

_CELLS = 64
_MOST_CELLS = 2**16
"""Grid points of a profile; the last bound holds beyond, which costs only where losses are vast."""
_MOST_LEVELS = 2**20
"""Pass levels that one value of a gated curve goes over."""
_FAR = 12
"""Deviations beyond which a pass or a failure weighs less than 1e-31."""


def stable_profile(
    x: NDArray[np.float64], scale: float, threshold: int, distance: int
) -> NDArray[np.float64]:
    """Bound the profile of one stability test at each x >= 0 (Lemma 1).

    Args:
        x: log likelihood ratios, at least 0.
        scale: parameter of the discrete Gaussian on the gap.
        threshold: the set is released when gap plus noise reaches it.
        distance: number of users in which the datasets differ.
    """
    tail = tail_of(scale)
    differs = float(tail(threshold - distance))
    return np.maximum(tail.hockey_stick(x, distance), differs)


def chosen_profile(scale: float, threshold: int, distance: int, range_: float) -> Profile:
    """Bound the profile of one draw of bounded range and then the test it chose (Lemma 2)."""
    mu = distance / scale
    step = range_ / _CELLS if range_ else mu / _CELLS
    top = mu * mu / 2 + _FAR * mu + reach_of(1, range_)
    size = min(math.ceil(top / step) + 2, _MOST_CELLS)
    x: NDArray[np.float64] = np.arange(size, dtype=np.float64) * step
    profile = Profile(step, stable_profile(x, scale, threshold, distance))
    return after_rounds(profile, 1 if range_ else 0, range_)


def gated_delta(
    epsilon: float, scale: float, threshold: int, distance: int, rest: Profile
) -> float:
    """Bound delta at ``epsilon >= 0`` of one test, and ``rest`` only if it fails (Lemmas 3 and 4)."""
    tail = tail_of(scale)
    if distance == 0:
        return 0.0
    fails = rest.delta(epsilon)
    worst = float(tail(threshold - distance))
    different = worst + (1 - worst) * fails
    far = math.ceil(_FAR * scale)
    j = np.arange(-far, max(threshold, far) + 1)
    # Lemma 4: no gap change between the two ends is worse than the worse of them.
    same = max(
        float(_conditional(epsilon, tail, j, shift, rest).max()) for shift in (-distance, distance)
    )
    return min(1.0, max(different, same + 4.0 * float(tail(far - distance))))


def gate_fits(scale: float, threshold: int) -> bool:
    """Say whether ``gated_delta`` can hold every pass level that matters."""
    return 2 * _FAR * scale + threshold <= _MOST_LEVELS


def _conditional(
    epsilon: float, tail: Tail, j: NDArray[np.int64], shift: int, rest: Profile
) -> NDArray[np.float64]:
    """Bound ``[p - e**eps p']_+ + (1 - p) D(eps - ln((1 - p) / (1 - p')))`` at each pass level j."""
    passes = tail(j) - math.exp(min(epsilon, 700.0)) * tail.lower(j + shift)
    # Pr[fail at j] = Pr[N < j] = Pr[N >= 1 - j].
    fail = tail(1 - j)
    other = np.maximum(tail.lower(1 - j - shift), 1e-300)
    x = epsilon - np.log(fail / other)
    x -= 1e-12 * (1.0 + np.abs(x))
    rounding = 1e-12 * tail(j)
    bound: NDArray[np.float64] = np.maximum(passes, 0.0) + rounding + fail * rest.at(x)
    return bound
