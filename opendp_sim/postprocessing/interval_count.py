"""Count records within a radius in one column (``interval_count.md``)."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, IntervalCounts, Linear
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.shared_parameters import Confidence
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.frame import middles_and_units
from opendp_sim.domains.released import AnswerColumns, Released
from opendp_sim.postprocessing._impl.asked import check_queries, offered
from opendp_sim.postprocessing._impl.noise_quantiles import reach

COLUMNS = ("count", "noise_error", "lower", "upper")


@register
class IntervalCount(Mechanism):
    r"""Count records within a radius of queries.

    :math:`|x_j - q_j| \le r` for every query q and class.

    Space
        Input: a release of a sketch that offers ``interval_counts`` (``distance_tree``,
        ``moment_tree``, ``threshold_sketch``), and public queries of shape (q, d) in data units, of
        which only column j is used. Output: columns ``count``, ``noise_error`` (one standard
        deviation), ``lower`` and ``upper`` (about the true count, Lemma 2), each of shape (q, L).

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        ParameterError (OS101): a parameter is outside its range. (OS102): no such column.
        ReleaseError (OS702): the release counts no intervals. SpaceError (OS201): not a release.
        DataError (OS607): queries of another width, or not finite.

    Source
        [own] Lemma 1 in ``interval_count.md``; Algorithm 2 of Backurs et al.

    Example
        >>> IntervalCount(radius=0.5).spec()["column"]
        0
    """

    key: ClassVar[str] = "interval_count"
    in_short: ClassVar[str] = (
        "Count the records within a distance of the point of each question, in one column."
    )
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("interval_counts",)

    radius: Annotated[
        float,
        param(
            "Half the length of the interval around each query.", symbol="r", unit="data units", ge=0,
            hint="for an interval [a, b] ask at (a + b) / 2 with radius (b - a) / 2.",
        ),
    ]  # fmt: skip
    column: Annotated[
        int,
        param(
            "Which column, counted from 0.", symbol="j", unit="none", default=0, ge=0, le=2**20,
            hint="the columns in the order in which they reach the sketch.",
        ),
    ] = 0  # fmt: skip
    confidence: Confidence = 0.95

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release that offers interval counts."""
        del metric
        counts, release = offered(self.key, domain, "interval_counts")
        offer: IntervalCounts = counts
        width, unit = (getattr(release.queries, name, 1) for name in ("width", "unit"))
        scale = middles_and_units(getattr(release.queries, "frame", ()), width)[1]
        if self.column >= width:
            raise ParameterError(
                "OS102", f"{self.key}.column", expected=f"a column below {width}", got=self.column,
                hint="columns are counted from 0 in the order in which they reach the sketch.",
            )  # fmt: skip

        moved = 2.0 * getattr(release.queries, "rounding", 0.0)  # of a record, and of a query

        def answer(released: Arrays, queries: Any) -> dict[str, NDArray[np.float64]]:
            rows = check_queries(release, queries)
            centre = np.asarray(getattr(rows, "values", rows), dtype=np.float64)[:, self.column]
            radius = self.radius / (unit * float(scale[self.column]))
            found = offer.count(released, self.column, centre - radius, centre + radius)
            less_far, farther = radius - moved, radius + moved
            inner, _ = offer.around(released, self.column, centre - less_far, centre + less_far)
            _, outer = offer.around(released, self.column, centre - farther, centre + farther)
            noise, less, more = (_noise(release, part) for part in (found, inner, outer))
            half = reach(release, self.confidence)
            lower = np.minimum(inner.values - half * less, found.values)
            upper = np.maximum(outer.values + half * more, found.values)
            columns = found.values, noise, lower, upper
            return {
                name: np.ascontiguousarray(column.T)
                for name, column in zip(COLUMNS, columns, strict=True)
            }

        return Post(
            answer,
            takes="release",
            output=AnswerColumns(COLUMNS, offer.labels),
            expected={"noise_error": release.deviation * math.sqrt(offer.widest(self.column))},
            of_a_record=1.0,
            unit="records",
        )


def _noise(release: Released, found: Linear) -> NDArray[np.float64]:
    spread: NDArray[np.float64] = np.sqrt(np.broadcast_to(found.variance, found.values.shape))
    return release.deviation * spread
