"""Use public points as a control variate.

Their part of a kernel sum is exact, and only the rest is sampled.

Proof: ``control_variate.md``, beside this file. Post-processing of a release and of public points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, KernelEstimates, KernelSums
from opendp_sim.core.errors import DataError, SpaceError
from opendp_sim.core.mechanism import param
from opendp_sim.core.space import Domain
from opendp_sim.core.system.lazy_import import spatial
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows, Rows, as_rows, floats_of
from opendp_sim.postprocessing._impl.asked import check_queries

PublicPoints = Annotated[
    Literal["none", "queries", "points"],
    param(
        "Public points whose kernel sums are exact, so that only what the data differs from them is "
        "sampled: the queries themselves, points of their own (`public:` beside `queries:`), or none.",
        symbol="U", unit="none", default="none",
        hint="what looks like the data and was chosen without looking at the seed.",
    ),
]  # fmt: skip

_METRICS = {"l1": "cityblock", "l2": "euclidean"}
_FEWEST = 20
_FOURTH = 3.57
"""How many times more skew a fourth power of a normal variable is than a square: 10.1 and 2.83."""
_ROOM = 2**22
"""Most kernel values that are held at once."""


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
    if which == "none":
        return sums
    grid = domain.queries if isinstance(domain, Released) else None
    if not isinstance(domain, Released) or not isinstance(grid, GridRows):
        raise _refused(key, "rows on a grid")
    if sums.distance not in _METRICS:
        raise _refused(key, "a kernel of l1 or l2")
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
class _WithPublic:
    """Sum kernels less ``N/m`` of m public ones, which are added exactly."""

    sums: KernelSums
    domain: Released
    grid: GridRows
    points: NDArray[np.float64]
    deviation: float

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
        """Return the same sums' estimates (Lemma 1)."""
        sizes, factor = self.sums.totals(released)
        share = np.maximum(sizes, 0.0) / len(self.points)
        rest = {
            name: array - share.reshape(-1, *(1,) * (np.ndim(array) - 1)) * self._cells[name][:1]
            for name, array in released.items()
        }
        found = self.sums.estimate(rest, queries, groups)
        exact = self._exact(floats_of(queries))
        own = self.sums.estimate(self._cells, queries).groups[0, 0]
        of_size = factor * self.deviation / len(self.points) * (exact - own)
        return replace(
            found,
            groups=found.groups + share[None, :, None] * exact,
            variance=found.variance + found.repetitions * np.square(of_size),
            jump=self._jump(released, share),
            skew=_FOURTH * found.skew,
        )

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

    def _exact(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the public points' kernel sums, shape (q,)."""
        found = np.empty(len(values))
        step, metric = max(1, _ROOM // len(self.points)), _METRICS[self.distance]
        for start in range(0, len(values), step):
            part = slice(start, start + step)
            far = spatial.distance.cdist(self.points, values[part], metric) * self.grid.unit
            found[part] = self.sums.kernel(far).sum(axis=0)
        return found

    def totals(self, released: Arrays) -> tuple[NDArray[np.float64], float]:
        """Return the released sizes by class and their noise."""
        return self.sums.totals(released)

    def medians_of(self, groups: int) -> int:
        """Return the number of groups of `estimate`."""
        return self.sums.medians_of(groups)

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
