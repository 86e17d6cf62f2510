"""Predict a release's error from public points.

Points like the data, and a size. Noise, sampling of the sketch, row maps and bias apart, and together,
for sums of kernels; those of distances are in ``expected_distance.py``. Proof: ``expected_error.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable, Stage
from opendp_sim.core.errors import DataError
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.core.pipeline import on_queries, resolve
from opendp_sim.core.system.lazy_import import spatial
from opendp_sim.domains.rows import GridRows, RealRows, as_rows
from opendp_sim.postprocessing._impl.ratios import ratio_error
from opendp_sim.postprocessing.density import least_records

# --------------------------------------------------------------------------------------------------
# How many rows two public files share beyond chance: Lemma 4 of ``expected_error.md``.

FloatRows = NDArray[np.float64]


def shared_rows(points: FloatRows, known: FloatRows) -> float:
    """Return the rows that two files share beyond chance."""
    values, of = np.unique(np.concatenate([points, known]), axis=0, return_inverse=True)
    here, there = (
        np.bincount(part, minlength=len(values)).astype(np.float64)
        for part in np.split(of.reshape(-1), [len(points)])
    )
    equal, apart = float(here.dot(there)), [n * (n - 1.0) for n in (len(points), len(known))]
    chance = float(here.dot(here - 1.0) + there.dot(there - 1.0)) / sum(apart)
    if chance >= 1.0:
        return 0.0  # all rows are alike: nothing tells the files apart, and nothing has to
    more = (equal - chance * len(points) * len(known)) / (1.0 - chance)
    most = float(min(len(points), len(known)))
    return min(more, most) if more > 3.0 * math.sqrt(equal) else 0.0


# --------------------------------------------------------------------------------------------------

_FEWEST = 20
_METRICS = {"l1": "cityblock", "l2": "euclidean"}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ExpectedError:
    """Root mean squares over the queries, in the units of the answers.

    Attributes:
        noise: deviation of the noise.
        sampling: deviation over the sketch's own draws (frequencies, hashes); 0 where it has none.
        maps: of grid, projection and clipping: exact answers behind them less those before them.
        bias: of the structure itself: measured on the public points where nothing is drawn, else a bound;
            and, of means, how far the answers of few records are pulled to 0.
        least: records that a mean is divided by at least; 0 of sums.
        total: the four together: the root of the sum of their squares.
    """

    noise: float
    sampling: float
    maps: float
    bias: float
    least: float = 0.0

    @property
    def total(self) -> float:
        """Everything, as one root mean square."""
        return math.hypot(self.noise, self.sampling, self.maps, self.bias)


@dataclass(frozen=True)
class PublicExample:
    """Hold public points and queries around the row maps.

    Before and behind them.

    Attributes:
        stages: the chain from real rows (or records) to a sketch.
        deviation: standard deviation of the noise on a cell of weight 1.
        like: public points that look like the data, 20 or more, in the chain's first space.
        queries: public queries, in data units.
        size: a public guess of the number of records.
        known: public points that answers are read with, where a question has some of its own.
    """

    stages: Sequence[Stage]
    deviation: float
    like: Any
    queries: Any
    size: int
    known: Any = None

    def sums(self, capability: str, needs: str) -> Any:
        """Return what the sketch offers, or refuse it (OS607)."""
        claim = self.stages[-1].claim
        found = claim.capabilities.get(capability) if isinstance(claim, Stable) else None
        if found is None or found.labels is not None:
            raise unpredictable(f"{needs}, without labels")
        return found

    def behind(self) -> tuple[Floats, Any]:
        """Return points and queries in the sketch's own steps."""
        points = _rows(self.stages[:-1], self.like)
        if len(points) < _FEWEST:
            raise unpredictable(f"{_FEWEST} public points or more")
        return points, on_queries(self.stages[:-1], self.queries)

    def before(self) -> tuple[Floats, Floats]:
        """Return points and queries in the answers' units."""
        kept = max((i for i, s in enumerate(self.stages) if _keeps_units(s)), default=-1) + 1
        asked = on_queries(self.stages[:kept], self.queries)
        return _rows(self.stages[:kept], self.like), as_rows(asked).values

    @property
    def unit(self) -> float:
        """Of a step of the sketch's own rows, in those units."""
        grid = self.stages[-1].domain
        return grid.unit if isinstance(grid, GridRows) else 1.0

    def claimed(self, distance: str) -> str:
        """Return the distance before the grid, l2 if embedded in l1."""
        grid = getattr(self.stages[-1].domain, "distortion", ())
        return "l2" if distance == "l1" and grid and grid[0] == 1.0 else distance


