"""How the counts of a dyadic tree become sums of distances: far ends, and the least-squares tree.

Proofs: ``distance_tree.md``, Lemmas 2 and 3. Everything here is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from opendp_sim.sketches._axes import dyadic_pieces

__all__ = ["consistent", "consistent_variance", "far_ends", "node_weights"]


def _fars(
    reach: float, leaves: int, power: float, alpha: float
) -> Iterator[tuple[int, int, float]]:
    """Yield ``(nearest, farthest, far end)`` of each interval of distances, in leaf widths.

    The far ends are ``(2**H - 1) (1 + alpha)**(-j/p)`` for integers j (negative for queries outside),
    so they do not depend on which queries are asked together.
    """
    ratio = (1.0 + alpha) ** (-1.0 / power)
    far = leaves - 1.0
    while far < reach:
        far /= ratio
    while far >= 1.0:
        nearest, farthest = math.floor(far * ratio) + 1, math.floor(far)
        if nearest <= farthest:
            yield nearest, farthest, far
        far *= ratio


def far_ends(
    positions: NDArray[np.int64], height: int, power: float, alpha: float
) -> NDArray[np.float64]:
    """Return each leaf's weight in the far-end sum at leaf positions: shape (positions, 2**H).

    A leaf at distance in ``(far_j (1 + alpha)**(-1/p), far_j]`` weighs ``far_j**p``.
    """
    leaves = 2**height
    gap = np.abs(np.arange(leaves) - positions[:, None])
    found = list(_fars(float(gap.max(initial=0)), leaves, power, alpha))[::-1]
    farthest = np.array([0] + [interval[1] for interval in found])
    weight = np.array([0.0] + [interval[2] ** power for interval in found])
    return weight[np.searchsorted(farthest, gap)]


def node_weights(
    positions: NDArray[np.int64], height: int, power: float, alpha: float
) -> csr_array:
    """Return each node's weight in the far-end sum when intervals are cut into maximal nodes."""
    leaves = 2**height
    reach = float(np.maximum(np.abs(positions), np.abs(leaves - 1 - positions)).max(initial=0))
    rows, columns, data = [], [], []
    for nearest, farthest, far in _fars(reach, leaves, power, alpha):
        for first, last in (
            (positions + nearest, positions + farthest + 1),
            (positions - farthest, positions - nearest + 1),
        ):
            span = np.clip(first, 0, leaves), np.clip(last, 0, leaves)
            for which, level, node in dyadic_pieces(*span, height):
                rows.append(which)
                columns.append(2**level - 1 + node)
                data.append(np.full(len(which), far**power))
    shape = len(positions), 2 * leaves - 1
    if not rows:
        return csr_array(shape)
    joined = np.concatenate(data), (np.concatenate(rows), np.concatenate(columns))
    return csr_array(joined, shape=shape)


def consistent_variance(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of linear functions of the least-squares leaves, per cell variance.

    Haar functions diagonalise the tree (Lemma 3): one that splits a node of h leaves has eigenvalue
    ``h - 1``, the constant ``2 M - 1`` for M leaves. ``weights`` has shape (q, M).
    """
    leaves, blocks = weights.shape[1], weights
    variance, half = np.zeros(len(weights)), 1
    while half < leaves:
        pairs = blocks.reshape(len(weights), -1, 2)
        gap = pairs[:, :, 0] - pairs[:, :, 1]
        variance += np.square(gap).sum(axis=1) / (2 * half * (2 * half - 1))
        blocks, half = pairs.sum(axis=2), 2 * half
    return variance + np.square(blocks[:, 0]) / (leaves * (2 * leaves - 1))  # type: ignore[no-any-return]


def consistent(counts: NDArray[np.float64], height: int) -> NDArray[np.float64]:
    """Return the least-squares counts in which every node is the sum of its children (Lemma 3).

    Args:
        counts: shape (..., nodes), equal variances.
        height: of the tree.
    """
    out = counts.copy()

    def level(depth: int) -> NDArray[np.float64]:
        return out[..., 2**depth - 1 : 2 ** (depth + 1) - 1]

    for depth in range(height - 1, -1, -1):  # upwards: combine a node with its children
        below = 2.0 ** (height - depth)
        children = level(depth + 1).reshape(*out.shape[:-1], -1, 2).sum(axis=-1)
        level(depth)[...] = (below * level(depth) + (below - 1) * children) / (2 * below - 1)
    for depth in range(1, height + 1):  # downwards: share out what is left
        pairs = level(depth).reshape(*out.shape[:-1], -1, 2)
        left = level(depth - 1) - pairs.sum(axis=-1)
        level(depth)[...] += np.repeat(left, 2, axis=-1) / 2
    return out
