"""Which plain event shows most of a claim's excess, on a sample of either side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.curves import Curve
from opendp_sim.audit.plain_events import PlainEvent, both_hold, plain_events

__all__ = ["Chosen", "best_events", "ranked_again"]

_POINTS, _JOINED, _ALIKE = 9, 14, 3


@dataclass(frozen=True)
class Chosen:
    """An event, the side that it is likelier on, the point of the claim that it breaks most."""

    event: PlainEvent
    point: tuple[float, float]
    swapped: bool
    size: float


def _points(curve: Curve) -> list[tuple[float, float]]:
    """Return a few points (epsilon, delta) of the claim."""
    step = max(1, len(curve.grid) // _POINTS)
    return [
        (float(e), float(d)) for e, d in zip(curve.grid[::step], curve.deltas[::step], strict=True)
    ]


Table = tuple[list[PlainEvent], NDArray[np.bool_], NDArray[np.bool_]]


def _table(events: Iterable[PlainEvent], left: Sequence[Any], right: Sequence[Any]) -> Table:
    """Return which outputs of either side each event has."""
    known = list(events)
    one, two = (
        np.array([[e.holds(v) for v in side] for e in known], dtype=bool).reshape(
            len(known), len(side)
        )
        for side in (left, right)
    )
    return known, one, two


def _scored(table: Table, curve: Curve) -> list[Chosen]:
    """Return the events that were seen, with their points of the claim, the largest excess first."""
    events, one, two = table
    if not events:
        return []
    n, points = one.shape[1], _points(curve)
    factor = np.exp(np.minimum([e for e, _ in points], 50.0))
    delta = np.array([d for _, d in points])
    p, q = one.mean(axis=1)[:, None], two.mean(axis=1)[:, None]
    cost = np.array([event.cost for event in events])[:, None]
    out = []
    for a, b, swapped in ((p, q, False), (q, p, True)):
        spread = np.sqrt((a * (1 - a) + factor**2 * b * (1 - b) + (1 + factor) / n) / n)
        size = (a - factor * b - delta) / spread - cost
        at = size.argmax(axis=1)
        out += [  # an event that was never seen shows nothing: two rays that no output is in, for one
            Chosen(event, points[at[i]], swapped, float(size[i, at[i]]))
            for i, event in enumerate(events)
            if a[i, 0] > 0
        ]
    return sorted(out, key=lambda c: -c.size)


def _varied(events: Iterable[PlainEvent]) -> list[PlainEvent]:
    """Return the first events, only some about any one part of an output."""
    taken: dict[int, PlainEvent] = {}
    about: Counter[str] = Counter()
    for event in events:
        name = event.text.rsplit(" ", 2)[0]
        if id(event) not in taken and about[name] < _ALIKE:
            taken[id(event)] = event
            about[name] += 1
    return list(taken.values())[:_JOINED]


def best_events(left: Sequence[Any], right: Sequence[Any], curve: Curve, most: int) -> list[Chosen]:
    """Return the best events that outputs suggest, joined ones too."""
    table = _table(plain_events(left, right), left, right)
    first = _scored(table, curve)
    index = {id(event): i for i, event in enumerate(table[0])}
    top = _varied(chosen.event for chosen in first)
    joined, one, two = list(table[0]), [table[1]], [table[2]]
    for i, a in enumerate(top):
        for b in top[i + 1 :]:
            rows = index[id(a)], index[id(b)]
            joined.append(both_hold(a, b))
            one.append((table[1][rows[0]] & table[1][rows[1]])[None])
            two.append((table[2][rows[0]] & table[2][rows[1]])[None])
    if not joined:
        return []
    return _scored((joined, np.concatenate(one), np.concatenate(two)), curve)[:most]


def ranked_again(
    events: Iterable[PlainEvent], left: Sequence[Any], right: Sequence[Any], curve: Curve
) -> list[Chosen]:
    """Return the events in the order of a fresh sample."""
    return _scored(_table({id(e): e for e in events}.values(), left, right), curve)
