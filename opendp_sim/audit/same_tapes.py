"""Pairs whose outputs lie furthest apart on the same draws, where no draw has a law that prices it.

A program that turns a uniform number into its release (an inverse transform, a choice by cumulated
weights) hides no argument in its draws, so that nothing is priced. But its draws are the same whatever
the dataset is. So some tapes are recorded once, evenly spread where one number is drawn, and forced on
both sides of many pairs. What that shows orders pairs, and proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.lean import text_of
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.tape import TapeEndError
from opendp_sim.audit.tracer import Tracer
from opendp_sim.audit.views import numbers

__all__ = ["apart_on_same_tapes"]

_RECORDED, _RECORDING, _TAPES, _MOST_DRAWS = 600, 0.1, 48, 4
_SECONDS, _SHARE, _PAIRS, _KEPT, _CELLS = 0.9, 0.12, 3000, 4, 6


def apart_on_same_tapes(tracer: Tracer) -> Iterator[Pair]:
    """Yield pairs that differ most on equal draws; none where draws have laws, or depend on the data."""
    tapes = _tapes(tracer)
    if not tapes:
        return
    epsilon = tracer.claim[1]
    end = cpu_seconds() + min(_SECONDS, _SHARE * tracer.left())
    found: list[tuple[float, int, Pair]] = []
    drawn = (tracer.space.draw(tracer.rng) for _ in itertools.count())
    pairs = itertools.chain(tracer.space.corners(tracer.rng), drawn)
    for number, pair in enumerate(itertools.islice(pairs, _PAIRS)):
        if cpu_seconds() > end:
            break
        left, right = (_outputs(tracer, side, tapes) for side in (pair.left, pair.right))
        if left and right:
            worth = max(_apart(left, right, epsilon), _apart(right, left, epsilon))
            found = sorted([*found, (worth, number, pair)], key=lambda f: (-f[0], f[1]))[:_KEPT]
    yield from (pair for worth, _, pair in found if worth > 0)


def _tapes(tracer: Tracer) -> list[list[Any]]:
    """Return values of draws, of as many runs; nothing where they are no order of pairs."""
    best = tracer.seen.best[:1]
    draws = best[0].view.draws if best else ()
    free = all(d.law is None and d.options is None and d.free is None for d in draws)
    if not 0 < len(draws) <= _MOST_DRAWS or not free or tracer.hidden or not tracer.direct:
        return []
    out: list[list[Any]] = []
    for _ in range(_RECORDED):
        try:
            out.append(
                [d.value for d in tracer.tape.run(tracer.function, best[0].pair.left, "record")[1]]
            )
        except TapeEndError:
            return []
    if {len(values) for values in out} != {len(draws)}:
        return []
    if len(draws) == 1 and all(isinstance(values[0], (int, float)) for values in out):
        step = len(out) // _TAPES
        out = sorted(out)[step // 2 :: step]
    return out[:_TAPES]


def _outputs(tracer: Tracer, data: Any, tapes: list[list[Any]]) -> list[Any]:
    try:
        return [tracer.tape.run(tracer.function, data, "force", tape)[0] for tape in tapes]
    except TapeEndError:
        return []


def _apart(first: list[Any], second: list[Any], epsilon: float) -> float:
    """Return by how much an event is likelier than allowed on these tapes, with a tape to spare."""
    factor, count = math.exp(min(epsilon, 50.0)), len(first)
    spare = 1.0 / count
    names = Counter(map(text_of, first)), Counter(map(text_of, second))
    if len(names[0].keys() | names[1].keys()) <= count // 2:
        over = (n / count - factor * (names[1][o] / count) for o, n in names[0].items())
        return sum(v for v in over if v > 0) - factor * spare
    cells = [numbers(out) for out in first], [numbers(out) for out in second]
    if not all(side and len(side) == len(cells[0][0] or []) for side in (*cells[0], *cells[1])):
        return 0.0
    mine, other = (np.array(side, dtype=float) for side in cells)
    return (
        max(_beyond(a, b, factor) for a, b in zip(mine.T[:_CELLS], other.T, strict=False))
        - factor * spare
    )


def _beyond(mine: Any, other: Any, factor: float) -> float:
    """Return the same of the best bar of one number, on either side of it."""
    bars = np.unique(mine)
    above = [np.mean(side[:, None] >= bars, axis=0) for side in (mine, other)]
    below = [np.mean(side[:, None] <= bars, axis=0) for side in (mine, other)]
    return float(max(np.max(p - factor * q) for p, q in (above, below)))
