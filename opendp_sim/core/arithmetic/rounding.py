"""Round outward, so that no bound is below the real number."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from opendp_sim.core.errors import SpaceError

I64_MAX = 2**63 - 1
U32_MAX = 2**32 - 1
"""OpenDP counts records in 32 bits."""


def float_up(value: Fraction | float) -> float:
    """Return the least float that is at least ``value``, exactly."""
    try:
        near = float(value)
    except OverflowError:
        return math.inf
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def float_down(value: Fraction | float) -> float:
    """Return the greatest float that is at most ``value``, exactly."""
    try:
        near = float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -math.inf
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def decimal_of(value: float | Fraction) -> Fraction:
    """Return the exact number of a float's shortest text, 1/10 for 0.1.

    Numbers that a person wrote are read so; a bound that was computed is the float's own value.
    """
    return value if isinstance(value, Fraction) else Fraction(repr(float(value)))


def decimal_down(value: Fraction) -> float:
    """Return the greatest float whose shortest text is at most ``value``."""
    near = float_down(value)
    following = math.nextafter(near, math.inf)
    return following if math.isfinite(following) and decimal_of(following) <= value else near


def up_text(value: float | Fraction, digits: int = 6) -> str:
    """Render a bound with ``digits`` significant digits, never below it.

    A float counts as the number that its shortest text says: 0.1 stays ``0.1``.
    """
    return _text(value, digits, ROUND_CEILING)


def down_text(value: float | Fraction) -> str:
    """Render a remaining budget, rounded down to six significant digits."""
    return _text(value, 6, ROUND_FLOOR)


def _text(value: float | Fraction, digits: int, rounding: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value:g}"
    exact = decimal_of(value)
    context = Context(prec=digits, rounding=rounding)
    found = context.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    return f"{float(found):.{digits}g}"


def whole_distance(value: float | Fraction, where: str) -> Fraction:
    """Return a finite input distance from 0 up, exactly, or refuse (OS206)."""
    if not 0 <= value < math.inf:
        raise SpaceError(
            "OS206", where, expected="a finite distance of at least 0", got=f"{float(value):g}",
            hint="ask at a distance that two neighbours can have.",
        )  # fmt: skip
    return Fraction(value)


def sqrt_up(square: Fraction | int) -> float:
    """Return a float at or above the square root, within two ulps.

    Exact: the comparison ``root ** 2 >= square`` is made in rational numbers.
    """
    square = Fraction(square)
    if square == 0:
        return 0.0
    try:
        root = math.sqrt(square)
    except OverflowError:
        return math.inf
    root = math.nextafter(root, 0.0)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def least_int(fits: Callable[[int], bool]) -> int:
    """Return the least positive integer from which on ``fits`` holds."""
    low, high = 0, 1
    while not fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def least(fits: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least float above ``low`` at which ``fits`` holds.

    Exact to the last bit. ``fits`` holds at ``high`` and, once true, stays true above; it does not
    hold at ``low``.
    """
    while (middle := low + (high - low) / 2.0) not in (low, high):
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def profile_everywhere(curve: Callable[[float], float]) -> Callable[[float], float]:
    """Return a privacy profile for every epsilon.

    From one that holds from 0 on. Neighbours stand in either order, so for t > 0 the complement of an
    event says that ``P(E) - e**-t Q(E) = 1 - e**-t + e**-t (Q(E') - e**t P(E')) <= 1 - e**-t (1 -
    delta(t))``.
    """

    def at(epsilon: float) -> float:
        if not epsilon < 0:
            return curve(epsilon)
        # Two positive terms of a few rounded operations each.
        far = -math.expm1(epsilon) + math.exp(epsilon) * curve(-epsilon)
        return min(1.0, far * (1 + 2.0**-48))

    return at


def bounded_int(value: int, where: str, most: int = I64_MAX) -> int:
    """Return ``value``, or refuse it beyond OpenDP's integers."""
    if value > most:
        raise SpaceError(
            "OS205", where, expected=f"a distance below 2**{most.bit_length()}", got="an overflow",
            hint="ask for a smaller input distance.",
        )  # fmt: skip
    return value
