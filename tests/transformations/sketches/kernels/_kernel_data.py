"""Rows on a grid and exact kernel sums, for the tests of kernel sketches."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows

KERNELS: list[dict[str, Any]] = [
    {"gaussian": {"bandwidth": 0.6}},
    {"exponential": {"bandwidth": 0.6}},
    {"laplacian": {"bandwidth": 0.9}},
    {"rational": {"bandwidth": 0.5, "distance": "l2"}},
    {"rational": {"bandwidth": 0.5, "distance": "l2_squared"}},
    {"rational": {"bandwidth": 0.8, "distance": "l1"}},
]


def grid(width: int, labels: tuple[str, ...] | None = None) -> GridRows:
    """The box [-1, 1]^width in 1/2048 steps."""
    return GridRows(width=width, labels=labels, unit=1 / 2048, lower=(-2048,), upper=(2048,))


def points(count: int, width: int, seed: int, reach: int = 2048) -> Rows:
    values = np.random.default_rng(seed).normal(0, 600, (count, width))
    return Rows(np.clip(np.rint(values), -reach, reach))


def bound(key: str, domain: GridRows, **params: Any) -> Stable:
    claim = lookup(key)(**params).bind(domain, Symmetric())
    assert isinstance(claim, Stable)
    return claim


def built(claim: Stable, rows: Rows) -> dict[str, Any]:
    return claim.output.split(whole_function(claim)(rows))  # type: ignore[attr-defined,no-any-return]


def distances(claim: Stable, rows: Rows, queries: Rows, unit: float) -> Any:
    """Real distances in the metric of the kernel, shape (n, q)."""
    metric = {"l1": "cityblock", "l2": "euclidean"}[claim.capabilities["kernel_sums"].distance]
    return cdist(rows.values, queries.values, metric) * unit


def kernel_values(claim: Stable, rows: Rows, queries: Rows, unit: float) -> Any:
    """Exact kernel values, shape (n, q)."""
    return claim.capabilities["kernel_sums"].kernel(distances(claim, rows, queries, unit))
