"""Records of a domain that only says whether a value is a member: their shape is found by asking.

OpenDP's ``user_domain`` has a membership test and nothing else. Plain values and short tuples and lists
of them are tried; what is a member is a record.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from opendp_sim.audit.atoms import Source

__all__ = ["guessed_source"]

_POOLS: tuple[tuple[Any, ...], ...] = (
    (1, 0, 2, -1, 5, -5, 10, 100, -100, 1000),
    (1.0, 0.0, 0.5, -1.0, 10.0, -10.0, 100.0, -100.0),
    ("a", "b", "", "c", "1"),
    (True, False),
)
"""Values of each kind, likely members first."""
_LONGEST, _SHAPES, _CORNERS, _TRIES, _ASKED = 4, 3, 40, 20, 3
_FORMS: tuple[Callable[[Any], Any], ...] = (tuple, list)


def guessed_source(member: Callable[[Any], bool]) -> Source | None:
    """Return records for which the test holds; ``None`` when none was found."""
    makers = list(itertools.islice(_shapes(member), _SHAPES))
    if not makers:
        return None
    corners = [record for make, pools in makers for record in _corners(make, pools, member)]
    simplest = corners[0]

    def draw(rng: np.random.Generator) -> Any:
        for _ in range(_TRIES):
            make, pools = makers[int(rng.integers(len(makers)))]
            record = make([pool[int(rng.integers(len(pool)))] for pool in pools])
            if member(record):
                return record
        return simplest

    return Source(tuple(corners[:_CORNERS]), draw, simplest)


_Pools = tuple[tuple[Any, ...], ...]


def _shapes(member: Callable[[Any], bool]) -> Iterator[tuple[Callable[[Any], Any], _Pools]]:
    """Yield how a record is put together, and what may stand in each place."""
    for pool in _POOLS:
        if any(member(value) for value in pool[:_ASKED]):
            yield (lambda parts: parts[0]), (pool,)
    for length in range(1, _LONGEST + 1):
        for pools in itertools.product(_POOLS, repeat=length):
            for form in _FORMS:
                tries = [form([pool[k % len(pool)] for pool in pools]) for k in range(_ASKED)]
                if any(member(record) for record in tries):
                    yield form, pools


def _corners(
    make: Callable[[Any], Any], pools: _Pools, member: Callable[[Any], bool]
) -> Iterator[Any]:
    """Yield records that differ from the first one in one place, and in all."""
    middle = [pool[0] for pool in pools]
    wanted = [middle]
    for place, pool in enumerate(pools):
        wanted += [[*middle[:place], value, *middle[place + 1 :]] for value in pool]
    wanted += [[pool[k % len(pool)] for pool in pools] for k in range(max(map(len, pools)))]
    yield from (record for record in map(make, wanted) if member(record))
