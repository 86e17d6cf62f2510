"""Compute Gaussian DP's curve and its inverses, rounded outward.

The curve is delta(epsilon). A mechanism is mu-GDP if no test tells its outputs on two neighbours apart
better than one draw of N(0, 1) from N(mu, 1) (Dong, Roth and Su 2019). Everything is kept in ``m =
mu**2``, a rational, which is what adds up under composition. Proofs: ``gaussian.md``, beside this
file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from opendp_sim.accounting.measures.normal_tail import density_bounds, mills_bounds, upper_tail
from opendp_sim.core.arithmetic.exp_bounds import exp_neg_bounds
from opendp_sim.core.arithmetic.rounding import float_up

TINY = Fraction(1, 2**1074)
"""The least positive float: an upper bound that is never 0."""
_FAR = 1490
"""From this square on, Q(a) <= e**(-square / 2) / 2 < 2**-1075."""
_GAP = 60
"""Brackets are this many bits tighter than what they hold."""
_DIGITS = 40
"""Binary digits of an inverse: answers lie on this grid, so that every machine finds the same one."""
_STRIDE = 16
"""Powers of two that a search for a power of two passes over at most."""
_WIDER = 1 + Fraction(1, 2**_GAP)
"""No upper end of a bracket is farther, relatively, from the curve."""
_GUESSED, _HALVINGS = (2.0**-60, 2.0**9), 60
"""Where a guess is looked for, and how closely."""
_REACH = 2**10
"""Steps of the grid from a guess that are tried."""
_FLAT = 256
"""From this epsilon on a pure loss is counted at its simple bound: 8 epsilon."""


@lru_cache(maxsize=4096)
def delta_bounds(m: Fraction, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Bracket ``delta(epsilon) = Q(epsilon / mu - mu / 2) - e**epsilon Q(epsilon / mu + mu / 2)``.

    ``m`` is mu**2 >= 0, epsilon any real. The relative gap is at most 2**-60 wherever delta is above
    2**-1074 (Lemma N3).
    """
    if epsilon < 0:  # the curve of a pair that is its own mirror image
        low, high = delta_bounds(m, -epsilon)
        bits = _GAP + 8 + max(0, -math.floor(math.log2(float(-epsilon))))
        e_low, e_high = (Fraction(e, 1 << bits) for e in exp_neg_bounds(-epsilon, bits))
        # 1 - e (1 - delta) with 0 <= delta <= 1: falls with e, grows with delta
        return 1 - e_high * (1 - low), min(Fraction(1), 1 - e_low * (1 - high))
    if m == 0:
        return Fraction(0), Fraction(0)
    near = (epsilon - m / 2) ** 2 / m  # a**2; b**2 is 2 epsilon more
    ahead = epsilon >= m / 2
    if near > _FAR:
        return (Fraction(0), TINY) if ahead else (1 - 2 * TINY, Fraction(1))
    bits = _GAP + 24
    while True:
        low, high = _product(near, near + 2 * epsilon, bits, ahead=ahead)
        if low > 0 and (high - low) * (1 << _GAP) <= low:
            return low, min(high, Fraction(1))
        if high < TINY:
            return Fraction(0), TINY
        bits += bits // 2


def _product(near: Fraction, far: Fraction, bits: int, *, ahead: bool) -> tuple[Fraction, Fraction]:
    """Bracket ``phi(a) (R(a) - R(b))``; for a < 0, ``1 - phi(a) (R(-a) + R(b))``."""
    phi_low, phi_high = density_bounds(near, bits)
    (a_low, a_high), (b_low, b_high) = mills_bounds(near, bits), mills_bounds(far, bits)
    one = 1 << bits
    if ahead:
        return phi_low * max(0, a_low - b_high) / one, phi_high * (a_high - b_low) / one
    return (
        max(Fraction(0), 1 - phi_high * (a_high + b_high) / one),
        1 - phi_low * (a_low + b_low) / one,
    )


def delta_up(m: Fraction, epsilon: float | Fraction) -> float:
    """Return the next float at or above sqrt(m)-GDP's delta(epsilon)."""
    if epsilon == math.inf:
        return 0.0
    return min(1.0, float_up(delta_bounds(Fraction(m), Fraction(epsilon))[1]))


@lru_cache(maxsize=1024)
def epsilon_up(m: Fraction, delta: float) -> float:
    """Return the least epsilon of 40 digits with ``delta(epsilon) <= delta``, certified (Lemma N4).

    Infinite where delta is 0 (and m is not), or where no float epsilon would do.
    """
    target, m = Fraction(delta), Fraction(m)
    if m == 0 or delta_bounds(m, Fraction(0))[1] <= target:
        return 0.0
    if target <= 0:
        return math.inf

    def curve(epsilon: Fraction) -> tuple[Fraction, Fraction]:
        return delta_bounds(m, epsilon)

    ends = _around(curve, target, _guess(lambda e: _rough_delta(m, e) <= delta), falls=True)
    return float_up(_least(lambda e: curve(e)[1] <= target) if ends is None else ends[1])


