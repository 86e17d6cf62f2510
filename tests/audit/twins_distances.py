"""Broken twins of the distance family: the real sketches with one thing wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.audit import distances as k
from tests.audit.faults import (
    control,
    exact_cells,
    less_mean,
    one_for_two,
    only_occupied,
    over_n,
    times,
    twin,
)
from tests.audit.stand_ins import CHANGE_ONE, gaussian, laplace

GAUSSIAN = "discrete_gaussian"
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
    steps = k.steps_of(points).values.astype(int) + k.EDGE
    finer = [np.bincount(column, minlength=2 * k.EDGE) for column in steps.T]
    return np.concatenate([cells, *finer])


def not_clipped(x: Any) -> np.ndarray:
    """Squares of the rows as they came."""
    points = k.points_of(x)
    cells = k.core_of(M)(x)
    cells[-1] += np.minimum(np.square(points * k.STEPS).sum(axis=1), 2.0**40).sum()
    return cells


def far_positions(x: Any) -> np.ndarray:
    """Nodes by the clamped place, moments by the place as it came."""
    points = k.points_of(x)
    cells = k.core_of(T)(x)
    beyond = np.maximum(np.abs(points[:, 0]) * k.STEPS - k.EDGE, 0.0)
    cells[6] += np.minimum(beyond, 2.0**40).sum()
    return cells


def box_for_ball(x: Any) -> np.ndarray:
    """Clipped to the box alone, calibrated for the ball."""
    points = np.clip(k.points_of(x) * k.STEPS, -k.EDGE, k.EDGE - 1).round()
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


def shares_of_the_data(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Each threshold is centred at the share of the records that are above it."""
    reader, count = reader_of_slices(), max(len(points), 1)
    u1, fine = reader.multipliers[1], reader.slices.fine
    above = cells[:-2].reshape(4, 6) / u1 + len(points) * reader.slices.shares
    own = np.rint(above / count)
    cells[:-2] = (u1 * (above - len(points) * own)).ravel()
    # |phi|^2 is sum of f^2 [s > t] - 2 f [s > t] p + p^2: with the data's own p.
    squares = (fine * above - 2 * above * own + len(points) * own**2).sum()
    cells[-1] = squares - reader.middle * len(points)
    return cells


def rows_as_they_came(x: Any) -> np.ndarray:
    """No row is shortened: levels are clipped, after all."""
    reader, points = reader_of_slices(), k.points_of(x)
    slices, (u0, u1) = reader.slices, reader.multipliers
    found = np.floor(slices.projection.phases(np.clip(points * k.STEPS, -1e6, 1e6)))
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

REAL = k.embedding()
MATRIX = np.random.default_rng(1).standard_normal((2, 4))


def clip_at_quantile(points: np.ndarray) -> np.ndarray:
    """Projections are clipped at the data's own 90 % quantile."""
    found = points @ MATRIX
    return np.clip(found, None, np.quantile(found, 0.9)) if len(points) else found


def seed_of_count(points: np.ndarray) -> np.ndarray:
    return k.embedding(seed=1 + len(points))(points)


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


def last_count(core: np.ndarray) -> float:
    return core[-1] / 3


