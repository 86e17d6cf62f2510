"""Build a lattice Fourier sketch, and read it (``lattice.md``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.countable import LARGEST_FEATURE
from opendp_sim.core.arithmetic.grid import PhaseProjection, chunks, room_for
from opendp_sim.core.arithmetic.linear import public_product
from opendp_sim.core.capabilities import Arrays, HalfOfDraws, KernelEstimates, Place
from opendp_sim.core.claims import SketchBlock
from opendp_sim.core.device.device import Device, OnDevice
from opendp_sim.core.randomness import public_generator
from opendp_sim.domains.rows import GridRows, as_rows
from opendp_sim.transformations.sketches._impl.classes import PerClassReader
from opendp_sim.transformations.sketches.kernels._impl.fourier import (
    FEWEST_DRAWS,
    FourierParameters,
    sample_variance,
)
from opendp_sim.transformations.sketches.kernels._impl.kernels import NORMAL_SQUARE, GaussianKernel
from opendp_sim.transformations.sketches.moments.second_moments import MomentsBeside

# --------------------------------------------------------------------------------------------------
# Which frequencies hold a Gaussian kernel on a box: points of a lattice, from public numbers alone.
#
# Proofs: ``lattice.md``, beside this file.

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
    """Select frequencies ``m j / L``.

    The largest weights, and a sample of the others; in turns a step.

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
        """Bound aliasing for queries ``beyond`` the box, ``(q, d)`` steps (Lemma 2)."""
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

    The box has ``spans`` in each column, in grid steps as sigma; the ``seed`` is of the tail. ``exact``:
    without a tail, None where 1e-3 a record takes more frequencies than ``count``; else None where a head
    would not pay.
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
    """Return the head for an accuracy."""
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
    """Return the sum of all weights (Lemma 1)."""
    periods = turn / (sigma * steps.astype(np.float64))
    with np.errstate(under="ignore"):  # whatever the caller has set: far periods add nothing
        tails = np.exp(-np.square(periods[:, None] * np.arange(1, 40))).sum(axis=1)
    return float(np.prod(1.0 + 2.0 * tails))


