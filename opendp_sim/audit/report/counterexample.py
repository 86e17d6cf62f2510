"""Search a counterexample that a person can check.

A plain event, a small pair, and a few lines that count it. The event that won the bets may be a
learned score. Here simple events are tried on outputs of the refuted pair, the best are chosen on one
sample and again on a second, and certified on a third. Where draws do not certify any, the best is
shown with what was calculated of it, and the script says so.

The bound that is printed has its risk over every event that any look may certify (``layer.md``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.outputs.encoding import Raised, outcome
from opendp_sim.audit.outputs.predicates import PlainEvent, both_hold, literal, plain_events
from opendp_sim.audit.outputs.reading import read
from opendp_sim.audit.report.repro_script import Shown, event_script, planned
from opendp_sim.audit.statistics.clopper_pearson import certified_delta, certified_epsilon
from opendp_sim.audit.statistics.sampling import both_sides, differ
from opendp_sim.audit.work import work_seconds

# --------------------------------------------------------------------------------------------------
# Which plain event shows most of a claim's excess, on a sample of either side.

_POINTS, _JOINED, _ALIKE = 9, 14, 3


@dataclass(frozen=True)
class Chosen:
    """Describe an event, its likelier side and the claim's point."""

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
    """Return the observed events by decreasing excess over the claim."""
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
    """Return the first events, a few for each part."""
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


# --------------------------------------------------------------------------------------------------
# A smaller pair on which an event keeps its excess, and how many releases fit into some seconds.

MOST = 20_000
_KEEP = 0.75
_ALWAYS = 3
"""Smaller pairs that are tried whatever the clock says: all shared records left out, and either half."""
_GLANCED, _TWICE = 40, 2
"""Runs a side that judge a smaller pair; a pair that is too slow for two looks is kept."""


@dataclass(frozen=True)
class Search:
    """What is drawn from, and until when."""

    run: Callable[[Any], Any]
    curve: Curve
    end: float
    member: Callable[[Any], bool]

    def left(self, share: float = 1.0) -> float:
        """Return a part of the nominal seconds that are left."""
        return share * max(0.0, self.end - work_seconds())


def affordable(run: Callable[[Any], Any], pair: Pair, seconds: float) -> int:
    """Return the number of releases a side in nominal seconds."""
    begin = work_seconds()
    for data in (pair.left, pair.right):
        outcome(run, data)
    cost = max(work_seconds() - begin, 1e-5)
    return int(min(MOST, seconds / cost))


def releases_of(run: Callable[[Any], Any], pair: Pair, count: int) -> tuple[list[Any], list[Any]]:
    """Return releases of either side, exceptions included.

    A coin decides the order in each round. A counter, a clock or a cache that warms up would tell one
    side from the other if it came first.
    """
    return both_sides(lambda data: [outcome(run, data)], pair, count)


def shrunk_pair(
    search: Search, pair: Pair, chosen: Chosen, seconds: float, glanced: int = _GLANCED
) -> Pair:
    """Remove shared records while the event keeps excess in few draws."""
    if not isinstance(pair.left, list) or not isinstance(pair.right, list):
        return pair
    if glanced == _GLANCED and affordable(search.run, pair, seconds) < _TWICE * glanced:
        return pair

    def excess(of: Pair) -> float:
        sides = releases_of(search.run, of, glanced)
        p, q = (sum(map(chosen.event.holds, side)) / glanced for side in sides)
        p, q = (q, p) if chosen.swapped else (p, q)
        return p - math.exp(min(chosen.point[0], 50.0)) * q - chosen.point[1]

    return _without_shared(search, pair, excess, _KEEP, seconds)


def _without_shared(
    search: Search,
    pair: Pair,
    excess: Callable[[Pair], float],
    share: float,
    seconds: float,
    most: float = math.inf,
) -> Pair:
    """Remove shared records while a share of the excess stays.

    At most ``most`` smaller pairs are tried at a time.
    """
    end, goal = work_seconds() + seconds, share * excess(pair)
    better, tried = goal > 0, 0
    while better and (work_seconds() < end or tried < _ALWAYS):
        better = False
        for number, small in enumerate(smaller(pair)):
            tried += 1
            if number > most or (work_seconds() > end and tried > _ALWAYS):
                break
            inside = search.member(small.left) and search.member(small.right)
            if inside and excess(small) >= goal:
                pair, better = small, True
                break
    return pair


