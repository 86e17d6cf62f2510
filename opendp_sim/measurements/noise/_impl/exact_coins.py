"""Flip exact coins of probability e**-x, vectorised.

By a byte and a table, then floats, then integers. The float paths only ever decide what their proved
error leaves no doubt about. They use IEEE additions and multiplications alone (no library
exponential), so the error is a lemma, not a hope. Lemmas G3 and G4 in ``bulk_gaussian.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.exp_bounds import Bracket, exp_neg_bounds
from opendp_sim.core.randomness import private_bytes

# --------------------------------------------------------------------------------------------------
# Certified bounds for e**-x in integers, and probabilities known one byte at a time.
#
# Nothing here rounds silently: every function brackets the true value between two integers.
# Lemmas E1 and E2 in ``bulk_laplace.md``.

Bounds = Callable[[int], Bracket]
"""``bits -> (low, high)`` with ``low <= p * 2**bits <= high``; the gap stays below a few units."""


def logistic_bounds(x: Fraction, bits: int) -> Bracket:
    """Bracket ``2**bits / (1 + e**x)`` between two integers, for rational x > 0 (Lemma E1)."""
    low, high = exp_neg_bounds(x, bits + 2)
    one = 1 << bits + 2  # q / (1 + q) grows with q = e**-x
    return (low << bits) // (one + low), -(-(high << bits) // (one + high))


class Threshold:
    """Certify an irrational probability's binary places on demand.

    The known bytes are a cache of a public constant: extending it twice gives the same bytes.
    """

    __slots__ = ("_bounds", "_known")

    def __init__(self, bounds: Bounds) -> None:
        """Take the bracket of an irrational number in (0, 1)."""
        self._bounds = bounds
        self._known = b""

    def byte(self, position: int) -> int:
        """Return the byte of index ``position`` after the binary point (Lemma E2)."""
        known = self._known
        if position >= len(known):
            known = self._known = self._certified(max(8, 2 * position))
        return known[position]

    def _certified(self, count: int) -> bytes:
        bits = 8 * count
        extra = 16
        while True:
            low, high = self._bounds(bits + extra)
            if low >> extra == high >> extra:
                return (low >> extra).to_bytes(count, "big")
            extra *= 2


@lru_cache(maxsize=4096)
def logistic_threshold(x: Fraction) -> Threshold:
    """Return ``1 / (1 + e**x)``, irrational for rational ``x != 0`` (Lindemann)."""
    return Threshold(lambda bits: logistic_bounds(x, bits))


@lru_cache(maxsize=4096)
def nonzero_threshold(x: Fraction) -> Threshold:
    """Return 2 / (1 + e**x), the chance of nonzero Laplace noise."""

    def bounds(bits: int) -> Bracket:
        return logistic_bounds(x, bits + 1)

    return Threshold(bounds)


@lru_cache(maxsize=4096)
def exp_threshold(x: Fraction) -> Threshold:
    """Return e**-x, irrational for rational x != 0."""
    return Threshold(lambda bits: exp_neg_bounds(x, bits))


# --------------------------------------------------------------------------------------------------
# Private bytes in bulk, and exact coin flips made of as few of them as it takes.
#
# Lemma B1 in ``bulk_laplace.md``.

ByteSource = Callable[[int], NDArray[np.uint8]]

_POOL = 1 << 18


class Bytes:
    """Pool bytes of the private generator.

    Each byte is given out once, in order. A call into the generator costs as much as thousands of
    bytes, so small requests share one. A pool lives as long as one release; it is never shared between
    threads or releases.
    """

    __slots__ = ("_at", "_pool", "_source")

    def __init__(self, source: ByteSource = private_bytes) -> None:
        """Draw from ``source``, the private generator unless a test scripts it."""
        self._source = source
        self._pool = np.empty(0, np.uint8)
        self._at = 0

    def take(self, count: int) -> NDArray[np.uint8]:
        """Return the next ``count`` bytes, shape (count,)."""
        if count > _POOL:
            return self._source(count)
        end = self._at + count
        if end > self._pool.size:
            self._pool, self._at, end = self._source(_POOL), 0, count
        taken = self._pool[self._at : end]
        self._at = end
        return taken


def bernoulli(probability: Threshold, count: int, source: Bytes) -> NDArray[np.bool_]:
    """Return ``count`` independent coins, each 1 with *exactly* ``probability`` (Lemma B1).

    A uniform real is compared with the probability byte by byte, from the left; only cells that
    agree so far (one in 256) look at a further byte.
    """
    uniform = source.take(count)
    place = probability.byte(0)
    coins = uniform < place
    open_cells = np.flatnonzero(uniform == place)
    position = 1
    while open_cells.size:
        uniform = source.take(open_cells.size)
        place = probability.byte(position)
        coins[open_cells] = uniform < place
        open_cells = open_cells[uniform == place]
        position += 1
    return coins


def fair_bits(count: int, source: Bytes) -> NDArray[np.uint8]:
    """Return ``count`` independent fair bits, eight to a byte."""
    return np.unpackbits(source.take(-(-count // 8)), count=count)


# --------------------------------------------------------------------------------------------------

CELLS = 256
"""Table cells per unit of the exponent; exponents are handed over in these units."""

_BYTE_END = 6 * CELLS  # 256 * e**-6 < 1: from here on a byte rejects or leaves it open
FLOAT_END = 32 * CELLS
_EXTRA_BYTES = 5
_PREFIX_BITS = 8 * (1 + _EXTRA_BYTES)
DOUBT = 2.0**-42  # relative error of the float path, with room (Lemma G3)


def exp_coins(
    exponents: NDArray[np.float64], exact: Callable[[int], Fraction], source: Bytes
) -> NDArray[np.bool_]:
    """Return independent coins, each 1 with exactly ``e**-x`` for its own x.

    Args:
        exponents: shape (n,), each within a factor ``1 +- 2**-50`` of ``CELLS * x``, or at least
            ``CELLS * 32`` for an x of at least 31.
        exact: index to the rational x; asked only when floats cannot tell.
        source: private bytes.
    """
    accept_below, reject_above, _ = _tables()
    uniform = source.take(exponents.size)
    cell = np.minimum(exponents, _BYTE_END).astype(np.intp)
    coins = uniform < accept_below[cell]
    doubtful = np.flatnonzero((uniform <= reject_above[cell]) & ~coins)
    if doubtful.size:
        first = uniform[doubtful]
        coins[doubtful] = _refine(exponents[doubtful], first, doubtful, exact, source)
    return coins


def _refine(
    exponents: NDArray[np.float64],
    first: NDArray[np.uint8],
    cells: NDArray[np.intp],
    exact: Callable[[int], Fraction],
    source: Bytes,
) -> NDArray[np.bool_]:
    """Extend uniforms to 48 bits, and compare with a float."""
    prefix = first.astype(np.float64)
    for extra in source.take(cells.size * _EXTRA_BYTES).reshape(_EXTRA_BYTES, -1):
        prefix = prefix * 256.0 + extra  # integers below 2**48: exact
    probability = exp_neg_floats(np.minimum(exponents, FLOAT_END)) * 2.0**_PREFIX_BITS
    coins = prefix + 1.0 <= probability * (1.0 - DOUBT)
    settled = coins | (prefix >= probability * (1.0 + DOUBT))
    settled &= exponents < FLOAT_END
    for at in np.flatnonzero(~settled).tolist():
        coins[at] = _decide(exact(int(cells[at])), int(prefix[at]), source)
    return coins


def exp_neg_floats(exponents: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluate e**-(exponents / CELLS) by table and Taylor polynomial (Lemma G3)."""
    whole = exponents.astype(np.intp)
    y = (whole - exponents) / CELLS  # exact: the fractional part of a float, over a power of two
    series = 1.0 + y * (1.0 + y * 0.5 * (1.0 + y * (1.0 / 3.0) * (1.0 + y * 0.25)))
    return _tables()[2][whole] * series


