"""Which frequencies hold a Gaussian kernel on a box: points of a lattice, from public numbers alone.

Proofs: ``lattice.md``, beside this file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.randomness import public_generator

__all__ = ["Lattice", "fit_lattice"]

_ACCURACIES = (1e-6, 1e-5, 1e-4, 1e-3)
"""Errors a record that are tried, the finest first."""
_MOST_COLUMNS = 16
_LEAST_TURN, _MOST_TURN = 2**12, 2**26
_FEWEST = 64
"""Random frequencies of a tail: fewer tell too little of their own error."""
_WORTH = 0.8
"""Share of the variance of random frequencies below which a head pays."""
_ROOM = 2**22
"""Candidates of an enumeration that are held at once."""

Points = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lattice:
    """Frequencies ``m j / L`` turns a step: the largest weights, and a sample of the others.

    Attributes:
        turn: L, steps of a full turn; a power of two.
        steps: j, shape (d,); the period of column i is ``L / j_i`` grid steps.
        zero: weight of frequency 0, whose feature is the number of records.
        head: m, shape (D_h, d): one of each pair m, -m. weights: shape (D_h,), of the pair.
        tail: m, shape (D_t, d): drawn in proportion to the weights outside the head.
        rest: the weight outside the head: left out, or shared by the tail.
        alias: what periods add to a kernel value at most, for queries inside the box.
    """

    turn: int
    steps: Points
    zero: float
    head: Points
    weights: NDArray[np.float64]
    tail: Points
    rest: float
    sigma: float
    spans: NDArray[np.float64]

    @property
    def alias(self) -> float:
        """The largest error that periods make, at queries inside the box."""
        return float(self.alias_beyond(np.zeros((1, len(self.steps))))[0])

    def alias_beyond(self, beyond: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound it for queries that lie ``beyond`` steps (q, d) outside the box (Lemma 2)."""
        period = self.turn / self.steps
        near, next_, far = (
            np.exp(-np.square(v / self.sigma))
            for v in (
                period - self.spans - beyond,
                period + 0.0 * beyond,
                2 * period - self.spans - beyond,
            )
        )
        bound: NDArray[np.float64] = np.expm1(np.log1p(near + next_ + 3.0 * far).sum(axis=1))
        return bound


@lru_cache(maxsize=16)
def fit_lattice(
    spans: tuple[int, ...], sigma: float, count: int, seed: int, exact: bool
) -> Lattice | None:
    """Return the frequencies of ``exp(-(r / sigma)^2)``, at most ``count``, or None.

    Args:
        spans: width of the box in each column, in grid steps.
        sigma: bandwidth, in grid steps.
        count: most frequencies, besides frequency 0.
        seed: of the tail.
        exact: without a tail. None is returned where 1e-3 a record takes more frequencies than
            ``count``; else where a head would not pay.
    """
    if len(spans) > _MOST_COLUMNS:
        return None
    found = None
    for accuracy in _ACCURACIES:
        found = _cut(spans, sigma, count, accuracy)
        if found is not None and found.rest <= accuracy / 2:
            return found
    return None if exact or found is None else _with_tail(found, count, seed)


