"""Compare a device's bits with the CPU's before first use.

Lemma 2 of ``device.md``. Nothing is assumed of a card, its driver or its libraries: products at the
limits of exactness, counts beside integers, sums of pairs and elementwise functions are made on both
sides, and one unequal bit refuses the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.grid import PhaseProjection, UniversalHash
from opendp_sim.core.arithmetic.matrix_product import matrix_product
from opendp_sim.core.device.device import Cells, Device, DeviceError, device_error
from opendp_sim.core.randomness import public_generator

_LIMITS: tuple[tuple[type[np.floating[Any]], int, int], ...] = (
    (np.float64, 53, 26),
    (np.float32, 24, 11),
    (np.float16, 24, 11),
)
"""Bits below which sums are exact, and of the largest factors."""
_SHAPES = ((1, 1, 1), (1, 768, 1024), (257, 33, 129), (130, 512, 136), (24, 4096, 24))
"""Rows, columns and rows of products: one, many, odd ones, and ones that are split."""


def prove(device: Device) -> None:
    """Compare all operations with the CPU's, or raise DeviceError (OS904)."""
    checks: tuple[tuple[str, Callable[[Device], Iterator[bool]]], ...] = (
        ("elementwise functions", _elementwise),
        ("products", _products),
        ("counts", _counts),
        ("sums of pairs", _pairs),
    )
    for what, check in checks:
        try:
            with device:
                equal = all(check(device))
        except DeviceError as error:
            raise error.with_traceback(None) from None
        except Exception as error:  # noqa: BLE001 - of CUDA, on public numbers
            raise device_error(f"a failure in its {what}: {type(error).__name__}") from None
        if not equal:
            raise device_error(f"other bits in its {what}")
    device.clear()
    device.proved = True


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return (
        one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
    )


def _elementwise(device: Device) -> Iterator[bool]:
    """Compare rounding of every function on hard floats."""
    draws = public_generator(0, "device", "floats")
    bits = draws.integers(0, 2**63, 2**17, dtype=np.uint64) | np.uint64(2**52)
    any_size = np.abs(bits.view(np.float64))
    any_size = any_size[np.isfinite(any_size)]
    below = np.ldexp(draws.integers(1, 2**40, 2**10).astype(np.float64), -1074)
    halves = np.concatenate([np.arange(-99, 99) / 2, np.nextafter(np.arange(-99, 99) / 2, 0)])
    ends = np.array([0.0, -0.0, np.inf, -np.inf, 2.0**53, 2.0**53 - 1, 1e308, -1e308])
    usual = draws.integers(0, 2**50, 2**16).astype(np.float64)
    numbers = np.concatenate([any_size, below, halves, ends, usual, draws.random(2**16) * 5000])
    turned = np.where(numbers == 0.0, 1.0, numbers)[::-1].copy()
    one, other, xp = device.put(numbers), device.put(turned), device.xp
    with np.errstate(all="ignore"):
        yield _same(device.get(one / other), numbers / turned)
        yield _same(device.get(one * other), numbers * turned)
        yield _same(device.get(one + other), numbers + turned)
        yield _same(device.get(one - other), numbers - turned)
        yield _same(device.get(xp.sqrt(xp.abs(one))), np.sqrt(np.abs(numbers)))
        for name in ("rint", "trunc", "floor"):
            yield _same(device.get(getattr(xp, name)(one)), getattr(np, name)(numbers))
        for name in ("minimum", "maximum"):
            found = getattr(xp, name)(one, other) + 0.0
            yield _same(device.get(found), getattr(np, name)(numbers, turned) + 0.0)
        whole = np.clip(np.nan_to_num(numbers), -(2.0**62), 2.0**62).astype(np.int64)
        yield _same(device.get(device.put(whole).astype(np.float64)), whole.astype(np.float64))
        for kind, most in ((np.float32, 2**24), (np.float16, 2**11), (np.int32, 2**24)):
            few = np.clip(whole, -most, most).astype(np.float64)  # the only ones that are narrowed
            yield _same(device.get(device.put(few).astype(kind)), few.astype(kind))
            yield _same(device.get(device.put(few.astype(kind)).astype(np.float64)), few + 0.0)
        square = numbers[: 2**16].reshape(16, -1)
        yield _same(device.get(device.put(square).max(axis=0)), square.max(axis=0))


