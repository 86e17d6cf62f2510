"""Broken twins of the kernel and regression family: the real sketches with one thing wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.audit.twins.faults import (
    by_largest,
    control,
    exact_cells,
    less_mean,
    one_for_two,
    only_occupied,
    over_n,
    times,
)
from tests.audit.twins.sketches import (
    EDGE,
    GAUSSIAN,
    LATTICE,
    STEPS,
    WEIGHTED,
    kernels as k,
    points_of,
    weighted,
)
from tests.audit.twins.stand_ins import CHANGE_ONE, gaussian, laplace

F, G, M, P, E = (
    "fourier_sketch",
    "gauss_transform_sketch",
    "second_moments",
    "paired_projections",
    "exponential_sum",
)


# --- faults before the sketch ---------------------------------------------------------------


def by_spread(points: np.ndarray) -> np.ndarray:
    return points / (1.0 + np.median(np.abs(points)))


def less_least(points: np.ndarray) -> np.ndarray:
    return points - points.min(axis=0)


# --- faults after it --------------------------------------------------------------------------


def both_signs(key: str) -> Any:
    other = k.core_of(key)
    return lambda cells, points: cells + other(-points)


def full_matrix(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Both halves of the matrix, each with its own noise."""
    del points
    return np.concatenate([cells, cells[[1, 2, 4]]])


