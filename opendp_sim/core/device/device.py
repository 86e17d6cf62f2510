"""Define the exact operations that a device offers.

The lemma is in ``device.md``, beside this file. Operands are integers, or integers times a power of two,
whose partial sums are representable, so a product, a count and a sum are the same bits in every order of
summation. Nothing here draws noise, selects or charges.
"""

from __future__ import annotations

import secrets
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.grid import UniversalHash
from opendp_sim.core.arithmetic.matrix_product import matrix_product
from opendp_sim.core.errors import InternalError

_EXACT = 2**53
_AGAIN = 64
"""Rows of a block that the CPU computes, too."""
_FEWEST = 256
"""Rows of a chunk, at least: fewer would cost more in calls than they save."""
_MOST = 2**22
"""Rows of a chunk, at most: 32-bit counters hold them, and so do 32-bit sizes of a kernel."""

OnDevice = Any
"""An array in a device's memory, of the type of its ``xp``."""


class DeviceError(InternalError):
    """Report a failed or wrong device, of which no count is used."""


def device_error(got: str) -> DeviceError:
    """Return the refusal of a device."""
    return DeviceError(
        "OS904", "device", expected="the bits of the CPU", got=got,
        hint="leave `device` out: the CPU gives the same release.",
    )  # fmt: skip


def warn_of_fault() -> None:
    """Warn that the CPU does a device's work; never an exception."""
    with suppress(RuntimeWarning):
        warnings.warn(_FAULT, RuntimeWarning, stacklevel=3)


_FAULT = (
    "the device gave other bits than the CPU, or failed (OS904): what it counted was not used, and the "
    "CPU did all of it again. Do not use this device."
)


@dataclass(frozen=True)
class Cells:
    """Describe the public function from rows to cells.

    One cell in each repetition.

    The phases of ``joined`` columns of a projection have floors, reduced by ``modulus`` (Lemmas 1 and 2
    of ``grid.md``). One floor is the cell; or ``base`` makes bits of them, bit j that of a floor that
    reached ``base``; or ``rehash`` makes a bucket of the floors, or of the code of bits.

    Attributes:
        matrix: shape (R * joined, d + 1), ``PhaseProjection.workspace``.
        width: cells of a repetition.
    """

    matrix: NDArray[np.float64]
    width: int
    modulus: int = 2**51
    joined: int = 1
    base: NDArray[np.int64] | None = None
    rehash: UniversalHash | None = None

    @property
    def repetitions(self) -> int:
        """Number of repetitions R."""
        return len(self.matrix) // self.joined


