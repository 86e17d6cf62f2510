"""Distance: sums or means of distances from public queries to all records, from one release.

Error formulas: ``distance.md``, beside this file.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from opendp_sim.core.capabilities import Arrays, DistanceReading, DistanceSums, Linear
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import DataError, ReleaseError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Source, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.spaces.released import Answers, Released

__all__ = ["Distance"]

COLUMNS = ("distance", "noise_error", "bias", "lower", "upper", "records")


@register
class Distance(Mechanism):
    r"""Estimate :math:`\sum_x \mathrm{dist}(x, q)` for every query q and class, with an interval.

    Space
        Input: a release of a sketch that offers ``distance_sums`` (``threshold_sketch``,
        ``moment_tree``, ``distance_tree``, ``moments_sketch``), and public queries of shape (q, d)
        in data units; they may lie outside the data's bounds.
        Output: columns ``distance``, ``noise_error`` (one standard deviation), ``bias`` (the largest
        error besides noise), ``lower``, ``upper`` and ``records``, each of shape (q, L), L being the
        number of classes (1 without ``per_label``).

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        ParameterError (OS101): p below 1, alpha outside (0, 1). ReleaseError (OS702): the release
        has no sums of distances, or not for this p. SpaceError (OS201): not a release. DataError
        (OS607): queries of another width, or not finite.

    Source
        [own] Lemma 1 in ``distance.md``.

    Example
        >>> Distance(p=1.0).spec()["mean"]
        False
    """

    key: ClassVar[str] = "distance"
    source: ClassVar[Source] = Source(key="own", where="Lemma 1")
    room = "queries"

    p: Annotated[
        float | None,
        param(
            "Exponent of the distance sum |x_j - y_j|**p; nothing for the sketch's own distance.",
            symbol="p", unit="none", default=None, ge=1, le=16,
            hint="1 for threshold_sketch and moment_tree, any real p >= 1 for distance_tree.",
        ),
    ] = None  # fmt: skip
    mean: Annotated[
        bool,
        param(
            "Divide by the released number of records: a mean distance instead of a sum.",
            symbol="N", unit="none", default=False, hint="true gives values comparable between sizes.",
        ),
    ] = False  # fmt: skip
    confidence: Annotated[
        float,
        param(
            "Coverage of the interval.", symbol="c", unit="probability", default=0.95, gt=0, lt=1,
            hint="0.95 is usual.",
        ),
    ] = 0.95  # fmt: skip
    alpha: Annotated[
        float,
        param(
            "Ratio of neighbouring far ends in distance_tree, whose sums are up to 1 + alpha times "
            "too large.", symbol="a", unit="none", default=0.1, ge=1e-4, lt=1,
            hint="0.1 to 0.3; the exact structures ignore it.",
        ),
    ] = 0.1  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release that offers sums of distances."""
        del metric
        sums, release = offered(self.key, domain, "distance_sums")
        spread = sums.spread(self.p, self.alpha)
        if spread is None:
            raise refused(self.key, sums, self.p)
        prepared: list[tuple[Arrays, DistanceReading]] = []

        def answer(released: Arrays, queries: Any) -> dict[str, NDArray[np.float64]]:
            if not prepared or prepared[0][0] is not released:
                prepared[:] = [(released, sums.reading(released, self.p, self.alpha))]
            reading = prepared[0][1]
            found = reading.at(check_queries(release, queries))
            return self._columns(sums, reading, found, released, release)

        return Post(
            answer, takes="release", output=Answers(COLUMNS, sums.labels, self.mean),
            expected={f"noise_error{' of the sum' if self.mean else ''}": release.deviation * spread},
        )  # fmt: skip

    def _columns(
        self, sums: DistanceSums, reading: DistanceReading, found: Linear, released: Arrays,
        release: Released,
    ) -> dict[str, NDArray[np.float64]]:  # fmt: skip
        counted = sums.counted(released)
        sizes = np.broadcast_to(counted.sizes[:, None], found.values.shape)
        least = np.maximum(sizes, 1.0)
        values, variance = found.values, np.broadcast_to(found.variance, sizes.shape)
        bias = reading.bias * least
        if self.mean:
            values, bias = values / least, bias / least
            # First-order error of a ratio, with the covariance of its two parts (Lemma 2).
            variance = variance - 2 * values * found.with_count + (values * counted.factor) ** 2
            variance = np.maximum(variance, 0.0) / least**2
        noise = release.deviation * np.sqrt(variance)
        reach = quantile(release, self.confidence) * noise
        lower = (values - reach) / reading.stretch - bias
        columns = values, noise, bias, lower, values + reach + bias, sizes
        return {
            name: np.ascontiguousarray(column.T)
            for name, column in zip(COLUMNS, columns, strict=True)
        }


def quantile(release: Released, confidence: float) -> float:
    """Return how many deviations an interval reaches: the larger of a normal's and a Laplace's."""
    normal = float(norm.ppf(0.5 + confidence / 2))
    if release.noise is not None and release.noise.family == "discrete_laplace":
        return max(normal, -math.log1p(-confidence) / math.sqrt(2))
    return normal


def offered(key: str, domain: Domain, capability: str) -> tuple[Any, Released]:
    """Return what a release offers under the name ``capability``, or refuse."""
    if not isinstance(domain, Released):
        raise SpaceError(
            "OS201", f"{key}.input_domain", expected="a release", got=type(domain).__name__,
            hint="put it under `post:` of an output whose `from:` is a released stage.",
        )  # fmt: skip
    return domain.capability(capability, key), domain


def refused(key: str, sums: DistanceSums, p: float | None) -> ReleaseError:
    """Return the refusal of an exponent that a release cannot answer."""
    return ReleaseError(
        "OS702", f"{key}.p", expected=f"an exponent this release answers: {sums.exponents}",
        got=p, hint="leave p out for the sketch's own distance, or use distance_tree.",
    )  # fmt: skip


def check_queries(release: Released, queries: Any) -> Any:
    """Refuse queries whose width or values cannot be asked (queries are public)."""
    width = getattr(release.queries, "width", None)
    values = np.asarray(getattr(queries, "values", queries))
    if values.ndim != 2 or values.shape[1] != width or not np.isfinite(values).all():
        raise DataError(
            "OS607", "queries", expected=f"finite queries that arrive as shape (q, {width})",
            got=f"shape {np.shape(values)}", hint="pass one row a query, in the data's own columns.",
        )  # fmt: skip
    return queries
