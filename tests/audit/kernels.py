"""The kernel and regression sketches themselves, wrapped so that one thing can be wrong with them.

The noiseless part is the real sketch on a small grid; a fault replaces what comes before it (the
points), what comes after it (the cells), or the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.audit import NoiseLaw
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from tests.audit.stand_ins import POINTS, Release, additive, gaussian, laplace

STEPS, EDGE = 8, 16
GRID = GridRows(width=2, unit=1 / STEPS, lower=(-EDGE,), upper=(EDGE,))
LINE = GridRows(width=1, unit=1 / STEPS, lower=(-EDGE,), upper=(EDGE,))
PARAMS: dict[str, dict[str, Any]] = {
    "fourier_sketch": {"frequencies": 3, "kernel": {"gaussian": {"bandwidth": 1.0}}, "seed": 1},
    "gauss_transform_sketch": {"bandwidth": 4.0, "order": 2},
    "second_moments": {"radius": None},
    "paired_projections": {"repetitions": 4, "bits": 2, "seed": 1},
    "exponential_sum": {
        "bandwidth": 1.0,
        "accuracy": 0.5,
        "structure": {"fourier": {"frequencies": 2}},
        "seed": 1,
    },
}
WEIGHTED: dict[str, Any] = {
    "frequencies": 4,
    "kernel": {
        "weighted": {
            "terms": [
                [3.0, {"gaussian": {"bandwidth": 1.0}}],
                [-3.0, {"exponential": {"bandwidth": 2.0}}],
            ]
        }
    },
}
LATTICE: dict[str, Any] = {
    "frequencies": 40,
    "features": "deterministic",
    "kernel": {"gaussian": {"bandwidth": 4.0}},
}
Points = Callable[[np.ndarray], np.ndarray]


def claim_of(key: str, domain: GridRows = GRID, **params: Any) -> Stable:
    claim = lookup(key).from_spec({**PARAMS[key], **params}).bind(domain, Symmetric())
    assert isinstance(claim, Stable)
    return claim


def scale_of(key: str, family: str, domain: GridRows = GRID, **params: Any) -> float:
    """The honest scale at epsilon = 1 or rho = 1."""
    sensitivity = claim_of(key, domain, **params).sensitivity
    assert sensitivity is not None
    return (
        float(sensitivity.l1)
        if family == "discrete_laplace"
        else math.sqrt(float(sensitivity.l2_squared) / 2)
    )


def points_of(x: Any) -> np.ndarray:
    return np.asarray(x, dtype=np.float64).reshape(-1, 2)


def steps_of(points: np.ndarray) -> Rows:
    return Rows(np.clip(np.rint(points * STEPS), -EDGE, EDGE))


def core_of(
    key: str,
    *,
    before: Points | None = None,
    after: Callable[..., np.ndarray] | None = None,
    by_count: bool = False,
    **params: Any,
) -> Callable[[Any], np.ndarray]:
    """The real sketch. ``before`` maps points, ``after`` (cells, points) cells; both are faults."""
    public = whole_function(claim_of(key, **params))

    def core(x: Any) -> np.ndarray:
        points = points_of(x)
        sketch = public
        if by_count:
            sketch = whole_function(claim_of(key, **{**params, "seed": 1 + len(points)}))
        cells = sketch(steps_of(before(points) if before and len(points) else points)).astype(float)
        return after(cells, points) if after else cells

    return core


def weights_of(key: str) -> np.ndarray:
    """One noise weight a cell."""
    runs = claim_of(key).output.weights  # type: ignore[attr-defined]
    return np.concatenate([np.full(cells, float(weight)) for cells, weight in runs])


def release(
    key: str,
    *,
    scale: float | None = None,
    family: str = "discrete_laplace",
    add: Any = None,
    params: dict[str, Any] | None = None,
    core: Callable[[Any], np.ndarray] | None = None,
    metric: Any = None,
    claim: Any = None,
    **faults: Any,
) -> Release:
    """Sketch and noise; honest unless told otherwise."""
    inner = core or core_of(key, **faults, **(params or {}))
    own = scale_of(key, family, **(params or {})) if scale is None else scale
    extra = {name: v for name, v in (("metric", metric), ("claim", claim)) if v is not None}
    if key == "exponential_sum" and add is None:
        add = weighted(weights_of(key), family)
    made, options = additive(POINTS, inner, own, family=family, add=add, **extra)
    if key == "exponential_sum":
        options["noise"] = NoiseLaw(family, own * weights_of(key))
    return made, options


def weighted(weights: np.ndarray, family: str = "discrete_laplace") -> Any:
    """Noise of each cell's own weight."""
    draw = laplace if family == "discrete_laplace" else gaussian

    def add(core: np.ndarray, count: int, scale: float) -> np.ndarray:
        columns = [draw((count, 1), float(scale * weight)) for weight in weights]
        return core + np.concatenate(columns, axis=1)

    return add
