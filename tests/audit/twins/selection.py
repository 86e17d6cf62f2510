"""What the twins of private selection share: tiny histograms, exact coins, one line a twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from opendp_sim.core.bridge import build
from opendp_sim.core.claims import Private
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.domains.counts import USERS, votes_space
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.selection import OPENDP
from tests._enumeration import distribution
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import named

__all__ = [
    "ITEMS",
    "SPACE",
    "VOTES",
    "best",
    "by_count",
    "claimed",
    "entry",
    "gap",
    "number",
    "row",
    "twins",
]

ITEMS = 4
SPACE = IntVector(ITEMS)
VOTES = votes_space("twin", SPACE, USERS)
Draw = Callable[[Any, Any], Any]


def claimed(mechanism: Mechanism, space: Any = SPACE, metric: Any = USERS) -> Private:
    """Return the claim of a mechanism over small histograms."""
    claim = mechanism.bind(space, metric)
    assert isinstance(claim, Private)
    return claim


def number(mechanism: Mechanism, name: str) -> int:
    """Return one of the public numbers of a claim: its threshold, its height."""
    return int(claimed(mechanism).expected[name])


def entry(
    kind: Any,
    name: str,
    mechanism: Mechanism,
    draw: Draw,
    d_in: int = 1,
    pairs: Any = (),
    privacy_map: Any = None,
    space: Any = SPACE,
    metric: Any = USERS,
    read: Callable[[Any], Any] = lambda data: np.asarray(data, dtype=np.int64),
    **more: Any,
) -> Any:
    """Give ``draw`` the claim of ``mechanism``, and its exact distribution by exact coins.

    Args:
        pairs: neighbours on which the fault shows; tried first.
        privacy_map: a claim that is wrong by itself, in place of the mechanism's.
        read: from a dataset to what ``draw`` takes.
    """
    claim = claimed(mechanism, space, metric)

    def make() -> Any:
        broken = replace(claim, function=lambda data: repr(draw(OPENDP, read(data))))
        if privacy_map is not None:
            broken = replace(broken, privacy_map=privacy_map)
        return build(broken, mechanism.key, space, metric)

    def pmf(data: Any) -> dict[Any, float]:
        exact = distribution(lambda coins: draw(coins, read(data)))
        return {"None" if answer is None else answer: p for answer, p in exact.items()}

    options = {} if kind is Control else {"pmf": pmf}
    if len(pairs):
        options["pairs"] = [tuple(np.asarray(side).tolist() for side in pair) for pair in pairs]
    return kind(name=f"{mechanism.key}/{name}", make=make, d_in=d_in, options=options, **more)


def row(label: str, draw: Draw, *sides: Any, **more: Any) -> dict[str, Any]:
    """Return one broken draw, and the neighbours that show it if the search is not to find them.

    ``"0012 0011"`` are two histograms of four items.
    """
    if len(sides) == 1:
        sides = tuple([int(each) for each in side] for side in sides[0].split())
    return {**named(label), "draw": draw, "pairs": [sides] if sides else [], **more}


def twins(mechanism: Mechanism, *rows: dict[str, Any], **more: Any) -> list[Twin]:
    """Return a table of broken copies of a mechanism; keywords as of ``entry``."""
    return [entry(Twin, mechanism=mechanism, **{**more, **each}) for each in rows]


def best(h: Any, k: int) -> list[int]:
    """Return the exact top k, in the public order."""
    return sorted(by_count(h, k))


def by_count(h: Any, k: int) -> list[int]:
    """Return the exact top k, most votes first."""
    return [int(i) for i in VOTES.rank(h, k).places]


def gap(h: Any, k: int) -> int:
    """Return the exact gap below rank k."""
    return int(VOTES.rank(h, k + 1).gaps[k - 1])
