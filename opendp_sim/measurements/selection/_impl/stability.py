"""Bound stability tests' profiles by a maximum over two cases.

Either the tested set is the same on both datasets, and the release is post-processing of one noisy
gap; or it differs, and then both releases fail except with probability delta. One pair of datasets is
in one of the two cases, so a single release pays for the worse one. Proofs: ``stability.md``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.domains.counts import Ranking
from opendp_sim.measurements.selection._impl.gate_tail import LARGEST_ARGUMENT, GateTail, lead_of
from opendp_sim.measurements.selection._impl.gaussian_tail import tail_of
from opendp_sim.measurements.selection._impl.peeling_profile import Profile, after_rounds, reach_of
from opendp_sim.measurements.selection._impl.selection import Choices

_CELLS = 64
_MOST_CELLS = 2**16
"""Grid points of a profile; the last bound holds beyond, which costs only where losses are vast."""
_MOST_LEVELS = 2**20
"""Pass levels that one value of a gated curve goes over."""
_FAR = 12
"""Deviations beyond which a failure weighs less than 1e-31."""
_MOST_EPSILON = 1e100
"""Losses beyond are read here, which only raises delta: no infinity minus another."""


def stable_profile(
    x: NDArray[np.float64], scale: float, threshold: int, distance: int
) -> NDArray[np.float64]:
    """Bound one stability test's profile at ratios x >= 0 (Lemma 1).

    ``scale`` is of the discrete Gaussian on the gap, whose sum releases the set at ``threshold``;
    ``distance`` is the number of users in which the datasets differ.
    """
    tail = tail_of(scale)
    differs = float(tail(threshold - distance))
    return np.maximum(tail.hockey_stick(x, distance), differs)


def chosen_profile(scale: float, threshold: int, distance: int, range_: float) -> Profile:
    """Bound a bounded-range draw and its chosen test (Lemma 2)."""
    mu = distance / scale
    step = range_ / _CELLS if range_ else mu / _CELLS
    top = mu * mu / 2 + _FAR * mu + reach_of(1, range_)
    size = min(math.ceil(top / step) + 2, _MOST_CELLS)
    x: NDArray[np.float64] = np.arange(size, dtype=np.float64) * step
    profile = Profile(step, stable_profile(x, scale, threshold, distance))
    return after_rounds(profile, 1 if range_ else 0, range_)


def gated_delta(
    epsilon: float, gate: GateTail, threshold: int, distance: int, rest: Profile
) -> float:
    """Bound delta of a test with fallback ``rest`` (Lemmas 3, 4)."""
    if distance == 0:
        return 0.0
    epsilon = min(epsilon, _MOST_EPSILON)
    worst = float(gate(threshold - distance))
    different = worst + (1 - worst) * rest.delta(epsilon)
    far = lead_of(gate.left) + math.ceil(_FAR * gate.left) + distance
    j = np.arange(-far, threshold + 1)
    # Lemma 4: no gap change between the two ends is worse than the worse of them.
    same = max(
        float(_conditional(epsilon, gate, j, shift, rest).max()) for shift in (-distance, distance)
    )
    return min(1.0, max(different, same, 2.0 * float(gate.fails(distance - far))))


def gate_fits(left: float, threshold: int = 0) -> bool:
    """Say whether ``gated_delta`` can hold every pass level that matters."""
    return left <= LARGEST_ARGUMENT and lead_of(left) + _FAR * left + threshold <= _MOST_LEVELS


def _conditional(
    epsilon: float, gate: GateTail, j: NDArray[np.int64], shift: int, rest: Profile
) -> NDArray[np.float64]:
    """Bound ``[p - e**eps p']_+ + (1 - p) D(eps - ln((1 - p) / (1 - p')))`` at each pass level j."""
    upper = gate(j)
    # Where this is positive in truth, the product is below p, and so is its rounding by ulps of p.
    passes = upper * (1 + 1e-12) - math.exp(min(epsilon, 700.0)) * gate.lower(j + shift)
    fail, other = gate.fails(j), gate.fails_lower(j + shift)
    x = epsilon - np.log(fail / np.maximum(other, 1e-300))
    x -= 1e-12 * (1.0 + np.abs(x))
    return np.maximum(passes, 0.0) + fail * np.where(other > 1e-300, rest.at(x), 1.0)


# --------------------------------------------------------------------------------------------------
# One stability test: release the top-k set if its gap survives noise, else nothing.


def stable_places(
    coins: Choices,
    ranking: Ranking,
    k: int,
    scale: float,
    threshold: int,
    right: float | None = None,
) -> NDArray[np.int64] | None:
    """Return the places of the top k, or None (``stable_set.md``, Lemma 1).

    The noise is a discrete Gaussian, or with ``right`` that of ``gate_tail.py``. A set with an item
    that nobody voted for is never released when the catalogue is unknown (place -1), which is one more
    way for both sides to fail.
    """
    gap = int(ranking.counts[k - 1] - ranking.counts[k])
    if right is None:
        passes = coins.reaches(scale, threshold - gap)
    else:
        passes = coins.gate_reaches(right, scale, threshold - gap)
    if not passes or bool((ranking.places[:k] < 0).any()):
        return None
    return ranking.places[:k]


def set_at(names: Any, places: NDArray[np.int64] | None) -> list[str | int] | None:
    """Return the items at ``places`` in the public order, or None."""
    return None if places is None else list(names(places))