def _decide(x: Fraction, prefix: int, source: Bytes) -> bool:
    """Compare a uniform with e**-x in integers (Lemma G4)."""
    bits = _PREFIX_BITS
    while True:
        low, high = exp_neg_bounds(x, bits)
        if prefix + 1 <= low:
            return True
        if prefix >= high:
            return False
        prefix = prefix << 8 | int(source.take(1)[0])
        bits += 8


@lru_cache(maxsize=1)
def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float64]]:
    """Tabulate byte decisions and e**-(k / CELLS) by cell."""
    work = 160
    step_low, step_high = exp_neg_bounds(Fraction(1, CELLS), work)
    low = high = 1 << work
    powers = np.empty(FLOAT_END + 1, np.float64)
    below, above = np.zeros(_BYTE_END + 1, np.uint8), np.zeros(_BYTE_END + 1, np.uint8)
    for k in range(FLOAT_END + 1):
        powers[k] = low / (1 << work)  # int / int is correctly rounded
        if k <= _BYTE_END:
            top = 256 * (high + (high >> 40))  # the float exponent may sit a little too far right
            above[k] = min(255, -(-top >> work) - 1)
        low, high = low * step_low >> work, -(-high * step_high >> work)
        if k < _BYTE_END:
            below[k] = 256 * (low - (low >> 40)) >> work
    return below, above, powers