class Device(ABC):
    """Offer exact operations on arrays in a device's memory.

    A backend has the abstract methods and ``xp``: an array namespace with numpy's names, of which only
    creation, indexing and elementwise functions that are correctly rounded are used (``+ - * /``,
    ``sqrt``, ``rint``, ``trunc``, ``minimum``, ``maximum``, ``where``). ``prove`` (``proof.py``) checks
    all of it before first use. Enter the device around every use: ``with device: ...`` lets one thread in
    at a time.

    Attributes:
        name: for messages.
        xp: the array namespace.
        room: bytes of products that are made at a time.
    """

    name: str
    xp: Any
    room: int

    def __init__(self) -> None:
        self._lock = RLock()
        self.proved = False
        """Whether its bits were compared with the CPU's."""

    def __repr__(self) -> str:
        """Return its name, and nothing that depends on data."""
        return f"Device({self.name})"

    def __enter__(self) -> Self:
        """Let this thread in, when all others are out."""
        self._lock.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the next thread in."""
        self._lock.release()

    # --- of a backend -----------------------------------------------------------------------------

    @abstractmethod
    def put(self, array: NDArray[Any]) -> OnDevice:
        """Copy an array to the device.

        Raises:
            MemoryError: there is no room.
        """

    @abstractmethod
    def get(self, values: OnDevice) -> NDArray[Any]:
        """Copy an array back."""

    @abstractmethod
    def products(self, left: OnDevice, right: OnDevice) -> OnDevice:
        """Return all inner products of rows, shape (m, n).

        Of (m, d) and (n, d) in one of float64, float32 and float16; in float64, float32 and float32,
        which hold every partial sum: integers below 2**53, 2**24 and 2**24.
        """

    @abstractmethod
    def add_counts(
        self,
        phases: OnDevice,
        offsets: OnDevice,
        cells: Cells,
        labels: OnDevice | None,
        out: OnDevice,
    ) -> int:
        """Add one to ``out[r, label, cell]`` for each repetition and row.

        Args:
            phases: shape (R * joined, n), less the offsets.
            offsets: shape (R * joined,).
            cells: what to make of the phases.
            labels: shape (n,) int64, or None for one class.
            out: shape (R, classes, width) int64, in the device's memory.

        Returns:
            How many cells were outside ``out``.
        """

    @abstractmethod
    def add_pairs(
        self, phases: OnDevice, offsets: OnDevice, starts: OnDevice, table: OnDevice, out: OnDevice
    ) -> None:
        """Add ``table[(floor + start) mod size]`` over rows, for each column.

        Args:
            phases: shape (C, n), less the offsets.
            offsets: shape (C,).
            starts: shape (C,) int64, from 0 to 2**49.
            table: shape (size, 2) int64 below 2**31 in absolute value; ``size`` a power of two.
            out: shape (C, 2) int64, in the device's memory.
        """

    @abstractmethod
    def clear(self) -> None:
        """Overwrite and give back all memory that no array is in."""

    # --- for mechanisms ---------------------------------------------------------------------------

    def staged(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an equal array for ``put``.

        Call it outside of the device. A backend whose card reads some memory of the host directly returns
        a copy there; others the array itself.
        """
        return array

    def chunks(self, rows: int, bytes_a_row: int) -> Iterator[slice]:
        """Yield slices of rows whose products fit the room."""
        step = max(_FEWEST, min(_MOST, self.room // max(bytes_a_row, 1)))
        for start in range(0, rows, step):
            yield slice(start, min(start + step, rows))

    def count(
        self, values: OnDevice, cells: Cells, labels: NDArray[np.int64] | None, classes: int
    ) -> NDArray[np.int64]:
        """Count rows by repetition, class and cell.

        Args:
            values: shape (n, d), integers within the projection's magnitude.
            cells: the cell of a row.
            labels: shape (n,), below ``classes``; None for one class.
            classes: number of classes.

        Returns:
            Shape (R, classes, width).

        Raises:
            DeviceError (OS904): a repetition did not count every row once.
            IndexError: a label is outside.
        """
        if labels is not None and not _fit(labels, len(values), classes):
            raise IndexError  # as the CPU's code does; guarded, so nothing of it is seen
        matrix, offsets = self.put(cells.matrix[:, :-1]), self.put(cells.matrix[:, -1])
        out = self.xp.zeros((cells.repetitions, classes, cells.width), dtype=np.int64)
        outside = 0
        for part in self.chunks(len(values), 8 * (len(cells.matrix) + cells.matrix.shape[1])):
            own = None if labels is None else self.put(labels[part].astype(np.int64, copy=False))
            phases = self._phases(matrix, values[part], cells.matrix)
            outside += self.add_counts(phases, offsets, cells, own, out)
        found = self.get(out)
        if outside or (found.sum(axis=(1, 2)) != len(values)).any():
            raise device_error("counts that do not add up to the rows")
        return found

    def sum_pairs(
        self,
        values: OnDevice,
        matrix: NDArray[np.float64],
        starts: NDArray[np.int64],
        table: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Sum a table's pairs at each row's phase, shape (C, 2).

        Args:
            values: shape (n, d), integers within the projection's magnitude.
            matrix: shape (C, d + 1), ``PhaseProjection.workspace``.
            starts: shape (C,), added to the floors.
            table: shape (size, 2), size a power of two; the floors are reduced by it.
        """
        weights, offsets = self.put(matrix[:, :-1]), self.put(matrix[:, -1])
        first, pairs = self.put(starts), self.put(table)
        out = self.xp.zeros((len(matrix), 2), dtype=np.int64)
        for part in self.chunks(len(values), 8 * (len(matrix) + matrix.shape[1])):
            phases = self._phases(weights, values[part], matrix)
            self.add_pairs(phases, offsets, first, pairs, out)
        return self.get(out)

    def gram(self, values: OnDevice, magnitude: int) -> NDArray[np.int64]:
        """Return ``values.T . values`` of integers (n, c) below 2**26 exactly."""
        out = self.xp.zeros((values.shape[1], values.shape[1]), dtype=np.int64)
        step = max(1, min(_MOST, (_EXACT - 1) // max(1, magnitude) ** 2))
        for start in range(0, len(values), step):
            block = values[start : start + step].T
            out += self.checked_products(block, block).astype(np.int64)
        return self.get(out)

    def checked_products(self, left: OnDevice, right: OnDevice) -> OnDevice:
        """Return ``products`` of integers, compared with sums made otherwise.

        In integers modulo 2**64, with secret random weights of the right rows: another product of rows
        passes with probability at most 2**-16 (Freivalds' check).

        Raises:
            DeviceError (OS904): they differ.
        """
        found = self.products(left, right)
        drawn = np.frombuffer(secrets.token_bytes(2 * len(right)), np.uint16)
        weights = self.put(drawn.astype(np.int64))
        joined = (right.astype(np.int64) * weights[:, None]).sum(axis=0)
        wanted = (left.astype(np.int64) * joined).sum(axis=1)
        if bool(((found.astype(np.int64) * weights).sum(axis=1) != wanted).any()):
            raise device_error("another product of rows")
        return found

    def random_places(self, count: int) -> NDArray[np.int64]:
        """Return up to 64 secret random places below ``count``."""
        drawn = np.frombuffer(secrets.token_bytes(8 * min(_AGAIN, count)), np.uint64)
        return (drawn % np.uint64(max(count, 1))).astype(np.int64)

    def _phases(self, weights: OnDevice, values: OnDevice, matrix: NDArray[np.float64]) -> OnDevice:
        """Return phases less offsets, shape (C, n), some checked on the CPU."""
        rows = values.astype(np.float64, copy=False)
        phases = self.products(weights, rows)
        some = self.put(self.random_places(len(rows)))
        wanted = matrix_product(matrix[:, :-1], self.get(rows[some]).T)
        if not np.array_equal(self.get(phases[:, some]), wanted):
            raise device_error("another product of some records")
        return phases


def _fit(labels: NDArray[np.int64], rows: int, classes: int) -> bool:
    """Return whether there is a label below ``classes`` for each row."""
    known = not len(labels) or bool(labels.min() >= 0 and labels.max() < classes)
    return known and len(labels) == rows
