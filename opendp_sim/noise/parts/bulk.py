"""What the two bulk measurements share: the space they accept, the runs of scales, the choice."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.space import Domain, Metric
from opendp_sim.noise.parts.sampling_laplace import MAX_SCALE
from opendp_sim.noise.parts.sampling_noise import Run
from opendp_sim.spaces.metrics import VectorNorm
from opendp_sim.spaces.sketch import IntVector, Sketch

__all__ = ["AUTO_CELLS", "Sampler", "cells_of", "noisy", "runs_of", "sampler_for", "weighted_space"]

Sampler = Literal["opendp", "bulk"]
AUTO_CELLS = 10_000
"""From this many cells on, ``sampler: auto`` means bulk."""


def sampler_for(requested: Literal["auto", "opendp", "bulk"], cells: int) -> Sampler:
    """Return the sampler that ``requested`` means for a release of ``cells`` cells."""
    if requested == "auto":
        return "bulk" if cells >= AUTO_CELLS else "opendp"
    return requested


def weighted_space(key: str, domain: Domain, metric: Metric, norm: str) -> VectorNorm:
    """Return ``metric`` if it is ``norm`` over integer vectors, plain or weighted; else refuse."""
    if not isinstance(domain, IntVector | Sketch):
        raise SpaceError(
            "OS201", f"{key}.input_domain", expected="a flat vector of int64",
            got=type(domain).__name__,
            hint='start from vector_domain(atom_domain(T="i64")), or put a sketch first.',
        )  # fmt: skip
    if not isinstance(metric, VectorNorm) or metric.norm != norm:
        raise SpaceError(
            "OS202", f"{key}.input_metric", expected=f"{norm} distance between integer vectors",
            got=str(getattr(metric, "norm", type(metric).__name__)),
            hint=f'give the sketch norm="{norm}"; Laplace noise needs l1, Gaussian noise l2.',
        )  # fmt: skip
    if metric.weights and sum(cells for cells, _ in metric.weights) != domain.size:
        raise SpaceError(
            "OS202", f"{key}.input_metric", expected="weights for every cell of a sized vector",
            got="another number of cells", hint="use the sketch's own output metric.",
        )  # fmt: skip
    return metric


def runs_of(key: str, scale: float, metric: VectorNorm, factor: int = 1) -> tuple[Run, ...]:
    """Return runs of (cells, exact scale times ``factor``), or () when every cell has the scale itself.

    A float is the dyadic rational that it is; its product with a weight is exact.
    """
    runs = tuple((cells, Fraction(scale) * weight * factor) for cells, weight in metric.weights)
    if any(largest > MAX_SCALE for _, largest in (*runs, (0, Fraction(scale) * factor))):
        raise ParameterError(
            "OS102", f"{key}.scale", expected=f"scale times the largest weight <= {MAX_SCALE}",
            got=scale, hint="noise this large drowns any 64-bit sum; OpenDP's sampler takes it.",
        )  # fmt: skip
    return runs


def cells_of(domain: Domain, data: Any) -> NDArray[np.int64]:
    """Return ``data`` as a flat int64 array, refusing what is not a member of ``domain``."""
    domain.check_native(data)
    array = np.asarray(data)
    return array.astype(np.int64, casting="safe" if array.size else "unsafe", copy=False)


def noisy(
    domain: Domain,
    scale: float,
    runs: tuple[Run, ...],
    add: Callable[[NDArray[np.int64], tuple[Run, ...]], NDArray[np.int64]],
) -> Callable[[Any], NDArray[np.int64]]:
    """Return the release: the cells plus declared noise."""

    def release(data: Any) -> NDArray[np.int64]:
        cells = cells_of(domain, data)
        return add(cells, runs or ((cells.size, Fraction(scale)),))

    return release
