"""Check the space that a mechanism is bound to, or refuse."""

from __future__ import annotations

from opendp_sim.core.errors import SpaceError
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.domains.rows import GridRows, RealRows

FEWEST_STEPS = 64
"""Grid steps below which a column's own resolution is too coarse for its relation to others."""


def symmetric(key: str, metric: Metric) -> None:
    """Refuse any metric but symmetric distance."""
    if metric != Symmetric():
        raise SpaceError(
            "OS202", f"{key}.input_metric", expected="symmetric distance", got=type(metric).__name__,
            hint="the proof counts added and removed rows; use symmetric_distance(), or put "
            "`bound_contributions` first when the unit is a person.",
        )  # fmt: skip


def real_rows(key: str, domain: Domain, metric: Metric, *, by_person: bool = False) -> RealRows:
    """Return ``domain`` if it is real rows under symmetric distance, else refuse.

    With ``by_person``, distance by person does as well, if rows carry ids: for row maps, which keep
    each row's id, so that changed persons stay the only ones whose rows change.
    """
    if not isinstance(domain, RealRows):
        raise SpaceError(
            "OS201", f"{key}.input_domain", expected="rows of finite floats",
            got=type(domain).__name__, hint="put this step before `quantize`."
            if isinstance(domain, GridRows) else "put `select` or an array2_domain before this step.",
        )  # fmt: skip
    if not (by_person and domain.ids and isinstance(metric, IdDistance)):
        symmetric(key, metric)
    return domain


def grid_rows(
    key: str, domain: Domain, metric: Metric, *, needs_labels: bool = False, by_person: bool = False
) -> GridRows:
    """Return ``domain`` if it is grid rows, else refuse.

    The metric must be the symmetric distance; labels are allowed. ``by_person`` as for ``real_rows``.
    """
    if not isinstance(domain, GridRows):
        raise SpaceError(
            "OS201", f"{key}.input_domain", expected="rows on an integer grid",
            got=type(domain).__name__, hint="put `quantize` before this step.",
        )  # fmt: skip
    if not (by_person and domain.ids and isinstance(metric, IdDistance)):
        symmetric(key, metric)
    if needs_labels and domain.labels is None:
        raise SpaceError(
            "OS204", f"{key}.input_domain", expected="rows with public labels", got="no labels",
            hint="add `label:` to `select`, or leave `per_label` out.",
        )  # fmt: skip
    return domain


def fine_rows(key: str, domain: Domain, metric: Metric) -> GridRows:
    """Return ``domain`` as ``grid_rows`` does, or refuse a meaningless column.

    A column is meaningless if rounding to the grid leaves a single value. For sketches whose answers
    do not depend on the unit of a column: each needs its own resolution.
    """
    rows = grid_rows(key, domain, metric)
    steps = [high - low for low, high in zip(rows.lower, rows.upper, strict=True)]
    if rows.rounding and min(steps) < FEWEST_STEPS:
        coarse = steps.index(min(steps))
        hint = (
            "put `rescale: {scale: range}` before `quantize`, which makes columns of unlike units "
            "alike; or quantize to more bits."
        )
        if rows.frame:
            hint = (
                "change the `rescale` before `quantize` to `{scale: range}`, which makes columns of "
                "unlike units alike; or quantize to more bits."
            )
        raise SpaceError(
            "OS203", f"{key}.input_domain",
            expected=f"at least {FEWEST_STEPS} grid steps in every column",
            got=f"{min(steps)} in column {coarse}, beside {max(steps):,} in the widest", hint=hint,
        )  # fmt: skip
    return rows


def kept_distance(rows: GridRows, distance: str) -> tuple[str, ...]:
    """Return advice if projection changes l1, l2 or angle ``distance`` of rows."""
    kept = rows.distortion[0] if rows.distortion else None
    if kept == 2.0 and distance == "l1":
        return (
            (
                "the projection before it keeps l2 distances, not l1: this is not the l1 kernel of the "
                "data. Use a kernel of l2 after it, or leave the projection out."
            ),
        )
    if kept == 1.0 and distance != "l1":
        return (
            (
                "the embedding before it turns l2 distances into l1 distances: use a kernel of l1 here, "
                "which is then one of the data's l2 distance."
            ),
        )
    return ()
