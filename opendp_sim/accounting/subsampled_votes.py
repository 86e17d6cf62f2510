"""The loss of noisy votes over a Poisson subsample, composed: through dp-accounting.

One query draws each record with probability ``rate`` and releases the class counts of a chosen k of
them plus discrete Gaussian noise on every cell. The accountant is dp-accounting's privacy loss
distribution, fed with the exact law of this noise. Proof: ``subsampled_votes.md``, beside this file.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from opendp_sim.core.errors import AuditError, BudgetError

__all__ = ["RATE_STEPS", "dyadic_rate", "epsilon_of", "scale_for"]

RATE_STEPS = 2**32
"""Sampling rates are multiples of one over this, so that coins are exact."""
_REACH = 13.0
"""Deviations of the difference kept; the rest (below e**-84) counts as an infinite loss."""
_LEAST_SCALE, _MOST_SCALE = 0.3, 2.0**12
"""Scales in between are looked for. Below, noise is almost always zero: nothing is gained by less."""
_COARSE, _FINE = 0.2, 0.01
_CLOSE, _AIM, _TRIES = 0.997, 0.9985, 12


def dyadic_rate(rate: float) -> int:
    """Return the rate in ``RATE_STEPS``, rounded up."""
    return min(RATE_STEPS, math.ceil(Fraction(rate) * RATE_STEPS))


@lru_cache(maxsize=256)
def epsilon_of(
    scale: float, rate: float, queries: int, delta: float, fineness: float = 0.01
) -> float:
    """Return epsilon at ``delta`` of that many queries, under adding or removing one record.

    Lemma 1 of ``subsampled_votes.md``.

    Args:
        scale: of the discrete Gaussian noise on each cell.
        rate: sampling probability; rounded up to ``RATE_STEPS``.
        queries: how many queries are composed, adaptively.
        delta: in (0, 1).
        fineness: what rounding up may add to the sum of the losses.

    Raises:
        AuditError (OS503): dp-accounting is not installed.
    """
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - an extra
    except ImportError:
        raise AuditError(
            "OS503", "subsampled_votes", expected="dp-accounting", got="no such package",
            hint="pip install 'opendp_sim[audit]', or use ind_knn, which needs no accountant.",
        ) from None  # fmt: skip
    with_record, without = _pair(scale, dyadic_rate(rate) / RATE_STEPS)
    # Rounding up adds at most one interval a query.
    step = min(1e-4, fineness / queries)
    one: Any = pld.from_two_probability_mass_functions(
        without, with_record, value_discretization_interval=step, symmetric=False
    )
    return float(one.self_compose(queries).get_epsilon_for_delta(delta))


def _pair(scale: float, rate: float) -> tuple[dict[Any, float], dict[Any, float]]:
    """Return the log laws of the difference of two cells, with and without a record."""
    reach = math.ceil(_REACH * math.sqrt(2) * scale) + 2
    difference = np.arange(-reach, reach + 1)
    log_law = -(difference.astype(np.float64) ** 2) / (4 * scale * scale)
    log_law += np.where(difference % 2 == 0, *_thetas(scale))
    log_law -= np.log(np.exp(log_law - log_law.max()).sum()) + log_law.max()
    log_ratio = (difference - 1) / (scale * scale)
    # In logs: at small scales a ratio is beyond a float, and at rate 1 the first part is nothing.
    kept = math.log1p(-rate) if rate < 1.0 else -math.inf
    mixed = np.logaddexp(kept + log_law, math.log(rate) + log_law + log_ratio)
    keys = difference.tolist()
    plain: dict[Any, float] = dict(zip(keys, log_law.tolist(), strict=True))
    both: dict[Any, float] = dict(zip(keys, mixed.tolist(), strict=True))
    # Mass beyond reach is nobody's in the other law: an infinite loss, in either direction.
    both["beyond with"] = plain["beyond without"] = -_REACH * _REACH / 2 + 1.0
    return both, plain


def _thetas(scale: float) -> tuple[float, float]:
    """Return the logs of ``sum_x exp(-(x - s)**2 / scale**2)`` for s = 0 and s = 1/2."""
    most = math.ceil(7 * scale) + 2
    places = np.arange(-most, most + 1, dtype=np.float64)
    even, odd = (math.log(np.exp(-(((places - s) / scale) ** 2)).sum()) for s in (0.0, 0.5))
    return even, odd


@lru_cache(maxsize=64)
def scale_for(epsilon: float, delta: float, queries: int, rate: float) -> float:
    """Return a noise scale, within about 0.3 % of the least, at which the queries cost at most epsilon.

    Never below 0.3, where noise is almost always zero, also if less would do.

    Raises:
        BudgetError (OS401): no scale below 4,096 does. AuditError (OS503): as ``epsilon_of``.
    """
    guess = max(1.0, 2.0 * rate * math.sqrt(queries) / epsilon)
    for fineness in (_COARSE, _FINE):
        # The loss falls about as one over the scale; a step too short is made up for.
        for _ in range(_TRIES):
            if not guess < _MOST_SCALE:
                raise _out_of_reach()
            found = epsilon_of(guess, rate, queries, delta, fineness)
            if _CLOSE * epsilon <= found <= epsilon or (found <= epsilon and guess == _LEAST_SCALE):
                break
            guess = max(_LEAST_SCALE, guess * found / (epsilon * _AIM))
    while epsilon_of(guess, rate, queries, delta, _FINE) > epsilon:
        guess *= 1.01
    return guess


def _out_of_reach() -> BudgetError:
    return BudgetError(
        "OS401", "subsampled_votes", expected=f"a budget that a scale below {_MOST_SCALE:g} meets",
        got="a smaller one", hint="lower the sampling rate or the number of queries.",
    )  # fmt: skip