def _cut(spans: tuple[int, ...], sigma: float, count: int, accuracy: float) -> Lattice | None:
    """Return the head for an accuracy: as few whole shells as reach it, or as many as fit."""
    width = len(spans)
    reach = math.sqrt(math.log(4.4 * width / accuracy)) * sigma
    needs = [math.ceil(span + reach) if math.isfinite(reach) else _MOST_TURN for span in spans]
    turn = max(_LEAST_TURN, 4 * 2 ** math.ceil(math.log2(max(needs))))
    if turn > _MOST_TURN or sigma < 0.5:
        return None
    steps = np.array([turn // need for need in needs], dtype=np.int64)
    decay = (math.pi * sigma / turn) ** 2
    points, squares = _smallest(steps, 2 * count + 1, math.ceil(45.0 / decay))
    zero = math.exp(sum(math.log(sigma * math.sqrt(math.pi) * int(j) / turn) for j in steps))
    first = np.zeros(len(points), dtype=np.int64)
    for column in points.T:
        first = np.where(first == 0, np.sign(column), first)
    points, squares = points[first > 0], squares[first > 0]
    weights = 2.0 * zero * np.exp(-decay * squares)
    left = _total(steps, sigma, turn) - zero - np.cumsum(weights)
    enough = np.flatnonzero(left <= accuracy / 2)
    most = len(points)
    if enough.size:  # whole shells: the cut is a number of the lattice, not of an order
        most = int(np.searchsorted(squares, squares[enough[0]], side="right"))
    if not most:
        return None
    return Lattice(
        turn,
        steps,
        zero,
        points[:most],
        weights[:most],
        np.zeros((0, width), dtype=np.int64),
        max(float(left[most - 1]), 0.0),
        sigma,
        np.array(spans, dtype=np.float64),
    )


def _total(steps: Points, sigma: float, turn: int) -> float:
    """Return the sum of all weights: the periodised kernel at 0 (Lemma 1)."""
    periods = turn / (sigma * steps.astype(np.float64))
    with np.errstate(under="ignore"):  # whatever the caller has set: far periods add nothing
        tails = np.exp(-np.square(periods[:, None] * np.arange(1, 40))).sum(axis=1)
    return float(np.prod(1.0 + 2.0 * tails))


def _smallest(steps: Points, most: int, limit: int) -> tuple[Points, Points]:
    """Return the integer vectors with the least ``sum (m_i j_i)^2``: whole shells, at most ``most``.

    Sorted by that integer, then by their coordinates: the order is exact on every machine.
    """
    low, high, kept = 0, limit, np.zeros((1, len(steps)), dtype=np.int64)
    found = _within(steps, high, most)
    while found is None and high - low > 1:
        middle = (low + high) // 2
        tried = _within(steps, middle, most)
        if tried is None:
            high = middle
        else:
            low, kept = middle, tried
            if len(kept) > 0.9 * most:
                break
    kept = kept if found is None else found
    squares = np.square(kept * steps).sum(axis=1)
    order = np.lexsort((*kept.T[::-1], squares))
    return kept[order], squares[order]


def _within(steps: Points, limit: int, most: int) -> Points | None:
    """Return all integer vectors with ``sum (m_i j_i)^2 <= limit``, or None if more than ``most``."""
    points, left = np.zeros((1, 0), dtype=np.int64), np.array([limit], dtype=np.int64)
    for step in steps:
        reach = math.isqrt(limit) // int(step)
        if len(points) * (2 * reach + 1) > max(_ROOM, most):
            return None
        values = np.arange(-reach, reach + 1, dtype=np.int64)
        rest = left[:, None] - np.square(values * step)[None, :]
        which, value = np.nonzero(rest >= 0)
        if len(which) > most:
            return None
        points = np.concatenate([points[which], values[value][:, None]], axis=1)
        left = rest[which, value]
    return points


def _with_tail(found: Lattice, count: int, seed: int) -> Lattice | None:
    """Split ``count`` between a head and a drawn tail for the least variance, if that pays."""
    squares = np.square(found.head * found.steps).sum(axis=1)
    ends = np.flatnonzero(np.diff(squares, append=-1))  # last of each shell
    rest = found.rest + found.weights.sum() - np.cumsum(found.weights)[ends]
    drawn = count - (ends + 1)
    ends, rest, drawn = (v[drawn >= _FEWEST] for v in (ends, rest, drawn))
    if not ends.size:
        return None
    variance = np.square(rest) * count / drawn
    best = int(variance.argmin())
    if variance[best] >= _WORTH:
        return None
    size, most = int(ends[best]) + 1, int(squares[ends[best]])
    tail = _drawn(found, most, int(drawn[best]), seed)
    return Lattice(
        found.turn,
        found.steps,
        found.zero,
        found.head[:size],
        found.weights[:size],
        tail,
        float(rest[best]),
        found.sigma,
        found.spans,
    )


def _drawn(found: Lattice, most: int, count: int, seed: int) -> Points:
    """Draw ``count`` vectors outside the shell ``most``, in proportion to their weights (Lemma 4)."""
    generator = public_generator(seed, "fourier_sketch", "tail")
    laws = []
    for step in found.steps:
        reach = math.ceil(7.0 * found.turn / (math.pi * found.sigma * int(step))) + 1
        values = np.arange(-reach, reach + 1)
        weights = np.exp(-np.square(math.pi * found.sigma * int(step) * values / found.turn))
        laws.append((values, np.cumsum(weights)[:-1] / weights.sum()))
    kept: list[Points] = []
    size = 0
    while size < count:
        shares = generator.random((2**14, len(laws)))
        columns = [v[np.searchsorted(c, shares[:, i])] for i, (v, c) in enumerate(laws)]
        points = np.stack(columns, axis=1).astype(np.int64)
        points = points[np.square(points * found.steps).sum(axis=1) > most]
        kept.append(points)
        size += len(points)
    return np.concatenate(kept)[:count]
