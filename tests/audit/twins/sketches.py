"""The sketches themselves, wrapped so that one thing can be wrong with them.

The noiseless part is the real sketch on a small grid; a fault replaces what comes before it (the
points), what comes after it (the cells), or the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import opendp.prelude as dp

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.audit import NoiseLaw
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from tests.audit.twins.entries import Twin
from tests.audit.twins.faults import twin
from tests.audit.twins.stand_ins import (
    POINTS,
    PURE,
    SYMMETRIC,
    Release,
    additive,
    gaussian,
    laplace,
    measurement,
)

Points = Callable[[np.ndarray], np.ndarray]
LAPLACE, GAUSSIAN = "discrete_laplace", "discrete_gaussian"


def points_of(x: Any) -> np.ndarray:
    return np.asarray(x, dtype=np.float64).reshape(-1, 2)


def draw_of(family: str) -> Callable[..., np.ndarray]:
    return laplace if family == LAPLACE else gaussian


def weighted(weights: np.ndarray, family: str = LAPLACE) -> Any:
    """Noise of each cell's own weight."""
    draw = draw_of(family)

    def add(core: np.ndarray, count: int, scale: float) -> np.ndarray:
        columns = [draw((count, 1), float(scale * weight)) for weight in weights]
        return core + np.concatenate(columns, axis=1)

    return add


@dataclass(frozen=True)
class Sketches:
    """Sketches of points in the plane on one grid: the usual parameters of each, and how a point becomes a row."""

    grid: GridRows
    params: dict[str, dict[str, Any]]
    steps_of: Callable[[np.ndarray], Rows]

    def claim_of(self, key: str, domain: GridRows | None = None, **params: Any) -> Stable:
        record = lookup(key).from_spec({**self.params[key], **params})
        claim = record.bind(domain or self.grid, Symmetric())
        assert isinstance(claim, Stable)
        return claim

    def scale_of(self, key: str, family: str = LAPLACE, **params: Any) -> float:
        """The honest scale at epsilon = 1 or rho = 1."""
        sensitivity = self.claim_of(key, **params).sensitivity
        assert sensitivity is not None
        if family == LAPLACE:
            return float(sensitivity.l1)
        return math.sqrt(float(sensitivity.l2_squared) / 2)

    def core_of(
        self,
        key: str,
        *,
        before: Points | None = None,
        after: Callable[..., np.ndarray] | None = None,
        by_count: bool = False,
        **params: Any,
    ) -> Callable[[Any], np.ndarray]:
        """The real sketch. ``before`` maps points, ``after`` (cells, points) cells; both are faults."""
        public = whole_function(self.claim_of(key, **params))

        def core(x: Any) -> np.ndarray:
            points = points_of(x)
            sketch = public
            if by_count:
                own = {**params, "seed": 1 + len(points)}
                sketch = whole_function(self.claim_of(key, **own))
            moved = before(points) if before and len(points) else points
            cells = sketch(self.steps_of(moved)).astype(float)
            return after(cells, points) if after else cells

        return core

    def weights_of(self, key: str) -> np.ndarray:
        """One noise weight a cell."""
        runs = self.claim_of(key).output.weights  # type: ignore[attr-defined]
        return np.concatenate([np.full(cells, float(weight)) for cells, weight in runs])

    def release(
        self,
        key: str,
        *,
        scale: float | None = None,
        family: str = LAPLACE,
        add: Any = None,
        params: dict[str, Any] | None = None,
        core: Callable[[Any], np.ndarray] | None = None,
        metric: Any = None,
        claim: Any = None,
        **faults: Any,
    ) -> Release:
        """Sketch and noise; honest unless a fault is given."""
        inner = core or self.core_of(key, **faults, **(params or {}))
        own = self.scale_of(key, family, **(params or {})) if scale is None else scale
        extra = {name: v for name, v in (("metric", metric), ("claim", claim)) if v is not None}
        if key == "exponential_sum" and add is None:
            add = weighted(self.weights_of(key), family)
        made, options = additive(POINTS, inner, own, family=family, add=add, **extra)
        if key == "exponential_sum":
            options["noise"] = NoiseLaw(family, own * self.weights_of(key))
        return made, options

    def told(self, key: str, leak: Callable[[np.ndarray, Any], Any]) -> Release:
        """A sound release, and one thing computed from the records next to it."""
        core, scale = self.core_of(key), self.scale_of(key)

        def many(x: Any, count: int) -> list[Any]:
            clean = core(x)
            noisy = clean + laplace((count, clean.size), scale)
            return [leak(row, points_of(x)) for row in noisy]

        return measurement(POINTS, SYMMETRIC, PURE, many, lambda d: 1.0 * d), {"sample": many}

    def sketch(self, key: str, label: str, d_in: int = 1, **faults: Any) -> Twin:
        """Return a twin: a release with one fault."""
        return twin(f"{key}/{label}", self.release(key, **faults), d_in)

    def answer(self, label: str, key: str, leak: Any) -> Twin:
        """Return a twin of a query: a sound release, and what it tells besides."""
        return twin(label, self.told(key, leak))


# --- kernels and regression ---------------------------------------------------------------------

STEPS, EDGE = 8, 16


def _in_the_box(points: np.ndarray) -> Rows:
    return Rows(np.clip(np.rint(points * STEPS), -EDGE, EDGE))


kernels = Sketches(
    GridRows(width=2, unit=1 / STEPS, lower=(-EDGE,), upper=(EDGE,)),
    {
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
    },
    _in_the_box,
)
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

# --- distances ----------------------------------------------------------------------------------

COARSE, SIDE, BALL = 4, 8, 10


def _in_the_ball(points: np.ndarray) -> Rows:
    """Clip to the box, to the ball, and round toward zero: a member of the grid."""
    values = np.clip(points * COARSE, -SIDE, SIDE - 1)
    norms = np.sqrt(np.square(values).sum(axis=1, keepdims=True))
    return Rows(np.trunc(values * np.minimum(1.0, BALL / np.maximum(norms, 1e-9))) + 0.0)


distances = Sketches(
    GridRows(width=2, unit=1 / COARSE, lower=(-SIDE,), upper=(SIDE - 1,), l2=BALL),
    {
        "threshold_sketch": {"thresholds": 5, "count_weight": 3},
        "moment_tree": {"levels": 2},
        "distance_tree": {"levels": 3},
        "moments_sketch": {},
        "slice_sketch": {"directions": 4, "thresholds": 6, "seed": 1},
    },
    _in_the_ball,
)


def row_map(function: Callable[[np.ndarray], np.ndarray], width: int = 4) -> Release:
    """A map of points to rows that claims stability 1."""
    output = dp.numpy.array2_domain(num_columns=width, nan=False, T=float)
    made = dp.t.make_user_transformation(
        POINTS, SYMMETRIC, output, SYMMETRIC, lambda x: function(points_of(x)), lambda d: d
    )
    return made, {}


def embedding(directions: int = 4, seed: int = 1) -> Callable[[np.ndarray], np.ndarray]:
    """The real l1 embedding of points."""
    record = lookup("l1_embedding")(directions=directions, seed=seed, clip=3.0, bits=8)
    claim = record.bind(distances.grid, Symmetric())
    assert isinstance(claim, Stable)
    function = claim.function
    assert function is not None
    return lambda points: function(_in_the_ball(points)).values
