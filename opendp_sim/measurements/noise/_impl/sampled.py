"""Sample noise by OpenDP or in bulk, under one record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np

from opendp_sim.core import dp
from opendp_sim.core.bridge import to_dp_domain
from opendp_sim.core.claims import Private
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import param
from opendp_sim.core.space import Domain
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.measurements.noise._impl.bulk import SamplerName, flat_cells, sampler_for

CellScale = Annotated[
    float,
    param(
        "Noise scale on a cell of weight 1.", symbol="s", unit="cell units", gt=0, le=2.0**59,
        hint="the language solves it from the budget: write `scale: solve`.",
    ),
]  # fmt: skip

AskedSampler = Annotated[
    Literal["auto", "opendp", "bulk"],
    param(
        "Which exact sampler draws the noise.", symbol="-", unit="none", default="auto",
        hint="auto is OpenDP's own sampler below 10,000 cells of equal weight, and bulk above.",
    ),
]  # fmt: skip


def sampler_of(key: str, requested: Any, domain: Any, metric: VectorNorm) -> SamplerName:
    """Return the applied sampler, never OpenDP's where cells are scaled."""
    if metric.weights and requested == "opendp":
        raise ParameterError(
            "OS102", f"{key}.sampler", expected="bulk or auto for a sketch with weighted blocks",
            got=requested, hint="leave `sampler` out.",
        )  # fmt: skip
    return "bulk" if metric.weights else sampler_for(requested, domain.size)


def sampled(
    bulk: Private,
    domain: Domain,
    sampler: SamplerName,
    make: Callable[..., dp.Measurement],
    scale: float,
) -> Private:
    """Return the claim with the chosen sampler, of equal map and law.

    OpenDP's measurement is made when data comes: a search over scales asks for maps only.
    """
    if sampler == "bulk" or bulk.noise is None:
        return bulk
    vector, whole = to_dp_domain(domain), bulk.measure == "max_divergence"

    @cache
    def native() -> dp.Measurement:
        norm = dp.l1_distance(T="i64") if whole else dp.l2_distance(T=float)
        return make(vector, norm, scale)

    def release(data: Any) -> Any:
        return np.asarray(native()(flat_cells(domain, data)), dtype=np.int64)

    return replace(bulk, function=release, noise=replace(bulk.noise, sampler="opendp"))
