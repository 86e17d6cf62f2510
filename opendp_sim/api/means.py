"""Plan private means, overall or by class, ``sim.means``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from opendp_sim.accounting.release.release import Release
from opendp_sim.api.columns import Bounds, bounds_of, grid
from opendp_sim.api.recipe import Recipe
from opendp_sim.api.recipe_spec import PrivacyOptions, StepDicts, recipe, recipe_function


@recipe_function(PrivacyOptions, 'means({"age": (0, 120), "income": (0, 200_000)})')
def means(
    columns: Bounds,
    *,
    label: str | None = None,
    keys: Sequence[str | int] = (),
    **privacy: Unpack[PrivacyOptions],
) -> Recipe[Release]:
    """Plan private means, sums and counts, for ``release.totals()``.

    Of classes also ``release.nearest_class(queries)``, and of all records together or by class
    ``release.distance(queries)``. Columns of unlike bounds are each counted in their own range
    (``rescale``). As a table, an answer of ``nearest_class`` has a row for each query and class:
    ``class`` is whose ``score`` the row holds, and ``label`` the class that is nearest.

    Args:
        columns: each column's public bounds: two numbers, or two dates.
        label: the column of the classes; None for one mean of all records.
        keys: every class that could occur; records of others are left out.
        **privacy: as for ``density``.

    Example:
        >>> fit = means({"x": (0, 1), "y": (0, 90)}, label="kind", keys=["a", "b"])
        >>> "rescale" in fit.plan.to_yaml()
        True
    """
    rows: StepDicts = [] if len(set(bounds_of(columns).values())) == 1 else [{"rescale": {}}]
    step = {"moments_sketch": {"per_label": label is not None}}
    told = None if label is None else (label, keys)
    return recipe("means", columns, told, [*rows, grid(columns), step], privacy)
