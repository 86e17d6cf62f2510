"""Grow points that look like a release's data.

Proof: ``grown_points.md``, beside this file. Post-processing of one half of a sketch's draws, by sums
of integers below 2**53 and single operations on floats: the same points and weights on every machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.linear import public_product
from opendp_sim.core.capabilities import HalfOfDraws
from opendp_sim.core.randomness import public_generator

_POOL, _KEPT = 1000, 300
"""Points that a round fits, and those of them that the next one begins with."""
_LIKE = 750
"""Of the first points those that are drawn from the Gaussian of released moments, where there are any."""
_OF_COUNT = 4.0
"""Deviations of the moments' number of records that it must exceed."""
_LEAST_VARIANCE = 1e-3
"""Of the Gaussian, in squares of half a column's range."""
_SWEEPS = 12
"""Of rotations over all pairs of columns: they converge quadratically."""
_ROUNDS = 6
_SPREAD, _SHRINK = 0.5, 0.72
"""Deviation of the first round's copies in lengths of the kernel, in ``_COLUMNS`` columns, and its change
by round; in others the copies are as far away."""
_COLUMNS = 5
_DRAWS, _LAST_DRAWS = 2048, 4096
"""Draws of a half that a round, and the weights that answers are read with, are fitted to at most."""
_JUDGES = 4
"""Every fourth draw has no part in a fit, and says what share of the mixture is used."""
_LEAST_SHARE = 0.5
"""A smaller share takes too little from the error for what it adds to an interval: none is used."""
MOST_CLASSES = 100
"""Classes to fit weights to, of about 0.1 CPU seconds each."""
_ITERATIONS, _LAST_ITERATIONS = 200, 600
"""Steps of descent in a round, and for the weights that answers are read with."""
_ROOM = 2**21
"""Cells of points that are held at once beside those that are looked at."""
_LEAST_RIDGE = 1e-6
"""Of the mean square of a point's cells."""
_UNITS = 2**24
"""Parts of the released number of records that a weight is a whole number of."""
_MOST_UNITS = 4 * _UNITS
_ENTRY = 2**26
"""Largest entry of a Gram matrix: times weights of ``_MOST_UNITS`` together it is below 2**53."""
_CELL = 2**14
"""Largest cell of a fit, others are rounded to it: products of 2**25 of them are summed exactly."""
_START = 2**16
"""Largest entry of a vector whose growth bounds a matrix: 1,024 of them times an entry are 2**52."""

