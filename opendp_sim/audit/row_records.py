"""Records of several parts that are what the code names: a key of its own, and a number beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from opendp_sim.audit.mining import Mined
from opendp_sim.audit.text_records import ranked

__all__ = ["rows_of", "unlike"]

_WORDS, _NUMBERS = 8, 8


def rows_of(sample: Any, found: Mined) -> Iterator[Any]:
    """Yield records like a sample, of which one part or several are words and numbers of the code.

    Args:
        sample: a tuple or a list.
        found: what the code names.
    """
    choices = [_parts(part, found) for part in sample]
    usual = list(sample)
    for place, values in enumerate(choices):
        for value in values:
            yield type(sample)([*usual[:place], value, *usual[place + 1 :]])
    few = [values[:_WORDS] or [part] for part, values in zip(sample, choices, strict=True)]
    for row in itertools.islice(itertools.product(*few), _WORDS * _NUMBERS * 2):
        yield type(sample)(row)


def unlike(values: Iterable[Any]) -> list[Any]:
    """Return values without those that were there before; lists have no hash."""
    return list({repr(value): value for value in values}.values())


def _parts(part: Any, found: Mined) -> list[Any]:
    """Return what may stand in the place of a part."""
    if isinstance(part, str):
        return ranked(found)[:_WORDS]
    if isinstance(part, bool) or not isinstance(part, (int, float)):
        return []
    whole = sorted((c for c in found.numbers if c == int(c)), key=lambda c: (-abs(c), c))
    numbers = [0, *whole[:_NUMBERS], *(c - 1 for c in whole[:2])]
    return [type(part)(c) for c in dict.fromkeys(numbers)]