def smaller(pair: Pair) -> Iterator[Pair]:
    """Yield the pair without a half, quarter or one of its records."""
    shared = _shared(pair.left, pair.right)
    size = len(shared)
    while size >= 1:
        for start in range(0, len(shared), size):
            drop = shared[start : start + size]
            mine, other = {i for i, _ in drop}, {j for _, j in drop}
            left = [v for i, v in enumerate(pair.left) if i not in mine]
            right = [v for j, v in enumerate(pair.right) if j not in other]
            if differ(left, right):  # two orders of the same records may leave one
                yield replace(pair, left=left, right=right, genome=None)
        size //= 2


def _shared(left: list[Any], right: list[Any]) -> list[tuple[int, int]]:
    """Match equal records of both sides, each once."""
    places: dict[str, list[int]] = {}
    for j, value in reversed(list(enumerate(right))):
        places.setdefault(repr(value), []).append(j)
    return [(i, places[repr(v)].pop()) for i, v in enumerate(left) if places.get(repr(v))]


# --------------------------------------------------------------------------------------------------

_FEWEST, _FIRST, _RISK = 60, 800, 1e-3
_HANDFUL = 8
_LONG, _FEW, _TRIED_SMALLER, _AS_MUCH = 200, 20, 6, 0.8
_FAR = 200_000
"""Runs a side that a script asks for at most; what they do not show is said to be calculated."""
_SHRINK, _KEPT, _TRIED = 0.4, 16, 3
_SHARES = 0.3, 1.0
"""Parts of the seconds that end a first and a second look."""


def level_of(steps: int) -> float:
    """Return the risk of one event under multiple testing."""
    return _RISK / (_TRIED * len(_SHARES) * steps)


@dataclass(frozen=True)
class Witness:
    """Describe a counterexample's event, frequencies and reproduction."""

    event: str
    """A Python expression about ``output``."""
    pair: Pair
    hits: tuple[int, int]
    runs: int
    epsilon: float
    """Certified: the loss is at least this, at ``delta``."""
    delta: float
    script: str
    certified: bool = True
    """Whether these draws break the claim by themselves."""
    turned: bool = False
    """Whether the pair's sides are in another order than those of the pair that was given."""


def find_witness(
    run: Callable[[Any], Any],
    pair: Pair,
    curve: Curve,
    seconds: float,
    *,
    member: Callable[[Any], bool] = lambda _: True,
    shown: Shown | None = None,
    steps: int = 1,
) -> Witness | None:
    """Return a plain event for the finding, or None.

    ``None`` when outputs suggest none.

    Args:
        run: releases of the object itself.
        pair: the refuted pair.
        curve: the claim.
        seconds: nominal seconds.
        member: whether a smaller dataset is in the domain.
        shown: what the script says of the object and of what was calculated.
        steps: how many such searches are made at most, of which the first that certifies is shown.
    """
    begin, out = work_seconds(), None
    for share in _SHARES:  # most findings are gross: a short look shows them
        search = Search(lambda data: read(run(data)), curve, begin + share * seconds, member)
        shown = replace(shown or Shown(), read=_has_objects(run, pair))
        found = _looked(search, out.pair if out else pair, shown, level_of(steps))
        if found is not None and out is not None and out.turned:
            found = replace(found, turned=not found.turned)
        out = found or out
        if out is not None and out.certified:
            break
    return out


def _looked(search: Search, pair: Pair, shown: Shown, level: float) -> Witness | None:
    pair = _lightened(search, pair)
    count = max(_HANDFUL, min(_FIRST, affordable(search.run, pair, search.left(0.25))))
    found = best_events(*releases_of(search.run, pair, count), search.curve, _KEPT)
    if not found:
        return None
    count = max(_HANDFUL, min(MOST, affordable(search.run, pair, search.left(0.3))))
    more = releases_of(search.run, pair, count)
    found = ranked_again([c.event for c in found], *more, search.curve) or found
    pair = shrunk_pair(search, pair, found[0], min(_SHRINK, search.left(0.3)))
    return _certified(search, pair, found, shown, level)