def expected_kernel_error(asked: PublicExample, post: Mechanism) -> ExpectedError:
    """Return the expected error of ``density`` as ``post`` has it.

    Raises:
        DataError (OS607): a sketch without kernel sums of l1 or l2, with labels, or too few points.
    """
    sums, size = asked.sums("kernel_sums", "a sketch of kernel sums of l1 or l2"), asked.size
    if sums.distance not in _METRICS:
        raise unpredictable("a sketch of kernel sums of l1 or l2, without labels")
    points, at = asked.behind()
    before, wanted = asked.before()
    which = getattr(post, "public", "none")
    told = asked.queries if which == "queries" else asked.known if which == "points" else None
    public = None if told is None else on_queries(asked.stages[:-1], told)
    median = getattr(post, "estimator", "mean") == "median_of_means"
    variance = _sampling(asked, sums, points, at, public)
    drawn = variance is not None
    # As `density` has it: the median of normal means has pi/2 times the variance of their mean.
    loss = math.sqrt(math.pi / 2) if median and drawn else 1.0
    exact = _mean(sums, points * asked.unit, as_rows(at).values * asked.unit, sums.distance)
    maps = exact - _mean(sums, before, wanted, asked.claimed(sums.distance))
    noise = loss * asked.deviation * sums.noise_factor() * np.ones_like(exact)
    if public is not None:
        noise = np.hypot(noise, _of_number(asked, sums, at, public))
    bias = _bias(asked, sums, points, at, exact, drawn=drawn)
    share, off, least = 1.0, np.zeros(1), 0.0
    if getattr(post, "normalise", False):
        of_count = asked.deviation * sums.count_factor()
        least = least_records(of_count, float(noise[0]))
        together = asked.deviation**2 * sums.with_count()
        off, noise, share = ratio_error(exact, size, least, np.square(noise), together, of_count**2)
    spread = np.zeros_like(exact) if variance is None else np.sqrt(variance)
    return ExpectedError(
        root_mean_square(noise), share * loss * root_mean_square(spread),
        share * size * root_mean_square(maps),
        math.hypot(share * size * root_mean_square(bias), root_mean_square(off)), least,
    )  # fmt: skip


def root_mean_square(values: Floats) -> float:
    """Return the root of the mean square."""
    return math.sqrt(float(np.square(values).mean()))


def _bias(
    asked: PublicExample, sums: Any, points: Floats, at: Any, exact: Floats, *, drawn: bool
) -> Floats:
    """Return the structure's own error, by query."""
    if not drawn:
        found = sums.estimate(_cells(asked, points), at).groups[0, 0]
        return np.asarray(found / len(points) - exact)
    approximated = getattr(sums, "approximated", None)
    if approximated is None:
        return np.full_like(exact, float(sums.bias()))
    metric, unit = _METRICS[sums.distance], asked.unit
    apart = far(points * unit, as_rows(at).values * unit, metric)
    return np.asarray(approximated(apart).mean(axis=0) - exact)


def _cells(asked: PublicExample, points: Floats) -> dict[str, Any]:
    claim: Any = asked.stages[-1].claim
    cells = np.zeros(claim.output.size, dtype=np.int64)
    claim.accumulate(points, cells)
    found: dict[str, Any] = claim.output.split(cells)
    return found


