"""Answer sums or means of distances to all records (``distance.md``)."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Arrays, DistanceReading, DistanceSums, sliced
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import DataError, ReleaseError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.shared_parameters import Confidence
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.released import AnswerColumns, Released
from opendp_sim.domains.rows import GridRows
from opendp_sim.postprocessing._impl.asked import check_queries, least_and_greatest, offered
from opendp_sim.postprocessing._impl.expected_distance import (
    ends_of_mean,
    interval,
    least_counted,
    mean_of,
)
from opendp_sim.postprocessing._impl.noise_quantiles import quantile, reach
from opendp_sim.postprocessing._impl.units import of_distances

_LARGEST = 450
"""Binary digits of a p-th power: its square, times all records, is a float."""
COLUMNS = ("distance", "noise_error", "bias", "lower", "upper", "records", "least_records")


@register
class Distance(Mechanism):
    r"""Estimate distance sums at queries, with an interval.

    :math:`\sum_x \mathrm{dist}(x, q)` for every query q and class.

    Space
        Input: a release of a sketch that offers ``distance_sums`` (``threshold_sketch``,
        ``moment_tree``, ``distance_tree``, ``moments_sketch``, ``slice_sketch``), and public queries of
        shape (q, d) in data units; they may lie outside the data's bounds.
        Output: columns ``distance``, ``noise_error`` (one standard deviation of the noise), ``bias``
        (the largest error of the structure), ``lower``, ``upper``, ``records`` and ``least_records``
        (the size below which a class is within the noise, and which a mean divides by at least),
        each of shape (q, L), L being the number of classes (1 without ``per_label``). The interval
        holds noise,
        bias, rounding to the grid, ``alpha``, and the deviation of a random projection before the
        sketch (``l1_embedding``, ``jl_projection``) or in it (``slice_sketch``). It is about the rows
        as they were clipped. Distances are in data units; after a ``rescale`` by ranges or by numbers
        they are in those units: every column counts in ranges.

    Stability
        Not a transformation.

    Privacy
        Post-processing of a release and public queries: no further loss.

    Raises
        ParameterError (OS101): p below 1, alpha outside (0, 1). ReleaseError (OS702): the release
        has no sums of distances, or not for this p. SpaceError (OS201): not a release. DataError
        (OS607): queries of another width, not finite, or 2**51 steps from zero. SpaceError (OS203):
        the unit to the power p leaves the range of floats.

    Source
        [own] Lemma 1 in ``distance.md``.

    Example
        >>> Distance(p=1.0).spec()["mean"]
        False
    """

    key: ClassVar[str] = "distance"
    in_short: ClassVar[str] = "Add up how far the records are from the point of each question."
    source: ClassVar[Proof] = Proof(key="own", where="Lemma 1")
    room = "queries"
    asks_for = ("distance_sums",)

    p: Annotated[
        float | None,
        param(
            "Exponent of the distance sum |x_j - y_j|**p; nothing for the sketch's own distance.",
            symbol="p", unit="none", default=None, ge=1, le=16,
            hint="1 for threshold_sketch and moment_tree, any real p >= 1 for distance_tree, nothing for "
            "slice_sketch.",
        ),
    ] = None  # fmt: skip
    mean: Annotated[
        bool,
        param(
            "Divide by the released number of records, or by four of its deviations if that is more: a "
            "mean distance instead of a sum.",
            symbol="N", unit="none", default=False, hint="true gives values comparable between sizes.",
        ),
    ] = False  # fmt: skip
    confidence: Confidence = 0.95
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
            raise bad_exponent(self.key, sums, self.p)
        noise = f"noise_error{' of the sum' if self.mean else ''}"
        expected = {noise: release.deviation * spread, "bias per record": sums.bias(self.p)}
        if self.mean:
            of_count = release.deviation * sums.count_factor()
            expected["noise of the number of records"] = of_count
            expected["least records"] = least_counted(of_count)
        prepared: list[tuple[Arrays, DistanceReading]] = []

        def answer(released: Arrays, queries: Any) -> dict[str, NDArray[np.float64]]:
            if not prepared or prepared[0][0] is not released:
                prepared[:] = [(released, sums.reading(released, self.p, self.alpha))]
            asked, reading = check_queries(release, queries), prepared[0][1]
            check_reach(release, asked, reading.power)
            return self._columns(sums, reading, asked, released, release)

        power = sums.power if self.p is None else self.p
        relative, lost, each = distortion(sums, release, power)
        if relative:
            expected |= {"relative deviation of the projection": relative}
            expected["bias per record"] += lost
        if each:
            expected["deviation of the projection, per record"] = each
        if steps := _most_rounded(release, power, whole=sliced(sums) is not None):
            expected["rounding, per record at most"] = steps
        return Post(
            answer,
            takes="release",
            output=AnswerColumns(COLUMNS, sums.labels, self.mean),
            expected=expected,
            of_a_record=longest_distance(release.queries, power, whole=sliced(sums) is not None),
            unit=of_distances(release.queries, power, summed=not self.mean),
        )

    def _columns(
        self,
        sums: DistanceSums,
        reading: DistanceReading,
        asked: Any,
        released: Arrays,
        release: Released,
    ) -> dict[str, NDArray[np.float64]]:
        found, counted = reading.at(asked), sums.counted(released)
        sizes = np.broadcast_to(counted.sizes[:, None], found.values.shape)
        values, variance = found.values, np.broadcast_to(found.variance, sizes.shape)
        deviations, far = quantile(release, self.confidence), reach(release, self.confidence)
        relative, lost, each = distortion(sums, release, reading.power)
        # Per record, for as many records as there may be.
        most = np.maximum(sizes, 1.0) + far * release.deviation * counted.factor
        steps = rounding(release, asked, reading.power, whole=sliced(sums) is not None)
        bias = found.missed + lost + steps
        noise = release.deviation * np.sqrt(variance)
        drawn = deviations * each * most
        low, high = interval(values, np.hypot(far * noise, drawn), deviations * relative)
        least = least_counted(release.deviation * counted.factor)
        if self.mean:
            spread = far * release.deviation
            ends = ends_of_mean(found, sizes, counted.factor, spread, deviations * relative, drawn)
            seen = (sizes >= least) & np.isfinite(ends).all(axis=0)
            low = np.where(seen, ends[0], np.minimum(low, 0.0))
            high = np.where(seen, ends[1], np.maximum(high, 0.0))
            values, variance = mean_of(found, sizes, counted.factor, least)
            noise, bias = release.deviation * np.sqrt(variance), bias * np.ones_like(sizes)
        else:
            bias = bias * most
        low, high, floor = low / reading.stretch - bias, high + bias, np.full_like(values, least)
        columns = values, noise, bias, low, high, sizes, floor
        return {
            name: np.ascontiguousarray(column.T)
            for name, column in zip(COLUMNS, columns, strict=True)
        }


def distortion(sums: DistanceSums, release: Released, power: float) -> tuple[float, float, float]:
    """Return a random map's distortion of these sums, before or in sketches.

    Deviation relative to them, largest loss per record, and deviation per record.
    """
    own, stated = sliced(sums), getattr(release.queries, "distortion", ())
    if own is not None:
        return own.relative, 0.0, own.by_record
    return (stated[1], stated[2], 0.0) if stated and stated[0] == power else (0.0, 0.0, 0.0)


def _most_rounded(release: Released, power: float, *, whole: bool) -> float:
    """Bound a record's distance change by rounding."""
    lower = np.array(getattr(release.queries, "lower", ()), dtype=np.float64)
    if not lower.size:
        return 0.0
    asked = np.broadcast_to(lower, (1, getattr(release.queries, "width", lower.size)))
    return float(np.max(rounding(release, asked, power, whole=whole)))