def _has_objects(run: Callable[[Any], Any], pair: Pair) -> bool:
    """Return whether releases have parts without an index."""
    raw = [outcome(run, data) for data in (pair.left, pair.right) for _ in range(3)]
    return any(not isinstance(v, Raised) and read(v) is not v for v in raw)


def _lightened(search: Search, pair: Pair) -> Pair:
    """Return a smaller pair for a long or slow one."""
    long = isinstance(pair.left, list) and len(repr(pair.left)) > _LONG
    if long:  # an event that names its length is lost with any record: any event counts
        excess, seconds = partial(_shown, search), search.left(0.5)
        pair = _without_shared(search, pair, excess, _AS_MUCH, seconds, _TRIED_SMALLER)
    if affordable(search.run, pair, search.left(0.25)) >= 4 * _FEWEST:
        return pair
    found = best_events(*releases_of(search.run, pair, _HANDFUL), search.curve, 1)
    return shrunk_pair(search, pair, found[0], search.left(0.7), _HANDFUL // 2) if found else pair


def _shown(search: Search, pair: Pair) -> float:
    """Return the best event's excess in standard errors."""
    found = best_events(*releases_of(search.run, pair, _FEW), search.curve, 1)
    return found[0].size if found else 0.0


def _certified(
    search: Search, pair: Pair, found: list[Chosen], shown: Shown, level: float
) -> Witness | None:
    """Return the first certified event, or the best.

    An event that this sample does not have is not written: its lines would print two zeros.
    """
    count = max(_HANDFUL, min(MOST, affordable(search.run, pair, search.left())))
    sides = releases_of(search.run, pair, count)
    out: list[Witness] = []
    for place, chosen in enumerate(found):
        if out and place >= _TRIED:
            break
        turned, (one, two) = (pair.flipped(), sides[::-1]) if chosen.swapped else (pair, sides)
        hits = sum(map(chosen.event.holds, one)), sum(map(chosen.event.holds, two))
        bound = certified_delta(hits, (count, count), chosen.point[0], level)
        sure = place < _TRIED and bound > chosen.point[1]
        if not hits[0] or (out and not sure):
            continue
        written = _written(turned, chosen, (one, two), hits, shown, sure=sure)
        loss = certified_epsilon(hits, (count, count), chosen.point[1], level)
        loss = loss if place < _TRIED else 0.0
        out = [replace(written, turned=chosen.swapped, epsilon=loss)]
        if sure:
            break
    return out[0] if out else None


def _written(
    pair: Pair,
    chosen: Chosen,
    sides: tuple[list[Any], list[Any]],
    hits: tuple[int, int],
    shown: Shown,
    *,
    sure: bool,
) -> Witness:
    """Return the witness with its script."""
    count, event = len(sides[0]), chosen.event
    rates = hits[0] / count, hits[1] / count
    outputs = [*sides[0], *sides[1]]
    same = sure and not shown.read and _fixed(sides[0]) and _fixed(sides[1])
    runs = planned(rates, chosen.point)
    shown = replace(
        shown,
        point=chosen.point,
        count=runs if sure else min(runs, _FAR),
        note="" if sure or runs < _FAR else _apology(shown.note),
        raised=any(isinstance(v, Raised) for v in outputs),
        same=same,
    )
    text = _as_ever(sides[0][0]) if same else event.text
    text += "" if shown.calls == 1 else f", output: the releases of {shown.calls} calls"
    script = event_script(pair, event, shown, outputs[:2000])
    return Witness(text, pair, hits, count, 0.0, chosen.point[1], script, sure)


def _as_ever(output: Any) -> str:
    if isinstance(output, Raised):
        return f"it raises {output.text}, as ever"
    return f"output == {literal(output)}, as ever from this object"


def _apology(note: str) -> str:
    why = "Draws do not show what was found: this event is too rare on one side, or its excess too small."
    return f"{why}\n{note}" if note else why


def _fixed(outputs: Sequence[Any]) -> bool:
    first = repr(outputs[0])
    return all(repr(output) == first for output in outputs)