def epsilon_within(m: Fraction, delta: float, limit: float | None) -> float:
    """Return ``epsilon_up``, or ``limit`` itself where that is certified and less."""
    found = epsilon_up(m, delta)
    if limit is not None and limit < found and delta_bounds(m, Fraction(limit))[1] <= delta:
        return limit
    return found


@lru_cache(maxsize=1024)
def mu_squared_down(epsilon: float, delta: float) -> Fraction:
    """Return the greatest m of 40 digits with ``delta(epsilon) <= delta``, certified (Lemma N4)."""
    target, at = Fraction(delta), Fraction(epsilon)

    def curve(m: Fraction) -> tuple[Fraction, Fraction]:
        return delta_bounds(m, at)

    guess = _guess(lambda m: _rough_delta(m, epsilon) > delta)
    ends = _around(curve, target, guess, falls=False)
    return _least(lambda m: curve(m)[1] > target, below=True) if ends is None else ends[0]


@lru_cache(maxsize=1024)
def mu_squared_of_pure(epsilon: Fraction) -> Fraction:
    """Return an m such that epsilon-DP implies sqrt(m)-GDP (Lemma N5).

    The least of 40 digits. From ``Q(mu / 2) = 1 / (1 + e**epsilon)``; beyond epsilon 256 the simpler
    bound ``8 epsilon``.
    """
    if epsilon <= 0:
        return Fraction(0)
    if epsilon >= _FLAT:
        return 8 * epsilon
    bits = _GAP + 8 + math.ceil(epsilon * 3 / 2) + max(0, -math.floor(math.log2(float(epsilon))))
    e_low, _ = (Fraction(e, 1 << bits) for e in exp_neg_bounds(epsilon, bits))
    crossing = e_low / (1 + e_low)  # at most 1 / (1 + e**epsilon)

    def fits(m: Fraction) -> bool:
        return upper_tail(m / 4, bits)[1] <= crossing

    return _least(fits)


def _rough_delta(m: Fraction | float, epsilon: float) -> float:
    """Return the curve in floats, for a guess alone."""
    mu, root = math.sqrt(m), math.sqrt(2.0)
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return (math.erfc(a / root) - math.exp(epsilon) * math.erfc(b / root)) / 2


def _guess(holds: Callable[[float], bool]) -> float:
    """Return a float near the start of ``holds``, or 0."""
    low, high = _GUESSED
    try:
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if holds(middle) else (middle, high)
    except ArithmeticError:
        return 0.0
    return high


def _around(
    curve: Callable[[Fraction], tuple[Fraction, Fraction]],
    target: Fraction,
    guess: float,
    *,
    falls: bool,
) -> tuple[Fraction, Fraction] | None:
    """Return the neighbours of 40 digits between which a curve certainly crosses.

    They are the last two of ``_least``'s search (Lemma N4), whatever the guess is; a guess far away costs
    time, and the answer None.
    """

    def side(at: int) -> int:
        low, high = curve(at * step)
        if low > target:
            return -1 if falls else 1
        return 0 if high * _WIDER > target else 1 if falls else -1

    if not guess:
        return None
    mantissa, exponent = math.frexp(guess)
    at, step = int(math.ldexp(mantissa, _DIGITS + 1)), Fraction(2) ** (exponent - 1 - _DIGITS)
    first = now = side(at)
    if first > 0 and at == 1 << _DIGITS:  # its neighbour below is half as far
        at, step = 2 * at, step / 2
    last, stride = at, 1  # strides double until the other side is met
    while now == first and stride < _REACH:
        last, at, stride = at, at - first * stride, 2 * stride
        now = side(at)
    low, high = sorted((last, at))
    if first * now != -1 or low < 1 << _DIGITS or high > 2 << _DIGITS:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        now = side(middle)
        if now == 0:
            return None
        low, high = (low, middle) if now > 0 else (middle, high)
    return low * step, high * step


def _exponent(holds: Callable[[Fraction], bool]) -> int:
    """Return the e where ``holds`` starts between 2**e and 2**(e + 1).

    Strides double up to ``_STRIDE`` and are halved after: budgets at the ends of floats are a thousand
    powers of two away, and far beyond the answer each question is dear.
    """
    rises = not holds(Fraction(1))
    last, at, stride = 0, 1 if rises else -1, 2
    while holds(Fraction(2) ** at) != rises:
        last, at, stride = at, at + (stride if rises else -stride), min(2 * stride, _STRIDE)
    low, high = (last, at) if rises else (at, last)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(Fraction(2) ** middle) else (middle, high)
    return low


def _least(holds: Callable[[Fraction], bool], *, below: bool = False) -> Fraction:
    """Return the least 40-digit number where ``holds`` starts, or ``below``.

    Bisection over dyadic numbers, with no float and no guess.
    """
    step = Fraction(2) ** (_exponent(holds) - _DIGITS)
    low, high = 1 << _DIGITS, 2 << _DIGITS  # fails, holds: in steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle * step) else (middle, high)
    return (low if below else high) * step
