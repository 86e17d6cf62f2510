"""Project grid rows exactly, and count the results.

A float matrix product is not row-local: BLAS blocks by shape, so dropping a row changes the last
bits of others. Here both operands are integers times a power of two and the type bounds their
sums below 2**53 half steps, so every partial sum is exact, in any order, with or without fused
multiply-add, on any number of threads. ``grid.md`` beside this file has the lemmas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.compiled import COUNTED, TALLIED
from opendp_sim.core.arithmetic.matrix_product import matrix_product
from opendp_sim.core.errors import SpaceError

_MAGIC = 1.5 * 2.0**52
"""Adding it rounds to the nearest integer and leaves that integer in the low bits of the float."""
_LEAST_BITS, _MOST_BITS = 8, 44
_BUFFER = 2**19
"""Cells of one chunk's product: 4 MiB, the fastest of 2**18 to 2**21. With its block it stays below
what an allocator gives back at once: threads fault larger ones in again, for each block."""

_COUNTERS = 2**11
"""Counters that are counted in one go: 16 KiB, half of a first-level cache."""


def chunks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices of rows whose product fits the work buffer."""
    step = max(256, min(16384, _BUFFER // max(columns, 1)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


@dataclass(frozen=True)
class PhaseProjection:
    """``floor(x . a_c + b_c)`` for C columns, exactly, for integer x with ``|x_j| <= magnitude``.

    Lemma 1 of ``grid.md``. ``a`` and ``b`` are rounded to multiples of ``2**-bits[c]``, with as many
    bits as the bound allows, so the phases are those of a public matrix within ``2**-bits`` of the
    one asked for.

    Attributes:
        folded: shape (C, d + 1); the rounded matrix and, last, the rounded offset, in phase units.
        bits: shape (C,); fractional bits of each column.
        base: shape (C,) integers; ``floor`` lies in ``[-base, base)``.
        magnitude: bound on the integer coordinates.
    """

    folded: NDArray[np.float64]
    bits: NDArray[np.int64]
    base: NDArray[np.int64]
    magnitude: int

    @classmethod
    def fit(
        cls, matrix: NDArray[np.float64], offset: NDArray[np.float64], magnitude: int, where: str
    ) -> PhaseProjection:
        """Round a real (d, C) matrix to the finest provably exact grid.

        Raises:
            SpaceError (OS203): fewer than 8 fractional bits remain below the exact bound.
        """
        reach = np.abs(matrix).sum(axis=0) * float(magnitude) + np.abs(offset) + 2.0
        room = np.nan_to_num(50.0 - np.log2(reach), nan=-2000.0, neginf=-2000.0)
        bits = np.minimum(np.floor(room).astype(np.int64), _MOST_BITS)
        if bits.size and int(bits.min()) < _LEAST_BITS:
            raise SpaceError(
                "OS203", where, expected=f"phases with at least {_LEAST_BITS} exact binary digits",
                got=f"room for {int(bits.min())}",
                hint="quantize to fewer bits, project to fewer columns, or widen the bandwidth.",
            )  # fmt: skip
        step = np.exp2(-bits.astype(np.float64))
        whole, shift = np.rint(matrix / step), np.rint(offset / step)
        # Sums of integers below 2**53 are exact in float64, so this compares integers; with it no
        # partial sum in `ids`, offsets included, reaches 2**53 half steps (Lemma 1).
        total = np.abs(whole).sum(axis=0) * float(magnitude) + np.abs(shift)
        if not (total < 1.5 * 2.0**50).all():
            raise SpaceError(
                "OS203", where, expected="phases below 1.5 * 2**50 steps", got="a larger bound",
                hint="quantize to fewer bits.",
            )  # fmt: skip
        folded = np.concatenate([whole * step, (shift * step)[None, :]])
        # The rounded matrix can reach a little farther than the one asked for.
        base = np.maximum(np.ceil(reach), np.floor(total * step) + 1.0).astype(np.int64)
        return cls(np.ascontiguousarray(folded.T), bits, base, magnitude)

    @property
    def columns(self) -> int:
        """Number of projections C."""
        return len(self.folded)

    def some(self, columns: NDArray[np.intp]) -> PhaseProjection:
        """Return some of the projections, bit for bit."""
        return PhaseProjection(
            self.folded[columns], self.bits[columns], self.base[columns], self.magnitude
        )

    def floors(self, values: NDArray[np.float64], modulus: int) -> NDArray[np.int64]:
        """Return exact floors of phases modulo a power of two, (n, C)."""
        found: NDArray[np.int64] = self.ids(values, starts=-self.base % modulus, modulus=modulus)
        return found.T

    def workspace(self) -> NDArray[np.float64]:
        """Return the matrix with offsets so that rounding to nearest is ``floor + base``."""
        # Half a phase down makes nearest equal floor; half a step up removes every tie.
        half = -0.5 + np.exp2(-(self.bits + 1).astype(np.float64))
        out = self.folded.copy()
        out[:, -1] += half + self.base
        return out

    def ids(
        self,
        values: NDArray[np.float64],
        matrix: NDArray[np.float64] | None = None,
        modulus: int = 2**51,
        starts: NDArray[np.int64] | None = None,
        room: Room | None = None,
    ) -> NDArray[np.int64]:
        """Return non-negative ``floor(phase) + base`` by column and row, shape (C, n).

        Args:
            values: shape (n, d), integers within ``magnitude``.
            matrix: ``workspace()``, to make it once for many chunks, or some of its columns' rows.
            modulus: a power of two up to 2**51; ids are reduced by it at no cost.
            starts: shape (C,), integers from 0 to 2**49, added to the ids of each column at no cost.
            room: buffers of ``room_for``; the returned ids are a view into them, until the next call.
        """
        matrix = self.workspace() if matrix is None else matrix
        product = self._product(values, matrix, room)
        product += _MAGIC if starts is None else (_MAGIC + starts)[:, None]
        ids: NDArray[np.int64] = product.view(np.int64)
        ids &= modulus - 1
        return ids

    def signs(
        self, values: NDArray[np.float64], matrix: NDArray[np.float64], room: Room
    ) -> NDArray[np.bool_]:
        """Return whether phases reach zero, ``ids >= base``, shape (C, n)."""
        return self._product(values, matrix, room) > (self.base - 0.5)[:, None]

    def count(
        self,
        values: NDArray[np.float64],
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
        *,
        matrix: NDArray[np.float64],
        room: Room,
        modulus: int = 2**51,
    ) -> None:
        """Add one to ``out[c, label, id]`` for each column and row."""
        compiled = COUNTED.after(len(matrix) * len(values))
        if compiled is None:
            group, starts = _groups(out)
            free = starts if modulus == 2**51 else None  # a mask would take them off again
            ids = self.ids(values, matrix, modulus=modulus, starts=free, room=room)
            if free is None and group > 1:
                ids += starts[:, None]
            _count_groups(ids, labels, out, group)
            return
        product, own = self._product(values, matrix, room), _own(labels)
        known = labels is None or len(own) == len(values)
        if not known or compiled(product, _MAGIC, modulus - 1, own, out):
            raise IndexError  # as the numpy code does; guarded, so nothing of it is seen

    @staticmethod
    def _product(
        values: NDArray[np.float64], matrix: NDArray[np.float64], room: Room | None
    ) -> NDArray[np.float64]:
        """Return phases (C, n) in ``room``, shifted so that floors are ids."""
        held, flat = room_for(len(values), values.shape[1], len(matrix)) if room is None else room
        rows = held[: len(values)]
        rows[:, :-1] = values
        rows[:, -1] = 1.0
        product = flat[: len(matrix) * len(values)].reshape(len(matrix), len(values))
        matrix_product(matrix, rows.T, out=product)
        return product

    def phases(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the real phases of public queries, shape (C, n)."""
        product: NDArray[np.float64] = matrix_product(self.folded[:, :-1], values.T)
        product += self.folded[:, -1:]
        return product

    def far_ids(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the ids of public queries outside the bounds, rounded."""
        ids = np.empty((self.columns, len(values)), dtype=np.int64)
        far = np.asarray((np.abs(values) > self.magnitude).any(axis=1))
        ids[:, ~far] = self.ids(np.where(far[:, None], 0.0, values))[:, ~far]
        real = matrix_product(self.folded[:, :-1], values[far].T) + self.folded[:, -1:]
        ids[:, far] = np.floor(np.clip(real, -(2.0**51), 2.0**51)).astype(np.int64)
        ids[:, far] += self.base[:, None]
        return ids


Room = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Buffers that the chunks of one build share: rows with a constant column, and products."""


def room_for(rows: int, width: int, columns: int) -> Room:
    """Return buffers for chunks of up to ``rows`` rows."""
    return np.empty((rows, width + 1)), np.empty(columns * rows)


def chunks_in_room(rows: int, width: int, columns: int) -> Iterator[tuple[slice, Room]]:
    """Yield slices of rows that share buffers, since fresh pages cost time."""
    parts = list(chunks(rows, columns))
    room = room_for(max((part.stop - part.start for part in parts), default=0), width, columns)
    return ((part, room) for part in parts)


@dataclass(frozen=True)
class UniversalHash:
    """Hash m-tuples of ids to ``buckets``, strongly universally.

    One function a repetition. ``((sum_j a_j h_j + b) mod 2**64) >> 32`` is pairwise independent for
    32-bit ``h_j``; scaling the 32 bits down to ``buckets`` makes two tuples that differ modulo
    ``2**32`` meet with probability at most ``1/buckets + 2**-32`` (Lemma 3 of ``grid.md``).

    Attributes:
        multipliers: shape (R, m) uint64. addends: shape (R,) uint64.
    """

    multipliers: NDArray[np.uint64]
    addends: NDArray[np.uint64]
    buckets: int

    @classmethod
    def draw(
        cls, generator: np.random.Generator, repetitions: int, joined: int, buckets: int
    ) -> UniversalHash:
        """Draw R functions from a public generator."""
        bits = generator.integers(0, 2**64, size=(repetitions, joined + 1), dtype=np.uint64)
        return cls(np.ascontiguousarray(bits[:, 1:]), bits[:, 0].copy(), buckets)

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Hash ids (R, m, n) to buckets (R, n), overwriting ``ids``."""
        words = ids.view(np.uint64)
        words &= np.uint64(2**32 - 1)
        words *= self.multipliers[:, :, None]
        mixed = words[:, 0] if words.shape[1] == 1 else words.sum(axis=1, dtype=np.uint64)
        mixed += self.addends[:, None]
        mixed >>= np.uint64(32)
        mixed *= np.uint64(self.buckets)
        mixed >>= np.uint64(32)
        return cast("NDArray[np.int64]", mixed.view(np.int64))


def count_ids(
    ids: NDArray[np.int64], labels: NDArray[np.int64] | None, out: NDArray[np.int64]
) -> None:
    """Add one to ``out[c, label, id]`` for each column and row.

    May overwrite ``ids``.

    Args:
        ids: shape (C, n), below ``out.shape[2]``.
        labels: shape (n,), integers below ``out.shape[1]`` of any width; None for one class.
        out: shape (C, L, T).
    """
    compiled = TALLIED.after(ids.size)
    if compiled is not None:
        own = _own(labels)
        known = len(ids) <= len(out) and len(own) in (0 if labels is None else -1, ids.shape[1])
        if not known or compiled(ids, own, out):
            raise IndexError  # numpy would refuse or miscount; guarded, so nothing of it is seen
        return
    group, starts = _groups(out)
    if group > 1:
        ids += starts[: len(ids), None]
    _count_groups(ids, labels, out, group)


def _groups(out: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]]:
    """Return how many columns fit the cache, and where each starts.

    Counters are (C, L, T). A group is counted in one call, with one turn of the interpreter's lock.
    """
    columns, width = len(out), out.shape[1] * out.shape[2]
    group = max(1, min(columns, _COUNTERS // max(width, 1)))
    return group, np.arange(columns) % group * width


def _count_groups(
    ids: NDArray[np.int64], labels: NDArray[np.int64] | None, out: NDArray[np.int64], group: int
) -> None:
    """Add one to ``out[c, label, id]``, where ids begin at their column's start."""
    width = out.shape[1] * out.shape[2]
    if labels is not None:
        ids += labels.astype(np.int64, copy=False) * out.shape[2]  # a narrow product would wrap
    for first in range(0, len(ids), group):
        some = ids[first : first + group]
        found = np.bincount(some.reshape(-1), minlength=len(some) * width)
        out[first : first + group] += found.reshape(-1, *out.shape[1:])


def _own(labels: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Return labels as contiguous int64 for compiled code."""
    return np.zeros(0, np.int64) if labels is None else np.array(labels, dtype=np.int64)
