"""Predict distance sums' errors from public points (``expected_error.md``, Lemma 3)."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import Linear, sliced
from opendp_sim.core.claims import Noise, Stable
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import as_rows
from opendp_sim.postprocessing._impl.expected_error import (
    ExpectedError,
    Floats,
    PublicExample,
    far,
    root_mean_square,
)
from opendp_sim.postprocessing._impl.ratios import interval_of_ratio, ratio_error

# --------------------------------------------------------------------------------------------------
# The ends of intervals of sums and of means of distances.
#
# Proof: Lemma 2 of ``distance.md``, beside the query.


def least_counted(of_count: float) -> float:
    """Return the least released size to divide by."""
    return max(1.0, 4.0 * of_count)


def mean_of(
    found: Linear, sizes: NDArray[np.float64], factor: float, least: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means and their first-order variance, of unit cells (Lemma 2)."""
    divisor = np.maximum(sizes, least)
    values = found.values / divisor
    of_size = values * (values * factor**2 - 2 * found.with_count)
    variance = found.variance + np.where(sizes > least, of_size, 0.0)
    return values, np.maximum(variance, 0.0) / divisor**2


def ends_of_mean(
    found: Linear,
    sizes: NDArray[np.float64],
    factor: float,
    reach: float,
    relative: float,
    drawn: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a mean's interval (Lemma 2).

    Infinite where no size bounds it. ``reach`` is the reached number of deviations times that of a
    cell; a projection's share of a sum is one of the mean times the released size, and ``drawn`` what
    it adds for the records.
    """
    times, share = reach**2, relative * sizes
    square = times * np.asarray(found.variance) + np.square(drawn)
    together = times * np.asarray(found.with_count)
    return interval_of_ratio(found.values, sizes, square, together, times * factor**2 + share**2)


def interval(
    values: NDArray[np.float64], reach: NDArray[np.float64], share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return all S with ``(values - S)**2 <= reach**2 + (share S)**2``, as two ends (Lemma 2).

    With a share of 1 or more (three random directions or fewer) nothing is too large.
    """
    rest = 1.0 - share**2
    if rest <= 0:
        return np.zeros_like(values), np.full_like(values, np.inf)
    half = np.sqrt(np.square(share * values) + rest * np.square(reach))
    return (values - half) / rest, (values + half) / rest


# --------------------------------------------------------------------------------------------------


def expected_distance_error(asked: PublicExample, post: Mechanism) -> ExpectedError:
    """Return the expected error of ``distance`` as ``post`` has it.

    Raises:
        DataError (OS607): a sketch without sums of distances, with labels, or too few points.
        ReleaseError (OS702): it cannot answer this exponent.
    """
    sums, size = asked.sums("distance_sums", "a sketch of sums of distances"), asked.size
    points, at = asked.behind()
    before, wanted = asked.before()
    stage, claim = asked.stages[-1], cast("Stable", asked.stages[-1].claim)  # as `sums` saw
    output: Any = claim.output
    cells = np.zeros(output.size, dtype=np.int64)
    claim.accumulate(points, cells)  # type: ignore[misc]
    scale = size / len(points)
    scaled = {name: np.asarray(block) * scale for name, block in output.split(cells).items()}
    noise = Noise("discrete_gaussian", asked.deviation)
    released = Released(output, dict(claim.capabilities), noise, stage.domain)
    reader: Any = post.bind(released, stage.metric)
    answer = reader.function(scaled, at)
    power = getattr(post, "p", None) or sums.power
    if getattr(post, "mean", False):
        return _of_means(asked, post, scaled)
    kind = "l1" if sliced(sums) is None else "l2"
    seen = size * _mean(points * asked.unit, as_rows(at).values * asked.unit, power, kind)
    meant = size * _mean(before, wanted, power, asked.claimed(kind))
    return ExpectedError(
        root_mean_square(answer["noise_error"][:, 0]), 0.0, root_mean_square(seen - meant),
        root_mean_square(answer["distance"][:, 0] - seen),
    )  # fmt: skip


def _of_means(asked: PublicExample, post: Any, scaled: dict[str, Any]) -> ExpectedError:
    """Return the expected error of means (Lemma 4)."""
    sums, (points, at), (before, wanted) = (
        asked.sums("distance_sums", "a sketch of sums of distances"),
        asked.behind(),
        asked.before(),
    )
    power, variance = post.p or sums.power, asked.deviation**2
    reading, counted = sums.reading(scaled, post.p, post.alpha).at(at), sums.counted(scaled)
    least = least_counted(asked.deviation * counted.factor)
    means = np.asarray(reading.values)[0] / asked.size
    noise = variance * np.asarray(reading.variance), variance * np.asarray(reading.with_count)
    of_size = variance * counted.factor**2
    of_each, together = (np.broadcast_to(part, (1, len(means)))[0] for part in noise)
    off, deviation, share = ratio_error(means, asked.size, least, of_each, together, of_size)
    kind = "l1" if sliced(sums) is None else "l2"
    seen = _mean(points * asked.unit, as_rows(at).values * asked.unit, power, kind)
    meant = _mean(before, wanted, power, asked.claimed(kind))
    scale = share * asked.size
    own = root_mean_square(scale * (means - seen))
    maps = scale * root_mean_square(seen - meant)
    bias = math.hypot(own, root_mean_square(off))
    return ExpectedError(root_mean_square(deviation), 0.0, maps, bias, least)


def _mean(rows: Floats, at: Floats, power: float, distance: str) -> Floats:
    """Return mean p-th powers of distances."""
    if distance == "l2":
        return np.asarray(np.power(far(rows, at, "euclidean"), power).mean(axis=0))
    if power == 1.0:
        return np.asarray(far(rows, at, "cityblock").mean(axis=0))
    if power == 2.0:
        return np.asarray(far(rows, at, "sqeuclidean").mean(axis=0))
    return np.asarray(np.power(far(rows, at, "minkowski", p=power), power).mean(axis=0))
