"""Compute the loss of noisy votes over Poisson subsamples.

Composed through dp-accounting. One query draws each record with probability ``rate`` and releases the
class counts of a chosen k of them plus discrete Gaussian noise on every cell. The accountant is
dp-accounting's privacy loss distribution, fed with the exact law of this noise. Proof:
``subsampled_votes.md``, beside this file.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import AuditError, BudgetError

RATE_STEPS = 2**32
"""Sampling rates are multiples of one over this, so that coins are exact."""
_REACH = 13.0
"""Deviations of the difference kept; the rest (below e**-84) counts as an infinite loss."""
_LEAST_SCALE, _MOST_SCALE = 0.3, 2.0**12
"""Scales in between are looked for. Below, noise is almost always zero: nothing is gained by less."""
_NEAR_LEAST = 1.0
_CLOSE, _AIM, _NARROW, _TRIES = 0.997, 0.9985, 1.0005, 40
_BEYOND = math.exp(-_REACH * _REACH / 2 + 1.0)
"""Mass of each law placed where the other has none, for what is beyond reach."""
_ROUNDED = 1 - 1e-6
"""What of delta is used: the rest is for the rounding of floats."""
_OF_DEVIATION, _STEP, _LEAST_STEP, _CELLS = 0.05, 0.002, 1e-9, 100_000
"""The grid of losses: parts of a deviation, longest and shortest step, most steps in one query."""
_WIDEST = 1e7
"""Steps that the losses of all queries may cover: seconds, and some hundred megabytes."""


def dyadic_rate(rate: float) -> int:
    """Return the rate in ``RATE_STEPS``, rounded up."""
    return min(RATE_STEPS, math.ceil(Fraction(rate) * RATE_STEPS))


@lru_cache(maxsize=256)
def epsilon_of(scale: float, rate: float, queries: int, delta: float) -> float:
    """Return epsilon at ``delta`` of that many queries (``subsampled_votes.md``, Lemma 1).

    Args:
        scale: of the discrete Gaussian noise on each cell.
        rate: sampling probability of a record; rounded up to ``RATE_STEPS``.
        queries: how many queries are composed, adaptively.
        delta: in (0, 1).

    Raises:
        AuditError (OS503): dp-accounting is not installed.
    """
    try:
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution  # noqa: PLC0415 - an extra
    except ImportError:
        raise AuditError(
            "OS503", "subsampled_votes", expected="dp-accounting", got="no such package",
            hint="pip install 'opendp_sim[audit]', or use ind_knn, which needs no accountant.",
        ) from None  # fmt: skip
    law, losses = _pair(scale, dyadic_rate(rate) / RATE_STEPS)
    with_record = law * np.exp(losses)
    step, width = _step(losses, with_record, queries)
    if width > _WIDEST:
        return math.inf  # an upper bound, and no scale that anybody would be content with
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots
    one: Any = privacy_loss_distribution.PrivacyLossDistribution(
        *(  # dense: a sparse one is asked for its size to the power of the queries
            pmf(step, *_curve(*pair, step)).to_dense_pmf()
            for pair in ((losses, law), (-losses[::-1], with_record[::-1]))
        )
    )
    return float(one.self_compose(queries).get_epsilon_for_delta(delta * _ROUNDED))


def _step(
    losses: NDArray[np.float64], law: NDArray[np.float64], queries: int
) -> tuple[float, float]:
    """Return a grid for losses, and its length in steps.

    A small part of a deviation, but no more than ``_CELLS`` steps in one query.
    """
    mean = float(law.dot(losses))
    deviation = math.sqrt(float(law.dot((losses - mean) ** 2)))
    spread = float(losses[-1] - losses[0])
    step = max(min(_OF_DEVIATION * deviation, _STEP), spread / _CELLS, _LEAST_STEP)
    return step, (20.0 * deviation * math.sqrt(queries) + spread) / step


def _curve(
    losses: NDArray[np.float64], lower: NDArray[np.float64], step: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return grid losses, and the hockey-stick divergences there of the law ``lower * e**losses``.

    Losses ascend. Beside it, each law has mass ``_BEYOND`` where the other has none.
    """
    grid = np.arange(math.floor(losses[0] / step) - 1, math.ceil(losses[-1] / step) + 2)
    first = np.searchsorted(losses, grid * step, side="right")
    # sum of lower * (e**loss - e**epsilon), from the far end: small losses keep their digits
    above, below = (
        np.append(np.cumsum(terms[::-1])[::-1], 0.0) for terms in (lower * np.expm1(losses), lower)
    )
    apart = above[first] - np.expm1(grid * step) * below[first] + _BEYOND
    return grid, np.minimum.accumulate(np.clip(apart, _BEYOND, 1.0))


