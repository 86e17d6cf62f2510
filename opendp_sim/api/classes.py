"""Plan one private density a class, ``sim.classes``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Unpack

from opendp_sim.accounting.release.release import Release
from opendp_sim.api.columns import Bounds
from opendp_sim.api.kernel_steps import check_points, kernel_steps
from opendp_sim.api.recipe import Recipe
from opendp_sim.api.recipe_spec import PrivacyOptions, recipe, recipe_function
from opendp_sim.postprocessing._impl.grown_points import MOST_CLASSES


@recipe_function(
    PrivacyOptions, 'classes({"age": (0, 120)}, label="kind", keys=["a", "b"], bandwidth=5.0)'
)
def classes(
    columns: Bounds,
    *,
    label: str,
    keys: Sequence[str | int],
    bandwidth: float | Mapping[str, float],
    seed: int = 0,
    size: int | None = None,
    error: float | None = None,
    points: Literal["auto", "grown", "none"] = "auto",
    **privacy: Unpack[PrivacyOptions],
) -> Recipe[Release]:
    """Plan one private density a class, for ``release.classify(queries)`` and ``release.density``.

    Args:
        columns: each column's public bounds: two numbers, or two dates.
        label: the column of the classes.
        keys: every class that could occur; records of others are left out.
        bandwidth: as for ``density``.
        seed: of public frequencies; noise has no seed.
        size: as for ``density``.
        error: as for ``density``, of each class.
        points: as for ``density``; of more than 100 classes ``auto`` grows none.
        **privacy: as for ``density``.

    Example:
        >>> fit = classes({"x": (0, 1)}, label="kind", keys=["a", "b"], bandwidth=0.1, epsilon=0.5)
        >>> fit.plan.claim
        (0.5, 1e-06)
    """
    check_points(points)
    if points == "auto" and len(keys) > MOST_CLASSES:
        points = "none"
    rows, step = kernel_steps(
        columns,
        bandwidth,
        seed,
        per_label=True,
        privacy=privacy,
        size=size,
        error=error,
        points=points,
    )
    return recipe("classes", columns, (label, keys), [*rows, step], privacy, size=size)
