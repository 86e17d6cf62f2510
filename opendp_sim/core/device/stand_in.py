"""Offer a device's operations by numpy on the CPU.

The suite runs every mechanism's device code on it, and a card is compared with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.matrix_product import matrix_product
from opendp_sim.core.device.device import Cells, Device

_MAGIC = 1.5 * 2.0**52
"""Rounds to the nearest integer and leaves it in the low bits (Lemma 2 of ``grid.md``)."""


class StandIn(Device):
    """Replace a card by the CPU, in chunks of ``room`` bytes."""

    name, xp = "stand-in", np

    def __init__(self, room: int = 2**16) -> None:
        super().__init__()
        self.room = room

    def put(self, array: NDArray[Any]) -> NDArray[Any]:
        """Copy an array."""
        return np.array(array)

    def get(self, values: NDArray[Any]) -> NDArray[Any]:
        """Copy an array."""
        return np.array(values)

    def products(self, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        """Return all inner products of rows."""
        if left.dtype == np.float16:
            left, right = left.astype(np.float32), right.astype(np.float32)
        return matrix_product(left, right.T)

    def add_counts(
        self,
        phases: NDArray[np.float64],
        offsets: NDArray[np.float64],
        cells: Cells,
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
    ) -> int:
        """Count by numpy."""
        found = _floors(phases, offsets, _MAGIC, cells.modulus)
        tuples = found.reshape(cells.repetitions, cells.joined, -1)
        if cells.base is not None:
            bits = tuples >= cells.base.reshape(tuples.shape[:2])[:, :, None]
            powers = np.int64(1) << np.arange(cells.joined, dtype=np.int64)
            tuples = (bits * powers[:, None]).sum(axis=1, keepdims=True)
        places = tuples[:, 0] if cells.rehash is None else cells.rehash(tuples.copy())
        own = np.zeros(places.shape[1], np.int64) if labels is None else labels
        known = (places >= 0) & (places < cells.width) & (own >= 0) & (own < out.shape[1])
        flat = (np.arange(len(out))[:, None] * out.shape[1] + own) * cells.width + places
        out += np.bincount(flat[known], minlength=out.size).reshape(out.shape)
        return int(known.size - known.sum())

    def add_pairs(
        self,
        phases: NDArray[np.float64],
        offsets: NDArray[np.float64],
        starts: NDArray[np.int64],
        table: NDArray[np.int64],
        out: NDArray[np.int64],
    ) -> None:
        """Sum pairs by numpy."""
        places = _floors(phases, offsets, (_MAGIC + starts)[:, None], len(table))
        out += table[places].sum(axis=1)

    def clear(self) -> None:
        """Nothing to give back."""


def _floors(
    phases: NDArray[np.float64], offsets: NDArray[np.float64], magic: Any, modulus: int
) -> NDArray[np.int64]:
    """Return floors of phases, shape (C, n)."""
    rounded: NDArray[np.float64] = phases + offsets[:, None] + magic
    return rounded.view(np.int64) & np.int64(modulus - 1)
