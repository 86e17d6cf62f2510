"""Where two plain documents differ: the names of fields, and none of their values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from opendp_sim.dsl.diagnostic import Path, pretty
from opendp_sim.dsl.same_numbers import same

__all__ = ["differences", "told_differences"]

_TOLD = 5
"""Fields that are named; whoever changed more compares the texts."""


def differences(ours: Any, theirs: Any, at: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each field that differs, and where it is missing: "first", "second" or nothing."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            inside = (*at, name)
            if name not in ours or name not in theirs:
                yield inside, "second" if name in theirs else "first"
            else:
                yield from differences(ours[name], theirs[name], inside)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (own, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(own, their, (*at, place))
    elif not same(ours, theirs) or type(ours) is not type(theirs):
        yield at, ""


def told_differences(
    ours: Any, theirs: Any, *, first: str = "the spec", second: str = "the certificate"
) -> str:
    """Return the fields that differ as a text: their names, without any value."""
    found = list(islice(differences(ours, theirs), _TOLD + 1))
    by_side = {"first": f" (only in {first})", "second": f" (only in {second})", "": ""}
    told = [f"`{pretty(path)}`{by_side[side]}" for path, side in found[:_TOLD]]
    more = " and more" if len(found) > _TOLD else ""
    verb = "differs" if len(found) == 1 else "differ"
    return f"{', '.join(told)}{more} {verb}" if told else ""
