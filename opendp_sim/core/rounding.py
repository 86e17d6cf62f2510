"""Outward rounding: a bound printed as a float is never below the real number it stands for."""

from __future__ import annotations

import math
from fractions import Fraction

from opendp_sim.core.errors import SpaceError

__all__ = ["I64_MAX", "bounded_int", "float_down", "float_up", "sqrt_up"]

I64_MAX = 2**63 - 1


def float_up(value: Fraction | float) -> float:
    """Return the least float that is at least ``value``, exactly."""
    try:
        near = float(value)
    except OverflowError:
        return math.inf
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def float_down(value: Fraction | float) -> float:
    """Return the greatest float that is at most ``value``, exactly."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def sqrt_up(square: Fraction | int) -> float:
    """Return a float that is at least the square root of ``square``, and within two ulps of it.

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


def bounded_int(value: int, where: str) -> int:
    """Return ``value`` if it is an int64, else refuse: OpenDP's integer distances are int64."""
    if value > I64_MAX:
        raise SpaceError(
            "OS205",
            where,
            expected="a distance below 2**63",
            got="an overflow",
            hint="ask for a smaller input distance.",
        )
    return value
