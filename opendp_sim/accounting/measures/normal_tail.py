"""Bound the normal tail by certified integers.

Mills' ratio, the density, their product. Every argument is given by its square, a rational, so that
the only root taken is an integer one. Lemmas N1 and N2 in ``gaussian.md``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from opendp_sim.core.arithmetic.exp_bounds import Bracket, exp_neg_bounds

_GUARD = 8
_ROOM = 24
"""Guard bits of the ratio: e**8 of the series, and its roundings."""
_FAR, _SPECK = 3000, Fraction(1, 2**2000)
_SERIES_END = 16
"""Squares below this use the power series, which needs 1.44 * square / 2 bits more; above, a fraction."""


def root_bounds(square: Fraction, bits: int) -> Bracket:
    """Bracket ``sqrt(square) * 2**bits``."""
    root = math.isqrt((square.numerator << 2 * bits) // square.denominator)
    return root, root + 1


def mills_bounds(square: Fraction, bits: int) -> Bracket:
    """Bracket Mills' ratio ``R(x) * 2**bits`` (Lemma N1) by a few units.

    x = sqrt(square) >= 0 of a rational square, R = Q / phi.
    """
    guard = _ROOM + _spare(square)
    work = bits + guard
    if square < _SERIES_END:
        low, high = _by_series(square, work)
    else:
        low, high = _by_fraction(square, work, narrow=1 << guard)
    return low >> guard, -(-high >> guard)


def density_bounds(square: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Bracket the standard normal density at sqrt(square) to a relative 2**-bits."""
    places = bits + math.ceil(float(square) / (2 * math.log(2))) + _GUARD
    low, high = exp_neg_bounds(square / 2, places)
    root_low, root_high = _root_half_pi(places)
    return Fraction(low, 2 * root_high), Fraction(high, 2 * root_low)


def upper_tail(square: Fraction, bits: int, *, negative: bool = False) -> tuple[Fraction, Fraction]:
    """Bracket ``Q(x)`` for ``x = sqrt(square)``, or for its negative (Lemma N2).

    The relative gap of the smaller of Q(x) and Q(-x) is about ``2**-bits`` up to a square of 3,000;
    beyond, it is between 0 and 2**-2000.
    """
    if square > _FAR:  # Q(x) <= e**(-x**2 / 2) / 2
        return (1 - _SPECK, Fraction(1)) if negative else (Fraction(0), _SPECK)
    phi_low, phi_high = density_bounds(square, bits)
    ratio_low, ratio_high = mills_bounds(square, bits + _spare(square))
    one = 1 << bits + _spare(square)
    low, high = phi_low * ratio_low / one, phi_high * ratio_high / one
    return (1 - high, 1 - low) if negative else (low, high)


def _spare(square: Fraction) -> int:
    """Return the bits by which R is below 1."""
    return max(2, square.numerator.bit_length() - square.denominator.bit_length() + 2)


def _by_series(square: Fraction, work: int) -> Bracket:
    """Return ``sqrt(pi / 2) e**(x**2 / 2) - sum x**(2 n + 1) / (2 n + 1)!!``; all terms are positive."""
    low, high = root_bounds(square, work)
    square_low = (square.numerator << work) // square.denominator
    square_high = -((-square.numerator << work) // square.denominator)
    sum_low, sum_high, n = low, high, 0
    while high > 1 or 2 * n + 3 <= 2 * square:
        n += 1
        low = low * square_low // ((2 * n + 1) << work)
        high = -(-high * square_high // ((2 * n + 1) << work))
        sum_low, sum_high = sum_low + low, sum_high + high
    sum_high += high  # each further term is less than half of the one before
    e_low, e_high = exp_neg_bounds(square / 2, work)
    root_low, root_high = _root_half_pi(work)
    return (root_low << work) // e_high - sum_high, -(-(root_high << work) // e_low) - sum_low


def _by_fraction(square: Fraction, work: int, narrow: int) -> Bracket:
    """Return ``1 / (x + 1 / (x + 2 / (x + 3 / ...)))``, cut where the rest is bracketed well enough."""
    low, high = root_bounds(square, work)
    one, depth = 1 << 2 * work, 16
    while True:
        rest_low, rest_high = low, high - (-(depth + 1) * one // low)
        for k in range(depth, 0, -1):
            rest_low, rest_high = low + k * one // rest_high, high - (-k * one // rest_low)
        found = one // rest_high, -(-one // rest_low)
        if found[1] - found[0] <= narrow:
            return found
        depth *= 2


@lru_cache(maxsize=64)
def _root_half_pi(bits: int) -> Bracket:
    """Bracket ``sqrt(pi / 2) * 2**bits`` by Machin's formula; an alternating series is bracketed so."""
    work = bits + 16

    def arctan_of_inverse(n: int) -> Bracket:
        total, power, k = 0, (1 << work) // n, 0
        while power:
            term = power // (2 * k + 1)
            total += -term if k & 1 else term
            power //= n * n
            k += 1
        return total - 2 * k - 2, total + 2 * k + 2  # a term errs by less than two units

    fifth, far = arctan_of_inverse(5), arctan_of_inverse(239)
    low, high = 16 * fifth[0] - 4 * far[1], 16 * fifth[1] - 4 * far[0]
    return math.isqrt(low << work - 1) >> 16, (math.isqrt(high << work - 1) + 1 >> 16) + 1
