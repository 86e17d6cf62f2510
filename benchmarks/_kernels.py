"""What the kernel scripts share: pipelines, scales solved by OpenDP, exact kernel sums, releases."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import opendp.prelude as dp
from scipy.spatial.distance import cdist

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Noise
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import Rows
from opendp_sim.io.fold import build_sketch

dp.enable_features("contrib")
DELTA = 1e-6
_VECTOR = dp.vector_domain(dp.atom_domain(T="i64"))


def pipeline(space: Any, *steps: dict[str, dict[str, Any]]) -> Any:
    """Bind steps written as in a spec."""
    made = [lookup(key).from_spec(params) for step in steps for key, params in step.items()]
    return bind_steps(space, Symmetric(), made)


def exact_flat(stages: Any, rows: Rows) -> np.ndarray:
    return build_sketch(stages, lambda: [rows])


def noise_for(epsilon: float, measure: str, sensitivity: Any) -> tuple[Any, str]:
    """The noise mechanism at this budget, its scale solved by inverting OpenDP's own map."""
    if measure == "pure":
        make, norm, d = (
            dp.m.make_laplace,
            dp.l1_distance(T="i64"),
            math.ceil(sensitivity.bound("l1", 1)),
        )
        scale = dp.binary_search_param(lambda s: make(_VECTOR, norm, s), d, epsilon)
        return lookup("laplace")(scale=scale), "l1"
    make, norm, d = dp.m.make_gaussian, dp.l2_distance(T=float), sensitivity.bound("l2", 1)
    scale = dp.binary_search_param(lambda s: make(_VECTOR, norm, s), d, rho_for(epsilon))
    return lookup("gaussian")(scale=scale), "l2"


@lru_cache
def rho_for(epsilon: float) -> float:
    """The largest rho that OpenDP converts to (epsilon, DELTA)."""

    def converted(rho: float) -> float:
        unit = dp.m.make_gaussian(_VECTOR, dp.l2_distance(T=float), 1.0 / math.sqrt(2 * rho))
        return float(dp.c.make_zCDP_to_approxDP(unit).map(1.0).epsilon(DELTA))

    return float(dp.binary_search(lambda r: converted(r) <= epsilon, bounds=(1e-9, 50.0)))


def noisy(stages: Any, flat: np.ndarray, epsilon: float | None, measure: str = "zcdp") -> Release:
    """A release at this budget; None for no noise."""
    output = stages[-1].claim.output
    if epsilon is None:
        return Release.of_sketch(stages, flat, Noise("discrete_gaussian", 0.0), {})
    mechanism, norm = noise_for(epsilon, measure, output.sensitivity)
    claim = mechanism.bind(output, output.metric(norm))
    return Release.of_sketch(stages, claim.function(flat), claim.noise, {})


def exact_sums(points: np.ndarray, queries: np.ndarray, reader: Any) -> np.ndarray:
    """Brute force over real points, a block at a time."""
    metric = {"l1": "cityblock", "l2": "euclidean"}[reader.distance]
    blocks = (points[i : i + 4096] for i in range(0, len(points), 4096))
    return sum(reader.kernel(cdist(block, queries, metric)).sum(axis=0) for block in blocks)


def through(stages: Any, values: np.ndarray, labels: np.ndarray | None = None) -> Rows:
    """Rows after the row maps."""
    return resolve(stages, list)(Rows(values, labels))
