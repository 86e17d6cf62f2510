"""Use public points as a control variate.

Their part of a kernel sum is exact, and only the rest is sampled.

Proof: ``control_variate.md``, beside this file. Post-processing of a release and of public points.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Annotated, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.linear import public_product
from opendp_sim.core.capabilities import (
    Arrays,
    HalfOfDraws,
    KernelEstimates,
    KernelSums,
    halves_of,
    moments_of,
)
from opendp_sim.core.errors import DataError, SpaceError
from opendp_sim.core.mechanism import param
from opendp_sim.core.space import Domain
from opendp_sim.core.system.lazy_import import optimize, spatial
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows, Rows, as_rows, floats_of
from opendp_sim.io.fold import one_blas_thread
from opendp_sim.postprocessing._impl.asked import check_queries
from opendp_sim.postprocessing._impl.grown_points import (
    MOST_CLASSES,
    Box,
    first_points,
    fitted_to_half,
    grown,
    kernel_length,
    points_like,
)

PublicPoints = Annotated[
    Literal["auto", "none", "queries", "points", "grown"],
    param(
        "Public points whose kernel sums are exact, so that only what the data differs from them is "
        "sampled: the queries themselves, points of their own (`public:` beside `queries:`), points "
        "grown from the release, or none. auto grows them where the sketch has `moments` to begin "
        "with.",
        symbol="U", unit="none", default="auto",
        hint="what looks like the data and was chosen without looking at the seed; `grown` where "
        "nothing public does.",
    ),
]  # fmt: skip

_METRICS = {"l1": "cityblock", "l2": "euclidean"}
_FEWEST = 20
_FOURTH = 3.57
"""How many times more skew a fourth power of a normal variable is than a square: 10.1 and 2.83."""
_ROOM = 2**22
"""Most kernel values, or cells of points, that are held at once."""
_MOST_FITTED, _MOST_BY_CLASS = 400, 200
"""Points with a weight of their own; of more, those evenly spaced, and all together a common one."""
_LEAST_RIDGE = 1e-6
"""Of the mean square of a point's cells: so much keeps a fit from following the last digits."""
_STEPS = 2**20
"""Steps of all weights of a class together, at most: sums of steps times cells stay below 2**53."""


def with_public(
    which: str, key: str, domain: Domain, sums: KernelSums, deviation: float, queries: Any
) -> KernelSums:
    """Return the kernel sums as they are, or read with public points.

    ``which`` is the parameter ``public`` of the query mechanism ``key``, ``deviation`` of a cell's
    noise; queries (q, d) on the sketch's own input space may have points of their own.

    Raises:
        SpaceError (OS201): a kernel of another distance than l1 and l2, or rows on no grid.
        DataError (OS607): fewer than 20 points, or none told, or points that cannot be queries.
    """
    which = points_chosen(which, sums)
    if which == "none":
        return sums
    grid = domain.queries if isinstance(domain, Released) else None
    if not isinstance(domain, Released) or not isinstance(grid, GridRows):
        raise _refused(key, "rows on a grid")
    if sums.distance not in _METRICS:
        raise _refused(key, "a kernel of l1 or l2")
    if which == "grown":
        if halves_of(sums) is None:
            raise _refused(key, "200 independent frequencies or more, for `public: grown`")
        if len(sums.labels or ()) > MOST_CLASSES:
            raise _refused(key, f"{MOST_CLASSES} classes at most, for `public: grown`")
        one = np.clip(np.zeros((1, grid.width)), grid.lower, grid.upper)
        return cast("KernelSums", _Grown(sums, domain, grid, one, deviation))
    told = getattr(queries, "points", None) if which == "points" else as_rows(queries).values
    if told is None:
        raise DataError(
            "OS607", "public", expected="public points of their own", got="none",
            hint="add `public: {npz: points.npz}` beside `queries:`, --public FILE, or in Python "
            "public=a matrix of points.",
        )  # fmt: skip
    values = np.rint(np.asarray(check_queries(domain, told), dtype=np.float64))
    check_enough(len(values), "public points")
    points = np.clip(values, grid.lower, grid.upper)
    return cast("KernelSums", _WithPublic(sums, domain, grid, points, deviation))


def points_chosen(which: str, sums: KernelSums) -> str:
    """Return which points `auto` takes, and any other word unchanged."""
    if which != "auto":
        return which
    fits = sums.distance in _METRICS and len(sums.labels or ()) <= MOST_CLASSES
    return "grown" if fits and moments_of(sums) and halves_of(sums) else "none"


