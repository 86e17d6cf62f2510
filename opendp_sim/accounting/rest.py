"""What a limit leaves, part by part, and how that is said.

Epsilons of Gaussian and zero-concentrated losses do not add up: mu**2 and rho do. What is left of an
epsilon at a delta is therefore no difference of epsilons, but the epsilon of the largest run that still
fits. A part of a limit is used up by the part that adds up, so equal runs are equal shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_FLOOR, Context
from fractions import Fraction

from opendp_sim.accounting.budget import Budget, MeasureName
from opendp_sim.accounting.conversion import zcdp_to_epsilon
from opendp_sim.accounting.gaussian_curve import epsilon_up
from opendp_sim.accounting.normal_tail import root_bounds
from opendp_sim.core.errors import BudgetError
from opendp_sim.core.rounding import float_down

__all__ = ["BY_SQUARES", "delta_limit", "less", "most_of", "mu_left", "rest_text", "room_of"]

BY_SQUARES: tuple[MeasureName, ...] = ("gdp", "zcdp", "approx_zcdp")
"""Measures whose runs' epsilons add up by squares."""
_CLOSE = 1 - 2.0**-36
"""A run of this part of a computed epsilon costs less than what it was computed from."""
_STEPS = 60


def delta_limit(measure: MeasureName, limit: Budget) -> float:
    """Return the delta that mechanisms may use of a limit."""
    return limit.mechanisms_delta if measure == "approx_zcdp" else limit.delta or 0.0


def _converted_at(measure: MeasureName, limit: Budget) -> float:
    """Return the delta at which the epsilon of a limit is stated."""
    return limit.conversion_delta if measure == "approx_zcdp" else limit.delta or 0.0


def most_of(measure: MeasureName, limit: Budget, fits: Callable[[float], bool]) -> float:
    """Return the greatest sum that a limit takes (up to 2**-36 of it), in the part that adds up.

    Args:
        measure: the ledger's.
        limit: its limit.
        fits: whether a sum is within the limit, as the ledger decides it.
    """
    found = [] if limit.rho is None or "zcdp" not in measure else [limit.rho]
    if measure == "gdp" and limit.mu_squared is not None:
        found.append(float_down(limit.mu_squared / 2))
    elif measure in BY_SQUARES and limit.epsilon is not None:
        found.append(_rho_of(limit.epsilon, _converted_at(measure, limit)) * _CLOSE)
    elif limit.epsilon is not None:
        found.append(limit.epsilon)
    most = min(found, default=0.0)
    if not most or _held(fits, most):
        return most
    return _greatest(lambda sum_: _held(fits, sum_), most)


def _held(fits: Callable[[float], bool], sum_: float) -> bool:
    """Say whether a sum fits; one that cannot be converted does not."""
    try:
        return fits(sum_)
    except BudgetError:
        return False


def _rho_of(epsilon: float, delta: float) -> float:
    """Return the greatest rho whose epsilon is at most this, in floats: a guess that is checked after."""
    return _greatest(lambda rho: zcdp_to_epsilon(rho, delta) <= epsilon, 2 * epsilon + 1)


def _greatest(holds: Callable[[float], bool], high: float) -> float:
    low, step = 0.0, high
    while step and not holds(step):
        high, step = step, step / 1024
    low = step
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def room_of(measure: MeasureName, limit: Budget, spent: float, most: float) -> float:
    """Return the greatest epsilon, at the limit's delta, of one more run that is measured so and fits."""
    if not spent and limit.rho is None and limit.mu is None and limit.epsilon is not None:
        return limit.epsilon
    if math.isinf(spent) or spent >= most:
        return 0.0
    rest, delta = float_down(Fraction(most) - Fraction(spent)), _converted_at(measure, limit)
    found = (
        epsilon_up(2 * Fraction(rest), delta) if measure == "gdp" else zcdp_to_epsilon(rest, delta)
    )
    return min(found * _CLOSE, limit.epsilon or math.inf)


def less(limit: float, spent: float) -> float:
    """Return what is left where numbers add up, rounded against the spender."""
    return 0.0 if math.isinf(spent) else max(0.0, float_down(limit - spent))


def mu_left(limit: float, spent: float) -> float:
    """Return the mu that still fits: squares add up."""
    square = Fraction(limit) ** 2 - 2 * Fraction(spent)
    return float_down(Fraction(root_bounds(square, 80)[0], 1 << 80)) if square > 0 else 0.0


def rest_text(measure: str, left: Mapping[str, float], limit: Budget) -> str:
    """Say what is left, rounded down; of losses that add up by squares, what one more run may cost."""
    plain: list[str] = []
    squares: list[str] = []
    for name, value in left.items():
        squared = name == "mu" or (name == "epsilon" and measure in BY_SQUARES)
        (squares if squared else plain).append(f"{name} {_down_text(value)}")
        if squared and name == "epsilon" and limit.delta is not None:
            squares[-1] += f" at delta {limit.delta:g}"
    if squares:
        told = " and ".join(squares)
        plain.append(
            f"room for one more run of {told} under {measure} (losses of this kind add up by squares)"
        )
    return ", ".join(plain) or "nothing"


def _down_text(value: float) -> str:
    exact = Context(prec=6, rounding=ROUND_FLOOR).create_decimal(repr(float(value)))
    return f"{float(exact):.6g}"
