"""Numbers that lie apart as the code names: a record between two others halves what is between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["between"]

_MOST = 18
"""Numbers of the code that are tried as distances; those next to them are among them."""


def between(known: Sequence[Any], usual: int) -> Iterator[tuple[tuple[Any, Any], Any]]:
    """Yield two records twice a number of the code apart, and the one halfway: gaps, sessions, visits.

    Args:
        known: records of one number each, those of the code last.
        usual: how many are not of the code.
    """
    numbers = [v for v in known if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(numbers) < len(known):
        return
    held = set(numbers)
    named = [v for v in known[usual:] if v > 0 and math.isfinite(v)]
    for gap in named[:_MOST]:
        for low, middle, high in ((-gap, 0, gap), (0, gap, 2 * gap)):
            if {low, high} <= held and middle in held:
                yield (low, high), type(gap)(middle)