def check_enough(count: int, where: str) -> None:
    """Refuse fewer than 20 public points, before a charge (OS607)."""
    if count < _FEWEST:
        raise DataError(
            "OS607", where, expected=f"{_FEWEST} public points or more", got=str(count),
            hint="write public: none, or give more.",
        )  # fmt: skip


def _refused(key: str, expected: str) -> SpaceError:
    return SpaceError(
        "OS201", f"{key}.input_domain", expected=expected, got="another sketch",
        hint="write public: none.",
    )  # fmt: skip


@dataclass(frozen=True)
class _Crossed:
    """Hold fitted weights and both halves without the points.

    Attributes:
        weights: shape (2, L, m): fitted to one half and to the other.
        rest: of each half its arrays less the points', weighted by the other half's weights.
        apart: of each half the points' arrays, weighted by the difference of the two.
    """

    weights: NDArray[np.float64]
    rest: tuple[Arrays, Arrays]
    apart: tuple[Arrays, Arrays]


@dataclass(frozen=True)
class _WithPublic:
    """Sum kernels less weighted public ones, which are added exactly."""

    sums: KernelSums
    domain: Released
    grid: GridRows
    points: NDArray[np.float64]
    deviation: float
    weights: NDArray[np.float64] | None = None
    """Those of points that came with weights, shape (2, L, m), one set fitted to each half."""
    _kept: list[tuple[Arrays, _Crossed]] = field(default_factory=list, compare=False)

    @property
    def labels(self) -> tuple[str | int, ...] | None:
        """The public labels of the classes, or None."""
        return self.sums.labels

    @property
    def distance(self) -> str:
        """The distance that the kernel is a function of."""
        return self.sums.distance

    @cached_property
    def _cells(self) -> dict[str, NDArray[Any]]:
        """Return the public points' sketch, as the first class."""
        flat = np.zeros(self.domain.sketch.size, dtype=np.int64)  # type: ignore[attr-defined]
        labels = None if self.labels is None else np.zeros(len(self.points), dtype=np.int64)
        self.sums.accumulate(Rows(self.points, labels), flat)
        found: dict[str, NDArray[Any]] = self.domain.sketch.split(flat)  # type: ignore[attr-defined]
        return found

    def accumulate(self, data: Any, out: NDArray[np.int64]) -> None:
        """Add the features of ``data`` to the flat vector ``out``."""
        self.sums.accumulate(data, out)

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return the same sums, estimated by Lemma 4 or 1."""
        halves = halves_of(self.sums)
        if halves is not None:
            return self._crossed(halves, released, queries, groups)
        sizes, factor = self.sums.totals(released)
        share = np.maximum(sizes, 0.0) / len(self.points)
        rest = {
            name: array - share.reshape(-1, *(1,) * (np.ndim(array) - 1)) * self._cells[name][:1]
            for name, array in released.items()
        }
        found = self.sums.estimate(rest, queries, groups)
        exact = self._exact(floats_of(queries), np.ones((1, len(self.points))))[0]
        own = self.sums.estimate(self._cells, queries).groups[0, 0]
        of_size = factor * self.deviation / len(self.points) * (exact - own)
        return replace(
            found,
            groups=found.groups + share[None, :, None] * exact,
            variance=found.variance + found.repetitions * np.square(of_size),
            jump=self._jump(released, share),
            skew=_FOURTH * found.skew,
        )

    # --- fitted weights (Lemmas 4 to 6) ---------------------------------------------------------

    def _crossed(
        self, halves: tuple[HalfOfDraws, HalfOfDraws], released: Arrays, queries: Any, groups: int
    ) -> KernelEstimates:
        """Return estimates with weights of either half and the other half's residual."""
        kept = next(iter(self._kept), None)  # threads may ask one release
        if kept is None or kept[0] is not released:
            kept = released, self._fitted(halves, released)
            self._kept[:] = [kept]
        fitted = kept[1]
        found = self.sums.estimate(released, self.points[:0], self.medians_of(groups))
        flat = fitted.weights.reshape(-1, len(self.points))
        exact = self._exact(floats_of(queries), flat).reshape(2, -1, len(as_rows(queries).values))
        read = [
            half.sums.estimate(rest, queries, len(found.groups))
            for half, rest in zip(halves, fitted.rest, strict=True)
        ]
        apart = [
            half.sums.estimate(of, queries).plain_variance / half_of.repetitions
            for half, of, half_of in zip(halves, fitted.apart, read, strict=True)
        ]
        own = [one.plain_variance / one.repetitions for one in read]
        variance = (own[0] + own[1]) / 4
        # Lemma 5: the covariance of the two is at most half of what their weights' scatter adds.
        covariance = (apart[0] + apart[1]) / 8
        doubt = sum(np.square(v) / one.freedom for v, one in zip(own, read, strict=True))
        with np.errstate(invalid="ignore", divide="ignore"):
            freedom = np.where(
                doubt > 0.0, np.square(own[0] + own[1]) / doubt, read[0].freedom + read[1].freedom
            )
        return replace(
            found,
            groups=(read[0].groups + read[1].groups + exact.sum(axis=0)) / 2,
            variance=(variance + covariance) * found.repetitions,
            sampled=variance * found.repetitions,
            freedom=freedom,
            jump=self._jump(released, fitted.weights.sum(axis=2).max(axis=0) / len(self.points)),
            skew=_FOURTH * found.skew,
        )

    def _fitted(self, halves: tuple[HalfOfDraws, HalfOfDraws], released: Arrays) -> _Crossed:
        """Return weights by half, and both halves without the points."""
        sizes, known = np.maximum(self.sums.totals(released)[0], 0.0), self.weights
        # One step of a weight, a power of two: weights are whole steps, so that the last digits of a
        # machine's linear algebra do not reach an answer, and sums of steps times cells are exact.
        step = np.exp2(np.ceil(np.log2(np.maximum(sizes, 1.0) / _STEPS)))[:, None]
        steps = np.stack(
            [
                np.rint((self._fit(half, released, sizes) if known is None else known[at]) / step)
                for at, half in enumerate(halves)
            ]
        )
        of_one = float(self._cells["total"][0]) / len(self.points)
        totals = steps.sum(axis=2) * step[:, 0] * of_one
        mixed = [
            self._weighted(half, steps.reshape(-1, len(self.points))).reshape(
                *steps.shape[:2], len(half.place), 2
            )
            * step[:, :, None]
            for half in halves
        ]

        def arrays(features: Any, total: Any) -> Arrays:
            return {"features": features, "total": total}

        rest = [
            arrays(
                np.asarray(released["features"])[:, half.place] - mixed[at][1 - at],
                np.asarray(released["total"]) - totals[1 - at],
            )
            for at, half in enumerate(halves)
        ]
        apart = [arrays(one[0] - one[1], totals[0] - totals[1]) for one in mixed]
        return _Crossed(steps * step, (rest[0], rest[1]), (apart[0], apart[1]))

    def _weighted(self, half: HalfOfDraws, steps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return exact weighted sums of the points' cells, (k, 2 F)."""
        found = np.zeros((len(steps), 2 * len(half.place)))
        some = max(1, _ROOM // max(1, found.shape[1]))
        for start in range(0, len(self.points), some):
            part = slice(start, start + some)
            cells = half.cells(self.points[part]).reshape(-1, found.shape[1])
            found += public_product(steps[:, part], cells.astype(np.float64))
        return found

    def _fit(
        self, half: HalfOfDraws, released: Arrays, sizes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return weights fitted to one half's cells, (L, m).

        Non-negative least squares of the released cells, drawn to equal weights N/m as by a normal
        prior of that deviation: where noise is all there is, the weights are equal.
        """
        count = len(self.points)
        most = _MOST_FITTED if len(sizes) == 1 else _MOST_BY_CLASS
        most = max(_FEWEST, min(most, _ROOM // len(half.place)))
        own = np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.intp)
        cells = half.cells(self.points[own]).reshape(len(own), -1).astype(np.float64)
        of_one = float(self._cells["total"][0]) / count
        cells = np.concatenate([cells, np.full((len(own), 1), of_one)], axis=1)
        centre, spread = np.ones(len(own)), np.ones(len(own))
        if count > most:  # all together have one more weight, and each of some what is more than it
            features = self._cells["features"][:1, half.place].reshape(1, -1)
            together = np.concatenate([features, self._cells["total"][:1, None]], axis=1)
            cells = np.concatenate([cells, together.astype(np.float64)])
            centre = np.append(np.zeros(len(own)), 1.0)
            spread = np.append(np.full(len(own), count / len(own)), 1.0)
        gram = public_product(cells, cells.T)
        least = _LEAST_RIDGE * float(np.diagonal(gram)[: len(own)].mean())
        out = np.zeros((len(sizes), count))
        for label, size in enumerate(sizes / count):
            if size <= 0.0:
                continue
            seen = np.append(np.asarray(released["features"])[label, half.place], 0.0)
            seen[-1] = np.asarray(released["total"])[label]
            ridge = np.maximum(np.square(self.deviation / (size * spread)), least)
            found = _nonnegative(gram, public_product(cells, seen), ridge, size * centre)
            out[label, own] = found[: len(own)]
            out[label] += found[-1] if count > most else 0.0
            out[label] *= min(1.0, size * count / max(math.fsum(out[label]), size))
        return out

    def _jump(self, released: Arrays, share: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the interval length of one repetition of the rest (Lemma 2).

        What the two have in common is missing from their difference, and a repetition that tells them
        apart may be one that was not drawn.
        """
        nowhere = self.points[:0]
        read = (self.sums.estimate(of, nowhere) for of in (released, self._cells))
        data, own = (np.asarray(one.jump + one.grain) for one in read)
        found: NDArray[np.float64] = data + share * own[:1]
        return found

    def _exact(
        self, values: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return kernel sums of points with weights (k, m), (k, q)."""
        found = np.empty((len(weights), len(values)))
        step, metric = max(1, _ROOM // len(self.points)), _METRICS[self.distance]
        for start in range(0, len(values), step):
            part = slice(start, start + step)
            far = spatial.distance.cdist(self.points, values[part], metric) * self.grid.unit
            found[:, part] = public_product(weights, self.sums.kernel(far))
        return found

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the released sizes by class and their noise."""
        return self.sums.totals(released)

    def medians_of(self, groups: int) -> int:
        """Return the number of groups of `estimate`.

        With fitted weights at most a quarter of the draws, so that a group has two or more of either
        half: one draw less weighted points is skewed, and the median of such is not their mean.
        """
        halves = halves_of(self.sums) or ()
        most = [int(half.sums.medians_of(2 * groups)) // 2 for half in halves]
        return min(self.sums.medians_of(groups), *most)

    def count_factor(self) -> float:
        """Return the record count's deviation per unit of cell noise."""
        return self.sums.count_factor()

    def with_count(self) -> float:
        """Return the covariance of an estimate and the count.

        Per unit of a cell's variance. What the number adds through the points' own error is a variance
        here; its covariance with an estimate that reads the same cell is left out, and no coverage
        that was tried shows it.
        """
        return self.sums.with_count()

    def noise_factor(self) -> float:
        """Return an estimate's noise, that of the cells."""
        return self.sums.noise_factor()

    def bias(self, queries: Any = None) -> Any:
        """Return twice the sketch's bias."""
        return 2.0 * np.asarray(self.sums.bias(queries))

    def change(self, moved: float) -> float:
        """Bound a move's change by the data's alone."""
        return self.sums.change(moved)

    def kernel(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kernel at real distances."""
        return self.sums.kernel(distance)

    def sketch_deviation(self, distance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bound the deviation without noise of data and public points."""
        return 2.0 * self.sums.sketch_deviation(distance)


_LATELY: dict[bytes, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
"""Points and weights that were grown from the last few releases: as public as these, seconds of work."""
_MOST_LATELY = 8
_NOTHING = np.zeros((0, 1)), np.zeros((2, 0))
_TRIED = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 4801)])
"""Distances at which a record's deviation is looked at: neighbours differ by 0.6 %."""
_OF_NOISE = 1.0 / 3.0
"""Of the noise, as in Lemma 10 of ``fourier_sketch.md``."""
_KEPT = "read with grown points"
"""Where sums keep what they are read with, as long as the release is there."""
_LOCK = Lock()


@dataclass(frozen=True)
class _Grown(_WithPublic):
    """Sum kernels less weighted points grown from the release."""

    def estimate(self, released: Arrays, queries: Any, groups: int = 1) -> KernelEstimates:
        """Return the same sums, estimated by Lemma 4 with grown points."""
        return self._read(released).estimate(released, queries, groups)

    def _read(self, released: Arrays) -> KernelSums:
        """Return the sums with points, once for all questions."""
        key, kept = self._key(released), vars(self.sums).get(_KEPT)
        if kept is None or kept[0] != key:
            found = self.sums  # where growing has nothing to find, or found nothing: without points
            points, weights = self._grown(released) if self._is_sampled(released) else _NOTHING
            if weights.any():
                read = _WithPublic(
                    self.sums, self.domain, self.grid, points, self.deviation, weights
                )
                found = cast("KernelSums", read)
            kept = vars(self.sums)[_KEPT] = key, found
        return cast("KernelSums", kept[1])

    def _is_sampled(self, released: Arrays) -> bool:
        """Return whether sampling may add a twentieth to the noise.

        Of a class of the released size wherever its records are, without points (Minkowski).
        """
        most = float(self.sums.totals(released)[0].max()) * most_sampled(self.sums)
        return most > self.deviation * self.sums.noise_factor() * _OF_NOISE

    @cached_property
    def _box(self) -> Box:
        lower, upper = (
            np.broadcast_to(np.asarray(end, dtype=np.float64), self.grid.width)
            for end in (self.grid.lower, self.grid.upper)
        )
        return Box(lower, upper, kernel_length(self.sums.kernel) / self.grid.unit)

    def _moments(self, released: Arrays) -> tuple[NDArray[np.float64], float] | None:
        """Return the released moments, where there are any, and their noise."""
        moments = moments_of(self.sums)
        if moments is None:
            return None
        gram, factor = moments.gram(released)
        return gram, factor * self.deviation

    def _key(self, released: Arrays) -> bytes:
        """Return a digest of all that decides points and weights."""
        box, moments = self._box, self._moments(released) or ()
        seen: list[NDArray[Any]] = [
            np.asarray(released[name], dtype=np.float64) for name in ("features", "total")
        ]
        seen += [self.sums.totals(released)[0], box.lower, box.upper]
        seen += [np.array([box.length, self.deviation]), *map(np.asarray, moments)]
        seen += [half.cells(first_points(box)[:2]) for half in halves_of(self.sums) or ()]
        return hashlib.sha256(b"".join(each.tobytes() for each in seen)).digest()

    def _grown(self, released: Arrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return both halves' points (m, d), and their weights (2, L, m)."""
        key = self._key(released)
        if (known := _LATELY.get(key)) is None:
            features = np.ascontiguousarray(released["features"], dtype=np.float64)
            sizes = np.maximum(self.sums.totals(released)[0], 0.0)
            total, box, halves = np.asarray(released["total"]), self._box, halves_of(self.sums)
            moments = self._moments(released)
            first = first_points(box) if moments is None else points_like(*moments, box)
            of_one = float(self._cells["total"][0])  # of the one point that it has
            points, weights = [], []
            with one_blas_thread():
                for half in halves or ():
                    own = features[:, half.place]
                    points.append(grown(half, own.sum(axis=0), float(sizes.sum()), first, box))
                    weights.append(
                        fitted_to_half(half, points[-1], own, total, sizes, of_one, self.deviation)
                    )
            whole = np.zeros((2, len(sizes), sum(map(len, points))))
            whole[0, :, : len(points[0])], whole[1, :, len(points[0]) :] = weights
            known = np.concatenate(points), whole
            with _LOCK:
                while len(_LATELY) >= _MOST_LATELY:
                    del _LATELY[next(iter(_LATELY))]
                _LATELY[key] = known
        return known


def most_sampled(sums: KernelSums) -> float:
    """Bound one record's kernel deviation over the draws.

    Wherever the record is. The deviation of a sum is at most the sum of its records' deviations
    (Minkowski), so n records deviate by at most n times this. The bias, which a sketch's bound holds
    too, is told beside it.
    """
    known = getattr(sums, "most_deviation", None)
    if known is not None:
        return float(known())
    return max(0.0, float(sums.sketch_deviation(_TRIED[None, :]).max()) - float(sums.bias()))


def _nonnegative(
    gram: NDArray[np.float64],
    product: NDArray[np.float64],
    ridge: NDArray[np.float64],
    centre: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return w >= 0 with the least ``w.G.w - 2 w.p + ridge.(w - centre)^2``."""
    root = np.linalg.cholesky(gram + np.diag(ridge))
    target = np.linalg.solve(root, product + ridge * centre)
    try:
        found: NDArray[np.float64] = optimize.nnls(root.T, target)[0]
    except RuntimeError:  # no solution after its most iterations: equal weights are as unbiased
        return centre
    return found
