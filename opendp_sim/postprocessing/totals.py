"""Read counts, sums and means of every column and class (``totals.md``)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.class_means import ReleasedSums
from opendp_sim.core.capabilities import Arrays, OffersClassMeans
from opendp_sim.core.claims import Post, Quantity
from opendp_sim.core.mechanism import Mechanism, Proof, register
from opendp_sim.core.shared_parameters import Confidence
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.released import AnswerColumns
from opendp_sim.domains.rows import GridRows
from opendp_sim.postprocessing._impl.asked import grid_behind, offered
from opendp_sim.postprocessing._impl.expected_distance import least_counted
from opendp_sim.postprocessing._impl.noise_quantiles import reach
from opendp_sim.postprocessing._impl.ratios import interval_of_ratio

_SUMMED = ("count", "count_error", "sum", "sum_error")
COLUMNS = ("column", *_SUMMED, "mean", "noise_error", "lower", "upper")

Floats = NDArray[np.float64]


@register
class Totals(Mechanism):
    r"""Read count, sum and mean of every column and class.

    Space
        Input: a release of a sketch that offers ``class_means`` (``moments_sketch``); no queries.
        Output: a row for each of the d columns: ``column`` (d,), counted from 0; and of shape (d, L),
        L being the number of classes (1 without ``per_label``), in data units, ``count`` and ``sum``
        with ``count_error`` and ``sum_error`` (one standard deviation of the noise), ``mean`` with
        ``noise_error`` (to first order), and its ``lower`` and ``upper`` end. The interval holds
        noise and rounding to the grid, and stays within the column's public bounds. It is about the
        rows as they reach the sketch: clamped to their bounds, and shortened by a ``radius``.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release: no further loss.

    Raises
        ParameterError (OS101): a parameter is outside its range. ReleaseError (OS702): the release
        has no sums of columns. SpaceError (OS201): not a release.

    Source
        [own] Lemmas 1 and 2 in ``totals.md``; intervals of ratios as Fieller's.

    Example
        >>> Totals(confidence=0.9).spec()
        {'confidence': 0.9}
    """

    key: ClassVar[str] = "totals"
    in_short: ClassVar[str] = "Count the records, and add up and average every column."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 2")
    room = "queries"
    asks_for = ("class_means",)

    confidence: Confidence = 0.95

    def bind(self, domain: Domain, metric: Metric) -> Post:
        """Bind to a release of summed rows."""
        del metric
        offer, release = offered(self.key, domain, "class_means")
        means: OffersClassMeans = offer
        rows, far = grid_behind(self.key, release), reach(release, self.confidence)

        def answer(released: Arrays, queries: Any = None) -> dict[str, NDArray[Any]]:
            del queries
            return _columns(means.class_sums(released, release.deviation), rows, far)

        sketch: Any = release.sketch
        empty = means.class_sums(
            {name: np.zeros(shape) for name, shape in sketch.shapes.items()}, release.deviation
        )
        return Post(
            answer,
            takes="release",
            output=AnswerColumns(COLUMNS, means.labels),
            expected={"noise_error": empty.of_count},
            asks=False,
            of_a_record=1.0,
            unit="records",
            quantities=_expected(empty, rows),
        )


def _expected(empty: ReleasedSums, rows: GridRows) -> dict[str, Quantity]:
    """Return the largest errors of all columns (Lemmas 1, 2).

    Of columns of different ranges in parts of each one's range.
    """
    start = rows.to_data(empty.centre[None, :])[0]
    unit = rows.to_data(empty.centre[None, :] + 1.0)[0] - start
    low, high = _from(empty.centre, rows)
    span = (high - low) * unit
    alike = bool(np.allclose(span, span[0], rtol=1e-9))
    scale = np.ones_like(span) if alike else 1.0 / np.where(span > 0.0, span, np.inf)
    own = "units of the rows" if rows.distortion else "units of the columns"
    of = own if alike else "parts of the column's range"
    of_sum = np.hypot(empty.of_count * start, empty.of_sum * unit)
    rounded = float(np.max(rows.rounding * unit * scale))
    middles = start if alike else -low / np.where(high > low, high - low, np.inf)
    mean = Quantity(
        float(np.max(empty.of_sum * unit * scale)),
        of,
        rounded,
        least_counted(empty.of_count),
        empty.of_count,
        float(np.max(np.maximum(-low, high) * unit * scale)),
        tuple(map(float, middles if np.ptp(middles) else middles[:1])),
    )
    return {
        "mean": mean,
        "sum": Quantity(float(np.max(of_sum * scale)), of, rounded),
        "count": Quantity(empty.of_count, "records"),
    }


def _columns(found: ReleasedSums, rows: GridRows, far: float) -> dict[str, NDArray[Any]]:
    """Return the table's columns, with ``far`` deviations in an interval."""
    start = rows.to_data(found.centre[None, :])[0]
    unit = rows.to_data(found.centre[None, :] + 1.0)[0] - start
    least = least_counted(found.of_count)
    size = np.maximum(found.counts, least)
    ratio = found.sums / size[:, None]
    of_size = np.where(found.counts > least, found.of_count, 0.0)[:, None]
    error = np.hypot(found.of_sum, ratio * of_size) / size[:, None]
    counts = np.broadcast_to(found.counts[:, None], ratio.shape)
    lower, upper = interval_of_ratio(
        found.sums, counts, (far * found.of_sum) ** 2, 0.0, (far * found.of_count) ** 2
    )
    low, high = _from(found.centre, rows)
    ratio, lower, upper = (
        np.clip(part, low, high) for part in (ratio, lower - rows.rounding, upper + rows.rounding)
    )
    table = {
        "count": counts,
        "count_error": np.full(ratio.shape, found.of_count),
        "sum": found.counts[:, None] * start + found.sums * unit,
        "sum_error": np.hypot(found.of_count * start, found.of_sum * unit) + 0.0 * ratio,
        "mean": start + ratio * unit,
        "noise_error": error * unit,
        "lower": start + np.minimum(lower, ratio) * unit,
        "upper": start + np.maximum(upper, ratio) * unit,
    }
    by_column: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(value.T) for name, value in table.items()
    }
    return {"column": np.arange(rows.width)} | by_column


def _from(centre: Floats, rows: GridRows) -> tuple[Floats, Floats]:
    """Return the columns' bounds in steps from the sums' centre, each (d,)."""
    low, high = (np.array(end, dtype=np.float64) - centre for end in (rows.lower, rows.upper))
    return low, high
