"""Add exact noise to int64 cells.

In cache-sized pieces, grouped by scale, saturating like OpenDP. Lemma L4 in ``bulk_laplace.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.exp_bounds import exp_neg_bounds
from opendp_sim.core.randomness import private_bytes
from opendp_sim.measurements.noise._impl.exact_coins import (
    CELLS,
    DOUBT,
    FLOAT_END,
    Bytes,
    ByteSource,
    Threshold,
    bernoulli,
    exp_coins,
    exp_neg_floats,
    exp_threshold,
    fair_bits,
    logistic_threshold,
    nonzero_threshold,
)

# --------------------------------------------------------------------------------------------------
# The public numbers of one scale of rounded Gaussian noise: strips, and certified tables of them.
#
# Lemmas R1 and R2 in ``../rounded_gaussian.md``.

OPEN = 255
"""Table mark: sixteen bits do not settle the strip."""
WORD_MAX = 2**64 - 1
_STRIPS_A_SCALE = 16
"""A strip is between 1/32 and 1/16 of the scale wide."""
_WORD = 64
_GUARD = 40
_PLANS = 128
"""Plans kept: a plan is 67 KiB."""


@dataclass(frozen=True, slots=True)
class RoundedPlan:
    """The public numbers of one scale t."""

    shift: int
    """A strip is 2**shift wide: |t Z| = 2**shift (c + y), c whole, 0 <= y < 1."""
    rate: Fraction
    """a = 4**shift / (2 t**2): strip c has weight e**(-a c**2) and accepts with e**(-a y (2 c + y))."""
    strips: NDArray[np.uint8]
    """Sixteen bits of the uniform to the strip, or OPEN: shape (65536,)."""
    sure: NDArray[np.uint8]
    """Strip to the number of first bytes of the coin that accept whatever y is; 0 for OPEN."""
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    """Floor and ceiling of certified bounds of 2**64 times the upper ends of strips 0, 1, ..."""
    digits: Any
    """The unsigned word that y's places before and just after the point come in; None: no such place."""


@lru_cache(maxsize=_PLANS)
def rounded_plan(scale: Fraction) -> RoundedPlan:
    """Return the plan for round(scale * Z)."""
    shift = _log2_floor(scale / _STRIPS_A_SCALE)
    rate = (Fraction(2) ** shift / scale) ** 2 / 2
    kinds = (np.uint8, np.uint16, np.uint32, np.uint64)
    fits = [kind for kind in kinds if shift + 1 <= 8 * np.dtype(kind).itemsize]
    strips, sure, low, high = _tables(rate)
    return RoundedPlan(shift, rate, strips, sure, low, high, None if shift < 0 else fits[0])


@lru_cache(maxsize=_PLANS)
def _tables(rate: Fraction) -> tuple[NDArray[Any], ...]:
    """Return strips, sure bytes and both ends."""
    low, high = strip_ends(rate, _WORD)
    ends = (np.array([min(end, WORD_MAX) for end in each], np.uint64) for each in (low, high))
    return _strips(low, high), _sure(rate), *ends