Points = NDArray[np.float64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Box:
    """Hold the grid's ends (d,) and the kernel's length, in steps."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    length: float

    def rounded(self, points: Points) -> Points:
        """Return the nearest points of the grid."""
        return np.clip(np.rint(points), self.lower, self.upper)


def first_points(box: Box) -> Points:
    """Return public points drawn in the box, (m, d).

    Of every other point a share of the columns, drawn by point, is a cubed even draw: amounts and counts
    lie near their lower bound.
    """
    draw = public_generator(0, "grown_points", "first")
    shares = _even(draw, _POOL, len(box.lower))
    low = _even(draw, *shares.shape) < _even(draw, _POOL, 1)
    low[::2] = False
    shares = np.where(low, shares * shares * shares, shares)
    return box.rounded(box.lower + shares * (box.upper - box.lower))


def points_like(gram: Floats, deviation: float, box: Box) -> Points:
    """Return points of a Gaussian with released moments.

    Shape (m, d), some of them of `first_points`. ``gram`` (d + 1, d + 1) are sums of products of columns
    in [-1, 1], the constant first, of noise ``deviation``. Directions in which noise may be all there is
    share their mean variance.
    """
    points, count = first_points(box), float(gram[0, 0])
    if count <= _OF_COUNT * deviation:
        return points
    mean = np.clip(gram[0, 1:] / count, -1.0, 1.0)
    values, vectors = _eigen(gram[1:, 1:] / count - mean[:, None] * mean)
    noise = 2.0 * deviation / count * math.sqrt(len(mean))  # of the noise's largest eigenvalue
    hidden = values < noise
    if hidden.any():
        values = np.where(hidden, math.fsum(values[hidden].tolist()) / hidden.sum(), values)
    lengths = np.sqrt(np.clip(values, _LEAST_VARIANCE, float(len(mean))))
    normal = _normal(public_generator(0, "grown_points", "like"), _LIKE, len(mean))
    found = np.zeros_like(normal) + mean
    for at, length in enumerate(lengths):  # a sum in a fixed order
        found = found + (normal[:, at, None] * length) * vectors[at]
    points[:_LIKE] = box.rounded(box.lower + (found + 1.0) * 0.5 * (box.upper - box.lower))
    return points


def _eigen(matrix: Floats) -> tuple[Floats, Floats]:
    """Return a symmetric matrix's eigenvalues, and its vectors by rows.

    By Jacobi's rotations: single operations in a fixed order.
    """
    found, vectors = matrix.copy(), np.eye(len(matrix))
    least = float(np.abs(matrix).max(initial=0.0)) * 2.0**-40
    for _ in range(_SWEEPS):
        for i, j in itertools.combinations(range(len(matrix)), 2):
            if abs(found[i, j]) <= least:
                continue
            slope = float((found[j, j] - found[i, i]) / (2.0 * found[i, j]))
            tangent = math.copysign(1.0, slope) / (abs(slope) + math.sqrt(slope * slope + 1.0))
            cosine = 1.0 / math.sqrt(tangent * tangent + 1.0)
            sine = tangent * cosine
            for turned in (found, found.T, vectors):
                one, other = turned[i].copy(), turned[j].copy()
                turned[i] = cosine * one - sine * other
                turned[j] = sine * one + cosine * other
    return np.diagonal(found).copy(), vectors


def _even(draw: np.random.Generator, *shape: int) -> Floats:
    """Return even draws of [0, 1) from the generator's own bits."""
    bits = draw.bit_generator.random_raw(math.prod(shape))
    found: Floats = (bits >> np.uint64(11)).astype(np.float64).reshape(shape) * 2.0**-53
    return found


def kernel_length(kernel: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """Return the distance at which a kernel is 1/e of its top.

    To eight bits: it does not follow the last digits of a machine's exponential.
    """
    whole = float(kernel(np.zeros(1))[0])
    low, high = 2.0**-500, 2.0**500
    while high > low * (1.0 + 2.0**-20):
        middle = math.sqrt(low) * math.sqrt(high)
        near = float(kernel(np.full(1, middle))[0]) > whole / math.e
        low, high = (middle, high) if near else (low, middle)
    mantissa, exponent = math.frexp(high)
    return math.ldexp(round(mantissa * 256), exponent - 8)


def grown(half: HalfOfDraws, seen: Floats, size: float, first: Points, box: Box) -> Points:
    """Return points whose weighted cells are near the released ones, (k, d).

    ``seen`` (F, 2) are the released features of one half, of all classes together, and ``size`` the
    released number of records. Each round fits weights, keeps the heaviest points and moves copies of
    them. The half's judging draws have no part in it.
    """
    place, _ = _parts(half, _DRAWS)
    seen = seen[place].ravel()
    points, many = first, len(first)
    draw = public_generator(0, "grown_points", "rounds")
    spread = _SPREAD * box.length * math.sqrt(_COLUMNS / points.shape[1])
    for _ in range(_ROUNDS if size >= 1.0 else 0):
        cells = _cells(half, points, place)
        units = units_of(cells, seen, size, _ITERATIONS)
        heavy = np.argsort(-units, kind="stable")[:_KEPT]
        points, units = points[heavy], units[heavy]
        chances = np.cumsum(units + max(1.0, float(units.sum()) // len(points)))
        at = _even(draw, many - len(points)) * chances[-1]
        parents = points[np.searchsorted(chances, at, side="right")]
        moved = box.rounded(parents + spread * _normal(draw, *parents.shape))
        points = np.concatenate([points, moved])
        spread *= _SHRINK
    return points[:_KEPT]


def fitted_to_half(
    half: HalfOfDraws,
    points: Points,
    seen: Floats,
    total: NDArray[np.generic],
    sizes: Floats,
    of_one: float,
    deviation: float,
) -> Floats:
    """Return weights fitted to one half, (L, k).

    ``seen`` (L, F, 2) and ``total`` (L,) are the released cells, of noise ``deviation``, ``sizes`` (L,)
    the released numbers of records and ``of_one`` what one adds to a total. The weights of a class are
    drawn to equal ones, as in ``control_variate.md``, and are together at most its size.
    """
    fitted, judges = _parts(half, _LAST_DRAWS)
    judging = _cells(half, points, judges)
    own = _cells(half, points, fitted)
    own = np.concatenate([own, np.full((len(points), 1), of_one)], axis=1)
    least = _LEAST_RIDGE * math.fsum(np.square(own).sum(axis=1).tolist()) / len(points)
    found = np.zeros((len(sizes), len(points)))
    for label in np.flatnonzero(sizes >= 1.0):
        size, wanted = float(sizes[label]), np.append(seen[label, fitted], float(total[label]))
        ridge = max((deviation * len(points) / size) ** 2, least)
        units = units_of(own, wanted, size, _LAST_ITERATIONS, ridge)
        one = size / max(math.fsum(units.tolist()), _UNITS)
        share = _share(judging, units, seen[label, judges].ravel(), one)
        found[label] = units * (one * share)
    return found


def _parts(half: HalfOfDraws, most: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the draws to fit to, at most ``most``, and judges."""
    places = np.arange(len(half.place))
    judging = places % _JUDGES == _JUDGES - 1
    fitted, judges = (
        part[:: -(-len(part) // most)] for part in (places[~judging], places[judging])
    )
    return fitted, judges


def _cells(half: HalfOfDraws, points: Points, place: NDArray[np.intp]) -> Floats:
    """Return cells of points at some draws, (m, 2 F).

    A few points at a time.
    """
    parts = np.array_split(points, -(-2 * len(points) * len(place) // _ROOM))
    found = np.concatenate([half.cells(part, place) for part in parts])
    return found.reshape(len(points), -1).astype(np.float64)


def _share(cells: Floats, units: Floats, seen: Floats, unit: float) -> float:
    """Return the share of a mixture that is nearest to released cells.

    A small one is 0.
    """
    cells, seen, grain, coarse = _rounded(cells, seen)
    mixed = public_product(units, cells)
    square = math.fsum(np.square(mixed).tolist()) * grain * unit
    share = math.fsum((mixed * seen).tolist()) * coarse / max(square, 1e-300)
    return 0.0 if share < _LEAST_SHARE else min(1.0, share)


def _normal(draw: np.random.Generator, *shape: int) -> Floats:
    """Return sums of four even draws, of mean 0 and variance 1."""
    one, two, three, four = _even(draw, 4, *shape)
    found: Floats = ((one + two) + (three + four) - 2.0) * math.sqrt(3.0)
    return found


def units_of(
    cells: Floats, seen: Floats, size: float, iterations: int, ridge: float = 0.0
) -> Floats:
    """Return weights w >= 0 of points, in parts of ``size``.

    About those of least ``|seen - w cells|**2 + ridge |w - size / m|**2`` for integers ``cells``
    (m, F) and ``seen`` (F,), by accelerated projected descent in whole numbers: every sum is one of
    integers below 2**53, exact in any order.
    """
    cells, seen, grain, coarse = _rounded(cells, seen)
    ridge /= grain**2
    product = public_product(cells, seen) * (coarse / grain * _UNITS / size)
    gram = public_product(cells, cells.T)
    part = _power_above((float(gram.max(initial=0.0)) + ridge) / _ENTRY)
    ridge = float(np.rint(ridge / part))
    gram = np.rint(gram / part) + ridge * np.eye(len(gram))
    product = np.rint(product / part) + np.rint(ridge * _UNITS / len(gram))
    length = _growth(gram)
    found = ahead = np.full(len(gram), float(_UNITS // len(gram)))
    momentum = 1.0
    for _ in range(iterations):
        new = np.maximum(ahead - np.rint((public_product(gram, ahead) - product) / length), 0.0)
        if (many := math.fsum(new.tolist())) > _MOST_UNITS:
            new = np.floor(new * (_MOST_UNITS / many))
        more = (1.0 + math.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = new + np.rint((momentum - 1.0) / more * (new - found))
        if math.fsum(np.abs(ahead).tolist()) > _MOST_UNITS:
            ahead, more = new, 1.0
        found, momentum = new, more
    return found


def _rounded(cells: Floats, seen: Floats) -> tuple[Floats, Floats, float, float]:
    """Return both in whole units, and the units.

    Their products add up to less than 2**53.
    """
    grain = _power_above(float(np.abs(cells).max(initial=0.0)) / _CELL)
    coarse = _power_above(float(np.abs(seen).max(initial=0.0)) * cells.shape[1] * _CELL / 2.0**52)
    return np.rint(cells / grain), np.rint(seen / coarse), grain, coarse


def _power_above(value: float) -> float:
    """Return the next power of two, at least 1."""
    mantissa, exponent = math.frexp(max(value, 1.0))
    return math.ldexp(1.0, exponent - (mantissa == 0.5))


def _growth(gram: Floats) -> float:
    """Return about 1.05 times the largest eigenvalue of an integer matrix."""
    vector = np.full(len(gram), float(_START))
    length = 1.0
    for _ in range(20):
        ahead = public_product(gram, vector)
        square = math.fsum(np.square(vector).tolist())
        length = math.sqrt(math.fsum(np.square(ahead).tolist()) / max(square, 1.0))
        vector = np.rint(ahead * (_START / max(1.0, float(np.abs(ahead).max()))))
    return max(1.0, 1.05 * length)