def _products(device: Device) -> Iterator[bool]:
    """Compare products whose sums come to the last exact integer."""
    draws = public_generator(0, "device", "products")
    for kind, bits, most in _LIMITS:
        out = np.float64 if kind is np.float64 else np.float32
        for rows, width, others in _SHAPES:
            room = int(2.0 ** ((bits - np.log2(width)) / 2)) - 1
            largest = min(2**most, max(1, room))
            left = draws.integers(-largest, largest + 1, (rows, width))
            right = draws.integers(-largest, largest + 1, (others, width))
            # One giant and ones beside it: a sum that ever loses its last bit ends as another one.
            left[0], right[0] = 1, 1
            left[0, width // 2] = right[0, width // 2] = min(
                2**most, int(np.sqrt(2.0**bits - width))
            )
            whole = _integer_products(left, right, bits)
            a, b = (device.put(side.astype(kind)) for side in (left, right))
            yield _same(device.get(device.products(a, b)), whole.astype(out))
            yield _same(device.get(device.products(b, a)), whole.T.astype(out))
            part = slice(0, max(1, rows // 2))
            yield _same(device.get(device.products(a[part], b)), whole[part].astype(out))
            flipped = device.put(np.ascontiguousarray(left.T.astype(kind))).T
            yield _same(device.get(device.products(flipped, b)), whole.astype(out))
        yield _limit(device, kind, bits)
    values = draws.integers(-(2**20), 2**20 + 1, (5000, 7))
    found = device.gram(device.put(values.astype(np.float64)), 2**20)
    yield _same(found, matrix_product(values.T, values))


def _integer_products(
    left: NDArray[np.int64], right: NDArray[np.int64], bits: int
) -> NDArray[np.int64]:
    """Return integer products, those of 24 bits by faster float64."""
    if bits < 32:
        return matrix_product(left.astype(np.float64), right.T.astype(np.float64)).astype(np.int64)
    return matrix_product(left, right.T)


def _limit(device: Device, kind: type[np.floating[Any]], bits: int) -> bool:
    """Compare one sum of exactly ``2**bits - 1``."""
    half = bits // 2 if kind is np.float64 else 11
    terms = [(2**half, 2**half)] * (2 ** (bits - 2 * half) - 1 if bits > 2 * half else 0)
    rest = 2**bits - 1 - sum(a * b for a, b in terms)
    while rest:
        a = min(2**half, rest)
        b = min(2**half, rest // a)
        terms.append((a, b))
        rest -= a * b
    left, right = (np.array([side], dtype=kind) for side in zip(*terms, strict=True))
    found = device.get(device.products(device.put(left), device.put(right)))
    return bool(int(found[0, 0]) == 2**bits - 1)


def _corners(projection: PhaseProjection) -> NDArray[np.float64]:
    """Return rows at the grid's corners and beside a projection's integers."""
    draws = public_generator(0, "device", "rows")
    width, most = projection.folded.shape[1] - 1, float(projection.magnitude)
    signs = np.sign(projection.folded[:64, :-1])
    inside = draws.integers(-projection.magnitude, projection.magnitude + 1, (700, width))
    ends = [np.full((1, width), end) for end in (most, -most, 0.0)]
    beside = [most * signs, -most * signs, np.eye(width), -np.eye(width)]
    return np.concatenate([*ends, *beside, inside])


def _projections() -> Iterator[PhaseProjection]:
    draws = public_generator(0, "device", "projections")
    yield PhaseProjection.fit(draws.normal(size=(9, 30)) / 300, draws.random(30), 2048, "device")
    # Quarters, and steps of 2**-20: phases that are integers, and the next ones below and above.
    fine = np.array([[1.0, 0.5, -0.25], [2.0**-20, -(2.0**-20), 2.0**-30], [0.0, 0.0, 2.0**-12]])
    yield PhaseProjection.fit(np.repeat(fine, 4, axis=1), np.zeros(12), 2**11, "device")


def _counts(device: Device) -> Iterator[bool]:
    """Compare counts at corners with the CPU's own."""
    draws = public_generator(0, "device", "hashes")
    for projection in _projections():
        rows, matrix = _corners(projection), projection.workspace()
        columns, width = len(matrix), int(2 * projection.base.max())
        labels = draws.integers(0, 3, len(rows))
        hashed = UniversalHash.draw(draws, columns // 3, 3, 17)
        coded = UniversalHash.draw(draws, columns // 6, 1, 2**15)
        for cells in (
            Cells(matrix, width),
            Cells(matrix, 64, modulus=64),
            Cells(matrix, 17, joined=3, rehash=hashed),
            Cells(matrix, 64, joined=6, base=projection.base),
            Cells(matrix, 2**15, joined=6, base=projection.base, rehash=coded),
        ):
            wanted = _cells_by_cpu(projection, cells, rows)
            for own, classes in ((None, 1), (labels, 3)):
                found = device.count(device.put(rows), cells, own, classes)
                yield _same(found, _tallied(wanted, own, (len(wanted), classes, cells.width)))


def _cells_by_cpu(
    projection: PhaseProjection, cells: Cells, rows: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return each row's cell in each repetition, by the CPU's projection."""
    ids = projection.ids(rows, cells.matrix, modulus=cells.modulus)
    tuples = ids.reshape(cells.repetitions, cells.joined, -1)
    if cells.base is not None:
        reached = tuples >= cells.base.reshape(cells.repetitions, cells.joined, 1)
        tuples = (reached << np.arange(cells.joined)[:, None]).sum(axis=1, keepdims=True)
    return tuples[:, 0] if cells.rehash is None else cells.rehash(tuples)


def _tallied(
    places: NDArray[np.int64], labels: NDArray[np.int64] | None, shape: tuple[int, ...]
) -> NDArray[np.int64]:
    out = np.zeros(shape, dtype=np.int64)
    own = np.zeros(places.shape[1], np.int64) if labels is None else labels
    np.add.at(out, (np.arange(len(out))[:, None], own[None, :], places), 1)
    return out


def _pairs(device: Device) -> Iterator[bool]:
    """Compare sums of a table's pairs with the CPU's own."""
    draws = public_generator(0, "device", "pairs")
    for projection in _projections():
        rows, matrix = _corners(projection), projection.workspace()
        table = draws.integers(-(2**31) + 1, 2**31, (2**12, 2))
        starts = draws.integers(0, 2**12, len(matrix))
        ids = projection.ids(rows, matrix, modulus=2**12, starts=starts)
        found = device.sum_pairs(device.put(rows), matrix, starts, table)
        yield _same(found, table[ids].sum(axis=1))