def _pair(scale: float, rate: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the law of two cells' difference, and its ascending losses."""
    reach = math.ceil(_REACH * math.sqrt(2) * scale) + 2
    difference = np.arange(-reach, reach + 1)
    log_law = -(difference.astype(np.float64) ** 2) / (4 * scale * scale)
    log_law += np.where(difference % 2 == 0, *_thetas(scale))
    log_law -= np.log(np.exp(log_law - log_law.max()).sum()) + log_law.max()
    log_ratio = (difference - 1) / (scale * scale)
    if rate == 1.0:
        return np.exp(log_law), log_ratio
    # log(1 - rate + rate * ratio): small losses keep their digits, large ratios do not overflow
    near = np.log1p(rate * np.expm1(np.minimum(log_ratio, 1.0)))
    far = np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio)
    return np.exp(log_law), np.where(log_ratio <= 1.0, near, far)


def _thetas(scale: float) -> tuple[float, float]:
    """Return the logs of ``sum_x exp(-(x - s)**2 / scale**2)``."""
    most = math.ceil(7 * scale) + 2
    places = np.arange(-most, most + 1, dtype=np.float64)
    even, odd = (math.log(np.exp(-(((places - s) / scale) ** 2)).sum()) for s in (0.0, 0.5))
    return even, odd


@lru_cache(maxsize=64)
def scale_for(epsilon: float, delta: float, queries: int, rate: float) -> float:
    """Return a noise scale at which the queries cost epsilon.

    At most, and within about 0.3 % of the least scale. Never below 0.3, where noise is almost always
    zero, also if less would do.

    Raises:
        BudgetError (OS401): no scale below 4,096 does. AuditError (OS503): as ``epsilon_of``.
    """
    low, high = _LEAST_SCALE, _MOST_SCALE
    guess = min(max(1.0, 2.0 * rate * math.sqrt(queries) / epsilon), high / 2)
    for _ in range(_TRIES):
        found = epsilon_of(guess, rate, queries, delta)
        if _CLOSE * epsilon <= found <= epsilon:
            return guess
        low, high = (guess, high) if found > epsilon else (low, guess)
        if high <= low * _NARROW:
            break
        if (
            high <= _NEAR_LEAST
            and low == _LEAST_SCALE
            and (epsilon_of(low, rate, queries, delta) <= epsilon)
        ):
            return low
        # The loss falls about as one over the scale; where that leads out of the bracket, halve it.
        aimed = guess * found / (epsilon * _AIM)
        guess = aimed if low * _NARROW < aimed < high / _NARROW else math.sqrt(low * high)
    if high == _MOST_SCALE:
        need_reachable(epsilon, delta, queries, rate)
    return high


def need_reachable(epsilon: float, delta: float, queries: int, rate: float) -> None:
    """Refuse an epsilon that no scale in reach meets (OS401)."""
    if epsilon_of(_MOST_SCALE, rate, queries, delta) > epsilon:
        raise BudgetError(
            "OS401", "subsampled_votes", got="a smaller one",
            expected=f"a budget that a scale below {_MOST_SCALE:g} meets",
            hint="lower the sampling rate or the number of queries.",
        )  # fmt: skip
