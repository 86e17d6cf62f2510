"""Check every query first, and take a release's capability."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.capabilities import KernelSums
from opendp_sim.core.errors import DataError, SpaceError
from opendp_sim.core.space import Domain
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows, array_of_rows

FARTHEST = 2.0**51
"""Steps: row maps stop here, and differences of whole steps are exact below it."""


def check_queries(domain: Domain, queries: Any) -> Any:
    """Return public queries, or refuse their width or values.

    They are rows, or an array (q, d), on the sketch's own input space, as ``domain.queries`` says.

    Raises:
        DataError (OS607): another width, no number, not finite, or 2**51 steps from zero or more.
    """
    width = getattr(getattr(domain, "queries", None), "width", None)
    values = array_of_rows(getattr(queries, "values", queries), "OS607", "queries")
    fits = values.ndim == 2 and values.shape[1] == width and values.dtype.kind in "fiu"
    least, most = least_and_greatest(values) if fits else (0.0, 0.0)
    if not fits or not math.isfinite(least) or not math.isfinite(most):
        raise DataError(
            "OS607", "queries", expected=f"finite queries that arrive as shape (q, {width})",
            got=f"shape {np.shape(values)}", hint="pass one row a query, in the data's own columns.",
        )  # fmt: skip
    if max(-least, most) >= FARTHEST:
        raise DataError(
            "OS607", "queries", expected="queries less than 2**51 grid steps from zero",
            got="one farther away", hint="from there the distance to every record is the same number.",
        )  # fmt: skip
    return queries


def least_and_greatest(values: NDArray[Any]) -> tuple[float, float]:
    """Return an array's least and greatest number.

    NaN where it contains one, 0 where it is empty. Two passes, and nothing of the array's size is
    made: a test of each cell takes longer than an answer.
    """
    if not values.size:
        return 0.0, 0.0
    return float(values.min()), float(values.max())


def a_release(key: str, domain: Domain) -> Released:
    """Return ``domain`` if it is a release, else refuse (OS201)."""
    if not isinstance(domain, Released):
        raise SpaceError(
            "OS201", f"{key}.input_domain", expected="a release", got=type(domain).__name__,
            hint="put it under `post:` of an output whose `from:` is a released stage.",
        )  # fmt: skip
    return domain


def offered(key: str, domain: Domain, capability: str) -> tuple[Any, Released]:
    """Return a release's ``capability`` and the release, or refuse."""
    release = a_release(key, domain)
    return release.capability(capability, key), release


def kernel_sums(key: str, domain: Domain) -> tuple[KernelSums, float]:
    """Return the ``kernel_sums`` of a release and its cell deviation, or refuse."""
    sums, release = offered(key, domain, "kernel_sums")
    return sums, release.deviation


def grid_behind(key: str, domain: Domain) -> GridRows:
    """Return the grid that a release's sketch was asked on, or refuse."""
    rows = getattr(domain, "queries", None)
    if not isinstance(rows, GridRows):
        raise SpaceError(
            "OS201", f"{key}.input_domain", expected="a sketch of rows on a grid",
            got=type(rows).__name__, hint="put `quantize` before the sketch.",
        )  # fmt: skip
    return rows
