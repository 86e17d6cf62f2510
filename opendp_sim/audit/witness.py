"""A counterexample that a person can check: a plain event, a small pair, six lines that count it.

The event that won the bets may be a learned score. Here simple events are tried on outputs of the refuted
pair, the best is chosen on one sample and certified on another; only what was certified is shown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opendp_sim.audit.counting import certified_delta, certified_epsilon
from opendp_sim.audit.curves import Curve
from opendp_sim.audit.encoding import outcome
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.plain_events import PlainEvent, plain_events

__all__ = ["Witness", "find_witness", "outcome", "stability_script"]

_FEWEST, _MOST, _RISK = 60, 4000, 1e-3
_SHRINK, _KEEP = 0.4, 0.75
_GLANCED, _TWICE = 40, 2
"""Runs a side that judge a smaller pair; a pair that is too slow for two looks is kept."""
_LARGEST_SCRIPT = 2_000_000
_POINTS = 9


@dataclass(frozen=True)
class Witness:
    """What to look at, how often it was seen, and how to see it again."""

    event: str
    """A Python expression about ``output``."""
    pair: Pair
    hits: tuple[int, int]
    runs: int
    epsilon: float
    """Certified: the loss is at least this, at ``delta``."""
    delta: float
    script: str


def find_witness(
    run: Callable[[Any], Any],
    pair: Pair,
    curve: Curve,
    seconds: float,
    *,
    origin: str = "",
    member: Callable[[Any], bool] = lambda _: True,
) -> Witness | None:
    """Return a plain event that certifies the finding; ``None`` when none of those tried does.

    Args:
        run: releases of the object itself.
        pair: the refuted pair.
        curve: the claim.
        seconds: CPU seconds.
        origin: ``module:factory``, for the script.
        member: whether a smaller dataset is in the domain.
    """
    begin = time.process_time()
    count = _affordable(run, pair, 0.3 * seconds)
    if count < _FEWEST:
        return None
    left, right = (_outputs(run, data, count) for data in (pair.left, pair.right))
    found = _best(left, right, curve, begin + 0.6 * seconds)
    if found is None:
        return None
    event, epsilon, delta, swapped = found
    pair = pair.flipped() if swapped else pair
    pair = _shrunk(run, pair, event, (epsilon, delta), member, min(_SHRINK, 0.3 * seconds))
    rest = seconds - (time.process_time() - begin)
    count = max(_FEWEST, min(_MOST, _affordable(run, pair, rest)))
    hits = _hits(run, pair, event, count)
    if certified_delta(hits, (count, count), epsilon, _RISK) <= delta:
        return None
    bound = certified_epsilon(hits, (count, count), delta, _RISK)
    script = _script(pair, event, (hits[0] / count, hits[1] / count), (epsilon, delta), origin)
    return Witness(event.text, pair, hits, count, bound, delta, script)


def _affordable(run: Callable[[Any], Any], pair: Pair, seconds: float) -> int:
    begin = time.process_time()
    for data in (pair.left, pair.right):
        outcome(run, data)
    cost = max(time.process_time() - begin, 1e-5)
    return int(min(_MOST, seconds / cost))


def _outputs(run: Callable[[Any], Any], data: Any, count: int) -> list[Any]:
    return [outcome(run, data) for _ in range(count)]


def _hits(run: Callable[[Any], Any], pair: Pair, event: PlainEvent, count: int) -> tuple[int, int]:
    return (
        sum(event.holds(outcome(run, pair.left)) for _ in range(count)),
        sum(event.holds(outcome(run, pair.right)) for _ in range(count)),
    )


def _points(curve: Curve) -> list[tuple[float, float]]:
    """Return a few points (epsilon, delta) of the claim."""
    step = max(1, len(curve.grid) // _POINTS)
    return [
        (float(e), float(d)) for e, d in zip(curve.grid[::step], curve.deltas[::step], strict=True)
    ]


def _best(
    left: Sequence[Any], right: Sequence[Any], curve: Curve, end: float
) -> tuple[PlainEvent, float, float, bool] | None:
    """Return event and point of the claim with the largest excess in errors, and whether swapped.

    Events come in the order of their plainness; what is not looked at until ``end`` is left out.
    """
    best: tuple[float, PlainEvent, float, float, bool] | None = None
    points, n = _points(curve), len(left)
    for event in plain_events(left, right):
        if best is not None and time.process_time() > end:
            break
        p, q = sum(map(event.holds, left)) / n, sum(map(event.holds, right)) / n
        for a, b, swapped in ((p, q, False), (q, p, True)):
            for epsilon, delta in points:
                factor = math.exp(min(epsilon, 50.0))
                error = math.sqrt((a + factor * factor * b + 4 / n) / n)
                size = (a - factor * b - delta) / error - event.cost
                if best is None or size > best[0]:
                    best = size, event, epsilon, delta, swapped
    return None if best is None or best[0] <= 0 else best[1:]


def _shrunk(
    run: Callable[[Any], Any],
    pair: Pair,
    event: PlainEvent,
    point: tuple[float, float],
    member: Callable[[Any], bool],
    seconds: float,
) -> Pair:
    """Leave out records of both sides while the event keeps most of its excess, on a few draws."""
    if not isinstance(pair.left, list) or not isinstance(pair.right, list):
        return pair
    end = time.process_time() + seconds
    if _affordable(run, pair, seconds) < _TWICE * _GLANCED:
        return pair

    def excess(of: Pair) -> float:
        p, q = _hits(run, of, event, _GLANCED)
        return p / _GLANCED - math.exp(min(point[0], 50.0)) * q / _GLANCED - point[1]

    goal = _KEEP * excess(pair)
    better = goal > 0
    while better and time.process_time() < end:
        better = False
        for small in _smaller(pair):
            if time.process_time() > end:
                break
            if member(small.left) and member(small.right) and excess(small) >= goal:
                pair, better = small, True
                break
    return pair


def _smaller(pair: Pair) -> Iterator[Pair]:
    """Yield the pair without half, a quarter, ... one of the records that both sides share."""
    shared = _shared(pair.left, pair.right)
    size = len(shared)
    while size >= 1:
        for start in range(0, len(shared), size):
            drop = shared[start : start + size]
            mine, other = {i for i, _ in drop}, {j for _, j in drop}
            yield replace(
                pair,
                left=[v for i, v in enumerate(pair.left) if i not in mine],
                right=[v for j, v in enumerate(pair.right) if j not in other],
                genome=None,
            )
        size //= 2


def _shared(left: list[Any], right: list[Any]) -> list[tuple[int, int]]:
    """Match equal records of both sides, each once."""
    places: dict[str, list[int]] = {}
    for j, value in reversed(list(enumerate(right))):
        places.setdefault(repr(value), []).append(j)
    return [(i, places[repr(v)].pop()) for i, v in enumerate(left) if places.get(repr(v))]


# --- scripts ----------------------------------------------------------------------------


def _made(origin: str, name: str) -> tuple[str, str]:
    """Return the line that imports what makes the object, and the expression that makes it."""
    if ":" in origin and not origin.endswith((".yaml", ".yml")):
        module, factory = origin.split(":", 1)
        return f"from {module} import {factory} as make", "make() if callable(make) else make"
    return f"# {name}: your object", f"{name}"


def _script(
    pair: Pair,
    event: PlainEvent,
    rates: tuple[float, float],
    point: tuple[float, float],
    origin: str,
) -> str:
    """Return six lines that count the event on both sides and print the certified bound."""
    first, made = _made(origin, "obj")
    n = _planned(rates, point)
    drawn = "outcome(M, data)" if event.exceptions else "M(data)"
    loading = "certified_epsilon, outcome" if event.exceptions else "certified_epsilon"
    return "\n".join(
        [
            f"{first}; from opendp_sim.audit import {loading}"
            if not first.startswith("#")
            else f"from opendp_sim.audit import {loading}  {first}",
            f"M, n = {made}, {n}",
            f"x, y = {pair.left!r}, {pair.right!r}",
            f"hit = lambda output: {event.text}",
            f"p, q = (sum(bool(hit({drawn})) for _ in range(n)) for data in (x, y))",
            (
                'print(p / n, q / n, "epsilon is at least", certified_epsilon((p, q), (n, n), '
                f'{point[1]:.6g}, 1e-3), "at delta {point[1]:.3g}; claimed", M.map({pair.distance!r}))'
            ),
        ]
    )


def _planned(rates: tuple[float, float], point: tuple[float, float]) -> int:
    """Return how many runs certify the event at these rates, with three standard errors to spare."""
    n = 200
    while n < _LARGEST_SCRIPT:
        p, q = (n * rate for rate in rates)
        low = int(max(0, p - 3 * math.sqrt(p + 1)))
        high = int(min(n, q + 3 * math.sqrt(q + 1)))
        if certified_delta((low, high), (n, n), point[0], _RISK) > point[1]:
            break
        n = int(1.5 * n)
    return n


def stability_script(pair: Pair, origin: str, claimed: Any) -> str:
    """Return the lines that show two outputs further apart than the stability map says."""
    first, made = _made(origin, "obj")
    return "\n".join(
        [
            first,
            f"T, x, y = {made}, {pair.left!r}, {pair.right!r}",
            (
                f'print(T(x), T(y), "at distance {pair.distance!r}; '
                f'claimed at most", T.map({pair.distance!r}))  # {claimed}'
            ),
        ]
    )
