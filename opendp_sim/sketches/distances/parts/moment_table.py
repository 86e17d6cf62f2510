"""A released moment tree as polynomials: between the starts of two leaves every answer is one.

A query's path, and so which nodes are read, changes only where a leaf starts; on one leaf Lemma 2 of
``moment_tree.md`` is a polynomial of degree p in the query, and the variance one of degree 2 p. They are
added up once a release, from the root to the leaves, so that a query reads one of each column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from opendp_sim.sketches.distances.parts.axes import Dyadic
from opendp_sim.sketches.distances.parts.by_column import by_column

__all__ = ["MomentTable"]

Polynomials = NDArray[np.float64]
"""Shape (L, d, degree + 1, pieces), lowest degree first, in steps from where a piece begins."""


@dataclass(frozen=True)
class MomentTable:
    """The polynomials of one release; pieces are: below the column, its leaves, above it.

    Attributes:
        axes: the tree of each column.
        origins: where each piece begins, in steps: shape (d, pieces).
        sums: of the answers. variance, counted: L is 1; the variance, and the sum of factors on counts
            of records at the root's children.
    """

    axes: tuple[Dyadic, ...]
    origins: NDArray[np.float64]
    sums: Polynomials
    variance: Polynomials
    counted: Polynomials

    @classmethod
    def of(
        cls,
        axes: tuple[Dyadic, ...],
        centres: NDArray[np.int64],
        cells: NDArray[np.float64],
        scale: NDArray[np.float64],
    ) -> MomentTable:
        """Add up the polynomials.

        Args:
            axes: the tree of each column, all of one height.
            centres: twice the centre of every node: shape (d, nodes), level 1 first.
            cells: released moments in steps: shape (L, d, p + 1, nodes).
            scale: deviation of a moment of each level: shape (d, H, p + 1).
        """
        height, p = axes[0].height, cells.shape[2] - 1
        firsts = np.stack([axis.starts[:1] for axis in axes]).astype(np.float64)
        lasts = np.stack([axis.starts[-1:] for axis in axes]).astype(np.float64) - 1
        inside = [np.zeros((n, len(axes), q + 1, 1)) for n, q in _sizes(len(cells), p)]
        outside = [np.zeros((n, len(axes), q + 1, 2)) for n, q in _sizes(len(cells), p)]
        starts, ends = firsts, np.concatenate([firsts, lasts], axis=1)
        for level in range(1, height + 1):
            before, own = np.repeat(starts, 2, axis=1), np.arange(2**level)
            starts = np.stack([axis.nodes(level)[0] for axis in axes]).astype(np.float64)
            inside = [_moved(np.repeat(one, 2, axis=3), starts - before) for one in inside]
            read = (centres, cells, scale[:, level - 1], 2**level - 2, level == 1)
            _add(inside, starts, own ^ 1, np.where(own & 1, -1.0, 1.0) ** p, read)
            if level == 1:  # outside, both halves are read and nothing else
                for node in (own, own ^ 1):
                    _add(outside, ends, node, np.array([1.0, -1.0]) ** p, read)
        joined = [
            np.concatenate([out[..., :1], one, out[..., 1:]], axis=3)
            for one, out in zip(inside, outside, strict=True)
        ]
        sums, *public = joined
        origins = np.concatenate([firsts, starts, lasts], axis=1)
        return cls(axes, _once(origins, 0), sums, *(_once(one, 1) for one in public))

    def pieces(self, values: NDArray[np.float64], column: int) -> NDArray[np.int64]:
        """Return which piece of a column each value is on."""
        axis = self.axes[column]
        low, high = axis.lower, axis.lower + axis.span - 1
        steps = np.clip(values, low, high)
        np.floor(steps, out=steps)
        place: NDArray[np.int64]
        if axis.span << axis.height < 2**53:  # a quotient of such integers is floored exactly
            steps -= low
            steps *= 2.0**axis.height
            steps /= axis.span
            place = steps.astype(np.int64)
        else:
            place = axis.leaves(steps.astype(np.int64))
        place += 1
        if len(values) and (values.min() < low or values.max() > high):
            place[values < low] = 0
            place[values > high] = self.origins.shape[1] - 1
        return place

    @cached_property
    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """First and last integer of each piece; outside, ends that no query is beyond: (d, pieces)."""
        starts = np.stack([axis.starts for axis in self.axes]).astype(np.float64)
        none = np.full((len(self.axes), 1), np.inf)
        first = np.concatenate([none, starts[:, :-1], none], axis=1)
        last = np.concatenate([-none, starts[:, 1:] - 1, -none], axis=1)
        return _once(first, 0), _once(last, 0)

    def farthest(
        self, values: NDArray[np.float64], place: NDArray[np.int64], column: int
    ) -> NDArray[np.float64]:
        """Return how far an end of a value's own leaf is at most; 0 outside the column."""
        first, last = (end[column].take(place) for end in self.ends)
        np.subtract(values, first, out=first)
        np.subtract(last, values, out=last)
        found: NDArray[np.float64] = np.maximum(np.maximum(first, last, out=first), 0.0, out=first)
        return found

    def at(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Return answers (L, q); variances, sums of factors and what own leaves may hold: (q,).

        The last is per record, in steps: the farther end of the own leaf of each column, to the power p.
        """
        sums = np.zeros((len(self.sums), len(values)))
        variance, counted, missed = np.zeros((3, 1, len(values)))
        tables = ((self.sums, sums), (self.variance, variance), (self.counted, counted))
        p = self.sums.shape[2] - 1
        for part, columns in by_column(values):
            for column, asked in enumerate(columns):
                place = self.pieces(asked, column)
                far = self.farthest(asked, place, column)
                missed[0, part] += far if p == 1 else far**p
                steps = np.subtract(asked, self.origins[column].take(place), out=asked)
                for table, out in tables:
                    for label, own in enumerate(table[:, column]):
                        out[label, part] += _value(own, place, steps)
        return sums, variance[0], counted[0], missed[0]


def _once(tables: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return tables of all columns; where all are alike, one of them, which stays in the cache."""
    first = tables.take([0], axis=axis)
    return np.broadcast_to(first, tables.shape) if (tables == first).all() else tables


def _sizes(classes: int, p: int) -> Sequence[tuple[int, int]]:
    """Return the number and the degree of sums, variances and sums of factors."""
    return (classes, p), (1, 2 * p), (1, p)


def _value(
    own: NDArray[np.float64], place: NDArray[np.int64], steps: NDArray[np.float64]
) -> NDArray[np.float64]:
    found: NDArray[np.float64] = own[-1].take(place)
    for part in own[-2::-1]:
        found *= steps
        found += part.take(place)
    return found


def _moved(one: Polynomials, by: NDArray[np.float64]) -> Polynomials:
    """Return the same polynomials in steps from places that lie ``by`` further, shape (d, pieces)."""
    degree = one.shape[2] - 1
    out = np.zeros_like(one)
    for to in range(degree + 1):
        for high in range(to, degree + 1):
            out[:, :, to] += math.comb(high, to) * by ** (high - to) * one[:, :, high]
    return out


def _add(
    tables: Sequence[Polynomials],
    starts: NDArray[np.float64],
    node: NDArray[np.int64],
    sign: NDArray[np.float64],
    read: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], int, bool],
) -> None:
    """Add ``sign 2^-p sum_k binom(p, k) (gap - 2 t)^(p - k) M_k`` for one node of each piece."""
    (sums, variance, counted), (centres, cells, scale, base, top) = tables, read
    p = cells.shape[2] - 1
    gap = centres[:, base + node] - 2 * starts
    for order in range(p + 1):
        times = math.comb(p, order) / 2.0**p
        for degree, part in enumerate(_power(gap, p - order)):
            sums[:, :, degree] += sign * times * part * cells[:, :, order, base + node]
            if top and order == 0:
                counted[0, :, degree] += sign * times * part
        for degree, part in enumerate(_power(gap, 2 * (p - order))):
            variance[0, :, degree] += np.square(times * scale[:, order, None]) * part


def _power(gap: NDArray[np.float64], power: int) -> list[NDArray[np.float64]]:
    """Return the coefficients of ``(gap - 2 t)**power``, lowest degree first."""
    return [
        math.comb(power, degree) * (-2.0) ** degree * gap ** (power - degree)
        for degree in range(power + 1)
    ]
