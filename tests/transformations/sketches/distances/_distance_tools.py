"""Small tools for the tests of distances: build on the grid, release, ask."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.claims import Noise, Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.noise._impl.samplers import add_gaussian, add_laplace

UNIT = 0.25
UNEVEN = GridRows(
    width=3, labels=("a", "b", "c"), unit=UNIT, lower=(-9, 0, 4), upper=(54, 31, 4), l2=80
)


def some_rows(domain: GridRows, count: int, seed: int = 0, *, labels: bool = True) -> Rows:
    rng = np.random.default_rng(seed)
    low, high = (np.broadcast_to(v, domain.width) for v in (domain.lower, domain.upper))
    values = rng.integers(low, np.array(high) + 1, (count, domain.width)).astype(np.float64)
    own = rng.integers(0, len(domain.labels), count) if labels and domain.labels else None
    return Rows(values, own)


def some_queries(domain: GridRows, count: int, seed: int = 1) -> np.ndarray:
    """Grid positions, a third of them outside the box, and the corners."""
    rng = np.random.default_rng(seed)
    low, high = (np.array(np.broadcast_to(v, domain.width)) for v in (domain.lower, domain.upper))
    inside = rng.integers(low, high + 1, (count, domain.width))
    outside = rng.integers(low - 40, high + 41, (count // 2, domain.width))
    return np.vstack([inside, outside, low, high, low - 1, high + 1]).astype(np.float64)


class Made:
    """One sketch of rows on the grid."""

    def __init__(self, domain: GridRows, rows: Rows, key: str, **params: Any) -> None:
        claim = lookup(key)(**params).bind(domain, Symmetric())
        assert isinstance(claim, Stable)
        assert claim.accumulate is not None
        self.domain, self.claim, self.output = domain, claim, claim.output
        self.cells = np.zeros(self.output.size, dtype=np.int64)  # type: ignore[attr-defined]
        claim.accumulate(rows, self.cells)

    def scale(self, *, epsilon: float = 0.0, rho: float = 0.0) -> float:
        sensitivity = self.output.sensitivity  # type: ignore[attr-defined]
        if epsilon:
            return float(sensitivity.l1) / epsilon
        return float(np.sqrt(float(sensitivity.l2_squared) / (2 * rho)))

    def release(self, family: str | None = None, scale: float = 0.0) -> tuple[Released, Any]:
        """The exact cells, or fresh noise from the bulk samplers."""
        cells, noise = self.cells, None
        if family is not None:
            add = {"discrete_laplace": add_laplace, "discrete_gaussian": add_gaussian}[family]
            cells, noise = add(cells, ((cells.size, Fraction(scale)),)), Noise(family, scale)
        about = Released(self.output, self.claim.capabilities, noise, self.domain)
        return about, self.output.split(cells)  # type: ignore[attr-defined]

    def ask(self, queries: Any, *noise: Any, key: str = "distance", **params: Any) -> Any:
        about, arrays = self.release(*noise)
        return lookup(key)(**params).bind(about, Symmetric()).function(arrays, queries)


def exact_sums(rows: Rows, queries: np.ndarray, p: float, classes: int) -> np.ndarray:
    """Sums of distances in data units by brute force: shape (q, L)."""
    gap = np.abs(rows.values[:, None] - queries) * UNIT
    single = (gap**p).sum(axis=2)
    if classes == 1:
        return single.sum(axis=0)[:, None]
    return np.stack([single[rows.labels == label].sum(axis=0) for label in range(classes)], axis=1)