def rounding(
    release: Released, asked: Any, power: float, *, whole: bool
) -> NDArray[np.float64] | float:
    """Bound a record's distance change by rounding to the grid, shape (q,).

    Half a step each, so a coordinate's difference moves by a step u at most, and its p-th power by ``p
    u (far + u)^(p-1)``; behind a projection the differences move by a vector of bounded length (Lemma 3
    of ``distance.md``). ``whole``: an l2 distance moves by that length itself.
    """
    rows = release.queries
    if not isinstance(rows, GridRows) or not rows.rounding:
        return 0.0
    if whole:
        return rows.moved("l2")
    step = 2 * rows.rounding * rows.unit
    if power == 1 and not rows.distortion:  # the slope is 1 wherever the query is
        return float(np.full(rows.width, step).sum())
    low, high = (np.array(v, dtype=np.float64) for v in (rows.lower, rows.upper))
    values = np.asarray(getattr(asked, "values", asked), dtype=np.float64)
    far = np.maximum(np.abs(values - low), np.abs(high - values)) * rows.unit
    if rows.distortion:
        longest = rows.moved("l2")
        slopes: NDArray[np.float64] = power * (far + longest) ** (power - 1)
        together: NDArray[np.float64] = longest * np.sqrt(np.square(slopes).sum(axis=1))
        return together
    moved: NDArray[np.float64] = (power * step * (far + step) ** (power - 1)).sum(axis=1)
    return moved


def longest_distance(rows: Any, power: float, *, whole: bool) -> float:
    """Return the p-th power of the box's longest distance (``whole``, l2)."""
    if not isinstance(rows, GridRows):
        return 0.0
    if whole:
        return math.sqrt(longest_distance(rows, 2.0, whole=False))
    width = rows.width // max(len(rows.lower), 1)
    spans = [b - a for a, b in zip(rows.lower, rows.upper, strict=True)]
    return width * math.fsum(math.pow(span * rows.unit, power) for span in spans)


def bad_exponent(key: str, sums: DistanceSums, p: float | None) -> ReleaseError:
    """Return the refusal of an exponent that a release cannot answer."""
    return ReleaseError(
        "OS702", f"{key}.p", expected=f"an exponent this release answers: {sums.exponents}",
        got=p, hint="leave p out for the sketch's own distance, or use distance_tree.",
    )  # fmt: skip


def check_reach(release: Released, queries: Any, power: float) -> None:
    """Refuse queries whose p-th powers' variances leave the floats."""
    least, most = least_and_greatest(np.asarray(getattr(queries, "values", queries)))
    rows = release.queries
    ends = [abs(v) for name in ("lower", "upper") for v in getattr(rows, name, ())]
    reach = math.log2(2.0 + max(-least, most) + max(ends, default=0))
    # Factors of p-th powers are taken in steps or in data units; 2**31 records, squared, leave room.
    if power * max(reach, reach + math.log2(getattr(rows, "unit", 1.0))) > _LARGEST:
        raise DataError(
            "OS607", "queries", expected=f"queries whose distances to the power {power:g} fit a float",
            got="one too far away", hint="ask nearer to the data's bounds, or with a smaller p.",
        )  # fmt: skip
