"""The distance sketches themselves, wrapped so that one thing can be wrong with them.

The noiseless part is the real sketch on a small grid; a fault replaces what comes before it (the
points), what comes after it (the cells), or the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as dp

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from tests.audit.stand_ins import (
    POINTS,
    PURE,
    SYMMETRIC,
    Release,
    additive,
    gaussian,
    laplace,
    measurement,
)

STEPS, EDGE, BALL = 4, 8, 10
GRID = GridRows(width=2, unit=1 / STEPS, lower=(-EDGE,), upper=(EDGE - 1,), l2=BALL)
PARAMS: dict[str, dict[str, Any]] = {
    "threshold_sketch": {"thresholds": 5, "count_weight": 3},
    "moment_tree": {"levels": 2},
    "distance_tree": {"levels": 3},
    "moments_sketch": {},
    "slice_sketch": {"directions": 4, "thresholds": 6, "seed": 1},
}
Points = Callable[[np.ndarray], np.ndarray]


def claim_of(key: str, **params: Any) -> Stable:
    claim = lookup(key).from_spec({**PARAMS[key], **params}).bind(GRID, Symmetric())
    assert isinstance(claim, Stable)
    return claim


def scale_of(key: str, family: str = "discrete_laplace", **params: Any) -> float:
    """The honest scale at epsilon = 1 or rho = 1."""
    sensitivity = claim_of(key, **params).sensitivity
    assert sensitivity is not None
    return (
        float(sensitivity.l1)
        if family == "discrete_laplace"
        else math.sqrt(float(sensitivity.l2_squared) / 2)
    )


def points_of(x: Any) -> np.ndarray:
    return np.asarray(x, dtype=np.float64).reshape(-1, 2)


def steps_of(points: np.ndarray) -> Rows:
    """Clip to the box, to the ball, and round toward zero: a member of GRID."""
    values = np.clip(points * STEPS, -EDGE, EDGE - 1)
    norms = np.sqrt(np.square(values).sum(axis=1, keepdims=True))
    return Rows(np.trunc(values * np.minimum(1.0, BALL / np.maximum(norms, 1e-9))) + 0.0)


def core_of(
    key: str,
    *,
    before: Points | None = None,
    after: Callable[..., np.ndarray] | None = None,
    **params: Any,
) -> Callable[[Any], np.ndarray]:
    """The real sketch. ``before`` maps points, ``after`` (cells, points) cells; both are faults."""
    sketch = whole_function(claim_of(key, **params))

    def core(x: Any) -> np.ndarray:
        points = points_of(x)
        cells = sketch(steps_of(before(points) if before and len(points) else points)).astype(float)
        return after(cells, points) if after else cells

    return core


def release(
    key: str,
    *,
    scale: float | None = None,
    family: str = "discrete_laplace",
    add: Any = None,
    core: Callable[[Any], np.ndarray] | None = None,
    metric: Any = None,
    claim: Any = None,
    params: dict[str, Any] | None = None,
    **faults: Any,
) -> Release:
    """Sketch and noise; honest unless told otherwise."""
    inner = core or core_of(key, **faults, **(params or {}))
    own = scale_of(key, family, **(params or {})) if scale is None else scale
    extra = {name: v for name, v in (("metric", metric), ("claim", claim)) if v is not None}
    return additive(POINTS, inner, own, family=family, add=add, **extra)


def told(key: str, leak: Callable[[np.ndarray, np.ndarray], Any]) -> Release:
    """A sound release, and one thing computed from the records next to it."""
    core, scale = core_of(key), scale_of(key)

    def many(x: Any, count: int) -> list[Any]:
        clean = core(x)
        noisy = clean + laplace((count, clean.size), scale)
        return [leak(row, points_of(x)) for row in noisy]

    return measurement(POINTS, SYMMETRIC, PURE, many, lambda d: 1.0 * d), {"sample": many}


def row_map(function: Callable[[np.ndarray], np.ndarray], width: int = 4) -> Release:
    """A map of points to rows that claims stability 1."""
    output = dp.numpy.array2_domain(num_columns=width, nan=False, T=float)
    made = dp.t.make_user_transformation(
        POINTS, SYMMETRIC, output, SYMMETRIC, lambda x: function(points_of(x)), lambda d: d
    )
    return made, {}


def embedding(directions: int = 4, seed: int = 1) -> Callable[[np.ndarray], np.ndarray]:
    """The real l1 embedding of points."""
    claim = lookup("l1_embedding")(directions=directions, seed=seed, clip=3.0, bits=8).bind(
        GRID, Symmetric()
    )
    assert isinstance(claim, Stable)
    function = claim.function
    assert function is not None
    return lambda points: function(steps_of(points)).values


__all__ = ["gaussian", "laplace"]
