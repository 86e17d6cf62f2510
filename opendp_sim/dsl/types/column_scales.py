"""Warn of compared columns with different declared ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opendp_sim.core.claims import Claim
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.domains.checks import FEWEST_STEPS
from opendp_sim.domains.records import Records
from opendp_sim.domains.rows import GridRows
from opendp_sim.dsl.types.records import Bound, Typed

_APART = 4.0
"""Ranges that differ by more than this factor are seldom meant to be compared."""
_TOLD = 8
"""Columns whose units are told one by one."""


def unlike_columns(stages: Iterable[Typed], bounds: Iterable[Bound | None]) -> Iterator[str]:
    """Report once which column decides a grid's distances, and the least share.

    Rows that were rescaled are as they were meant, unless the grid rounds a column away; so is what a
    mechanism that takes every column by its own bounds makes of them.
    """
    told: set[str] = set()
    for typed in stages:
        names = _names(typed)
        asked = ((s.mechanism, s.domain, s.claim) for s in typed.stages)
        for mechanism, domain, claim in asked:
            if isinstance(domain, GridRows) and not domain.distortion:
                told.update(_sentence(typed.entry.name, names, mechanism, domain, claim))
                break
    for bound in bounds:
        if bound is not None and isinstance(bound.domain, GridRows):
            told.update(_sentence("", [], bound.record, bound.domain, bound.claim))
    yield from sorted(told)


def _sentence(
    source: str, names: list[str], mechanism: Mechanism, rows: GridRows, claim: Claim
) -> Iterator[str]:
    steps = [high - low for low, high in zip(rows.lower, rows.upper, strict=True)]
    least, most = min(steps), max(steps)
    if mechanism.any_units or most <= _APART * least:
        return
    wide, narrow = (_name(names, steps.index(end)) for end in (most, least))
    on = f"{mechanism.key}{f' on {source}' if source else ''}"
    if rows.frame:
        if rows.rounding and least < FEWEST_STEPS:
            yield (
                f"{on}: column {narrow} has {least:,} grid step{'s' if least != 1 else ''} beside the "
                f"{most:,} of {wide}, in the units that were chosen: nearly all of its information is "
                "rounded away; more `bits` of `quantize` keep it, or `scale: range`"
            )
        return
    power = _power(claim)
    share = most**power / sum(step**power for step in steps)
    yield (
        f"{on}: column {wide} holds {share:.1%} of the "
        f"largest distance, and {narrow} has {least:,} grid steps beside its {most:,}; put `rescale: "
        "{scale: range}` before `quantize` to count columns in ranges, or `{scale: unit}` to say that "
        "distances in data units are meant"
    )


def _power(claim: Claim) -> float:
    """Return the exponent of the distance summed over columns."""
    for offer in getattr(claim, "capabilities", {}).values():
        if getattr(offer, "distance", None) == "l1":
            return 1.0
        if isinstance(power := getattr(offer, "power", None), float):
            return power
    return 2.0


def _names(typed: Typed) -> list[str]:
    for stage in typed.stages:
        if stage.mechanism.key == "select" and isinstance(stage.domain, Records):
            wanted = stage.mechanism.features
            found: list[str] = []
            for name in (wanted,) if isinstance(wanted, str) else wanted:
                column = stage.domain.column(name)
                width = 1 if column is None else column.width
                found += [name] if width == 1 else [f"{name}_{j}" for j in range(width)]
            return found
    return []


def own_units(typed: Typed) -> str:
    """Return each column's unit after a rescaling stage, empty otherwise."""
    own = typed.stages[-len(typed.decl.steps) :] if typed.decl.steps else ()
    frames = [getattr(s.claim.output, "frame", ()) for s in own if s.mechanism.key == "rescale"]  # type: ignore[union-attr]
    if not frames or len(frames[-1]) < 2:
        return ""
    names = _names(typed)
    each = [
        f"{_name(names, j)} {unit:.6g} about {middle:.6g}"
        for j, (middle, unit) in enumerate(frames[-1][:_TOLD])
    ]
    left = len(frames[-1]) - len(each)
    more = f" and {left:,} more" if left else ""
    return f"one unit, in the data's own: {', '.join(each)}{more}; distances, bandwidths count in units"


def _name(names: list[str], index: int) -> str:
    return f"`{names[index]}`" if index < len(names) else str(index)
