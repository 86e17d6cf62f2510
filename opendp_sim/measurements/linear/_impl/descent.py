"""Descend noisy gradients by public steps (Lemma 6 of ``linear_model.md``)."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core import dp
from opendp_sim.core.arithmetic.countable import need_int64_noise
from opendp_sim.core.arithmetic.matrix_product import matrix_product
from opendp_sim.core.arithmetic.rounding import float_up, sqrt_up
from opendp_sim.core.bridge import plain_measurement
from opendp_sim.core.device import device_in_use
from opendp_sim.core.device.device import Device, device_error, warn_of_fault
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.randomness import private_bytes
from opendp_sim.measurements.linear._impl.scaled import GRID_SIDE, ScaledRows
from opendp_sim.measurements.linear._impl.whitening import (
    WIDEST_TABLE,
    count_in,
    moments,
    moments_norm_squared,
    whitened,
    whitening_of,
)
from opendp_sim.measurements.noise._impl.bulk import gaussian_map
from opendp_sim.measurements.noise._impl.exact_coins import Bytes, ByteSource, fair_bits
from opendp_sim.measurements.noise._impl.samplers import (
    add_rounded,
    rounded_magnitudes,
    rounded_plan,
    saturating_add,
)

# --------------------------------------------------------------------------------------------------
# Residuals of a softmax model, and the sum of their products with rows: integers from integers.
#
# Lemmas 2 and 3 of ``linear_model.md``: a record's residual is a function of the record and of public
# weights, bit for bit, and what it adds to a gradient is the outer product of two bounded integer
# vectors.

WHOLE = 4096
"""Steps of a probability."""
CLIP = WHOLE // 2
"""The longest residual, in these steps."""
_SHORT = 1 - 2.0**-40
_A_UNIT = 64
"""Table entries for one unit of a logit."""
_LAST = 17 * _A_UNIT
_TABLE = np.append(np.rint(2.0**24 * np.exp(-(np.arange(_LAST) + 0.5) / _A_UNIT)), 0.0)
"""Any public integers would do for privacy; these are 2**24 e**-t, and 0 from 17 on."""
_DIGIT = 64
_FEW_ROWS, _MANY_ROWS, _CELLS = 960, 8160, 750_000
"""Rows that go through every step before the next do: as many as hold so many cells, in bounds."""
_SMALL = 950_000
"""Multiplications of a float32 product that OpenBLAS does without copying its operands first."""
_FEW = 255
"""Rows whose float32 sums of products stay below 2**24: 255 * SIDE * (DIGIT - 1) is."""
_FEWEST = 16
"""Rows of a product below which copied operands cost less than so many calls."""
_FINEST = 13


def whole_weights(
    weights: NDArray[np.float64], norm_squared: int
) -> tuple[NDArray[np.float32], int]:
    """Round public weights ``(d, K)`` to integers of unit ``2**-f``.

    Their products with rows are exact in float32.
    """
    longest = float(np.sqrt(np.square(weights).sum(axis=0)).max(initial=0.0))
    f = _FINEST
    if longest > 0.0:
        f = min(f, math.floor(math.log2(2.0**23.5 / (math.sqrt(norm_squared) * longest))))
    while True:
        whole = np.rint(np.ldexp(weights, f))
        # The largest square of a column's norm, rounded up by more than the roundings of its sum.
        square = float(np.square(whole).sum(axis=0).max(initial=0.0)) * (1 + 1e-9)
        if square * norm_squared < 2.0**48:
            return whole.astype(np.float32), f
        f -= 1


def residuals(
    rows: NDArray[np.float32], labels: NDArray[np.int64], weights: NDArray[np.float32], f: int
) -> NDArray[np.float64]:
    """Return a softmax model's shortened integer residuals, shape (K, n).

    Of integer rows (n, d), labels (n,) in 0, ..., K - 1, and ``whole_weights`` (d, K) with their f.
    """
    behind = _products(rows, weights).T.astype(np.float64, order="C")
    np.subtract(behind.max(axis=0), behind, out=behind)
    behind *= _entries_a_unit(f)
    np.minimum(behind, float(_LAST), out=behind)
    return _residuals_at(behind.astype(np.int32), labels)


def _entries_a_unit(f: int) -> float:
    """Return the table entries of a product's unit, exactly."""
    return float(_A_UNIT) * 2.0 ** -(math.log2(GRID_SIDE) + f)


