"""Plan private quantiles of every column, ``sim.quantiles``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from opendp_sim.accounting.release.release import Release
from opendp_sim.api.columns import Bounds, bounds_of, grid
from opendp_sim.api.recipe import Recipe
from opendp_sim.api.recipe_spec import PrivacyOptions, StepDicts, recipe, recipe_function
from opendp_sim.dsl.plan.kernel_choice import LEVELS


@recipe_function(PrivacyOptions, 'quantiles({"age": (0, 120), "income": (0, 200_000)})')
def quantiles(
    columns: Bounds,
    *,
    levels: int = LEVELS,
    label: str | None = None,
    keys: Sequence[str | int] = (),
    **privacy: Unpack[PrivacyOptions],
) -> Recipe[Release]:
    """Plan private quantiles, for ``release.quantiles(shares=(0.25, 0.5, 0.75))``.

    All shares of all columns are read from one release, which also counts records in intervals of a
    column (``release.interval_count``).

    Args:
        columns: each column's public bounds: two numbers, or two dates.
        levels: a value is told to a ``2**levels``-th part of its column's range; the rank's noise grows
            with it.
        label: the column of the classes; None for all records together.
        keys: every class that could occur; records of others are left out.
        **privacy: as for ``density``.

    Example:
        >>> fit = quantiles({"x": (0, 1), "y": (0, 90)})
        >>> fit.plan.claim
        (1.0, 1e-06)
    """
    rows: StepDicts = [] if len(set(bounds_of(columns).values())) == 1 else [{"rescale": {}}]
    step = {"levels": levels, "consistent": True, "per_label": label is not None}
    told = None if label is None else (label, keys)
    steps = [*rows, grid(columns), {"distance_tree": step}]
    return recipe("quantiles", columns, told, steps, privacy)
