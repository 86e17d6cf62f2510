"""Share the space, scale runs and sampler choice of bulk noise."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core import dp
from opendp_sim.core.arithmetic.rounding import float_up
from opendp_sim.core.claims import Noise, Private
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector, Sketch
from opendp_sim.measurements.noise._impl.samplers import (
    MAX_SCALE,
    NoiseRun,
    add_gaussian,
    add_laplace,
)

SamplerName = Literal["opendp", "bulk"]
AUTO_CELLS = 10_000
"""From this many cells on, ``sampler: auto`` means bulk."""


def sampler_for(requested: Literal["auto", "opendp", "bulk"], cells: int) -> SamplerName:
    """Return the sampler that ``requested`` means for a release of ``cells`` cells."""
    if requested == "auto":
        return "bulk" if cells >= AUTO_CELLS else "opendp"
    return requested


def weighted_space(key: str, domain: Domain, metric: Metric, norm: str) -> VectorNorm:
    """Return ``metric`` if it is ``norm`` over integer vectors, else refuse."""
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


def runs_of(key: str, scale: float, metric: VectorNorm, factor: int = 1) -> tuple[NoiseRun, ...]:
    """Return runs of (cells, exact scale times ``factor``).

    () when every cell has the scale itself. A float is the dyadic rational that it is; its product
    with a weight is exact.
    """
    runs = tuple((cells, Fraction(scale) * weight * factor) for cells, weight in metric.weights)
    if any(largest > MAX_SCALE for _, largest in (*runs, (0, Fraction(scale) * factor))):
        raise ParameterError(
            "OS102", f"{key}.scale", expected=f"scale times the largest weight <= {MAX_SCALE}",
            got=scale, hint="noise this large drowns any 64-bit sum; OpenDP's sampler takes it.",
        )  # fmt: skip
    return runs


def flat_cells(domain: Domain, data: Any) -> NDArray[np.int64]:
    """Return ``data`` as flat int64, refusing non-members of ``domain``."""
    domain.check_native(data)
    array = np.asarray(data)
    return array.astype(np.int64, casting="safe" if array.size else "unsafe", copy=False)


def add_noise(
    domain: Domain,
    scale: float,
    runs: tuple[NoiseRun, ...],
    add: Callable[[NDArray[np.int64], tuple[NoiseRun, ...]], NDArray[np.int64]],
) -> Callable[[Any], NDArray[np.int64]]:
    """Return the cells plus declared noise."""

    def release(data: Any) -> NDArray[np.int64]:
        cells = flat_cells(domain, data)
        return add(cells, runs or ((cells.size, Fraction(scale)),))

    return release


# --------------------------------------------------------------------------------------------------
# Discrete Gaussian noise in bulk: OpenDP's law and map, hundreds of times faster per cell.
#
# Proof of the law and of the map: ``bulk_gaussian.md``, beside this file.


def bulk_gaussian(key: str, scale: float, domain: Domain, metric: Metric) -> Private:
    r"""State Lemma G5 of ``bulk_gaussian.md`` for an integer vector, or refuse it.

    The release is an int64 array of the shape of the input; cell j has noise k with probability
    proportional to :math:`e^{-k^2 / (2 s^2 w_j^2)}`, independent between cells, where s is exactly the
    rational number that the float ``scale`` is and w_j the cell's integer weight. Sums beyond int64
    saturate. The map is OpenDP's own at scale s, bit for bit.

    Args:
        key: the mechanism that refusals name.
        scale: the noise scale s of a cell of weight 1.
        domain: a flat int64 vector, bare or a sketch, of any size, also empty.
        metric: L2 distance, plain or with integer weights per run of cells.

    Raises:
        ParameterError: OS102 if scale times the largest weight is above 2**59.
        SpaceError: OS201 or OS202 if it is not an integer vector under L2 distance.
    """
    norm = weighted_space(key, domain, metric, "l2")
    runs = runs_of(key, scale, norm)
    return Private(
        measure="zero_concentrated_divergence",
        privacy_map=gaussian_map(scale),
        function=add_noise(domain, scale, runs, add_gaussian),
        noise=Noise("discrete_gaussian", scale, norm.weights, sampler="bulk"),
        core=partial(flat_cells, domain),
        output=domain,
    )


@lru_cache(256)
def _native_gaussian(scale: float) -> dp.Measurement:
    """Return OpenDP's Gaussian of a scale, cached."""
    return dp.m.make_gaussian(IntVector().native(), dp.l2_distance(T=float), scale)


def gaussian_map(scale: float) -> Callable[[float | Fraction], float]:
    """Return OpenDP's privacy map of Gaussian noise, with distances rounded up."""

    def privacy_map(d_in: float | Fraction) -> float:
        return float(_native_gaussian(scale).map(float_up(d_in)))

    return privacy_map


# --------------------------------------------------------------------------------------------------
# Discrete Laplace noise in bulk: OpenDP's law and map, hundreds of times faster per cell.
#
# Proof of the law and of the map: ``bulk_laplace.md``, beside this file.


def bulk_laplace(key: str, scale: float, domain: Domain, metric: Metric) -> Private:
    r"""State Lemma L5 of ``bulk_laplace.md`` for an integer vector, or refuse it.

    The release is an int64 array of the shape of the input; cell j has noise k with probability
    proportional to :math:`e^{-|k| / (s w_j)}`, independent between cells, where s is exactly the
    rational number that the float ``scale`` is and w_j the cell's integer weight. Sums beyond int64
    saturate. The map is OpenDP's own at scale s, bit for bit.

    Args:
        key: the mechanism that refusals name.
        scale: the noise scale s of a cell of weight 1.
        domain: a flat int64 vector, bare or a sketch, of any size, also empty.
        metric: L1 distance, plain or with integer weights per run of cells.

    Raises:
        ParameterError: OS102 if scale times the largest weight is above 2**59.
        SpaceError: OS201 or OS202 if it is not an integer vector under L1 distance.
    """
    norm = weighted_space(key, domain, metric, "l1")
    runs = runs_of(key, scale, norm)
    return Private(
        measure="max_divergence",
        privacy_map=laplace_map(scale),
        function=add_noise(domain, scale, runs, add_laplace),
        noise=Noise("discrete_laplace", scale, norm.weights, sampler="bulk"),
        core=partial(flat_cells, domain),
        output=domain,
    )


@lru_cache(256)
def _native_laplace(scale: float, number: str) -> dp.Measurement:
    """Return OpenDP's Laplace of a scale and a distance type, cached."""
    return dp.m.make_laplace(IntVector().native(), dp.l1_distance(T=number), scale)


def laplace_map(scale: float) -> Callable[[float | Fraction], float]:
    """Return OpenDP's privacy map of Laplace noise, with distances rounded up."""

    def privacy_map(d_in: float | Fraction) -> float:
        if isinstance(d_in, int):
            return float(_native_laplace(scale, "i64").map(d_in))
        return float(_native_laplace(scale, "f64").map(float_up(d_in)))

    return privacy_map
