"""Broken twins of Fourier features: the real claim, with waves that are not those of the row alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.audit.twins.row_maps import Broken, control, imitation, on_values, too_long, twin

KEY, WIDTH = "fourier_features", 4
MATRIX = np.random.default_rng(3).normal(size=(6, 2)) * 0.2


def waves(values: np.ndarray, matrix: Any = MATRIX, offset: Any = 0.0) -> np.ndarray:
    angles = np.einsum("nd,...dk->nk", values, matrix) + offset
    return np.trunc(1023 * np.concatenate([np.cos(angles), np.sin(angles)], axis=1)) + 0.0


def median_distance(values: np.ndarray) -> float:
    apart = np.linalg.norm(values[:, None] - values[None], axis=2)
    return max(float(np.median(apart)), 1.0)


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(6, 2)) * 0.2


def by_position(values: np.ndarray) -> np.ndarray:
    return np.concatenate([waves(values[i : i + 1], drawn(i)) for i in range(len(values))])


FAULTS: list[Broken] = [
    Broken(
        "median_bandwidth: the bandwidth is the data's own median distance",
        lambda v: waves(v / median_distance(v)),
    ),
    Broken(
        "standardised: columns are divided by their own deviation first",
        lambda v: waves(v / np.maximum(v.std(axis=0), 0.5)),
    ),
    Broken(
        "phase_of_the_mean: phases start at the mean of the data",
        lambda v: waves(v - v.mean(axis=0)),
    ),
    Broken(
        "seed_and_size: frequencies are drawn anew for every number of rows",
        lambda v: waves(v, drawn(len(v))),
    ),
    Broken("by_position: every place in the data has frequencies of its own", by_position),
]


def unclipped(values: np.ndarray) -> np.ndarray:
    """Waves of length 1024 in every cell: cosines alone would be, pairs are longer."""
    return np.full((len(values), WIDTH), 1024.0)


TWINS = [
    *(twin(f"{KEY}/{label}", on_values(fault, WIDTH)) for label, fault in FAULTS),
    too_long(
        "fourier_features/pairs_as_long: each entry is within S, and the row longer than stated",
        on_values(unclipped, WIDTH),
        1449.0,
    ),
]
CONTROLS = [control(KEY), imitation(KEY, on_values(waves, WIDTH))]