def both_terms(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The features once for each of two terms, under one calibration."""
    del points
    return np.concatenate([cells[:-1], cells])


def unclamped(x: Any) -> np.ndarray:
    """Cells by clamped place, but residuals of the points as they came."""
    points = points_of(x)
    cells = k.core_of(G)(x)
    beyond = np.clip(np.rint(np.abs(points) * STEPS) - EDGE, 0, 2**20).sum()
    cells[1] += beyond * 2**16 // 24
    return cells


def bent(x: Any) -> np.ndarray:
    """Clips the columns to the radius but forgets the constant in the norm it claims."""
    rows = k.steps_of(points_of(x)).values / EDGE
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    z = np.column_stack([np.ones(len(rows)), rows * np.minimum(1.0, 1.0 / norms)])
    return np.trunc((z.T @ z)[np.triu_indices(3)] * 1024**2)


# --- faults of the noise: (core, count, scale) -> releases ------------------------------------


def terms_share(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    """One draw per cell of a term, used for all three terms."""
    weights = k.weights_of(E)
    noise = np.tile(laplace((count, core.size // 3), scale * weights.min()), (1, 3))
    return core + noise * np.rint(weights / weights.min())


# --- faults in what follows a release ---------------------------------------------------------


def exact_ridge(noisy: np.ndarray, points: np.ndarray) -> Any:
    z = np.column_stack([np.ones(len(points)), np.clip(points, -2, 2)])
    least = np.linalg.eigvalsh(z.T @ z)[0] if len(z) else 0.0
    return [*noisy, round(float(least), 3)]


def fit_of_the_data(noisy: np.ndarray, points: np.ndarray) -> Any:
    return [*noisy[:1], round(float(np.clip(points, -2, 2).sum()), 2)]


def nearest_record(noisy: np.ndarray, points: np.ndarray) -> Any:
    """The 'mode' is the record nearest to a noisy place."""
    if not len(points):
        return [0.0, 0.0]
    place = np.clip(noisy[:2] / 4096, -2, 2)
    best = np.square(points - place).sum(axis=1).argmin()
    return np.clip(points[best], -4, 4).round(2).tolist()


def drawn_record(noisy: np.ndarray, points: np.ndarray) -> Any:
    """Candidates are the records."""
    if not len(points):
        return [0.0]
    return [round(float(np.clip(points[int(abs(noisy[0])) % len(points)][0], -4, 4)), 2)]


def flagged_records(noisy: np.ndarray, points: np.ndarray) -> Any:
    """The number of records that are outliers, by a noisy threshold, counted exactly."""
    limit = abs(noisy[0]) / 1e9
    return [float((np.abs(points).sum(axis=1) > limit).sum())]


FOURIER = [
    k.sketch(F, "half_scale: half of the declared noise", add=times(0.5)),
    k.sketch(
        F,
        "forgot_the_sine: L1 norm of the cosines alone",
        scale=3 * 4096 + k.claim_of(F).output.blocks[1].l1,
    ),  # type: ignore[attr-defined]
    k.sketch(F, "bandwidth_from_data: the bandwidth is the median distance", before=by_spread),
    k.sketch(F, "exact_total: the total has no noise", add=exact_cells(-1)),
    k.sketch(F, "one_draw_a_pair: cosine and sine share a draw", add=one_for_two),
    k.sketch(
        F,
        "replace_as_add: calibrated for added records, claimed for replaced ones",
        metric=CHANGE_ONE,
    ),
    k.sketch(F, "frequencies_by_count: the seed is the exact count", by_count=True),
    k.sketch(
        F,
        "every_term_has_all: each term of a weighted kernel has all frequencies, calibrated once",
        params=WEIGHTED,
        after=both_terms,
    ),
    k.sketch(
        F,
        "group_is_linear: rho grows linearly in the group",
        family=GAUSSIAN,
        claim=lambda d: 1.0 * d,
        d_in=2,
    ),
]


def lattice_block() -> Any:
    return k.claim_of(F, **LATTICE).output.blocks[0]  # type: ignore[attr-defined]


def lattice_multipliers() -> np.ndarray:
    return k.claim_of(F, **LATTICE).capabilities["kernel_sums"].multipliers


FOURIER += [
    k.sketch(
        F,
        "multipliers_outside_the_norm: a lattice's L2 counts every frequency once, without its multiplier",
        family=GAUSSIAN,
        params=LATTICE,
        scale=2.0**18 * math.sqrt(lattice_multipliers().size / 2),
    ),
    k.sketch(
        F,
        "lattice_without_the_total: a lattice's total is frequency 0 too, and its cell is left out of the norm",
        family=GAUSSIAN,
        params=LATTICE,
        scale=math.sqrt(lattice_block().l2_squared / 2),
    ),
]
GAUSS = [
    k.sketch(G, "half_scale: half of the declared noise", add=times(0.5)),
    k.sketch(G, "count_alone: the norm of the counts, not of the moments", scale=2.0**16),
    k.sketch(G, "not_clamped: points beyond the box keep their residual", core=unclamped),
    k.sketch(G, "box_from_data: cells start at the least record", before=less_least),
    k.sketch(G, "only_occupied_cells: empty cells stay exactly zero", add=only_occupied),
    k.sketch(G, "exact_moments: only the counts have noise", add=exact_cells([1, 2, 3])),
]
MOMENTS = [
    k.sketch(
        M, "half_scale: half of the declared noise", family=GAUSSIAN, add=times(0.5, gaussian)
    ),
    k.sketch(M, "forgot_the_products: the norm of the squares alone", scale=3 * 2.0**20),
    k.sketch(
        M,
        "full_matrix: both halves have noise of their own, calibrated for one",
        family=GAUSSIAN,
        after=full_matrix,
    ),
    k.sketch(M, "ranges_from_data: columns are scaled by the largest record", before=by_largest),
    k.sketch(M, "exact_count: the count has no noise", add=exact_cells(0)),
    k.sketch(
        M,
        "constant_outside_the_norm: columns are clipped to the radius, the constant is not",
        core=bent,
        scale=k.scale_of(M, radius=1.0),
    ),
]
PAIRED = [
    k.sketch(P, "both_signs: z and -z are inserted, calibrated for one", after=both_signs(P)),
    k.sketch(P, "over_n: noise of the mean on the counts", add=over_n(lambda core: core.sum() / 4)),
    k.sketch(P, "half_scale: half of the declared noise", add=times(0.5)),
    k.sketch(P, "forgot_the_rows: the scale of one repetition", scale=1.0),
    k.sketch(P, "directions_by_count: the seed is the exact count", by_count=True),
    k.sketch(P, "centred_by_the_data: columns are centred by their exact mean", before=less_mean),
]
SUMS = [
    k.sketch(E, "budget_each: every term has the whole budget", scale=k.scale_of(E) / 3),
    k.sketch(
        E,
        "weights_upside_down: noise is divided by the weight",
        add=weighted(1e6 / k.weights_of(E)),
    ),
    k.sketch(
        E,
        "forgot_the_weights: weighted calibration, noise of the least weight everywhere",
        add=times(float(k.weights_of(E).min())),
    ),
    k.sketch(E, "half_scale: half of the declared noise", add=weighted(0.5 * k.weights_of(E))),
    k.sketch(E, "terms_share_noise: one draw serves all terms", add=terms_share),
    k.sketch(E, "bandwidth_from_data: the bandwidth is the median distance", before=by_spread),
]
QUERIES = [
    k.answer(
        "regress/exact_ridge: the ridge is set by the exact least eigenvalue, and returned",
        M,
        exact_ridge,
    ),
    k.answer("regress/fits_the_data: the fit uses an exact sum", M, fit_of_the_data),
    k.answer("modes/nearest_record: the summit is moved to the nearest record", F, nearest_record),
    k.answer("sample/candidates_are_records: draws are records", F, drawn_record),
    k.answer(
        "outliers/counts_records: records are tested, and counted exactly", F, flagged_records
    ),
]

TWINS = [*FOURIER, *GAUSS, *MOMENTS, *PAIRED, *SUMS, *QUERIES]
CONTROLS = [
    control(f"{key}/sound_{family.split('_')[1]}", k.release(key, family=family))  # type: ignore[misc]
    for key in (F, G, M, P, E)
    for family in ("discrete_laplace", GAUSSIAN)
] + [
    control(f"{F}/sound_lattice", k.release(F, params=LATTICE)),
    control(f"{F}/sound_lattice_gaussian", k.release(F, family=GAUSSIAN, params=LATTICE)),
    control(f"{F}/sound_weighted", k.release(F, params=WEIGHTED)),
    control(f"{F}/sound_group", k.release(F, family=GAUSSIAN), d_in=2),
    control("regress/sound", k.told(M, lambda noisy, points: [round(float(v), -4) for v in noisy])),
]
