"""Plan private sums of distances to all records, ``sim.distances``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

from opendp_sim.accounting.release.release import Release
from opendp_sim.api.columns import Bounds, grid
from opendp_sim.api.recipe import Recipe, goal
from opendp_sim.api.recipe_spec import PrivacyOptions, StepDicts, recipe, recipe_function
from opendp_sim.api.recommend import recommend
from opendp_sim.core.errors import ParameterError, scalar_text

_THRESHOLDS = 1024
"""On the widest column: grid bias of a 2048th of its range a record, at most."""
_MOST = 2**13
"""Thresholds at most where a size is stated: more take time."""


@recipe_function(PrivacyOptions, 'distances({"lon": (-10, 40), "lat": (35, 70)}, norm="l2")')
def distances(
    columns: Bounds,
    *,
    norm: Literal["l1", "l2"] = "l1",
    label: str | None = None,
    keys: Sequence[str | int] = (),
    seed: int = 0,
    size: int | None = None,
    error: float | None = None,
    **privacy: Unpack[PrivacyOptions],
) -> Recipe[Release]:
    """Plan sums and means of distances, for ``release.distance(queries, mean=True)``.

    With classes also ``release.nearest_class(queries, rule="mean_distance")``. Distances are in data
    units. For squared ones ``sim.means`` has less noise.

    Args:
        columns: each column's public bounds: two numbers, or two dates.
        norm: ``l1`` adds up the columns' distances; ``l2`` is the straight line, of two columns or more.
        label: the column of the classes; None for all records together.
        keys: every class that could occur; records of others are left out.
        seed: of the public directions of ``l2``; noise has no seed.
        size: about how many records, from public knowledge, beside ``error``; alone, of ``l1``, the
            mechanism and its numbers are those of ``recommend``, which have the least predicted error.
        error: what 95 % of sums are to be within, in the columns' unit: the least number of thresholds or
            directions is solved.
        **privacy: as for ``density``.

    Raises:
        ParameterError (OS101): another norm. Refused: what cannot be planned.

    Example:
        >>> fit = distances({"x": (0, 1), "y": (0, 90)}, epsilon=0.5)
        >>> fit.plan.claim
        (0.5, 1e-06)
    """
    found = None if error is None else goal(error, size, "distance")
    by_class = {"per_label": label is not None}
    slices = {"seed": seed} | ({} if found is None else {"directions": found})
    steps: dict[str, StepDicts] = {
        "l1": [{"threshold_sketch": {"thresholds": found or _THRESHOLDS, **by_class}}],
        "l2": [{"slice_sketch": {**slices, **by_class}}],
    }
    given: Any = norm  # whatever a caller writes
    if not isinstance(given, str) or given not in steps:
        raise ParameterError(
            "OS101", "norm", expected="l1 or l2", got=scalar_text(norm, 40),
            hint="of squared distances `sim.means` is for.",
        )  # fmt: skip
    told = None if label is None else (label, keys)
    if error is None and size is not None and norm == "l1" and not _solved(privacy):
        best = recommend("distances", columns, size=size, most=_MOST, **privacy).best
        steps["l1"] = [{key: {**words, **by_class} for key, words in best.step.items()}]
    return recipe("distances", columns, told, [grid(columns), *steps[norm]], privacy)


def _solved(privacy: Mapping[str, Any]) -> bool:
    """Return whether epsilon is to be solved from an error."""
    return isinstance(privacy.get("epsilon"), Mapping)
