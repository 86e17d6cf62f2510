"""Find the records near queries among rows in a device's memory.

Lemma 4 of ``core/device/device.md``: the same records with the same products as on the CPU, or none.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.row_products import exact_products
from opendp_sim.core.device.device import Device, device_error, warn_of_fault

_HALF = 2**11
"""The largest coordinate that float16 holds with all integers below it."""
_PIECE = 2**24
"""Cells that go to the device at a time."""
_MANY = 2**22
"""Products from which eight comparisons are looked at as one word."""

Found = list[tuple[NDArray[np.intp], NDArray[Any]]]
"""For each query the places of records that reach its bound, in order, and their products."""


class ResidentRows:
    """Hold a copy of a pool's rows in a device's memory.

    As secret as they are.

    Args:
        device: one that was proved.
        dtype: the float in which products of the rows are exact; where it is float32 and coordinates
            are at most 2,048 the device's copy is float16, whose products it sums in float32.
        largest: bound on the coordinates.
    """

    def __init__(self, device: Device, dtype: type[np.floating[Any]], largest: float) -> None:
        self._device, self._dtype = device, dtype
        self._kind = np.float16 if dtype is np.float32 and largest <= _HALF else dtype
        self._parts: list[Any] = []
        self.size = 0
        weakref.finalize(self, _overwrite, device, self._parts)

    def __repr__(self) -> str:
        """Nothing that depends on data."""
        return "ResidentRows(secret)"

    def extend(self, rows: NDArray[Any]) -> None:
        """Append rows (n, d), or raise MemoryError of the device."""
        step = max(1, _PIECE // max(rows.shape[1], 1))
        with self._device as device:
            grown = device.xp.empty((self.size + len(rows), rows.shape[1]), dtype=self._kind)
            if self._parts:
                grown[: self.size] = self._parts[0]
                self._parts.pop().fill(0)
            for start in range(0, len(rows), step):
                piece = device.put(rows[start : start + step])
                at = self.size + start
                grown[at : at + len(piece)] = piece.astype(self._kind)
            self._parts.append(grown)
            self.size = len(grown)

    def near(
        self, rows: NDArray[Any], queries: NDArray[Any], least: NDArray[np.float64]
    ) -> Found | None:
        """Return the records whose product with a query reaches its bound.

        None where the device has no room, or failed, with a warning: then the CPU is to be asked. In
        the exact integers of ``dtype``: the same rows, queries (q, d), and bounds ``least`` (q,).
        """
        found: Found = []
        try:
            with self._device as device:
                step = max(1, device.room // (16 * max(self.size, 1)))
                for start in range(0, len(queries), step):
                    part = slice(start, start + step)
                    found += self._near(device, rows, queries[part], least[part])
        except MemoryError:
            return None
        except Exception:  # noqa: BLE001 - whatever it says may be about the data
            self.size = -1  # never again
        if self.size < 0:
            warn_of_fault()
            return None
        return found

    def _near(
        self, device: Device, rows: NDArray[Any], queries: NDArray[Any], least: NDArray[np.float64]
    ) -> Found:
        asked = device.put(queries).astype(self._kind)
        products = device.products(asked, self._parts[0])
        bounds = device.put(least.astype(self._dtype))
        hits = _reaching(device.xp, products, bounds)
        places, scores = device.get(hits), device.get(products.reshape(-1)[hits])
        ends = np.searchsorted(places, np.arange(1, len(queries) + 1) * self.size)
        starts = np.append(0, ends[:-1])
        found = [
            ((places[a:b] - q * self.size).astype(np.intp), scores[a:b])
            for q, (a, b) in enumerate(zip(starts, ends, strict=True))
        ]
        some = device.random_places(self.size)
        if len(some):
            again = exact_products(queries, rows[some])
            same = np.array_equal(device.get(products[:, device.put(some)]), again)
            asked_for = np.arange(len(queries))[:, None] * self.size + some
            reached = _inside(places, asked_for)
            if not same or not np.array_equal(again >= least[:, None], reached):
                raise device_error("another product of some records")
        return found


def _reaching(xp: Any, products: Any, bounds: Any) -> Any:
    """Return the flat places of products that reach bounds.

    Products (q, n), bounds (q,), places in order. Few reach them: of many products eight comparisons
    are looked at as one word, then those of the words that have any.
    """
    size = products.size
    if size < _MANY:
        return xp.flatnonzero(products >= bounds[:, None])
    flags = xp.zeros(-(-size // 8) * 8, dtype=np.bool_)
    xp.greater_equal(products, bounds[:, None], out=flags[:size].reshape(products.shape))
    words = xp.flatnonzero(flags.view(np.uint64))
    cells = (words[:, None] * 8 + xp.arange(8)).reshape(-1)
    return cells[flags[cells]]


def _inside(ordered: NDArray[Any], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which of some places are among ordered ones."""
    if not len(ordered):
        return np.zeros(wanted.shape, dtype=np.bool_)
    at = np.searchsorted(ordered, wanted)
    return ordered[np.minimum(at, len(ordered) - 1)] == wanted


def _overwrite(device: Device, parts: list[Any]) -> None:
    """Overwrite rows in a device's memory, and give it back."""
    with suppress(Exception), device:
        while parts:
            parts.pop().fill(0)
    with suppress(Exception):
        device.clear()