def strip_ends(rate: Fraction, bits: int) -> tuple[list[int], list[int]]:
    """Bracket ``2**bits Pr[strip <= c]`` as far as bits distinguish (Lemma R2)."""
    lows, highs, rest = _weights(rate, bits + 12)
    all_low, all_high = sum(lows), sum(highs) + rest
    below_low = below_high = 0
    out_low, out_high = [], []
    for low, high in zip(lows, highs, strict=True):
        below_low += low
        below_high += high
        # F = B / (B + A) grows with B, the weights up to c, and falls with A, those above.
        above_low, above_high = all_low - below_low, all_high - below_high
        out_low.append((below_low << bits) // (below_low + above_high))
        out_high.append(min(1 << bits, -(-(below_high << bits) // (below_high + above_low))))
    return out_low, out_high


def _weights(rate: Fraction, bits: int) -> tuple[list[int], list[int], int]:
    """Bracket ``2**bits e**(-rate c**2)``, and bound the rest's sum."""
    work = bits + _GUARD
    low = high = 1 << work
    step_low, step_high = exp_neg_bounds(rate, work)
    twice_low, twice_high = step_low * step_low >> work, -(-step_high * step_high >> work)
    lows, highs = [], []
    while high >= 1 << _GUARD:
        lows.append(low >> _GUARD)
        highs.append(-(-high >> _GUARD))
        # weight(c + 1) = weight(c) e**(-a (2 c + 1))
        low, high = low * step_low >> work, -(-high * step_high >> work)
        step_low, step_high = step_low * twice_low >> work, -(-step_high * twice_high >> work)
    # Ratios of neighbours fall: what is left sums to at most high / (1 - step).
    rest = -(-(high << work) // ((1 << work) - step_high))
    return lows, highs, -(-rest >> _GUARD)


def _strips(low: list[int], high: list[int]) -> NDArray[np.uint8]:
    """Tabulate the strips that sixteen bits settle whatever the other 48 are."""
    table = np.full(1 << 16, OPEN, np.uint8)
    start = 0  # the least prefix that is certainly above the strips before
    for c, (lower, upper) in enumerate(zip(low[:OPEN], high, strict=False)):
        table[start : max(start, lower >> 48)] = c
        start = -(-upper >> 48)
    return table


def _sure(rate: Fraction) -> NDArray[np.uint8]:
    """Tabulate the coin's first bytes below ``e**(-a (2 c + 1))``."""
    sure = np.zeros(OPEN + 1, np.uint8)
    least = exp_neg_bounds(rate, _WORD)[0]
    twice = least * least >> _WORD
    for c in range(OPEN):
        sure[c] = min(255, least >> _WORD - 8)
        least = least * twice >> _WORD
    return sure


def _log2_floor(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


# --------------------------------------------------------------------------------------------------
# Exact discrete Laplace magnitudes by the binary digits of a geometric variable.
#
# Lemmas L1 to L4 in ``bulk_laplace.md``.

MAX_SCALE = 2**59
"""Up to this the digits fit a 64-bit word and a capped magnitude is far in the tail (Lemma G2)."""
LARGEST_UINT64 = 2**64 - 1

_SPREAD = 4  # digits reach up to 4 scales; e**-4 of the cells take a second round beyond them


@dataclass(frozen=True, slots=True)
class LaplaceDigits:
    """The public thresholds of one scale."""

    nonzero: Threshold
    digits: tuple[Threshold, ...]
    beyond: Threshold


@dataclass(frozen=True, slots=True)
class Magnitudes:
    """Hold absolute values of noise, exact in ``words`` or in ``exact``."""

    words: NDArray[np.uint64]
    """Shape (count,); holds min(magnitude, 2**64 - 1)."""
    exact: dict[int, int]
    """Index to magnitude where it passes 2**64 - 1: empty in any run anyone will see."""


@lru_cache(maxsize=1024)
def laplace_digits(rate: Fraction) -> LaplaceDigits:
    """Return the thresholds for the law proportional to ``e**(-rate * |k|)``."""
    count = max(0, -(-_SPREAD * rate.denominator // rate.numerator) - 1).bit_length()
    return LaplaceDigits(
        nonzero=nonzero_threshold(rate),
        digits=tuple(logistic_threshold(rate * 2**i) for i in range(count)),
        beyond=exp_threshold(rate * 2**count),
    )


def magnitudes(plan: LaplaceDigits, count: int, source: Bytes) -> Magnitudes:
    """Draw ``count`` independent magnitudes of discrete Laplace noise (Lemma L3)."""
    words = _low_digits(plan.digits, count, source)
    words += np.uint64(1)
    words *= bernoulli(plan.nonzero, count, source)
    return Magnitudes(words, _add_high(plan, words, source))


def _low_digits(digits: tuple[Threshold, ...], count: int, source: Bytes) -> NDArray[np.uint64]:
    """Draw the independent binary digits (Lemma L1)."""
    words = np.zeros(count, "<u8")
    planes = words.view(np.uint8).reshape(count, 8)
    for place in range(0, len(digits), 8):
        plane = np.zeros(count, np.uint8)
        for digit in reversed(digits[place : place + 8]):
            plane += plane
            plane |= bernoulli(digit, count, source)
        planes[:, place // 8] = plane
    return words.astype(np.uint64, copy=False)


def _add_high(plan: LaplaceDigits, words: NDArray[np.uint64], source: Bytes) -> dict[int, int]:
    """Add the part above the digits (Lemma L2)."""
    step = 1 << len(plan.digits)
    room = np.uint64(LARGEST_UINT64 - step)
    exact: dict[int, int] = {}
    cells = np.flatnonzero(bernoulli(plan.beyond, words.size, source))
    cells = cells[words[cells] > 0]
    while cells.size:
        full = words[cells] > room
        for cell in cells[full].tolist():
            exact[cell] = exact.get(cell, int(words[cell])) + step
        words[cells[full]] = LARGEST_UINT64
        words[cells[~full]] += np.uint64(step)
        cells = cells[bernoulli(plan.beyond, cells.size, source)]
    return exact


# --------------------------------------------------------------------------------------------------
# Exact discrete Gaussian magnitudes: rejection from discrete Laplace with a certified e**-x.
#
# Lemmas G1 and G2 in ``bulk_gaussian.md``.

_INT64_MAX = 2**63 - 1
_FACTOR_CAP = Fraction(2**40)  # any exponent this large is settled in integers


@dataclass(frozen=True, slots=True)
class GaussianPlan:
    """Hold one scale's public proposal, peak and exponent factor."""

    proposal: LaplaceDigits
    peak: int
    rate: Fraction
    """1 / (2 scale**2)."""
    factor: float
    """``CELLS * rate`` as a float, capped."""

    def exponent(self, magnitude: int) -> Fraction:
        """Return x of the acceptance probability e**-x, exactly (Lemma G1)."""
        return self.rate * ((magnitude - self.peak) * (magnitude - self.peak - 1))


@lru_cache(maxsize=1024)
def gaussian_plan(scale: Fraction) -> GaussianPlan:
    """Return the plan for the law proportional to ``e**(-k**2 / (2 scale**2))``."""
    rate = 1 / (2 * scale * scale)
    peak = scale.numerator // scale.denominator
    factor = float(min(CELLS * rate, _FACTOR_CAP))
    return GaussianPlan(laplace_digits(rate * (2 * peak + 1)), peak, rate, factor)


def gaussian_magnitudes(plan: GaussianPlan, count: int, source: Bytes) -> Magnitudes:
    """Draw the first ``count`` accepted, independent magnitudes (Lemma G2)."""
    words = np.empty(count, np.uint64)
    exact: dict[int, int] = {}
    done = 0
    while done < count:
        wanted = count - done
        candidates = magnitudes(plan.proposal, wanted + wanted // 3 + 16, source)
        kept = np.flatnonzero(_accepted(plan, candidates, source))[:wanted]
        words[done : done + kept.size] = candidates.words[kept]
        for cell in candidates.exact.keys() & set(kept.tolist() if candidates.exact else ()):
            exact[done + int(np.searchsorted(kept, cell))] = candidates.exact[cell]
        done += kept.size
    return Magnitudes(words, exact)


def _accepted(plan: GaussianPlan, candidates: Magnitudes, source: Bytes) -> NDArray[np.bool_]:
    """Flip each candidate's acceptance coin."""
    words = candidates.words
    # A word above int64 has an exponent of at least 32 at any scale up to MAX_SCALE, so capping it
    # here only sends the cell to ``exact``, which knows the whole magnitude.
    gap = np.minimum(words, np.uint64(_INT64_MAX)).view(np.int64)
    gap -= plan.peak
    exponents = gap.astype(np.float64)
    exponents *= exponents - 1.0
    exponents *= plan.factor

    def exact(cell: int) -> Fraction:
        return plan.exponent(candidates.exact.get(cell, int(words[cell])))

    return exp_coins(exponents, exact, source)


# --------------------------------------------------------------------------------------------------
# Exact rounded Gaussian magnitudes: a strip from a table, a lazy fraction, one coin.
#
# The law is that of round(t Z), Z standard normal. The float stage only decides what its proved error
# leaves no doubt about; the rest is settled in integers. Lemmas R1 to R5 in ``../rounded_gaussian.md``.

_COIN_BYTES = 6
"""Bytes of the coin, and of y, that the float stage sees."""
_COIN_BITS = 8 * _COIN_BYTES
_FLAT = 9
"""A strip is below 2**8, so one this much narrower than an integer rounds to 0."""


def rounded_magnitudes(plan: RoundedPlan, count: int, source: Bytes) -> NDArray[np.uint64]:
    """Return ``count`` independent draws of ``min(round(|t Z|), 2**64 - 1)`` (Lemma R5)."""
    words, again = _candidates(plan, count, source)
    while again.size:
        fresh, still = _candidates(plan, again.size, source)
        words[again] = fresh
        again = again[still]
    return words


def _candidates(
    plan: RoundedPlan, count: int, source: Bytes
) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
    """Return magnitudes of ``count`` candidates and the places of the rejected ones."""
    prefix = source.take(2 * count).view("<u2")
    strip = plan.strips[prefix]
    coin = source.take(count)
    digits = _digits(plan, count, source)
    doubtful = np.flatnonzero(coin >= plan.sure[strip])  # every open strip is among them
    words = _magnitudes(plan, strip.astype(np.uint64), digits)
    if not doubtful.size:
        return words, doubtful
    settled, rare = _settled(plan, prefix[doubtful], strip[doubtful], source)
    for i in np.flatnonzero(strip[doubtful] == OPEN).tolist():
        at = int(doubtful[i])
        words[at] = _magnitude(plan, int(settled[i]), int(digits[at]))
    kept = _accepted_sampling_rounded(plan, settled, coin[doubtful], digits[doubtful], rare, source)
    return words, doubtful[~kept]


def _digits(plan: RoundedPlan, count: int, source: Bytes) -> NDArray[Any]:
    """Draw the places of y needed for rounding (Lemma R3)."""
    if plan.digits is None:
        return np.zeros(count, np.uint8)
    kind = np.dtype(plan.digits).newbyteorder("<")
    return source.take(count * kind.itemsize).view(kind)


def _magnitudes(
    plan: RoundedPlan, strip: NDArray[np.uint64], digits: NDArray[Any]
) -> NDArray[np.uint64]:
    """Return ``floor(2**shift (c + y) + 1/2)`` (Lemma R3)."""
    if plan.shift <= -_FLAT:
        return np.zeros(len(strip), np.uint64)
    if plan.shift < 0:
        return (strip + np.uint64(1 << -plan.shift - 1)) >> np.uint64(-plan.shift)
    kind = plan.digits
    first = digits >> kind(8 * np.dtype(kind).itemsize - plan.shift - 1)
    strip <<= np.uint64(plan.shift)
    strip += first >> kind(1)  # (first + 1) // 2, without a carry out of the word
    strip += first & kind(1)
    return strip


def _magnitude(plan: RoundedPlan, c: int, digits: int) -> int:
    """Return one strip's magnitude, capped at a word."""
    if plan.shift < 0:
        return min(WORD_MAX, c + (1 << -plan.shift - 1) >> -plan.shift)
    first = digits >> int(8 * np.dtype(plan.digits).itemsize) - plan.shift - 1
    return min(WORD_MAX, (c << plan.shift) + (first + 1 >> 1))


def _settled(
    plan: RoundedPlan, prefix: NDArray[np.uint16], strip: NDArray[np.uint8], source: Bytes
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Settle the strips that sixteen bits left open."""
    c = strip.astype(np.int64)
    rare = np.zeros(len(c), np.bool_)
    left = np.flatnonzero(strip == OPEN)
    if left.size:
        whole = prefix[left].astype(np.uint64) << np.uint64(48)
        whole |= source.take(8 * left.size).view("<u8") >> np.uint64(16)  # two bytes go unused
        # Certainly beyond end c: v >= high[c]. Certainly within it: v + 1 <= low[c].
        beyond = np.searchsorted(plan.high, whole, side="right")
        within = np.searchsorted(plan.low, whole, side="right")
        c[left] = within
        listed = min(OPEN, plan.low.size)
        for i in np.flatnonzero((beyond != within) | (within >= listed)).tolist():
            rare[left[i]] = True
            c[left[i]] = _strip_of(plan.rate, int(whole[i]), source)
    return c, rare


def _strip_of(rate: Fraction, prefix: int, source: Bytes) -> int:
    """Extend the 64-bit uniform until its strip is certain (Lemma R2)."""
    bits = 64
    while True:
        for c, (low, high) in enumerate(zip(*strip_ends(rate, bits), strict=True)):
            if prefix + 1 <= low:
                return c
            if prefix < high:
                break  # open between c and what follows
        prefix = prefix << 8 | int(source.take(1)[0])
        bits += 8


def _accepted_sampling_rounded(
    plan: RoundedPlan,
    c: NDArray[np.int64],
    coin: NDArray[np.uint8],
    digits: NDArray[Any],
    rare: NDArray[np.bool_],
    source: Bytes,
) -> NDArray[np.bool_]:
    """Compare the uniform whose first byte is ``coin`` with ``e**(-a y (2 c + y))`` (Lemma R4)."""
    uniform = _extended(coin.astype(np.float64), _COIN_BYTES - 1, source)
    size = 0 if plan.digits is None else np.dtype(plan.digits).itemsize
    known = digits.astype(np.uint64) >> np.uint64(max(0, 8 * size - _COIN_BITS))
    place = _extended(known.astype(np.float64), max(0, _COIN_BYTES - size), source)
    y = place * 2.0**-_COIN_BITS
    exponent = float(CELLS * plan.rate) * y * (2.0 * c.astype(np.float64) + y)
    chance = exp_neg_floats(np.minimum(exponent, FLOAT_END)) * 2.0**_COIN_BITS
    kept = uniform + 1.0 <= chance * (1.0 - DOUBT)
    settled = kept | (uniform >= chance * (1.0 + DOUBT))
    settled &= (exponent < FLOAT_END) & ~rare
    for i in np.flatnonzero(~settled).tolist():
        y_known = (int(digits[i]), 64) if size == 8 else (int(place[i]), _COIN_BITS)
        kept[i] = _decided(plan.rate, int(c[i]), y_known, int(uniform[i]), source)
    return kept


def _extended(prefix: NDArray[np.float64], further: int, source: Bytes) -> NDArray[np.float64]:
    for extra in source.take(prefix.size * further).reshape(further, prefix.size):
        prefix = prefix * 256.0 + extra
    return prefix


def _decided(rate: Fraction, c: int, y_known: tuple[int, int], uniform: int, source: Bytes) -> bool:
    """Extend y and the uniform until they settle the coin (Lemma R4)."""
    (y, y_bits), bits = y_known, _COIN_BITS
    while True:
        y_low, y_high = Fraction(y, 1 << y_bits), Fraction(y + 1, 1 << y_bits)
        if uniform + 1 <= exp_neg_bounds(rate * y_high * (2 * c + y_high), bits)[0]:
            return True
        if uniform >= exp_neg_bounds(rate * y_low * (2 * c + y_low), bits)[1]:
            return False
        further = source.take(2)
        y, y_bits = y << 8 | int(further[0]), y_bits + 8
        uniform, bits = uniform << 8 | int(further[1]), bits + 8


# --------------------------------------------------------------------------------------------------

NoiseRun = tuple[int, Fraction]
"""Consecutive cells and their common scale."""

_CHUNK = 1 << 16
_TOP = np.uint64(1 << 63)
_FULL = np.uint64(2**64 - 1)

Draw = Callable[[Fraction, int, Bytes], NDArray[np.uint64]]


def add_laplace(
    values: NDArray[np.int64], runs: Sequence[NoiseRun], source: ByteSource = private_bytes
) -> NDArray[np.int64]:
    """Return ``values`` (n,) plus independent discrete Laplace noise, saturated to int64.

    ``runs`` are consecutive cells and their scale, adding up to n; equal scales are drawn together.
    """
    return _add(values, runs, _draw_laplace, source)


def add_gaussian(
    values: NDArray[np.int64], runs: Sequence[NoiseRun], source: ByteSource = private_bytes
) -> NDArray[np.int64]:
    """Return ``values`` plus independent discrete Gaussian noise, saturated; as ``add_laplace``."""
    return _add(values, runs, _draw_gaussian, source)


def add_rounded(
    values: NDArray[np.int64], runs: Sequence[NoiseRun], source: ByteSource = private_bytes
) -> NDArray[np.int64]:
    """Return ``values`` plus independent ``round(scale * Z)``, saturated; as ``add_laplace``."""
    return _add(values, runs, _draw_rounded, source)


def _draw_laplace(scale: Fraction, count: int, source: Bytes) -> NDArray[np.uint64]:
    return magnitudes(laplace_digits(1 / scale), count, source).words


def _draw_gaussian(scale: Fraction, count: int, source: Bytes) -> NDArray[np.uint64]:
    return gaussian_magnitudes(gaussian_plan(scale), count, source).words


def _draw_rounded(scale: Fraction, count: int, source: Bytes) -> NDArray[np.uint64]:
    return rounded_magnitudes(rounded_plan(scale), count, source)


def _add(
    values: NDArray[np.int64], runs: Sequence[NoiseRun], draw: Draw, source: ByteSource
) -> NDArray[np.int64]:
    out = np.array(values, np.int64, order="C")
    pool = Bytes(source)
    for scale, spans in _by_scale(runs).items():
        for cells in _pieces(spans):
            piece = out[cells]
            words = draw(scale, piece.size, pool)
            out[cells] = saturating_add(piece, words, fair_bits(piece.size, pool))
    return out


def _by_scale(runs: Iterable[NoiseRun]) -> dict[Fraction, list[tuple[int, int]]]:
    """Collect the spans of each distinct scale."""
    spans: dict[Fraction, list[tuple[int, int]]] = {}
    start = 0
    for cells, scale in runs:
        spans.setdefault(scale, []).append((start, start + cells))
        start += cells
    return spans


def _pieces(spans: list[tuple[int, int]]) -> Iterable[slice | NDArray[np.intp]]:
    """Cut one scale's spans into pieces of about one chunk."""
    short: list[NDArray[np.intp]] = []
    held = 0
    for start, stop in spans:
        for begin in range(start, stop, _CHUNK):
            end = min(begin + _CHUNK, stop)
            if end - begin == _CHUNK or len(spans) == 1:
                yield slice(begin, end)
                continue
            short.append(np.arange(begin, end))
            held += end - begin
            if held >= _CHUNK:
                yield np.concatenate(short)
                short, held = [], 0
    if short:
        yield np.concatenate(short)


def saturating_add(
    values: NDArray[np.int64], words: NDArray[np.uint64], negative: NDArray[np.uint8]
) -> NDArray[np.int64]:
    """Return ``values +- words`` clipped to int64, exactly (Lemma L4).

    Values become offsets from the least int64; subtracting is adding to the mirrored offset, and a
    carry out of 64 bits is the overflow.
    """
    mirror = np.negative(negative, dtype=np.int64).view(np.uint64)  # all ones where negative
    offset = np.ascontiguousarray(values).view(np.uint64) ^ _TOP
    offset ^= mirror
    offset += words
    over = offset < words
    if over.any():
        offset[over] = _FULL
    offset ^= mirror
    offset ^= _TOP
    return offset.view(np.int64)
