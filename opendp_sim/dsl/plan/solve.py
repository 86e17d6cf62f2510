"""Solve the parameter at which a loss first fits, to a bit."""

from __future__ import annotations

import math
from collections.abc import Callable

from opendp_sim.core.arithmetic.rounding import least
from opendp_sim.core.errors import BudgetError, SimError

Loss = tuple[float, ...]
"""(epsilon,), (rho,), (epsilon, delta) or (rho, delta): what the measure's map returns."""
_STEPS = 12
"""Secants before the search begins anew without them."""
_NEAR = 2.0**-24
"""Once a loss is so near the limit, relatively, the next secant ends within a few bits of the answer."""
_WIDTHS = (2.0**-50, 2.0**-46, 2.0**-40)
"""Intervals that are tried around it: the narrower, the fewer losses are looked at."""


def solve(
    loss_at: Callable[[float], Loss],
    most: Loss,
    where: str,
    *,
    rising: bool = False,
    start: float = 1.0,
    guess: float | None = None,
) -> float:
    """Return the parameter at which the loss first fits ``most``.

    ``loss_at`` falls with the parameter (a scale), or rises with it (an epsilon or rho of the
    mechanism's own). Binary search on OpenDP's map down to adjacent floats. Most losses are near a power
    of the parameter, as that of noise is: the search begins in a narrow interval around the power's own
    answer, reached from ``start``, and ends at the same float; any other loss is searched as a whole.
    A ``guess`` (for a falling loss) is the answer if it fits and the float below it does not.
    """

    def at(value: float) -> Loss:
        return loss_at(1.0 / value if rising else value)

    def fits(value: float) -> bool:
        found = at(value)
        # An overflow stands alone, whatever the measure: it fits nowhere.
        return all(
            have <= limit for have, limit in zip(found, most, strict=math.isfinite(found[0]))
        )

    if guess is not None and not rising and fits(guess) and not fits(math.nextafter(guess, 0.0)):
        return guess
    ends = _near_a_power(at, most, fits, start)
    best = least_value(fits, where) if ends is None else least(fits, *ends)
    return 1.0 / best if rising else best


def _near_a_power(
    loss_at: Callable[[float], Loss], most: Loss, fits: Callable[[float], bool], start: float
) -> tuple[float, float] | None:
    """Return neighbouring values around the first fit, or None.

    The upper one fits and the lower does not. Secants of log loss over log value: two steps reach a
    power law to its last bits, and a few more what is only near one.
    """
    limit = most[0]
    value, following = start, 2.0 * start
    try:
        have, then = loss_at(value)[0], loss_at(following)[0]
        for _ in range(_STEPS):
            if not all(0 < number < math.inf for number in (limit, have, then)) or have == then:
                return None
            slope = math.log(then / have) / math.log(following / value)
            value, have = following, then
            following = value * math.exp(math.log(limit / have) / slope)
            if not 2.0**-50 < following < 2.0**50:
                return None
            for width in _WIDTHS if abs(have / limit - 1) < _NEAR else ():
                low, high = following * (1 - width), following * (1 + width)
                if fits(high) and not fits(low):
                    return low, high
            then = loss_at(following)[0]
    # Beyond what the mechanism takes, or floats: the slower search says what is wrong.
    except (SimError, ArithmeticError, ValueError):
        return None
    return None


def least_value(fits: Callable[[float], bool], where: str) -> float:
    """Return the least float at which ``fits`` holds, by doubling and bisection.

    Raises:
        BudgetError: OS401, it holds nowhere below 2**58.
    """
    high = 1.0
    while not fits(high):
        high *= 2.0
        if high > 2.0**58:
            raise BudgetError(
                "OS401", where, expected="a budget that some noise scale meets",
                got="none below 2**58", hint="raise the budget, or lower the sketch's sensitivity.",
            )  # fmt: skip
    low = high / 2.0
    while fits(low) and low > 2.0**-60:
        high, low = low, low / 2.0
    return least(fits, low, high)