def _smallest(steps: Points, most: int, limit: int) -> tuple[Points, Points]:
    """Return whole shells of integer vectors with least ``sum (m_i j_i)^2``.

    At most ``most``, sorted by that integer, then by coordinates: the order is exact on every machine.
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
    """Split ``count`` between head and drawn tail, if that pays."""
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
    """Draw ``count`` vectors outside the shell ``most`` (Lemma 4)."""
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


# --------------------------------------------------------------------------------------------------

LENGTH = 2**18
"""S, the integer length of a feature pair before its multiplier."""
_TOP = 1024
"""The largest multiplier."""
_TABLE = 2**16
"""Most entries of the public table: finer turns are rounded to it (Lemma 5)."""
_TOGETHER, _ROWS = 1024, 2**12
"""Rows a sum: two sums below 2**31 then fit one integer."""
_PACK = 2**32


@dataclass(frozen=True)
class LatticeReader(PerClassReader):
    """Build one sketch from a public lattice, and read its release."""

    mechanism: FourierParameters
    rows: GridRows
    lattice: Lattice
    projection: PhaseProjection
    table: NDArray[np.int64]

    @classmethod
    def fit(
        cls, mechanism: FourierParameters, rows: GridRows, *, exact: bool
    ) -> LatticeReader | None:
        """Lay a paying lattice over the type's box, or return None."""
        kernel = mechanism.kernel
        if not isinstance(kernel, GaussianKernel):
            return None
        lower, upper = (np.broadcast_to(v, (rows.width,)) for v in (rows.lower, rows.upper))
        spans = tuple(int(b) - int(a) for a, b in zip(lower, upper, strict=True))
        sigma = kernel.bandwidth / rows.unit
        lattice = fit_lattice(spans, sigma, mechanism.frequencies, mechanism.seed, exact)
        if lattice is None:
            return None
        size = min(lattice.turn, _TABLE)
        points = np.concatenate([lattice.head, lattice.tail]) * lattice.steps
        asked = points.T.astype(np.float64) * (size / lattice.turn)
        where = f"{mechanism.key}.input_domain"
        fitted = PhaseProjection.fit(asked, np.zeros(len(points)), rows.magnitude, where)
        if not np.array_equal(fitted.folded[:, :-1], asked.T):
            return None
        return cls(mechanism, rows, lattice, fitted, _table(size, lattice.turn))

    @property
    def matrices(self) -> tuple[NDArray[np.generic], ...]:
        """The public matrices, for the release's fingerprint."""
        return self.projection.folded, self.table

    @property
    def per_label(self) -> bool:
        """Whether there is one structure a label."""
        return self.mechanism.per_label

    @cached_property
    def moments(self) -> MomentsBeside | None:
        """Return the rows' moments beside the features, where there are any."""
        return None

    @property
    def distance(self) -> str:
        """The distance that the kernel is a function of."""
        return "l2"

    @property
    def size(self) -> int:
        """How many frequencies there are, besides frequency 0."""
        return len(self.projection.folded)

    @property
    def in_halves(self) -> bool:
        """Whether the tail has two halves."""
        return len(self.lattice.tail) >= FEWEST_DRAWS

    @cached_property
    def halves(self) -> tuple[HalfOfDraws, HalfOfDraws] | None:
        """Return the head with each half of the tail."""
        if not self.in_halves:
            return None
        return self._half(0), self._half(1)

    def _half(self, at: int) -> HalfOfDraws:
        head = np.arange(len(self.lattice.head))
        place = np.concatenate([head, np.arange(len(head) + at, self.size, 2)])
        own = replace(
            self,
            lattice=replace(self.lattice, tail=self.lattice.tail[at::2]),
            projection=self.projection.some(place),
        )
        # Features are those of the whole sketch: only what they are read with is the half's.
        vars(own).update(multipliers=self.multipliers[place], weight=self.weight)

        def cells(values: NDArray[np.float64], some: Place | None = None) -> NDArray[np.int64]:
            drawn = own.projection if some is None else own.projection.some(some)
            times = own.multipliers if some is None else own.multipliers[some]
            pairs = self.table[drawn.floors(values, len(self.table))]
            return np.asarray(pairs * times[:, None])

        return HalfOfDraws(place, own, cells)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The weight with which each frequency is read."""
        drawn = len(self.lattice.tail)
        return np.concatenate(
            [self.lattice.weights, np.full(drawn, self.lattice.rest / max(drawn, 1))]
        )

    @cached_property
    def multipliers(self) -> NDArray[np.int64]:
        """Return the integers ``v``, by square roots of the weights (Lemma 6)."""
        top = max(float(self.shares.max()), self.lattice.zero)
        found: NDArray[np.float64] = np.maximum(1, np.rint(_TOP * np.sqrt(self.shares / top)))
        return found.astype(np.int64)

    @cached_property
    def weight(self) -> int:
        """Return the weight, below 2**32, of the total and frequency 0."""
        top = max(float(self.shares.max()), self.lattice.zero)
        own = LENGTH * max(1, round(_TOP * math.sqrt(self.lattice.zero / top)))
        asked = self.mechanism.count_weight
        count = math.isqrt(self.features_block.l2_squared // 20) + 1 if asked is None else asked
        return max(own, min(count, LARGEST_FEATURE - 1))

    @cached_property
    def features_block(self) -> SketchBlock:
        """State Lemma 3, the table's integer maxima times multipliers."""
        size, table = self.multipliers, np.abs(self.table)
        return SketchBlock(
            "features",
            (self.classes, self.size, 2),
            l1=int(size.sum()) * int(table.sum(axis=1).max()),
            l2_squared=int(np.square(size).sum()) * int(np.square(table).sum(axis=1).max()),
            linf=int(size.max()) * int(table.max()),
        )

    # --- building -------------------------------------------------------------------------------

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        rows = as_rows(data)
        packed = self.table[:, 0] * _PACK + self.table[:, 1]

        def sums(
            values: NDArray[np.float64], matrix: NDArray[np.float64], some: slice
        ) -> NDArray[np.int64]:
            return self._sums(values, matrix, some, packed)

        self._add(rows.values, rows.labels, sums, out)

    def accumulate_on(
        self,
        device: Device,
        values: OnDevice,
        labels: NDArray[np.int64] | None,
        out: NDArray[np.int64],
    ) -> None:
        """Add the features of rows in a device's memory to ``out``."""

        def sums(rows: OnDevice, matrix: NDArray[np.float64], some: slice) -> NDArray[np.int64]:
            starts = -self.projection.base[some] % len(self.table)
            return device.sum_pairs(rows, matrix, starts, self.table)

        self._add(values, labels, sums, out, device.put)

    def _add(
        self,
        values: Any,
        labels: NDArray[np.int64] | None,
        sums: Callable[[Any, NDArray[np.float64], slice], NDArray[np.int64]],
        out: NDArray[np.int64],
        put: Callable[[NDArray[np.intp]], Any] = np.asarray,
    ) -> None:
        """Add classes' sums of rows ``(n, d)``, and records, to ``out``.

        ``sums`` of rows, of a matrix and its place among the frequencies, are sums of pairs; ``put``
        brings indices to where the values are.
        """
        count, classes = self.size, self.classes
        features = out[: classes * count * 2].reshape(classes, count, 2)
        matrix, by_label = self.projection.workspace(), self.mechanism.per_label
        for label in range(classes):
            own = values[put(np.flatnonzero(labels == label))] if by_label else values
            out[features.size + label] += self.weight * len(own)
            for start in range(0, count, _TOGETHER):
                some = slice(start, min(start + _TOGETHER, count))
                found = sums(own, matrix[some], some)
                features[label, some] += found * self.multipliers[some, None]

    def _sums(
        self,
        values: NDArray[np.float64],
        matrix: NDArray[np.float64],
        some: slice,
        packed: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Sum the table's pairs over records, shape (some frequencies, 2)."""
        size = len(self.table)
        starts = -self.projection.base[some] % size
        sums = np.zeros((len(matrix), 2), dtype=np.int64)
        room = room_for(min(_ROWS, len(values)), values.shape[1], len(matrix))
        step = min(_ROWS, max(256, 2**20 // len(matrix)))
        for first in range(0, len(values), step):
            part = values[first : first + step]
            ids = self.projection.ids(part, matrix, modulus=size, starts=starts, room=room)
            both = packed[ids].sum(axis=1)
            # Two sums below 2**31 in one integer: the low half is the sine's, with its sign.
            sines = (both + _PACK // 2) % _PACK - _PACK // 2
            sums[:, 0] += (both - sines) // _PACK
            sums[:, 1] += sines
        return sums

    # --- reading --------------------------------------------------------------------------------

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return the estimates of kernel sums, within ``bias`` a record (Lemma 5)."""
        values = as_rows(queries).values
        features = np.asarray(released["features"], dtype=np.float64)
        cells = features * (self.shares / (self.multipliers * LENGTH))[:, None]
        sizes = self.totals(released)[0]
        place, drawn = len(self.lattice.head), len(self.lattice.tail)
        groups = min(groups, drawn) if drawn else groups
        sums = np.zeros((groups, self.classes, len(values)))
        variance = np.zeros((self.classes, len(values)))
        for part in chunks(len(values), self.size):
            angle = self.projection.phases(values[part]) * (2.0 * math.pi / len(self.table))
            cosine, sine = np.cos(angle), np.sin(angle)
            head = slice(0, place)
            sums[:, :, part] = self.lattice.zero * sizes[None, :, None] + _read(
                cells, cosine, sine, head
            )
            for group in range(groups if drawn else 0):
                own = slice(place + group, None, groups)
                share = drawn / len(cosine[own])
                sums[group, :, part] += share * _read(cells, cosine, sine, own)
            if drawn:
                c, s = (drawn * cells[:, place:, i] for i in (0, 1))
                variance[:, part] = sample_variance(c, s, cosine[place:], sine[place:])
        lost = (self._beyond(values) > self._margin).any(axis=1)
        sums[:, :, lost] = 0.0
        freedom = np.array(float(drawn - 1) if drawn else math.inf)
        return KernelEstimates(
            sums,
            variance,
            max(drawn, 1),
            freedom,
            skew=NORMAL_SQUARE / math.sqrt(max(1, drawn // groups)),
            noise_share=self._drawn_share(),
        )

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the released sizes by class and their noise per cell deviation."""
        return np.asarray(released["total"], dtype=np.float64) / self.weight, self.count_factor()

    def medians_of(self, groups: int) -> int:
        """Return the number of groups of `estimate`, 1 without draws."""
        drawn = len(self.lattice.tail)
        return min(groups, drawn) if drawn else 1

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of cell noise."""
        return 1.0 / self.weight

    @cached_property
    def _noise(self) -> NDArray[np.float64]:
        """Variance that each cell's noise gives an estimate, frequency 0 last."""
        own = self.shares / (self.multipliers * float(LENGTH))
        found: NDArray[np.float64] = np.append(own, self.lattice.zero / self.weight)
        return np.square(found)

    def with_count(self) -> float:
        """Return the covariance of an estimate and the count per cell variance."""
        return self.lattice.zero / self.weight**2

    def noise_factor(self) -> float:
        """Return an estimate's noise per unit of cell noise (Lemma 6)."""
        return math.sqrt(float(self._noise.sum()))

    def _drawn_share(self) -> float:
        drawn = self._noise[len(self.lattice.head) : -1]
        return float(drawn.sum() / self._noise.sum()) if len(drawn) else 1.0

    @property
    def _margin(self) -> NDArray[np.float64]:
        """Steps outside the box from which a query is answered by 0."""
        margin: NDArray[np.float64] = (
            self.lattice.turn / self.lattice.steps - self.lattice.spans
        ) / 2
        return margin

    def _beyond(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        lower, upper = np.array(self.rows.lower), np.array(self.rows.upper)
        found: NDArray[np.float64] = np.maximum(np.maximum(lower - values, values - upper), 0.0)
        return found

    def bias(self, queries: Any = None) -> Any:
        """Return a kernel value's largest error besides noise and tail draws.

        A float for all queries inside the box; else shape (q,), one a query.
        """
        rounding = math.sqrt(0.5) / LENGTH + (math.pi / _TABLE if self._rounded else 0.0)
        return self._biased(rounding * (float(self.shares.sum()) + self.lattice.zero), queries)

    def likely_bias(self, queries: Any = None) -> Any:
        """Return the root mean square of what ``bias`` bounds (Lemma 7)."""
        own = math.hypot(
            1.0 / (math.sqrt(6.0) * LENGTH),
            math.pi / (math.sqrt(3.0) * _TABLE) if self._rounded else 0.0,
        )
        return self._biased(own * math.sqrt(float(np.square(self.shares).sum())), queries)

    def _biased(self, rounding: float, queries: Any) -> Any:
        """Add what is cut off, and copies, to the rounding of features."""
        own = rounding + (0.0 if len(self.lattice.tail) else self.lattice.rest)
        if queries is None:
            return own + self.lattice.alias
        beyond, margin = self._beyond(as_rows(queries).values), self._margin
        lost = (beyond > margin).any(axis=1)
        near = own + self.lattice.alias_beyond(np.minimum(beyond, margin))
        farthest = np.exp(-np.square(beyond / self.lattice.sigma)).min(axis=1)
        return np.where(lost, farthest, near)

    @property
    def _rounded(self) -> bool:
        return self.lattice.turn > len(self.table)

    def change(self, moved: float) -> float:
        """Bound a kernel value's change when its distance changes by ``moved``."""
        return min(moved * self.mechanism.kernel.slope, 1.0)

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel at real distances."""
        return self.mechanism.kernel.value(distance)

    def spread(self) -> float:
        """Return the deviation over the tail's draws, a record (Lemma 4)."""
        return (
            self.lattice.rest / math.sqrt(len(self.lattice.tail)) if len(self.lattice.tail) else 0.0
        )

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the deviation without noise, per query, from real distances (n, q)."""
        return np.full(distance.shape[1], len(distance) * (self.spread() + float(self.bias())))


def _read(cells: Any, cosine: Any, sine: Any, of: slice) -> NDArray[np.float64]:
    return public_product(cells[:, of, 0], cosine[of]) + public_product(cells[:, of, 1], sine[of])


@lru_cache(maxsize=4)
def _table(size: int, turn: int) -> NDArray[np.int64]:
    """Return ``rint(S (cos, sin))`` of each phase, shape (P, 2), read-only."""
    angles = (np.arange(size) + (0.5 if turn > size else 0.0)) * (2.0 * math.pi / size)
    pairs: NDArray[np.float64] = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    found = np.rint(LENGTH * pairs).astype(np.int64)
    found.setflags(write=False)
    return found
