"""Broken twins of the maps of rows: the real claim, with a function that looks beyond the row."""

from __future__ import annotations

from typing import Any

import numpy as np

from opendp_sim.core.apply_stable import whole_function
from tests.audit.twins.entries import Control
from tests.audit.twins.row_maps import (
    UNIT,
    Broken,
    claim_of,
    control,
    imitation,
    longest,
    on_values,
    too_long,
    twin,
)

# --- quantize ---------------------------------------------------------------------------------


def steps(values: np.ndarray, unit: Any = UNIT) -> np.ndarray:
    return np.clip(np.rint(values / unit), -4, 4) + 0.0


def own_unit(values: np.ndarray) -> np.ndarray:
    return steps(values, max(float(np.ptp(values)), 1e-3) / 8)


def diffused(values: np.ndarray) -> np.ndarray:
    """What rounding took from a row is given to the next one."""
    ends = np.rint(np.cumsum(values, axis=0) / UNIT)
    return np.diff(ends, axis=0, prepend=np.zeros((1, values.shape[1])))


def dithered(values: np.ndarray) -> np.ndarray:
    return steps(values + np.random.default_rng(5).uniform(-UNIT / 2, UNIT / 2, values.shape))


QUANTIZE: list[Broken] = [
    Broken("unit_of_the_data: the unit is the data's own range over 2**bits", own_unit),
    Broken(
        "clamped_to_own_maximum: values are clamped to the data's 90th percentile",
        lambda v: steps(np.minimum(v, np.quantile(v, 0.9, axis=0))),
    ),
    Broken(
        "centred: the mean of the data is taken off before rounding",
        lambda v: steps(v - v.mean(axis=0)),
    ),
    Broken("error_diffused: the rounding error of a row is carried to the next", diffused),
    Broken("dither_by_position: the dither belongs to the row's place, not to the row", dithered),
    Broken(
        "shared_exponent: one large value coarsens the grid of every row",
        lambda v: 2 * steps(v, 2 * UNIT) if np.abs(v).max() > 0.9 else steps(v),
    ),
]


# --- rescale ----------------------------------------------------------------------------------


LOW, RANGE = np.array([0.0, -2.0, 10.0]), np.array([4.0, 4.0, 0.5])


def rescaled(values: np.ndarray, centre: Any = LOW + RANGE / 2, scale: Any = RANGE) -> np.ndarray:
    return (values - centre) / scale + 0.0


def spread(values: np.ndarray) -> np.ndarray:
    """The root mean square of each column, at least a hundredth of its range."""
    return np.maximum(np.sqrt(np.square(values - LOW).mean(axis=0)), RANGE / 100)


def whitened(values: np.ndarray) -> np.ndarray:
    """Rows turned so that their second moments are those of the identity."""
    found = rescaled(values)
    _, vectors = np.linalg.eigh(found.T @ found + 1e-6 * np.eye(3))
    return np.clip(found @ vectors, -0.5, 0.5)


def first_row(values: np.ndarray) -> np.ndarray:
    return np.clip(rescaled(values, values[0]), -0.5, 0.5)


RESCALE: list[Broken] = [
    Broken(
        "standard_deviation: columns are divided by their own spread in the data",
        lambda v: np.clip(rescaled(v, scale=spread(v)), -0.5, 0.5),
    ),
    Broken(
        "own_range: the range is that of the data, where it is less than declared",
        lambda v: np.clip(
            rescaled(v, v.min(axis=0), np.maximum(np.ptp(v, axis=0), 1e-3)), -0.5, 0.5
        ),
    ),
    Broken(
        "centred_on_mean: the mean of the data is taken from each row",
        lambda v: np.clip(rescaled(v, v.mean(axis=0)), -0.5, 0.5),
    ),
    Broken("centred_on_first_row: distances are kept, so any row may be the origin", first_row),
    Broken("whitened: rows are turned by the eigenvectors of their own moments", whitened),
    Broken(
        "unit_of_small_sets: sets of fewer than three rows keep their own units",
        lambda v: rescaled(v) if len(v) > 2 else np.clip(v, -0.5, 0.5),
    ),
]


# --- clip_rows --------------------------------------------------------------------------------


