"""Plan a private classifier, ``sim.predict``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from opendp_sim.accounting.release.release import Release
from opendp_sim.api.columns import Bounds, bounds_of, grid
from opendp_sim.api.recipe import Recipe
from opendp_sim.api.recipe_spec import PrivacyOptions, StepDicts, recipe, recipe_function


@recipe_function(PrivacyOptions, 'predict({"age": (0, 120)}, label="kind", keys=["a", "b"])')
def predict(
    columns: Bounds,
    *,
    label: str,
    keys: Sequence[str | int],
    size: int | None = None,
    **privacy: Unpack[PrivacyOptions],
) -> Recipe[Release]:
    """Plan a linear classifier of private records, for ``release.predict(queries)``.

    The released weights answer any number of queries at no further charge.

    Args:
        columns: each column's public bounds: two numbers, or two dates.
        label: the column of the classes.
        keys: every class that could occur; records of others are left out.
        size: about how many records, from public knowledge, where they are very many.
        **privacy: as for ``density``.

    Raises:
        Refused, ParameterError: what cannot be planned.

    Example:
        >>> fit = predict({"x": (0, 1), "y": (0, 90)}, label="kind", keys=["a", "b"], epsilon=2.0)
        >>> fit.plan.claim
        (2.0, 1e-06)
    """
    rows: StepDicts = [] if len(set(bounds_of(columns).values())) == 1 else [{"rescale": {}}]
    mechanism = {"linear_model": {} if size is None else {"size": size}}
    steps = [*rows, grid(columns)]
    return recipe("predict", columns, (label, keys), steps, privacy, mechanism)
