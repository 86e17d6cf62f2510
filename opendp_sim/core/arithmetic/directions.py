"""Random orthogonal directions, the same bits on every machine.

A factorisation by LAPACK may differ in its last bits between machines, and directions are drawn again
where a release is read. Here every sum is taken in order, so only additions, products, quotients and
roots that IEEE rounds correctly decide.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def orthogonal_blocks(
    generator: np.random.Generator, columns: int, directions: int
) -> NDArray[np.float64]:
    """Return (d, k) unit directions in orthonormal blocks of d.

    The last block may be smaller. A block's directions are uniform on the sphere (Gram-Schmidt of
    independent normal vectors).
    """
    normal = generator.standard_normal((columns, directions))
    for start in range(0, directions, columns):
        _orthonormalise(normal[:, start : start + columns])
    return normal


def _orthonormalise(block: NDArray[np.float64]) -> None:
    """Make columns orthonormal in place by modified Gram-Schmidt."""
    for j in range(block.shape[1]):
        own = block[:, j]
        own /= math.sqrt(math.fsum((own * own).tolist()))
        rest = block[:, j + 1 :]
        if rest.size:
            product = own[:, None] * rest
            rest -= own[:, None] * np.add.reduce(
                product, axis=0
            )  # row after row: no library's order


def length_of_normal(columns: int) -> float:
    """Return a normal vector's mean length ``sqrt(2) Gamma((d + 1) / 2) / Gamma(d / 2)``."""
    half = columns / 2.0
    return math.sqrt(2.0) * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))


def spread_of_blocks(columns: int, directions: int) -> float:
    """Return the relative deviation of mean ``|<u_j, v>|`` (``l1_embedding.md``, Lemma 2)."""
    square = math.pi / 2 * length_of_normal(columns) ** 2
    total = 0.0
    for start in range(0, directions, columns):
        size = min(columns, directions - start)
        together = square * 2.0 / (math.pi * columns) if columns > 1 else 0.0
        variance = square / columns / size + (1.0 - 1.0 / size) * together - 1.0
        total += (size / directions) ** 2 * max(variance, 0.0)
    return math.sqrt(total)
