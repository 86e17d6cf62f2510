"""Private bytes in bulk, and exact coin flips made of as few of them as it takes.

Lemma B1 in ``bulk_laplace.md``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.randomness import private_bytes
from opendp_sim.noise.parts.sampling_exp import Threshold

__all__ = ["ByteSource", "Bytes", "bernoulli", "fair_bits"]

ByteSource = Callable[[int], NDArray[np.uint8]]

_POOL = 1 << 18


class Bytes:
    """A pool over the private generator: each byte is handed out once, in order.

    A call into the generator costs as much as thousands of bytes, so small requests share one.
    A pool lives as long as one release; it is never shared between threads or releases.
    """

    __slots__ = ("_at", "_pool", "_source")

    def __init__(self, source: ByteSource = private_bytes) -> None:
        """Draw from ``source``, the private generator unless a test scripts it."""
        self._source = source
        self._pool = np.empty(0, np.uint8)
        self._at = 0

    def take(self, count: int) -> NDArray[np.uint8]:
        """Return the next ``count`` bytes: shape (count,)."""
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
