"""Generate records with codes for missing answers, for imputed values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from opendp_sim.audit.generators.neighbours import RECORD_METRICS, Edit, Pair

_MOST, _MANY, _FEW = 3, 40, 8
_NINES = frozenset((-1, *(sign * (10**n - 1) for n in range(1, 7) for sign in (-1, 1))))


def sentinels(corners: Sequence[Any]) -> list[Any]:
    """Return codes for missing values in the domain, such as -999."""
    none = [c for c in corners if c is None][:1]
    numbers = _numbers(corners)
    nan = [c for c in numbers if math.isnan(c)][:1]
    whole = sorted({c for c in numbers if c in _NINES}, key=lambda c: (c != -1, -abs(c)))
    return [*none, *nan, *whole][:_MOST]


def imputed(
    corners: Sequence[Any], size: int | None, edits: Callable[[Any], tuple[Edit, ...]]
) -> Iterator[tuple[tuple[Any, ...], tuple[Edit, ...]]]:
    """Yield many missing answers, with edits that set the imputed value.

    The edits bring the highest or the lowest record. A mean that takes the place of what is missing
    multiplies that record by their number.

    Args:
        corners: values of a record.
        size: number of records where it is public.
        edits: what brings a record.
    """
    known = [c for c in _numbers(corners) if math.isfinite(c)]
    ends = (max(known), min(known)) if known else ()
    for value, other in itertools.product(sentinels(corners), ends):
        if value != other:
            yield (value,) * (_MANY if size is None else size), edits(other)


def _numbers(corners: Sequence[Any]) -> list[Any]:
    return [c for c in corners if isinstance(c, (int, float)) and not isinstance(c, bool)]


def with_nan(metric: str, member: Callable[[Any], bool], distance: Any) -> tuple[Pair, ...]:
    """Return neighbours of which one has NaN records.

    Where the domain has them. A sum that keeps NaN is NaN whatever is added to it: that shows in one
    release of either side.
    """
    if metric not in RECORD_METRICS or not isinstance(distance, int) or distance > _FEW:
        return ()
    more, rest = [math.nan] * distance, [1.0, 2.0]
    adding = metric in ("SymmetricDistance", "InsertDeleteDistance")
    bases = ([], rest) if adding else ([0.0] * distance, [0.0] * distance + rest)
    made = [
        Pair(base, base + more if adding else more + base[distance:], distance) for base in bases
    ]
    return tuple(pair for pair in made if member(pair.left) and member(pair.right))
