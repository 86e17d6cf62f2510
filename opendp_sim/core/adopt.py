"""OpenDP's own domains and metrics as descriptors of ours."""

from __future__ import annotations

from typing import Any

from opendp_sim.core import dp
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.space import FOREIGN_DOMAINS, FOREIGN_METRICS, Domain, Metric

__all__ = ["adopt_domain", "adopt_metric"]


def adopt_domain(domain: dp.Domain | Domain) -> Domain:
    """Return our descriptor of an OpenDP domain: our own, or one of OpenDP's that we can read."""
    found: Domain = _adopt(domain, Domain, FOREIGN_DOMAINS, "OS201", "input_domain")
    return found


def adopt_metric(metric: dp.Metric | Metric) -> Metric:
    """Return our descriptor of an OpenDP metric."""
    found: Metric = _adopt(metric, Metric, FOREIGN_METRICS, "OS202", "input_metric")
    return found


def _adopt(native: Any, kind: type, readers: list[Any], code: str, where: str) -> Any:
    if isinstance(native, kind):
        return native
    descriptor = getattr(native, "descriptor", None)
    if isinstance(descriptor, kind):
        return descriptor
    for read in readers:
        if (found := read(native)) is not None:
            return found
    hint = (
        "start from array2_domain(num_columns=..., nan=False, T=float) under "
        "symmetric_distance(), or from a domain of opendp_sim."
    )
    if "FrameDomain" in str(native):
        hint = (
            "frames do not chain here: give Context `data=frame.select(columns).to_numpy()` and "
            "`domain=array2_domain(...)`, or hand the frame itself to `sim.density` or `sim.apply`."
        )
    raise SpaceError(
        code, where, expected=f"a {where.split('_')[1]} this package has a proof for",
        got=str(native), hint=hint,
    )  # fmt: skip
