"""What a kernel release is expected to be off by: from public points like the data, and a size.

Noise, sampling of the sketch, row maps and bias apart, and together. Proof: ``expected_error.md``.
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
from opendp_sim.core.on_use import spatial
from opendp_sim.core.pipeline import on_queries, resolve
from opendp_sim.spaces.rows import GridRows, RealRows, as_rows

__all__ = ["ExpectedError", "expected_error"]

_FEWEST = 20
_METRICS = {"l1": "cityblock", "l2": "euclidean"}


@dataclass(frozen=True)
class ExpectedError:
    """Root mean squares over the queries, in kernel sums of ``size`` records.

    Attributes:
        noise: deviation of the noise.
        sampling: deviation over the sketch's own draws (frequencies, hashes); 0 where it has none.
        maps: of grid, projection and clipping: kernel sums behind them less those before them.
        bias: the largest error of the structure itself, a bound.
        total: the four together: the root of the sum of their squares.
    """

    noise: float
    sampling: float
    maps: float
    bias: float

    @property
    def total(self) -> float:
        """Everything, as one root mean square."""
        return math.hypot(self.noise, self.sampling, self.maps, self.bias)


def expected_error(
    stages: Sequence[Stage], deviation: float, like: Any, queries: Any, size: int
) -> ExpectedError:
    """Return the expected error of ``density`` on a release of a chain of bound stages.

    Args:
        stages: the chain from real rows (or records) to a sketch that offers ``kernel_sums``.
        deviation: standard deviation of the noise on a cell of weight 1.
        like: public points that look like the data, 20 or more, in the chain's first space.
        queries: public queries, in data units.
        size: a public guess of the number of records.

    Raises:
        DataError (OS607): a sketch without kernel sums of l1 or l2, with labels, or too few points.
    """
    claim = stages[-1].claim
    sums = claim.capabilities.get("kernel_sums") if isinstance(claim, Stable) else None
    points = _rows(stages[:-1], like)
    if sums is None or sums.labels is not None or sums.distance not in _METRICS:
        raise _refused("a sketch of kernel sums of l1 or l2, without labels")
    if len(points) < _FEWEST:
        raise _refused(f"{_FEWEST} public points or more")
    asked = on_queries(stages[:-1], queries)
    noise = deviation * sums.noise_factor()
    variance = _sampling(claim, sums, points, asked, size)
    maps = _maps(stages, sums, like, queries, points, asked) * size
    return ExpectedError(
        noise,
        math.sqrt(float(np.maximum(variance, 0.0).mean())),
        math.sqrt(float(np.square(maps).mean())),
        float(sums.bias()) * size,
    )


def _sampling(
    claim: Any, sums: Any, points: NDArray[np.float64], asked: Any, size: int
) -> NDArray[np.float64]:
    """Return the variance of a sum over ``size`` such records over the sketch's draws (Lemma 1)."""
    half = len(points) // 2
    first, second = points[:half], points[half : 2 * half]
    both = _variance(claim, sums, points[: 2 * half], asked)
    apart = _variance(claim, sums, first, asked) + _variance(claim, sums, second, asked)
    pair = (both - apart) / (2.0 * half * half)
    own = (apart - 2.0 * half * (half - 1) * pair) / (2.0 * half)
    found: NDArray[np.float64] = size * own + float(size) * (size - 1) * pair
    return found


def _variance(
    claim: Any, sums: Any, points: NDArray[np.float64], asked: Any
) -> NDArray[np.float64]:
    cells = np.zeros(claim.output.size, dtype=np.int64)
    claim.accumulate(points, cells)
    found = sums.estimate(claim.output.split(cells), asked)
    if not np.isfinite(found.variance).all():
        return np.zeros(found.variance.shape[1])  # no draws, or one
    variance: NDArray[np.float64] = found.variance[0] / found.repetitions
    return variance


def _maps(
    stages: Sequence[Stage], sums: Any, like: Any, queries: Any, points: Any, asked: Any
) -> NDArray[np.float64]:
    """Return mean kernel values behind the row maps less those before: shape (q,)."""
    grid = stages[-1].domain
    start = max((i for i, s in enumerate(stages) if _keeps_units(s)), default=-1) + 1
    before = _rows(stages[:start], like)
    from_here = on_queries(stages[:start], queries)
    unit = grid.unit if isinstance(grid, GridRows) else 1.0
    found: NDArray[np.float64] = _mean(sums, points, asked, unit) - _mean(
        sums, before, from_here, 1.0
    )
    return found


def _keeps_units(stage: Stage) -> bool:
    """Whether a kernel is meant about what this map makes: columns chosen, or rescaled."""
    claim = stage.claim
    rescaled = isinstance(claim, Stable) and isinstance(claim.output, RealRows)
    return stage.mechanism.key == "select" or (rescaled and stage.mechanism.key == "rescale")


def _mean(sums: Any, rows: Any, asked: Any, unit: float) -> NDArray[np.float64]:
    left, right = (
        np.asarray(as_rows(part).values, dtype=np.float64) * unit for part in (rows, asked)
    )
    found: NDArray[np.float64] = sums.kernel(
        spatial.distance.cdist(left, right, _METRICS[sums.distance])
    ).mean(axis=0)
    return found


def _rows(stages: Sequence[Stage], like: Any) -> NDArray[np.float64]:
    values: NDArray[np.float64] = as_rows(resolve(stages, lambda: [like])(like)).values
    return values


def _refused(expected: str) -> DataError:
    return DataError(
        "OS607", "expected_error", expected=expected, got="another chain, or fewer points",
        hint="give public points of the data's own columns, for a sketch that answers `density`.",
    )  # fmt: skip
