"""The two noises of a query, drawn by OpenDP's own Gaussian measurement."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

__all__ = ["noisy"]


@lru_cache(maxsize=4096)
def _measurement(scale: float) -> dp.Measurement:
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale)


def noisy(cells: NDArray[np.int64], scale: float) -> NDArray[np.int64]:
    """Return the cells plus independent discrete Gaussian noise of that scale."""
    return np.asarray(_measurement(scale)(cells.tolist()), dtype=np.int64)