def _residuals_at(places: NDArray[np.int32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the residuals of logits at places of the table, (K, n)."""
    found = _TABLE[places]
    total = _summed(found)
    found *= float(WHOLE)  # below 2**36
    found /= total
    np.floor(found, out=found)
    found[labels, np.arange(found.shape[1])] -= float(WHOLE)
    square = _summed(np.square(found))
    long = square > float(CLIP) ** 2
    found *= np.where(long, CLIP * _SHORT / np.sqrt(np.where(long, square, 1.0)), 1.0)
    out: NDArray[np.float64] = np.trunc(found, out=found)
    return out


def gradient(
    rows: NDArray[np.float32], labels: NDArray[np.int64], weights: NDArray[np.float32], f: int
) -> NDArray[np.int64]:
    """Return the exact sum of row times residual, shape (d, K)."""
    width, classes = weights.shape
    total = np.zeros((2 * classes, width))
    step = min(max(_FEW_ROWS, _CELLS // width), _MANY_ROWS)
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        own = labels[start : start + step]
        digits = _digits_of_two if classes == 2 else _digits_of_residuals
        _add_products(digits(block, own, weights, f), block, total)
    high, low = total[:classes].astype(np.int64), total[classes:].astype(np.int64)
    summed: NDArray[np.int64] = (_DIGIT * high + low).T
    return summed


def _digits_of_residuals(
    rows: NDArray[np.float32], labels: NDArray[np.int64], weights: NDArray[np.float32], f: int
) -> NDArray[np.float32]:
    """Return the digits of rows' residuals, shape (2 K, n)."""
    return _digits(residuals(rows, labels, weights, f))


def _digits_of_two(
    rows: NDArray[np.float32], labels: NDArray[np.int64], weights: NDArray[np.float32], f: int
) -> NDArray[np.float32]:
    """Return the same digits for two classes, by one table.

    A residual is a function of the label and of the distance between the logits, in table entries.
    """
    logits = _products(rows, weights)
    ahead = np.subtract(logits[:, 0], logits[:, 1], dtype=np.float64)
    ahead *= _entries_a_unit(f)
    np.clip(ahead, -float(_LAST), float(_LAST), out=ahead)
    place = ahead.astype(np.int32)  # towards zero
    place += _LAST
    place += labels.astype(np.int32) * np.int32(2 * _LAST + 1)
    return _two_classes().take(place, axis=0).T


@cache
def _two_classes() -> NDArray[np.float32]:
    """Return the digits for each label and signed distance, shape (n, 4)."""
    ahead = np.tile(np.arange(-_LAST, _LAST + 1, dtype=np.int32), 2)
    places = np.stack([np.maximum(-ahead, 0), np.maximum(ahead, 0)])
    return np.ascontiguousarray(
        _digits(_residuals_at(places, np.arange(len(ahead)) // (2 * _LAST + 1))).T
    )


def _digits(found: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return residuals (K, n) as digits, shape (2 K, n)."""
    digits = np.empty((2 * len(found), found.shape[1]), dtype=np.float32)
    high, low = digits[: len(found)], digits[len(found) :]
    np.multiply(found, 1.0 / _DIGIT, out=low)
    np.trunc(low, out=high)
    np.multiply(high, -float(_DIGIT), out=low)
    low += found.astype(np.float32)  # whole numbers of at most 2**12: exact
    return digits


def _add_products(
    digits: NDArray[np.float32], rows: NDArray[np.float32], total: NDArray[np.float64]
) -> None:
    """Add digits (2 K, n) times rows (n, d)."""
    # Every partial sum is an integer below 2**24, and their total one below 2**53.
    if len(rows) > max(total.size, 2 * _FEW):  # small products: one call for all of them
        times = len(rows) // _FEW
        cut = times * _FEW
        left = digits[:, :cut].reshape(len(digits), times, _FEW).swapaxes(0, 1)
        parts = matrix_product(left, rows[:cut].reshape(times, _FEW, rows.shape[1]))
        total += parts.sum(axis=0, dtype=np.float64)
        total += matrix_product(digits[:, cut:], rows[cut:])
        return
    few = _SMALL // max(total.size, 1)
    few = min(few, _FEW) if few >= _FEWEST else _FEW
    together = _FEW // few * few
    part = np.empty(total.shape, dtype=np.float32)
    for start in range(0, len(rows), together):
        stop = min(start + together, len(rows))
        summed = matrix_product(
            digits[:, start : min(start + few, stop)], rows[start : min(start + few, stop)]
        )
        for at in range(start + few, stop, few):
            end = min(at + few, stop)
            summed += matrix_product(digits[:, at:end], rows[at:end], out=part)
        total += summed


def _products(rows: NDArray[np.float32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows times weights, exact in any order."""
    few = _SMALL // max(weights.size, 1)
    kind = np.result_type(rows, weights)
    found: NDArray[np.float32] = np.empty((len(rows), weights.shape[1]), dtype=kind)
    if few < 8 or few >= len(rows):
        matrix_product(rows, weights, out=found)
        return found
    cut = len(rows) // few * few
    whole = rows[:cut].reshape(-1, few, rows.shape[1])
    matrix_product(whole, weights, out=found[:cut].reshape(-1, few, weights.shape[1]))
    matrix_product(rows[cut:], weights, out=found[cut:])
    return found


def _summed(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add integers below 2**53 by class, (K, n) to (n,)."""
    total: NDArray[np.float64] = parts[0].copy()
    for part in parts[1:]:  # in the order of the classes
        total += part
    return total


# --------------------------------------------------------------------------------------------------
# The same sum on a device: rows stay in its memory, and each step's weights go up.
#
# Lemma 5 of ``core/device/device.md``.

_PIECE = 2**24
"""Cells that go to the device at a time."""


class DeviceGradients:
    """Sum row times residual on a device, or on the CPU.

    The CPU does it where the device has no room, or fails. As secret as the rows.

    Args:
        device: one that was proved; None for the CPU.
        rows: integers, shape (n, d).
        labels: shape (n,), in 0, ..., K - 1.
        classes: K.
    """

    def __init__(
        self,
        device: Device | None,
        rows: NDArray[np.float32],
        labels: NDArray[np.int64],
        classes: int,
    ) -> None:
        self._rows, self._labels, self._device = rows, labels, device
        self._step = max(_FEWEST, _PIECE // max(rows.shape[1], classes))
        self._parts: list[tuple[Any, Any]] = []
        if device is not None:
            weakref.finalize(self, _overwrite, device, self._parts)
            self._or_not(self._load)

    def __repr__(self) -> str:
        """Nothing that depends on data."""
        return "DeviceGradients(secret)"

    def __call__(self, weights: NDArray[np.float32], f: int) -> NDArray[np.int64]:
        """Return ``gradient`` of all rows, shape (d, K)."""
        found = self._or_not(lambda device: self._sum(device, weights, f))
        return gradient(self._rows, self._labels, weights, f) if found is None else found

    def _or_not(self, job: Callable[[Device], NDArray[np.int64] | None]) -> Any:
        """Return what a device makes; None, from then on, where it cannot."""
        failed = False
        if self._device is None:
            return None
        try:
            with self._device as device:
                return job(device)
        except MemoryError:
            pass
        except Exception:  # noqa: BLE001 - whatever it says may be about the data
            failed = True
        self._device = None
        if failed:
            warn_of_fault()
        return None

    def _load(self, device: Device) -> None:
        for start in range(0, len(self._rows), self._step):
            part = slice(start, start + self._step)
            self._parts.append((device.put(self._rows[part]), device.put(self._labels[part])))

    def _sum(self, device: Device, weights: NDArray[np.float32], f: int) -> NDArray[np.int64]:
        turned, table = device.put(np.ascontiguousarray(weights.T)), device.put(_TABLE)
        total = device.xp.zeros(turned.shape, dtype=np.int64)
        start = 0
        for rows, labels in self._parts:
            found = _residuals_on(device, rows, labels, turned, f, table)
            # Of a part, sums of products of at most CLIP * GRID_SIDE stay far below 2**53.
            turned_rows = rows.astype(np.float64).T
            total += device.checked_products(found, turned_rows).astype(np.int64)
            size = len(rows)
            some = device.random_places(size)
            again = residuals(self._rows[start + some], self._labels[start + some], weights, f)
            if not np.array_equal(device.get(found[:, device.put(some)]), again):
                raise device_error("another residual of some records")
            start += size
        return device.get(total).T


def _residuals_on(device: Device, rows: Any, labels: Any, weights: Any, f: int, table: Any) -> Any:
    """Return ``residuals``, by the same operations in a device's memory."""
    xp, classes = device.xp, len(weights)
    behind = device.checked_products(weights, rows).astype(np.float64)
    behind = (behind.max(axis=0) - behind) * (float(_A_UNIT) * 2.0 ** -(math.log2(GRID_SIDE) + f))
    found = table[xp.minimum(behind, float(_LAST)).astype(np.int32)]
    total = found[0]
    for c in range(1, classes):
        total = total + found[c]
    found = xp.floor(found * float(WHOLE) / total)
    own = xp.arange(classes)[:, None] == labels
    found = found - xp.where(own, float(WHOLE), 0.0)
    square = found[0] * found[0]
    for c in range(1, classes):
        square = square + found[c] * found[c]
    long = square > float(CLIP) ** 2
    factor = CLIP * _SHORT / xp.sqrt(xp.where(long, square, 1.0))
    return xp.trunc(found * xp.where(long, factor, 1.0))


def _overwrite(device: Device, parts: list[tuple[Any, Any]]) -> None:
    """Overwrite rows in a device's memory, and give it back."""
    with suppress(Exception), device:
        while parts:
            for part in parts.pop():
                part.fill(0)
    with suppress(Exception):
        device.clear()


# --------------------------------------------------------------------------------------------------

LOGIT = 2.0**-24
"""The unit of released weights: a logit of a row of length 1 a unit."""
ROOM = 1 + Fraction(1, 2**40)
"""Room for the outward rounding of OpenDP's maps."""
_LENGTH, _COLUMNS, _WHITENED = 1.2, 4.8, 2.4
"""About the deviation that noise alone gives a weight: rows of one length, tables, whitened rows."""
_MOMENTUM = 0.8
"""How much of a step is kept in the next one."""
_CAP, _CAP_WHITENED = 200.0, 100.0
"""The most that one step may move, in normalised time, where the size is guessed or known."""
_SHARE = Fraction(1, 5)
"""The share of the loss that whitening gets."""

Noise = Callable[[NDArray[np.int64], float], NDArray[np.int64]]
"""Cells and a scale to noisy cells: the only way from records to anything that is released."""


_TIMES, _TOGETHER = 64, 2**14
"""Releases that share a draw of noise, and cells of it at most: a draw costs as much as 4,000 cells."""


class RoundedNoise:
    """Add rounded Gaussian noise to cells, exactly; sums beyond int64 saturate.

    Few cells share a draw of many, of which each is given out once. It lives as long as one run.
    """

    def __init__(self, source: ByteSource = private_bytes) -> None:
        self._source = Bytes(source)
        self._left: dict[float, tuple[NDArray[np.uint64], NDArray[np.uint8]]] = {}

    def __repr__(self) -> str:
        """Nothing of what is drawn."""
        return "RoundedNoise(secret)"

    def __call__(self, cells: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """Return the cells plus noise of this scale."""
        flat = np.ascontiguousarray(cells).ravel()
        count, times = flat.size, min(_TIMES, _TOGETHER // max(flat.size, 1))
        if times < 2:
            return add_rounded(flat, [(count, Fraction(scale))]).reshape(cells.shape)
        words, negative = self._left.get(scale, (np.empty(0, np.uint64), np.empty(0, np.uint8)))
        if count > words.size:
            plan = rounded_plan(Fraction(scale))
            words = rounded_magnitudes(plan, times * count, self._source)
            negative = fair_bits(times * count, self._source)
        self._left[scale] = words[count:], negative[count:]
        return saturating_add(flat, words[:count], negative[:count]).reshape(cells.shape)


Releases = Sequence[tuple[Fraction, float]]
"""Squared L2 bounds of what one record adds, and scales of the noise, in the order of a run."""


def mu_squared_of(releases: Releases) -> Fraction:
    """Return Gaussian DP of all releases at distance 1, exactly."""
    return sum((square / Fraction(scale) ** 2 for square, scale in releases), Fraction(0))


def loss_map(key: str, releases: Releases) -> Callable[[Any], float]:
    """Return OpenDP's composition of all noisy releases' maps (Lemma 6).

    It holds for what the sampler draws exactly: a scale beyond is refused (OS102).
    """
    largest = max(scale for _, scale in releases)
    need_int64_noise(f"{key}.rho", largest, "raise the budget: noise like this drowns all data.")
    # T steps of one scale cost what one Gaussian release costs at sqrt(T) times the distance.
    parts = [
        (sum((square for square, _ in alike), Fraction(0)), scale)
        for scale, alike in groupby(releases, key=itemgetter(1))
    ]

    def one(square: Fraction, scale: float) -> dp.Measurement:
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
        length, of = Fraction(sqrt_up(square)), gaussian_map(scale)
        measure = dp.zero_concentrated_divergence()
        return plain_measurement(*space, measure, list, lambda d_in: of(length * Fraction(d_in)))

    @cache  # when it is asked: whoever reads a release needs no map, and no feature of OpenDP's
    def composed() -> dp.Measurement:
        return dp.c.make_composition([one(square, scale) for square, scale in parts])

    return lambda d_in: float(composed().map(float_up(Fraction(d_in))))


@dataclass(frozen=True)
class ScaledRecords:
    """Hold scaled integer records (n, d + 1) and labels (n,)."""

    rows: NDArray[np.float32]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Descent:
    """What is run, from public numbers alone.

    Args:
        scaled: how rows are scaled.
        classes: K.
        rho: the loss of one record, of everything.
        steps: T.
        whiten: whether second moments are released first.
        size: a public guess of the number of records, or None.
    """

    scaled: ScaledRows
    classes: int
    rho: float
    steps: int
    whiten: bool
    size: int | None

    def check(self, where: str) -> None:
        """Refuse rows too wide for the exact products of Lemma 5 (OS203)."""
        if self.whiten and self.scaled.width > WIDEST_TABLE:
            raise SpaceError(
                "OS203", where, expected=f"at most {WIDEST_TABLE - 1:,} columns with `whiten`",
                got=self.scaled.width - 1, hint="leave `whiten` out: it is for few columns.",
            )  # fmt: skip

    @property
    def _whitening_rho(self) -> Fraction:
        return _SHARE * Fraction(self.rho) if self.whiten else Fraction(0)

    @property
    def norm_squared(self) -> int:
        """Bound on the squared L2 norm of the rows that gradients see."""
        return GRID_SIDE**2 if self.whiten else self.scaled.norm_squared

    @property
    def gradient_square(self) -> int:
        """Return an exact squared L2 bound of one gradient share (Lemma 3)."""
        return self.norm_squared * CLIP**2

    @property
    def whitening_scale(self) -> float:
        """Noise scale of a second moment."""
        square = moments_norm_squared(self.scaled.norm_squared)
        return sqrt_up(square / (2 * self._whitening_rho) * ROOM)

    @property
    def scale(self) -> float:
        """Noise scale of a cell of a gradient."""
        rho = Fraction(self.rho) - self._whitening_rho
        return sqrt_up(self.steps * self.gradient_square / (2 * rho) * ROOM)

    @property
    def releases(self) -> list[tuple[Fraction, float]]:
        """Return every noisy release's squared L2 bound and scale."""
        first = (
            [(moments_norm_squared(self.scaled.norm_squared), self.whitening_scale)]
            if self.whiten
            else []
        )
        return [*first, *[(Fraction(self.gradient_square), self.scale)] * self.steps]

    @property
    def mu_squared(self) -> Fraction:
        """Gaussian DP of the whole at distance 1, exactly."""
        return mu_squared_of(self.releases)

    def rate(self, size: float | None) -> float:
        """Return the weight change per unit of a gradient's cell."""
        kappa = _LENGTH if self.scaled.by_length else _WHITENED if self.whiten else _COLUMNS
        strength = kappa * math.sqrt(2.0 * self.rho * float(1 - _SHARE if self.whiten else 1))
        if size is not None:
            cap = _CAP_WHITENED if self.whiten else _CAP
            strength = min(strength, cap * self.steps / max(size, 1.0))
        return (1.0 - _MOMENTUM) * strength / (self.steps * CLIP * GRID_SIDE)

    def noise_of_a_weight(self, whitening: NDArray[np.int64] | None) -> float:
        """Return a weight's deviation by noise alone, in logits (Lemma 7)."""
        last = self.steps - self.steps // 2
        # The sum of weights, over the first steps after a gradient, that one unit of it moves.
        moved = (1.0 - _MOMENTUM ** np.arange(1, self.steps + 1)) / (1.0 - _MOMENTUM)
        summed = np.concatenate([np.zeros(last), np.cumsum(moved)])
        kept = (summed[last:] - summed[:-last]) / last
        size: float | None = self.size
        if whitening is not None:
            size = count_in(whitening, self.whitening_scale, self.scaled.constant)
        return self.rate(size) * self.scale * float(np.sqrt(np.square(kept).sum()))

    def run(self, seen: ScaledRecords, noise: Noise | None = None) -> NDArray[np.int64]:
        """Release the weights, after any whitening, as an int64 vector."""
        noise = RoundedNoise() if noise is None else noise
        rows, size, first = seen.rows, self.size, np.zeros(0, dtype=np.int64)
        if self.whiten:
            cells = noise(moments(rows), self.whitening_scale)
            first, counted = whitening_of(
                cells, self.scaled.width, self.whitening_scale, self.scaled.constant
            )
            rows, size = whitened(rows, first), int(min(counted, 2.0**62))
        found = self._descend(ScaledRecords(rows, seen.labels), self.rate(size), noise)
        limit = 2.0**62
        weights = np.clip(np.rint(found / LOGIT), -limit, limit).astype(np.int64)
        return np.concatenate([first.ravel(), weights.ravel()])

    def _descend(self, seen: ScaledRecords, rate: float, noise: Noise) -> NDArray[np.float64]:
        """Return the mean weights of the last half, (d + 1, K)."""
        shape = self.scaled.width, self.classes
        weights, moved, mean = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        last, scale, norm_squared = self.steps - self.steps // 2, self.scale, self.norm_squared
        sums = DeviceGradients(device_in_use(), seen.rows, seen.labels, self.classes)
        for step in range(self.steps):
            whole, f = whole_weights(weights, norm_squared)
            noisy = noise(sums(whole, f), scale)
            moved = _MOMENTUM * moved - rate * noisy
            weights = weights + moved
            if step >= self.steps - last:
                mean += weights / last
        return mean