def _sampling(
    asked: PublicExample, sums: Any, points: Floats, at: Any, public: Any
) -> Floats | None:
    """Return the sketch's sampling variance by query (Lemmas 1, 2)."""
    half, size = len(points) // 2, float(asked.size)
    first, second = points[:half], points[half : 2 * half]
    both = _variance(asked, sums, points[: 2 * half], at)
    if both is None:
        return None
    apart = _of(asked, sums, first, at) + _of(asked, sums, second, at)
    pair = (both - apart) / (2.0 * half * half)
    own = (apart - 2.0 * half * (half - 1) * pair) / (2.0 * half)
    variance = size * own + size * (size - 1) * pair
    if public is not None:
        variance = variance + _with_public(asked, sums, points[: 2 * half], at, (both, own), public)
    return np.maximum(variance, 0.0)


def _known(asked: PublicExample, public: Any) -> Floats:
    """Return public points on the sketch's grid and box."""
    grid: Any = asked.stages[-1].domain
    known: Floats = np.clip(np.rint(as_rows(public).values), grid.lower, grid.upper)
    return known


def _of_number(asked: PublicExample, sums: Any, at: Any, public: Any) -> Floats:
    """Return the count's noise with public points, by query."""
    known = _known(asked, public)
    own = sums.estimate(_cells(asked, known), at).groups[0, 0]
    exact = _mean(sums, known * asked.unit, as_rows(at).values * asked.unit, sums.distance)
    of_count = asked.deviation * sums.count_factor()
    return np.asarray(of_count * np.abs(exact - own / len(known)))


def _with_public(
    asked: PublicExample,
    sums: Any,
    points: Floats,
    at: Any,
    found: tuple[Floats, Floats],
    public: Any,
) -> Floats:
    """Return the variance due to public points (Lemmas 2, 4).

    Mostly negative. ``found`` holds the variance of the sum over ``points``, and that of one record's
    term.
    """
    alone, of_one = found
    known = _known(asked, public)
    share = asked.size / len(known)
    own = _of(asked, sums, known, at)
    covariance = (_of(asked, sums, np.concatenate([points, known]), at) - alone - own) / 2
    shared = shared_rows(points, known)
    if shared:  # a record has no pair with itself: the data are other records of the same law
        covariance = covariance - shared * of_one
    pairs = len(points) * len(known) - shared
    return np.asarray(share**2 * own - 2.0 * asked.size**2 * covariance / pairs)


def _variance(asked: PublicExample, sums: Any, points: Floats, at: Any) -> Floats | None:
    found = sums.estimate(_cells(asked, points), at)
    if found.repetitions == 1 or not np.isfinite(found.variance).all():
        return None  # no draws, or one
    variance: Floats = found.plain_variance[0] / found.repetitions
    return variance


def _of(asked: PublicExample, sums: Any, points: Floats, at: Any) -> Floats:
    found = _variance(asked, sums, points, at)
    assert found is not None  # noqa: S101 - the sketch draws, as the caller saw
    return found


def _keeps_units(stage: Stage) -> bool:
    """Return whether answers are in this map's output units."""
    claim = stage.claim
    rescaled = isinstance(claim, Stable) and isinstance(claim.output, RealRows)
    return stage.mechanism.key == "select" or (rescaled and stage.mechanism.key == "rescale")


def _mean(sums: Any, rows: Floats, at: Floats, distance: str) -> Floats:
    found: Floats = sums.kernel(far(rows, at, _METRICS[distance])).mean(axis=0)
    return found


def far(rows: Floats, at: Floats, metric: str, **given: Any) -> Floats:
    """Return distances of rows from queries, shape (n, q)."""
    left, right = (np.asarray(part, dtype=np.float64) for part in (rows, at))
    found: Floats = spatial.distance.cdist(left, right, metric, **given)
    return found


def _rows(stages: Sequence[Stage], like: Any) -> Floats:
    values: Floats = as_rows(resolve(stages, lambda: [like])(like)).values
    return values


def unpredictable(expected: str) -> DataError:
    """Return the refusal of what cannot be predicted."""
    return DataError(
        "OS607", "expected_error", expected=expected, got="another chain, or fewer points",
        hint="give public points of the data's own columns, for a sketch that answers `density` or "
        "`distance`.",
    )  # fmt: skip
