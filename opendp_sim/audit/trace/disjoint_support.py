"""Find outputs of one side that no draw gives the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import numbers
from opendp_sim.audit.instrument.tape import TapeEndError
from opendp_sim.audit.statistics.score_bets import lean_bets
from opendp_sim.audit.trace.bets import drawn, verdict_run
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.work import work_seconds

_TRIES, _LOOKS, _WORTH, _SHARE = 6, 30, 0.1, 0.5
"""Pairs tried, values looked at of each, how many must be out of reach, and the part of what is left."""

_REACH = "outputs of one side are out of reach from the other, whatever the noise"
_FLOATS = (
    "floating-point noise: the last bits of the output tell the two datasets apart, for outputs of one"
    " side are out of reach from the other (use OpenDP's noise, or noise on whole numbers)"
)


def support_step(tracer: Tracer) -> Evidence | None:
    """Bet on the left's outputs without preimage on the right."""
    found = [
        f for f in tracer.seen.best if f.view.moved and f.view.foreign and len(f.view.draws) == 1
    ]
    small = sorted(found[:60], key=lambda f: len(repr(f.pair.left)))
    end = max(1.2, (1 - _SHARE) * tracer.left())
    for item in small[:_TRIES]:
        for pair in (item.pair, item.pair.flipped()):
            if tracer.left() < end:
                return None
            try:
                score = _unreachable(tracer, pair)
            except (TapeEndError, ArithmeticError, ValueError, TypeError):
                score = None
            if score is None:
                continue
            run, words = verdict_run(tracer)
            rows = np.array([_one(run, pair.left) for _ in range(_LOOKS)])
            if score(rows).mean() <= _WORTH:
                continue
            seconds, risk = max(1.2, tracer.left(0.5)), tracer.risk(0.01)
            won = lean_bets(partial(_one, run), pair, score, tracer.curve, seconds, risk, first=100)
            if won is not None:
                detail = _FLOATS if (rows != np.rint(rows)).any() else _REACH
                return drawn(detail, won, tracer, words)
    return None


def _one(run: Callable[[Any], Any], data: Any) -> list[float]:
    out = numbers(run(data))
    return out if out is not None and len(out) == 1 else [math.nan]


def _unreachable(tracer: Tracer, pair: Pair) -> Callable[[Any], Any] | None:
    """Return the score of unreachable outputs, or None."""
    tape, function = tracer.tape, tracer.function
    _, draws = tape.run(function, pair.left, "record")
    value = draws[0].value if len(draws) == 1 else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if ".choice" in draws[0].what:
        return None
    low, high, back = _range(tracer, pair, value, draws[0].what)

    def reach(step: Any) -> float:
        out, _ = tape.run(function, pair.right, "force", [back(step)])
        shown = numbers(out)
        if shown is None or len(shown) != 1:
            raise ValueError
        return shown[0]

    known: dict[float, float] = {}

    def score(rows: Any) -> Any:
        end = work_seconds() + 1.0
        out = np.zeros(len(rows))
        for i, row in enumerate(rows):
            target = float(row[0])
            if not math.isfinite(target) or target < -1e299:
                continue
            if target not in known and work_seconds() < end:
                try:
                    known[target] = _out_of_reach(reach, low, high, target)
                except (TapeEndError, ArithmeticError, ValueError, TypeError):
                    known[target] = 0.0
            out[i] = known.get(target, 0.0)
        return out

    return score


def _out_of_reach(reach: Callable[[Any], float], low: Any, high: Any, target: float) -> float:
    """Return 1 where bisection does not reach the target, else 0."""
    first, last = reach(low), reach(high)
    rising = last >= first
    if not min(first, last) <= target <= max(first, last):
        return 1.0
    for _ in range(1200):
        middle = (low + high) // 2 if isinstance(low, int) else low / 2 + high / 2
        if middle in (low, high):
            break
        there = reach(middle)
        if there == target:
            return 0.0
        if (there < target) == rising:
            low = middle
        else:
            high = middle
    return 0.0 if target in (reach(low), reach(high)) else 1.0


def _range(
    tracer: Tracer, pair: Pair, value: Any, what: str
) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Return the draw's range, and the map from steps to values."""
    if isinstance(value, int):
        bits = max(value.bit_length(), 8)
        for _ in range(_LOOKS):
            _, draws = tracer.tape.run(tracer.function, pair.left, "record")
            bits = max(bits, int(draws[0].value).bit_length())
        return 0, 2**bits - 1, lambda step: step
    if ".random(" in what or what.endswith(("random()", "rand()")):
        return 0, 2**53 - 1, lambda step: step / 2**53
    return -1e6, 1e6, lambda step: step
