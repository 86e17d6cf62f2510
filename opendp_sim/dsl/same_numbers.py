"""Whether two documents say the same, where each was calculated by another processor.

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
from typing import Any

__all__ = ["ROOM", "same"]

ROOM = 2.0**-40
"""How far two floats may be apart, relative to the larger one."""
_HEX = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4}")


def same(ours: Any, theirs: Any) -> bool:
    """Say whether two plain values are the same: dicts, lists and tuples member by member."""
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
    """Return the float that a text of a ledger is, ``float.hex`` of it; another text as it is."""
    try:
        return float.fromhex(text) if _HEX.fullmatch(text) else text
    except OverflowError:
        return text
