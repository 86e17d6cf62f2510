"""Draw a service's rounded Gaussian noise ahead.

Each cell is used once. The exact bulk sampler has a cost for each call and next to none for a cell,
and a query needs few cells. So a stock draws a block of a scale at a time and hands it out. Noise that
was drawn ahead is independent of everything, as it would be if drawn later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core import dp
from opendp_sim.core.errors import BudgetError, InternalError
from opendp_sim.measurements.noise._impl.samplers import MAX_SCALE, add_gaussian, add_rounded

Draw = Callable[[float, int], NDArray[np.int64]]
"""Scale and number of cells to fresh noise."""

_BLOCK = 512
_HALF = 1 << 61
_SCALES = 1024
"""Scales with unused noise that are kept; beyond, what is left of all of them is thrown away."""


class Stock:
    """Stock noise of some scales, never given out twice.

    ``draw`` is the law, ``rounded_gaussian`` (Gaussian DP) or ``discrete``. It is as secret as the
    answers.
    """

    def __init__(self, draw: Draw | None = None) -> None:
        self._draw = draw or rounded_gaussian
        self._left: dict[float, NDArray[np.int64]] = {}
        self._owner = os.getpid()

    def __repr__(self) -> str:
        """Nothing that is inside."""
        return "Stock(secret)"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copies and pickles (OS407)."""
        raise uncopied("noise drawn ahead")

    def noisy(self, cells: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
        """Return cells (at most 2**61) plus independent Gaussians, clipped to 2**62."""
        if os.getpid() != self._owner or len(self._left) > _SCALES:
            # A fork would give out what its parent gives out.
            self._left, self._owner = {}, os.getpid()
        left = self._left.pop(scale, None)
        if left is None or len(left) < len(cells):
            left = self._draw(scale, max(_BLOCK, len(cells)))
        mine, rest = left[: len(cells)], left[len(cells) :]
        if rest.size:
            self._left[scale] = rest
        return _sum(cells, mine)


def uncopied(what: str) -> BudgetError:
    """Return the refusal to copy something that must be used once."""
    return BudgetError(
        "OS407", "copy", expected="one of its kind", got=f"a copy of {what}",
        hint="share the object itself, or start a session and open its store again.",
    )  # fmt: skip


def add_rounded_gaussian(cells: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    """Add independent rounded Gaussian noise, as ``Stock`` does."""
    return _sum(cells, rounded_gaussian(scale, len(cells)))


def rounded_gaussian(scale: float, count: int) -> NDArray[np.int64]:
    """Return fresh noise ``round(scale * Z)``, clipped to 3 * 2**61 (OS903)."""
    if scale > MAX_SCALE:
        raise InternalError(
            "OS903", "knn.noise", expected="a scale up to 2**59", got="a larger one",
            hint="noise like this drowns everything; raise rho.",
        )  # fmt: skip
    return _clipped(add_rounded(np.zeros(count, dtype=np.int64), [(count, Fraction(scale))]))


def discrete(scale: float, count: int) -> NDArray[np.int64]:
    """Return fresh discrete Gaussian noise, clipped, for ``private_knn``."""
    zeros = np.zeros(count, dtype=np.int64)
    if scale <= MAX_SCALE:
        return _clipped(add_gaussian(zeros, [(count, Fraction(scale))]))
    return _clipped(np.asarray(_measurement(scale)(zeros.tolist()), dtype=np.int64))


def _clipped(drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.clip(drawn, -3 * _HALF, 3 * _HALF)


def _sum(cells: NDArray[np.int64], noise: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``clip(cells + noise, -2**62, 2**62)``, exactly, for cells of at most 2**61.

    Noise that was clipped to 3 * 2**61 leads beyond 2**62 whatever the cell holds.
    """
    total: NDArray[np.int64] = np.clip(cells + noise, -2 * _HALF, 2 * _HALF)
    return total


@lru_cache(maxsize=64)
def _measurement(scale: float) -> dp.Measurement:
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale)