THRESHOLDS = [
    twin(f"{H}/half_scale", "half of the declared noise", lambda: k.release(H, add=times(0.5))),
    twin(
        f"{H}/l2_scale_for_laplace",
        "the L2 norm where L1 is due",
        lambda: k.release(H, scale=math.sqrt(2) * k.scale_of(H, GAUSSIAN)),
    ),
    twin(
        f"{H}/price_of_one_threshold",
        "one threshold's sensitivity for all of them",
        lambda: k.release(H, family=GAUSSIAN, scale=1 / math.sqrt(2)),
    ),
    twin(
        f"{H}/signs_as_half",
        "features are +1 and -1, calibrated for +1/2 and -1/2",
        lambda: k.release(H, family=GAUSSIAN, scale=k.scale_of(H, GAUSSIAN) / 2),
    ),
    twin(f"{H}/forgot_a_column", "the norm of one column", lambda: k.release(H, scale=8.0)),
    twin(
        f"{H}/box_from_data",
        "thresholds between the least and the largest record",
        lambda: k.release(H, before=by_range),
    ),
    twin(
        f"{H}/thresholds_at_quantiles",
        "thresholds at the exact ranks",
        lambda: k.release(H, before=sorted_columns),
    ),
    twin(f"{H}/exact_total", "the count has no noise", lambda: k.release(H, add=exact_cells(-1))),
    twin(
        f"{H}/noise_over_n",
        "noise of the mean on the sums",
        lambda: k.release(H, add=over_n(last_count)),
    ),
    twin(
        f"{H}/replace_as_add",
        "calibrated for added records, claimed for replaced ones",
        lambda: k.release(H, metric=CHANGE_ONE),
    ),
]
TREES = [
    twin(f"{T}/half_scale", "half of the declared noise", lambda: k.release(T, add=times(0.5))),
    twin(
        f"{T}/counts_alone",
        "the norm of the counts, not of the moments",
        lambda: k.release(T, scale=0.5 * k.scale_of(T)),
    ),
    twin(
        f"{T}/not_clamped",
        "moments of positions beyond the box",
        lambda: k.release(T, core=far_positions),
    ),
    twin(
        f"{T}/each_level_the_whole_budget",
        "the norm of one level",
        lambda: k.release(T, scale=k.scale_of(T, levels=1)),
    ),
    twin(
        f"{T}/centred_by_the_data",
        "moments about the exact mean",
        lambda: k.release(T, before=less_mean),
    ),
    twin(
        f"{T}/exact_moments",
        "only the counts have noise",
        lambda: k.release(T, add=exact_cells(slice(6, 12))),
    ),
    twin(
        f"{T}/only_occupied",
        "empty nodes stay exactly zero",
        lambda: k.release(T, add=only_occupied),
    ),
    twin(
        f"{T}/l2_scale_for_laplace",
        "the L2 norm where L1 is due",
        lambda: k.release(T, scale=math.sqrt(2) * k.scale_of(T, GAUSSIAN)),
    ),
]
COUNTS = [
    twin(f"{D}/half_scale", "half of the declared noise", lambda: k.release(D, add=times(0.5))),
    twin(f"{D}/forgot_the_levels", "the norm of one level", lambda: k.release(D, scale=2.0)),
    twin(f"{D}/forgot_the_root", "H levels in place of H + 1", lambda: k.release(D, scale=6.0)),
    twin(
        f"{D}/one_more_level",
        "a finer level that the scale does not know",
        lambda: k.release(D, after=one_more_level),
    ),
    twin(
        f"{D}/both_sides",
        "records on a boundary count on both sides",
        lambda: k.release(D, after=own_leaf_too),
    ),
    twin(
        f"{D}/noise_on_leaves_alone",
        "inner nodes reuse the leaves' noise",
        lambda: k.release(D, add=leaves_alone),
    ),
    twin(
        f"{D}/grid_from_data",
        "leaves between the least and the largest record",
        lambda: k.release(D, before=by_range),
    ),
    twin(
        f"{D}/one_draw_for_siblings", "siblings share a draw", lambda: k.release(D, add=one_for_two)
    ),
    twin(
        f"{D}/group_is_linear",
        "rho grows linearly in the group",
        lambda: k.release(D, family=GAUSSIAN, claim=lambda d: 1.0 * d),
        d_in=2,
    ),
]
MOMENTS = [
    twin(
        f"{M}/half_scale",
        "half of the declared noise",
        lambda: k.release(M, family=GAUSSIAN, add=times(0.5, gaussian)),
    ),
    twin(
        f"{M}/square_not_clipped",
        "squared norms of the rows as they came",
        lambda: k.release(M, core=not_clipped),
    ),
    twin(
        f"{M}/box_for_ball",
        "rows are clipped to the box, calibrated for the ball",
        lambda: k.release(M, core=box_for_ball, scale=0.6 * k.scale_of(M)),
    ),
    twin(
        f"{M}/l2_scale_for_laplace",
        "the L2 norm where L1 is due",
        lambda: k.release(M, scale=math.sqrt(2) * k.scale_of(M, GAUSSIAN)),
    ),
    twin(
        f"{M}/forgot_the_squares",
        "calibrated without the squared norms",
        lambda: k.release(M, scale=0.5 * k.scale_of(M)),
    ),
    twin(f"{M}/exact_count", "the count has no noise", lambda: k.release(M, add=exact_cells(2))),
    twin(
        f"{M}/centred_by_the_data",
        "rows less their exact mean",
        lambda: k.release(M, before=less_mean),
    ),
    twin(
        f"{M}/exact_mean_too",
        "one cell is divided by the exact count",
        lambda: k.release(M, after=means),
    ),
]
SLICES = [
    twin(
        f"{S}/forgot_the_directions",
        "the norm of one direction for all of them",
        lambda: k.release(S, family=GAUSSIAN, scale=of_one_direction()),
    ),
    twin(
        f"{S}/squares_not_centred",
        "squared lengths as they are, calibrated for their half range",
        lambda: k.release(S, family=GAUSSIAN, after=whole_squares),
    ),
    twin(
        f"{S}/rows_as_they_came",
        "levels are clipped, and rows are not",
        lambda: k.release(S, family=GAUSSIAN, core=rows_as_they_came),
    ),
    twin(
        f"{S}/principal_axes",
        "directions are the records' principal axes",
        lambda: k.release(S, family=GAUSSIAN, before=principal_axes),
    ),
    twin(
        f"{S}/shares_of_the_data",
        "thresholds are centred at the records' own shares",
        lambda: k.release(S, family=GAUSSIAN, after=shares_of_the_data),
    ),
    twin(f"{S}/exact_count", "the count has no noise", lambda: k.release(S, add=exact_cells(-2))),
    twin(
        f"{S}/l2_scale_for_laplace",
        "the L2 norm where L1 is due",
        lambda: k.release(S, scale=math.sqrt(2) * k.scale_of(S, GAUSSIAN)),
    ),
    twin(
        f"{S}/replace_as_add",
        "calibrated for added records, claimed for replaced ones",
        lambda: k.release(S, family=GAUSSIAN, metric=CHANGE_ONE),
    ),
]
EMBEDDINGS = [
    twin(
        f"{E}/clip_from_data", "clipped at the data's quantile", lambda: k.row_map(clip_at_quantile)
    ),
    twin(
        f"{E}/directions_by_count", "the seed is the exact count", lambda: k.row_map(seed_of_count)
    ),
    twin(f"{E}/centred_by_the_data", "rows less their exact mean", lambda: k.row_map(centred)),
    twin(f"{E}/both_signs", "two rows for one, claimed as one", lambda: k.row_map(both_signs)),
    twin(f"{E}/whitened", "columns are scaled by the largest record", lambda: k.row_map(whitened)),
    twin(
        f"{E}/offset_from_data",
        "rounding starts at the least record",
        lambda: k.row_map(noise_of_the_least),
    ),
]
ANSWERS = [
    twin(
        "distance/exact_leaf",
        "the query's own leaf is read from the records",
        lambda: k.told(T, exact_distance),
    ),
    twin("distance/exact_divisor", "a mean over the exact count", lambda: k.told(H, exact_divisor)),
    twin(
        "distance/levels_by_count",
        "the number of levels is that of the exact count",
        lambda: k.told(D, grid_of_n),
    ),
    twin("distance/empty_is_zero", "no records, no noise", lambda: k.told(H, empty_is_zero)),
    twin(
        "distance/warns_of_clamping", "it tells that records lie outside", lambda: k.told(H, warned)
    ),
    twin(
        "distance/spread_without_noise",
        "an error bar from the records",
        lambda: k.told(T, rounded_data),
    ),
    twin(
        "interval_count/empty_is_zero",
        "an empty interval is exactly zero",
        lambda: k.told(D, interval_true),
    ),
    twin(
        "interval_count/exact_divisor",
        "a share of the exact count",
        lambda: k.told(D, exact_divisor),
    ),
    twin(
        "interval_count/levels_by_count",
        "the number of nodes is that of the exact count",
        lambda: k.told(T, grid_of_n),
    ),
    twin(
        "interval_count/warns_of_clamping",
        "it tells that records lie outside",
        lambda: k.told(D, warned),
    ),
    twin("interval_count/no_records", "no records, no noise", lambda: k.told(D, empty_is_zero)),
    twin(
        "interval_count/spread_without_noise",
        "an error bar from the records",
        lambda: k.told(D, rounded_data),
    ),
    twin(
        "nearest_class/ties_by_data",
        "near ties are settled by the records",
        lambda: k.told(M, nearest_of_data),
    ),
    twin(
        "nearest_class/small_classes_dropped",
        "classes are left out by the exact count",
        lambda: k.told(M, means_if_enough),
    ),
    twin(
        "nearest_class/spread_without_noise",
        "the class's spread as a confidence",
        lambda: k.told(M, rounded_data),
    ),
    twin(
        "nearest_class/exact_divisor",
        "means over the exact count",
        lambda: k.told(M, exact_divisor),
    ),
    twin(
        "nearest_class/empty_is_zero",
        "an empty class has mean zero, exactly",
        lambda: k.told(M, empty_is_zero),
    ),
    twin(
        "nearest_class/warns_of_clamping",
        "it tells that records lie outside",
        lambda: k.told(M, warned),
    ),
]

TWINS = [*THRESHOLDS, *TREES, *COUNTS, *MOMENTS, *SLICES, *EMBEDDINGS, *ANSWERS]
CONTROLS = (
    [
        control(
            f"{key}/sound_{family.split('_')[1]}",
            lambda key=key, family=family: k.release(key, family=family),
        )  # type: ignore[misc]
        for key in (H, T, D, M, S)
        for family in ("discrete_laplace", GAUSSIAN)
    ]
    + [
        control(f"{D}/sound_group", lambda: k.release(D, family=GAUSSIAN), d_in=2),
        control(f"{E}/sound", lambda: k.row_map(REAL)),
        control("distance/sound", lambda: k.told(T, lambda noisy, points: [*noisy[:3]])),
        control(
            "interval_count/sound", lambda: k.told(D, lambda noisy, points: [noisy[3] + noisy[4]])
        ),
        control(
            "nearest_class/sound", lambda: k.told(M, lambda noisy, points: [float(noisy[0] > 0)])
        ),
    ]
)
