"""Plan a private density of numeric columns, ``sim.density``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Unpack

from opendp_sim.accounting.release.release import Release
from opendp_sim.api.columns import Bounds
from opendp_sim.api.kernel_steps import check_points, kernel_steps
from opendp_sim.api.recipe import Recipe
from opendp_sim.api.recipe_spec import PrivacyOptions, recipe, recipe_function


@recipe_function(PrivacyOptions, 'density({"age": (0, 120), "stay": (0, 90)}, bandwidth=5.0)')
def density(
    columns: Bounds,
    *,
    bandwidth: float | Mapping[str, float],
    seed: int = 0,
    size: int | None = None,
    error: float | None = None,
    points: Literal["auto", "grown", "none"] = "auto",
    **privacy: Unpack[PrivacyOptions],
) -> Recipe[Release]:
    """Plan a private density of a table's numeric columns, for ``release.density(queries)``.

    Args:
        columns: each column's public bounds: two numbers, or two dates.
        bandwidth: h of the kernel ``exp(-r**2 / (2 h**2))``, in data units; or one for each column,
            where their units are unlike.
        seed: of public frequencies; noise has no seed.
        size: about how many records, from public knowledge. The plan states its error for so many, and a
            run warns where the release counts far fewer or more. It chooses 500 to 8,000 frequencies:
            those whose sampling error is a third of the noise (2,000 or more in up to three columns).
            Many records err less, for more memory and time. Without it there are 8,000 where points are
            grown, else 2,000.
        error: in place of a number of frequencies, what 95 % of answers are to be within, in rows, for
            about ``size`` records: the least number is solved, or the best error is told.
        points: what kernel sums are compared with, so that only the difference is sampled: ``grown`` from
            the release itself, begun with the columns' moments, which take about a twentieth of the
            budget; or ``none``. ``auto`` grows them in 4 to 64 columns, and in fewer for a narrow
            kernel, but not under pure DP or where an ``error`` is stated. The plan states the error
            without points, answers that with them.
        **privacy: ``epsilon`` (1.0; ``{"error": 60, "size": 20_000}`` solves it from an error), ``delta``
            (1e-6), ``measure`` (``gdp``), ``unit`` (``row``, or the column that names the person),
            ``ids`` (``str`` or ``int64``, that column's dtype), ``max_rows`` (used of one person),
            ``ledger`` (a file), ``limit`` (its budget, such as ``{"epsilon": 2, "delta": 1e-6}``) and
            ``source`` (a file such as ``"trips.csv"``, or ``{"csv": {...}}`` as in a spec, which
            ``apply()`` reads in place of a table).

    Raises:
        Refused, ParameterError: what cannot be planned.

    Example:
        >>> fit = density({"dep_delay": (-90, 600), "arr_delay": (-90, 600)}, bandwidth=15.0)
        >>> fit.plan.claim
        (1.0, 1e-06)
    """
    check_points(points)
    rows, step = kernel_steps(
        columns,
        bandwidth,
        seed,
        per_label=False,
        privacy=privacy,
        size=size,
        error=error,
        points=points,
    )
    return recipe("density", columns, None, [*rows, step], privacy, size=size)
