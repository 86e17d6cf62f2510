"""Broken twins of the distance family: the real sketches with one thing wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.audit.twins.faults import control, exact_cells, less_mean, times, twin
from tests.audit.twins.sketches import (
    COARSE,
    GAUSSIAN,
    SIDE,
    distances as k,
    embedding,
    points_of,
    row_map,
)
from tests.audit.twins.stand_ins import CHANGE_ONE, gaussian, laplace

H, T, D, M, S, E = (
    "threshold_sketch",
    "moment_tree",
    "distance_tree",
    "moments_sketch",
    "slice_sketch",
    "l1_embedding",
)


# --- faults before the sketch ---------------------------------------------------------------


def by_range(points: np.ndarray) -> np.ndarray:
    """The box is the data's own."""
    low, high = points.min(axis=0), points.max(axis=0)
    return (points - low) / np.maximum(high - low, 1e-3) * 3.75 - 2


def sorted_columns(points: np.ndarray) -> np.ndarray:
    """Ranks in place of positions."""
    return np.argsort(np.argsort(points, axis=0), axis=0) / 4.0 - 2


# --- faults after it --------------------------------------------------------------------------


def means(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Sums are divided by the exact count, still with the sum's calibration over n."""
    del points
    return np.append(cells, 1e3 * cells[-1] / max(cells[-1], 1.0))


def own_leaf_too(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Records on a boundary are counted on both sides."""
    steps = k.steps_of(points).values
    cells = cells.copy()
    cells[1] += (steps[:, 0] == 0).sum()
    return cells


def one_more_level(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    """A finer level that the calibration does not know."""
    steps = k.steps_of(points).values.astype(int) + SIDE
    finer = [np.bincount(column, minlength=2 * SIDE) for column in steps.T]
    return np.concatenate([cells, *finer])


def not_clipped(x: Any) -> np.ndarray:
    """Squares of the rows as they came."""
    points = points_of(x)
    cells = k.core_of(M)(x)
    cells[-1] += np.minimum(np.square(points * COARSE).sum(axis=1), 2.0**40).sum()
    return cells


def far_positions(x: Any) -> np.ndarray:
    """Nodes by the clamped place, moments by the place as it came."""
    points = points_of(x)
    cells = k.core_of(T)(x)
    beyond = np.maximum(np.abs(points[:, 0]) * COARSE - SIDE, 0.0)
    cells[6] += np.minimum(beyond, 2.0**40).sum()
    return cells


def box_for_ball(x: Any) -> np.ndarray:
    """Clipped to the box alone, calibrated for the ball."""
    points = np.clip(points_of(x) * COARSE, -SIDE, SIDE - 1).round()
    u0, u1, u2 = k.claim_of(M).capabilities["class_means"].multipliers
    return np.concatenate(
        [u1 * points.sum(axis=0), [u0 * len(points), u2 * np.square(points).sum()]]
    )


def reader_of_slices() -> Any:
    return k.claim_of(S).capabilities["distance_sums"]


def principal_axes(points: np.ndarray) -> np.ndarray:
    """Directions are the data's own: rows are turned to their principal axes."""
    return points @ np.linalg.svd(points, full_matrices=True)[2].T


def whole_squares(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Squared lengths are added as they are, and not what is above or below their middle."""
    cells[-1] += reader_of_slices().middle * len(points)
    return cells


def rows_as_they_came(x: Any) -> np.ndarray:
    """No row is shortened: levels are clipped, after all."""
    reader, points = reader_of_slices(), points_of(x)
    slices, (u0, u1) = reader.slices, reader.multipliers
    found = np.floor(slices.projection.phases(np.clip(points * COARSE, -1e6, 1e6)))
    levels = np.clip(found, 0, slices.thresholds)
    above = (levels[:, None] > np.arange(slices.thresholds)[:, None]).sum(axis=2)
    squares = slices.squares[levels.astype(int)].sum() - reader.middle * len(points)
    centred = u1 * (slices.fine * above - len(points) * slices.shares)
    return np.concatenate([centred.ravel(), [u0 * len(points), squares]]).astype(float)


def of_one_direction() -> float:
    """The scale at rho = 1 for what one direction adds to a squared length."""
    reader = reader_of_slices()
    (u0, u1), slices = reader.multipliers, reader.slices
    each = slices.longest / slices.count
    return math.sqrt((u0**2 + u1**2 * each + reader.half**2) / 2)


# --- faults of the noise: (core, count, scale) -> releases ------------------------------------


def leaves_alone(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    """Noise on the leaves, summed upwards: nodes of a level share nothing new."""
    noise = laplace((count, core.size), scale)
    for column in range(2):
        at = 15 * column
        for level in range(2, -1, -1):
            first, below = at + 2**level - 1, at + 2 ** (level + 1) - 1
            noise[:, first : first + 2**level] = (
                noise[:, below : below + 2 ** (level + 1)].reshape(count, -1, 2).sum(axis=2)
            )
    return core + noise


# --- row maps and answers -----------------------------------------------------------------------

REAL = embedding()
MATRIX = np.random.default_rng(1).standard_normal((2, 4))


def clip_at_quantile(points: np.ndarray) -> np.ndarray:
    """Projections are clipped at the data's own 90 % quantile."""
    found = points @ MATRIX
    return np.clip(found, None, np.quantile(found, 0.9)) if len(points) else found


def seed_of_count(points: np.ndarray) -> np.ndarray:
    return embedding(seed=1 + len(points))(points)


def centred(points: np.ndarray) -> np.ndarray:
    return REAL(less_mean(points)) if len(points) else REAL(points)


def both_signs(points: np.ndarray) -> np.ndarray:
    """Every row and its mirror image, still claimed 1-stable."""
    return REAL(np.vstack([points, -points]))


def whitened(points: np.ndarray) -> np.ndarray:
    scale = np.maximum(np.abs(points).max(axis=0), 1e-3) if len(points) else 1.0
    return REAL(points / scale * 2)


def noise_of_the_least(points: np.ndarray) -> np.ndarray:
    """The rounding offset is taken from the data."""
    return REAL(points + points.min()) if len(points) else REAL(points)


def exact_distance(noisy: np.ndarray, points: np.ndarray) -> Any:
    """The answer, with the query's own leaf taken from the records."""
    return [*noisy[:2], round(float(np.abs(np.clip(points, -2, 2)).sum()), 3)]


def exact_divisor(noisy: np.ndarray, points: np.ndarray) -> Any:
    """A mean distance over the exact number of records."""
    return [noisy[0], len(points)]


def grid_of_n(noisy: np.ndarray, points: np.ndarray) -> Any:
    """As many levels as the exact number of records asks for."""
    return [*noisy[: 2 ** max(1, math.ceil(math.log2(len(points) + 1)))]]


def empty_is_zero(noisy: np.ndarray, points: np.ndarray) -> Any:
    return [0.0, 0.0] if not len(points) else [*noisy[:2]]


def interval_true(noisy: np.ndarray, points: np.ndarray) -> Any:
    """Exact when the interval is empty."""
    inside = (np.abs(points[:, 0]) <= 1).sum()
    return [noisy[0] if inside else 0.0]


def warned(noisy: np.ndarray, points: np.ndarray) -> Any:
    """A warning when records lie outside the box."""
    return [noisy[0], float((np.abs(points) > 2).any())]


def nearest_of_data(noisy: np.ndarray, points: np.ndarray) -> Any:
    """The nearest noisy mean, ties and near ties settled by the data."""
    exact = float(np.clip(points, -2, 2).sum())
    return [float(noisy[0] > 0 if abs(noisy[0]) > 4 * k.scale_of(M) else exact > 0)]


def means_if_enough(noisy: np.ndarray, points: np.ndarray) -> Any:
    """A class with fewer than two records is left out, by the exact count."""
    return [*noisy[:2]] if len(points) > 1 else [0.0, 0.0]


def rounded_data(noisy: np.ndarray, points: np.ndarray) -> Any:
    """The spread of the class, without noise, as a confidence."""
    return [noisy[0], round(float(points.std()), 1) if len(points) else 0.0]


def median_of_data(noisy: np.ndarray, points: np.ndarray) -> Any:
    """The cell of the median is noisy, and the place in it the records' own."""
    return [noisy[0], float(np.median(np.clip(points[:, 0], -2, 2))) if len(points) else 0.0]


def largest_of_data(noisy: np.ndarray, points: np.ndarray) -> Any:
    """An upper end that is the largest record."""
    return [noisy[0], float(points[:, 0].max(initial=-2.0))]


def rank_of_n(noisy: np.ndarray, points: np.ndarray) -> Any:
    """The rank is a share of the exact count."""
    return [noisy[0] - len(points) / 2]


def sum_in_range(noisy: np.ndarray, points: np.ndarray) -> Any:
    """A mean is cut at the records' own range."""
    return [min(float(noisy[0]), float(np.clip(points, -2, 2).max(initial=-2.0)))]


def embedded(label: str, function: Any) -> Any:
    return twin(f"{E}/{label}", row_map(function))


THRESHOLDS = [
    k.sketch(H, "half_scale: half of the declared noise", add=times(0.5)),
    k.sketch(
        H,
        "l2_scale_for_laplace: the L2 norm where L1 is due",
        scale=math.sqrt(2) * k.scale_of(H, GAUSSIAN),
    ),
    k.sketch(
        H,
        "price_of_one_threshold: one threshold's sensitivity for all of them",
        family=GAUSSIAN,
        scale=1 / math.sqrt(2),
    ),
    k.sketch(
        H,
        "signs_as_half: features are +1 and -1, calibrated for +1/2 and -1/2",
        family=GAUSSIAN,
        scale=k.scale_of(H, GAUSSIAN) / 2,
    ),
    k.sketch(H, "thresholds_at_quantiles: thresholds at the exact ranks", before=sorted_columns),
    k.sketch(H, "exact_total: the count has no noise", add=exact_cells(-1)),
]
TREES = [
    k.sketch(T, "half_scale: half of the declared noise", add=times(0.5)),
    k.sketch(
        T, "counts_alone: the norm of the counts, not of the moments", scale=0.5 * k.scale_of(T)
    ),
    k.sketch(T, "not_clamped: moments of positions beyond the box", core=far_positions),
    k.sketch(
        T, "each_level_the_whole_budget: the norm of one level", scale=k.scale_of(T, levels=1)
    ),
    k.sketch(T, "centred_by_the_data: moments about the exact mean", before=less_mean),
    k.sketch(T, "exact_moments: only the counts have noise", add=exact_cells(slice(6, 12))),
]
COUNTS = [
    k.sketch(D, "half_scale: half of the declared noise", add=times(0.5)),
    k.sketch(D, "forgot_the_levels: the norm of one level", scale=2.0),
    k.sketch(D, "one_more_level: a finer level that the scale does not know", after=one_more_level),
    k.sketch(D, "both_sides: records on a boundary count on both sides", after=own_leaf_too),
    k.sketch(D, "noise_on_leaves_alone: inner nodes reuse the leaves' noise", add=leaves_alone),
    k.sketch(D, "grid_from_data: leaves between the least and the largest record", before=by_range),
]
MOMENTS = [
    k.sketch(
        M, "half_scale: half of the declared noise", family=GAUSSIAN, add=times(0.5, gaussian)
    ),
    k.sketch(M, "square_not_clipped: squared norms of the rows as they came", core=not_clipped),
    k.sketch(
        M,
        "box_for_ball: rows are clipped to the box, calibrated for the ball",
        core=box_for_ball,
        scale=0.6 * k.scale_of(M),
    ),
    k.sketch(
        M, "forgot_the_squares: calibrated without the squared norms", scale=0.5 * k.scale_of(M)
    ),
    k.sketch(M, "exact_count: the count has no noise", add=exact_cells(2)),
    k.sketch(M, "centred_by_the_data: rows less their exact mean", before=less_mean),
]
SLICES = [
    k.sketch(
        S,
        "forgot_the_directions: the norm of one direction for all of them",
        family=GAUSSIAN,
        scale=of_one_direction(),
    ),
    k.sketch(
        S,
        "squares_not_centred: squared lengths as they are, calibrated for their half range",
        family=GAUSSIAN,
        after=whole_squares,
    ),
    k.sketch(
        S,
        "rows_as_they_came: levels are clipped, and rows are not",
        family=GAUSSIAN,
        core=rows_as_they_came,
    ),
    k.sketch(
        S,
        "principal_axes: directions are the records' principal axes",
        family=GAUSSIAN,
        before=principal_axes,
    ),
    k.sketch(S, "exact_count: the count has no noise", add=exact_cells(-2)),
    k.sketch(
        S,
        "replace_as_add: calibrated for added records, claimed for replaced ones",
        family=GAUSSIAN,
        metric=CHANGE_ONE,
    ),
]
EMBEDDINGS = [
    embedded("clip_from_data: clipped at the data's quantile", clip_at_quantile),
    embedded("directions_by_count: the seed is the exact count", seed_of_count),
    embedded("centred_by_the_data: rows less their exact mean", centred),
    embedded("both_signs: two rows for one, claimed as one", both_signs),
    embedded("whitened: columns are scaled by the largest record", whitened),
    embedded("offset_from_data: rounding starts at the least record", noise_of_the_least),
]
ANSWERS = [
    k.answer(
        "distance/exact_leaf: the query's own leaf is read from the records", T, exact_distance
    ),
    k.answer(
        "distance/levels_by_count: the number of levels is that of the exact count", D, grid_of_n
    ),
    k.answer("distance/warns_of_clamping: it tells that records lie outside", H, warned),
    k.answer("interval_count/empty_is_zero: an empty interval is exactly zero", D, interval_true),
    k.answer("interval_count/exact_divisor: a share of the exact count", D, exact_divisor),
    k.answer("interval_count/spread_without_noise: an error bar from the records", D, rounded_data),
    k.answer(
        "quantiles/median_of_data: a place inside the cell is the records'", D, median_of_data
    ),
    k.answer("quantiles/largest_of_data: an end is the largest record", D, largest_of_data),
    k.answer("quantiles/rank_of_n: the rank is a share of the exact count", D, rank_of_n),
    k.answer("totals/exact_divisor: means over the exact count", M, exact_divisor),
    k.answer("totals/range_of_data: a mean is cut at the records' range", M, sum_in_range),
    k.answer("totals/spread_without_noise: an error bar from the records", M, rounded_data),
    k.answer(
        "nearest_class/ties_by_data: near ties are settled by the records", M, nearest_of_data
    ),
    k.answer(
        "nearest_class/small_classes_dropped: classes are left out by the exact count",
        M,
        means_if_enough,
    ),
    k.answer("nearest_class/exact_divisor: means over the exact count", M, exact_divisor),
]

TWINS = [*THRESHOLDS, *TREES, *COUNTS, *MOMENTS, *SLICES, *EMBEDDINGS, *ANSWERS]
CONTROLS = (
    [
        control(f"{key}/sound_{family.split('_')[1]}", k.release(key, family=family))  # type: ignore[misc]
        for key in (H, T, D, M, S)
        for family in ("discrete_laplace", GAUSSIAN)
    ]
    + [
        control(f"{D}/sound_group", k.release(D, family=GAUSSIAN), d_in=2),
        control(f"{E}/sound", row_map(REAL)),
        control("distance/sound", k.told(T, lambda noisy, points: [*noisy[:3]])),
        control("interval_count/sound", k.told(D, lambda noisy, points: [noisy[3] + noisy[4]])),
        control("quantiles/sound", k.told(D, lambda noisy, points: [noisy[1] - noisy[2]])),
        control("totals/sound", k.told(M, lambda noisy, points: [noisy[0], noisy[2]])),
        control("nearest_class/sound", k.told(M, lambda noisy, points: [float(noisy[0] > 0)])),
    ]
)
