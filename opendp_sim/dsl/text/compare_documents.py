"""Compare documents calculated by different processors.

numpy has its own exponentials and logarithms for processors with wide registers, and a library of
linear algebra adds in another order on each: the last digits of a loss differ by where it was
calculated. Whoever verifies a certificate, or runs a reviewed plan, on another machine must not read
that it was changed.

Hashes, names, counts and kinds have to be equal; floats, to a part in 2**40, which nobody's privacy hangs
on (a claimed epsilon of 1 would be wrong by 1e-12).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from opendp_sim.dsl.text.diagnostic import Path, pretty

ROOM = 2.0**-40
"""How far two floats may be apart, relative to the larger one."""
_HEX = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}")
_RATIO = re.compile(r"([0-9]{1,400})/([0-9]{1,400})")


def same(ours: Any, theirs: Any) -> bool:
    """Return whether two plain values are the same, member by member."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple) and type(ours) is type(theirs):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(ours, str) and isinstance(theirs, str):
        ours, theirs = _number(ours), _number(theirs)
    if type(ours) is float and type(theirs) is float:
        return ours == theirs or math.isclose(ours, theirs, rel_tol=ROOM)
    return bool(ours == theirs)


def _number(text: str) -> str | float:
    """Return the float of a ledger's loss, or another text unchanged."""
    try:
        if (ratio := _RATIO.fullmatch(text)) is not None:
            return int(ratio[1]) / int(ratio[2])
        return float.fromhex(text) if _HEX.fullmatch(text) else text
    except (OverflowError, ZeroDivisionError):
        return text


# --------------------------------------------------------------------------------------------------
# Where two plain documents differ: the names of fields, and none of their values.

_TOLD = 5
"""Fields that are named; whoever changed more compares the texts."""


def differences(ours: Any, theirs: Any, at: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield each differing field, and where it is missing."""
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


def told_differences(ours: Any, theirs: Any, *, second: str = "the certificate") -> str:
    """Return the names of differing fields, without values."""
    found = list(islice(differences(ours, theirs), _TOLD + 1))
    by_side = {"first": " (only in the spec)", "second": f" (only in {second})", "": ""}
    told = [f"`{pretty(path)}`{by_side[side]}" for path, side in found[:_TOLD]]
    more = " and more" if len(found) > _TOLD else ""
    verb = "differs" if len(found) == 1 else "differ"
    return f"{', '.join(told)}{more} {verb}" if told else ""
