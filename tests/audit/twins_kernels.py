"""Broken twins of the kernel and regression family: the real sketches with one thing wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.audit import kernels as k
from tests.audit.faults import (
    by_largest,
    control,
    exact_cells,
    less_mean,
    one_for_two,
    only_occupied,
    over_n,
    times,
    twin,
)
from tests.audit.stand_ins import (
    CHANGE_ONE,
    POINTS,
    PURE,
    SYMMETRIC,
    gaussian,
    laplace,
    measurement,
)

GAUSSIAN = "discrete_gaussian"
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


def heavier(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The features of a term of weight 3, multiplied on the private side."""
    del points
    return np.concatenate([cells[:4] * 3, cells[4:]])


def both_terms(cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The features once for each of two terms, under one calibration."""
    del points
    return np.concatenate([cells[:-1], cells])


def unclamped(x: Any) -> np.ndarray:
    """Cells by clamped place, but residuals of the points as they came."""
    points = k.points_of(x)
    cells = k.core_of(G)(x)
    beyond = np.clip(np.rint(np.abs(points) * k.STEPS) - k.EDGE, 0, 2**20).sum()
    cells[1] += beyond * 2**16 // 24
    return cells


def bent(x: Any) -> np.ndarray:
    """Clips the columns to the radius but forgets the constant in the norm it claims."""
    rows = k.steps_of(k.points_of(x)).values / k.EDGE
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    z = np.column_stack([np.ones(len(rows)), rows * np.minimum(1.0, 1.0 / norms)])
    return np.trunc((z.T @ z)[np.triu_indices(3)] * 1024**2)


# --- faults of the noise: (core, count, scale) -> releases ------------------------------------


def by_total(key: str) -> Any:
    weight = k.claim_of(key).output.blocks[-1].l1  # type: ignore[attr-defined]
    return over_n(lambda core: core[-1] / weight)


def terms_share(core: np.ndarray, count: int, scale: float) -> np.ndarray:
    """One draw per cell of a term, used for all three terms."""
    weights = k.weights_of(E)
    noise = np.tile(laplace((count, core.size // 3), scale * weights.min()), (1, 3))
    return core + noise * np.rint(weights / weights.min())


# --- faults in what follows a release ---------------------------------------------------------


def after(
    key: str, leak: Callable[[np.ndarray, Any], Any], family: str = "discrete_laplace"
) -> Any:
    """A sound release, and one thing computed from the records next to it."""
    core, scale = k.core_of(key), k.scale_of(key, family)
    draw = laplace if family == "discrete_laplace" else gaussian

    def many(x: Any, count: int) -> list[Any]:
        clean = core(x)
        noisy = clean + draw((count, clean.size), scale)
        return [leak(row, k.points_of(x)) for row in noisy]

    made = measurement(POINTS, SYMMETRIC, PURE, many, lambda d: 1.0 * d)
    return made, {"sample": many}


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


def starts_found(noisy: np.ndarray, points: np.ndarray) -> Any:
    """How many records the climb started from."""
    return [round(float(noisy[0] / 4096), 1), float(len(points))]


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
    twin(f"{F}/half_scale", "half of the declared noise", lambda: k.release(F, add=times(0.5))),
    twin(
        f"{F}/forgot_the_sine",
        "L1 norm of the cosines alone",
        lambda: k.release(F, scale=3 * 4096 + k.claim_of(F).output.blocks[1].l1),
    ),  # type: ignore[attr-defined]
    twin(
        f"{F}/l2_scale_for_laplace",
        "the L2 norm where L1 is due",
        lambda: k.release(F, scale=math.sqrt(2) * k.scale_of(F, GAUSSIAN)),
    ),
    twin(
        f"{F}/one_frequency_s_scale",
        "the norm of one frequency",
        lambda: k.release(F, family=GAUSSIAN, scale=4096 / math.sqrt(2)),
    ),
    twin(
        f"{F}/bandwidth_from_data",
        "the bandwidth is the median distance",
        lambda: k.release(F, before=by_spread),
    ),
    twin(
        f"{F}/centred_by_the_data",
        "phases are taken from the exact mean",
        lambda: k.release(F, before=less_mean),
    ),
    twin(
        f"{F}/noise_over_n", "noise of the mean on the sums", lambda: k.release(F, add=by_total(F))
    ),
    twin(f"{F}/exact_total", "the total has no noise", lambda: k.release(F, add=exact_cells(-1))),
    twin(
        f"{F}/exact_sines",
        "only cosines have noise",
        lambda: k.release(F, add=exact_cells([1, 3, 5])),
    ),
    twin(
        f"{F}/one_draw_a_pair",
        "cosine and sine share a draw",
        lambda: k.release(F, add=one_for_two),
    ),
    twin(
        f"{F}/replace_as_add",
        "calibrated for added records, claimed for replaced ones",
        lambda: k.release(F, metric=CHANGE_ONE),
    ),
    twin(
        f"{F}/frequencies_by_count",
        "the seed is the exact count",
        lambda: k.release(F, by_count=True),
    ),
    twin(
        f"{F}/weights_in_the_cells",
        "a weighted kernel's factors multiply cells before the noise",
        lambda: k.release(F, params=k.WEIGHTED, after=heavier),
    ),
    twin(
        f"{F}/every_term_has_all",
        "each term of a weighted kernel has all frequencies, calibrated once",
        lambda: k.release(F, params=k.WEIGHTED, after=both_terms),
    ),
    twin(
        f"{F}/group_is_linear",
        "rho grows linearly in the group",
        lambda: k.release(F, family=GAUSSIAN, claim=lambda d: 1.0 * d),
        d_in=2,
    ),
]


def lattice_block() -> Any:
    return k.claim_of(F, **k.LATTICE).output.blocks[0]  # type: ignore[attr-defined]


def lattice_multipliers() -> np.ndarray:
    return k.claim_of(F, **k.LATTICE).capabilities["kernel_sums"].multipliers


FOURIER += [
    twin(
        f"{F}/multipliers_outside_the_norm",
        "a lattice's L2 counts every frequency once, without its multiplier",
        lambda: k.release(
            F,
            family=GAUSSIAN,
            params=k.LATTICE,
            scale=2.0**18 * math.sqrt(lattice_multipliers().size / 2),
        ),
    ),
    twin(
        f"{F}/lattice_without_the_total",
        "a lattice's total is frequency 0 too, and its cell is left out of the norm",
        lambda: k.release(
            F, family=GAUSSIAN, params=k.LATTICE, scale=math.sqrt(lattice_block().l2_squared / 2)
        ),
    ),
    twin(
        f"{F}/lattice_half_scale",
        "half of the declared noise on a lattice",
        lambda: k.release(F, params=k.LATTICE, add=times(0.5)),
    ),
    twin(
        f"{F}/lattice_from_the_mean",
        "a lattice's phases are taken from the exact mean",
        lambda: k.release(F, params=k.LATTICE, before=less_mean),
    ),
]
GAUSS = [
    twin(f"{G}/half_scale", "half of the declared noise", lambda: k.release(G, add=times(0.5))),
    twin(
        f"{G}/forgot_a_column",
        "the norm of one column",
        lambda: k.release(G, scale=k.scale_of(G, "discrete_laplace", k.LINE)),
    ),
    twin(
        f"{G}/count_alone",
        "the norm of the counts, not of the moments",
        lambda: k.release(G, scale=2.0**16),
    ),
    twin(
        f"{G}/l2_scale_for_laplace",
        "the L2 norm where L1 is due",
        lambda: k.release(G, scale=math.sqrt(2) * k.scale_of(G, GAUSSIAN)),
    ),
    twin(
        f"{G}/not_clamped",
        "points beyond the box keep their residual",
        lambda: k.release(G, core=unclamped),
    ),
    twin(
        f"{G}/box_from_data",
        "cells start at the least record",
        lambda: k.release(G, before=less_least),
    ),
    twin(
        f"{G}/only_occupied_cells",
        "empty cells stay exactly zero",
        lambda: k.release(G, add=only_occupied),
    ),
    twin(
        f"{G}/exact_moments",
        "only the counts have noise",
        lambda: k.release(G, add=exact_cells([1, 2, 3])),
    ),
    twin(
        f"{G}/noise_over_n", "noise of the mean on the sums", lambda: k.release(G, add=by_total(G))
    ),
]
MOMENTS = [
    twin(
        f"{M}/half_scale",
        "half of the declared noise",
        lambda: k.release(M, family=GAUSSIAN, add=times(0.5, gaussian)),
    ),
    twin(
        f"{M}/forgot_the_products",
        "the norm of the squares alone",
        lambda: k.release(M, scale=3 * 2.0**20),
    ),
    twin(
        f"{M}/full_matrix",
        "both halves have noise of their own, calibrated for one",
        lambda: k.release(M, family=GAUSSIAN, after=full_matrix),
    ),
    twin(
        f"{M}/ranges_from_data",
        "columns are scaled by the largest record",
        lambda: k.release(M, before=by_largest),
    ),
    twin(
        f"{M}/centred_by_the_data",
        "columns are centred by their exact mean",
        lambda: k.release(M, before=less_mean),
    ),
    twin(f"{M}/exact_count", "the count has no noise", lambda: k.release(M, add=exact_cells(0))),
    twin(
        f"{M}/radius_without_clipping",
        "calibrated for a radius, nothing clipped",
        lambda: k.release(M, scale=k.scale_of(M, "discrete_laplace", radius=1.0)),
    ),
    twin(
        f"{M}/constant_outside_the_norm",
        "columns are clipped to the radius, the constant is not",
        lambda: k.release(M, core=bent, scale=k.scale_of(M, "discrete_laplace", radius=1.0)),
    ),
]
PAIRED = [
    twin(
        f"{P}/both_signs",
        "z and -z are inserted, calibrated for one",
        lambda: k.release(P, after=both_signs(P)),
    ),
    twin(
        f"{P}/over_n",
        "noise of the mean on the counts",
        lambda: k.release(P, add=over_n(lambda core: core.sum() / 4)),
    ),
    twin(f"{P}/half_scale", "half of the declared noise", lambda: k.release(P, add=times(0.5))),
    twin(f"{P}/forgot_the_rows", "the scale of one repetition", lambda: k.release(P, scale=1.0)),
    twin(
        f"{P}/directions_by_count",
        "the seed is the exact count",
        lambda: k.release(P, by_count=True),
    ),
    twin(
        f"{P}/centred_by_the_data",
        "columns are centred by their exact mean",
        lambda: k.release(P, before=less_mean),
    ),
    twin(
        f"{P}/exact_row",
        "one repetition has no noise",
        lambda: k.release(P, add=exact_cells([0, 1, 2, 3])),
    ),
]
SUMS = [
    twin(
        f"{E}/budget_each",
        "every term has the whole budget",
        lambda: k.release(E, scale=k.scale_of(E, "discrete_laplace") / 3),
    ),
    twin(
        f"{E}/weights_upside_down",
        "noise is divided by the weight",
        lambda: k.release(E, add=k.weighted(1e6 / k.weights_of(E))),
    ),
    twin(
        f"{E}/forgot_the_weights",
        "weighted calibration, noise of the least weight everywhere",
        lambda: k.release(E, add=times(float(k.weights_of(E).min()))),
    ),
    twin(
        f"{E}/half_scale",
        "half of the declared noise",
        lambda: k.release(E, add=k.weighted(0.5 * k.weights_of(E))),
    ),
    twin(
        f"{E}/terms_share_noise", "one draw serves all terms", lambda: k.release(E, add=terms_share)
    ),
    twin(
        f"{E}/noise_over_n", "noise of the mean on the sums", lambda: k.release(E, add=by_total(E))
    ),
    twin(
        f"{E}/bandwidth_from_data",
        "the bandwidth is the median distance",
        lambda: k.release(E, before=by_spread),
    ),
]
QUERIES = [
    twin(
        "regress/exact_ridge",
        "the ridge is set by the exact least eigenvalue, and returned",
        lambda: after(M, exact_ridge),
    ),
    twin("regress/fits_the_data", "the fit uses an exact sum", lambda: after(M, fit_of_the_data)),
    twin(
        "modes/nearest_record",
        "the summit is moved to the nearest record",
        lambda: after(F, nearest_record),
    ),
    twin(
        "modes/starts_at_records",
        "as many starts as records, and their number is told",
        lambda: after(F, starts_found),
    ),
    twin("sample/candidates_are_records", "draws are records", lambda: after(F, drawn_record)),
    twin(
        "outliers/counts_records",
        "records are tested, and counted exactly",
        lambda: after(F, flagged_records),
    ),
]

TWINS = [*FOURIER, *GAUSS, *MOMENTS, *PAIRED, *SUMS, *QUERIES]
CONTROLS = [
    control(
        f"{key}/sound_{family.split('_')[1]}",
        lambda key=key, family=family: k.release(key, family=family),
    )  # type: ignore[misc]
    for key in (F, G, M, P, E)
    for family in ("discrete_laplace", GAUSSIAN)
] + [
    control(f"{F}/sound_lattice", lambda: k.release(F, params=k.LATTICE)),
    control(f"{F}/sound_lattice_gaussian", lambda: k.release(F, family=GAUSSIAN, params=k.LATTICE)),
    control(f"{F}/sound_weighted", lambda: k.release(F, params=k.WEIGHTED)),
    control(f"{F}/sound_group", lambda: k.release(F, family=GAUSSIAN), d_in=2),
    control(
        "regress/sound",
        lambda: after(M, lambda noisy, points: [round(float(v), -4) for v in noisy]),
    ),
]