def shrunk(values: np.ndarray, norms: np.ndarray, bound: Any = 0.5) -> np.ndarray:
    return values * np.minimum(1.0, bound / np.maximum(norms, 1e-9))[:, None] + 0.0


def norms_of(values: np.ndarray) -> np.ndarray:
    return np.linalg.norm(values, axis=1)


def until_spent(values: np.ndarray) -> np.ndarray:
    """Rows are left alone until their norms use up what n rows may have together."""
    spent = np.cumsum(norms_of(values))
    return np.where((spent <= 0.5 * len(values))[:, None], values, shrunk(values, norms_of(values)))


def single(values: np.ndarray) -> np.ndarray:
    short = values.astype(np.float32)
    return np.sqrt(np.square(short).sum(axis=1)).astype(float)


CLIP: list[Broken] = [
    Broken(
        "norm_over_storage_order: the norm is a float sum whose order follows how many rows there are",
        lambda v: shrunk(
            v,
            np.sqrt(
                np.square(v).cumsum()[v.shape[1] - 1 :: v.shape[1]]
                - np.square(v).cumsum()[:: v.shape[1]]
                + np.square(v[:, 0])
            ),
        ),
    ),
    Broken(
        "bound_is_the_median: the bound is the median norm of the data",
        lambda v: shrunk(v, norms_of(v), np.median(norms_of(v))),
    ),
    Broken("bound_on_the_total: only the rows after the total is used up are clipped", until_spent),
]
LONG: list[Broken] = [
    Broken(
        "no_slack: rounding may leave the row a little longer than the bound",
        lambda v: shrunk(v, norms_of(v)),
    ),
    Broken(
        "norm_in_float32: the norm is computed in single precision", lambda v: shrunk(v, single(v))
    ),
    Broken(
        "another_norm: coordinates are clamped, and the L2 norm is claimed",
        lambda v: np.clip(v, -0.5, 0.5),
    ),
]


# --- jl_projection ----------------------------------------------------------------------------


def signs(seed: int, *shape: int) -> np.ndarray:
    return 2.0 * np.random.default_rng(seed).integers(0, 2, size=shape) - 1


SIGNS = signs(1, 3, 6)


def principal(values: np.ndarray) -> np.ndarray:
    _, vectors = np.linalg.eigh(values.T @ values)
    return np.rint(values @ vectors[:, -3:]) + 0.0


JL: list[Broken] = [
    Broken("principal_directions: the directions are those of the data", principal),
    Broken(
        "seed_and_size: the signs are drawn anew for every number of rows",
        lambda v: v @ signs(len(v), 3, 6).T,
    ),
    Broken(
        "signs_by_position: every place in the data has signs of its own",
        lambda v: np.einsum("nd,nkd->nk", v, signs(1, len(v), 3, 6)),
    ),
    Broken(
        "scaled_by_the_largest: all rows are rescaled by the largest product",
        lambda v: np.rint(9 * (v @ SIGNS.T) / max(np.abs(v @ SIGNS.T).max(), 1.0)) + 0.0,
    ),
    Broken(
        "less_the_mean: the mean of the data is taken off first",
        lambda v: np.rint((v - v.mean(axis=0)) @ SIGNS.T) + 0.0,
    ),
]


TWINS = [
    *(twin(f"quantize/{label}", on_values(fault)) for label, fault in QUANTIZE),
    *(twin(f"rescale/{label}", on_values(fault)) for label, fault in RESCALE),
    *(twin(f"clip_rows/{label}", on_values(fault)) for label, fault in CLIP),
    *(too_long(f"clip_rows/{label}", on_values(fault), 0.5) for label, fault in LONG),
    *(twin(f"jl_projection/{label}", on_values(fault)) for label, fault in JL),
    too_long(
        "jl_projection/norm_not_inflated: the bound of the input is claimed of the output",
        on_values(lambda v: v @ SIGNS.T),
        13.0,
    ),
]
CONTROLS = [
    *(control(key) for key in ("quantize", "rescale", "clip_rows", "jl_projection")),
    imitation("quantize", on_values(steps)),
    imitation("rescale", on_values(rescaled)),
    imitation("jl_projection", on_values(lambda v: v @ SIGNS.T)),
    Control(
        name="clip_rows/sound_length",
        make=lambda: longest("clip_rows", whole_function(claim_of("clip_rows")), 0.5),
    ),
]
