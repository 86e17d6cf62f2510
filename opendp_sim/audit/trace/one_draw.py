"""Test outputs that follow one draw by tails and support.

A monotone output has events of known probability. Where the claim leaves a small delta no draws can
show what exceeds it. Rounding, clamping and scaling keep the order, so an event "at least t" is "the
draw is at least z", and z is found by bisection. So is a draw that leads from one side to an output of
the other: where there is none, the output is out of reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import clean_tapes, numbers
from opendp_sim.audit.instrument.native_laws import Law
from opendp_sim.audit.instrument.tape import TapeEndError
from opendp_sim.audit.statistics.score_bets import lean_bets
from opendp_sim.audit.trace.bets import CALCULATED, agrees, allowed, drawn, verdict_run
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.scan import equal_runs
from opendp_sim.audit.work import work_seconds

_PAIRS, _POINTS, _LEVELS, _HALVINGS = 3, 300, 6, 60
"""Pairs tried, values of the draw that are followed on either side, levels of them that are tried in
full, and how often the value that leads to a level is halved in."""
_REACH, _MARGIN = 9.0, 1e-6
"""Scales of noise that are followed, and what the excess must be clear of."""
_SHORTEST = 1.2


def level_step(tracer: Tracer) -> None:
    """Price events of outputs monotone in a draw, with delta."""
    if tracer.hidden or tracer.stateful or not float(tracer.curve.deltas[0]) > 0:
        return
    found = [f for f in tracer.seen.best if f.view.moved and not f.view.finding]
    single = [f for f in found if len(f.view.draws) == 1 and f.view.draws[0].free is not None]
    for item in sorted(single[:40], key=lambda f: (-f.loss, len(repr(f.pair.left))))[:_PAIRS]:
        law = item.view.draws[0].free
        for pair in (item.pair, item.pair.flipped()):
            if tracer.left() < _SHORTEST or tracer.priced is not None:
                return
            evidence = None if law is None else _on(tracer, pair, law)
            if evidence is not None:
                tracer.price(evidence)


@dataclass(frozen=True)
class _Side:
    """Describe an output as a function of its draw, in scales."""

    run: Callable[[float], float]
    places: NDArray[np.float64]
    outputs: NDArray[np.float64]

    def above(self, level: float, *, most: bool) -> float:
        """Return the draw's threshold for a level of the output."""
        spot = int(np.searchsorted(self.outputs, level))
        if spot in (0, len(self.outputs)):
            return (
                -math.inf
                if spot == 0 and most
                else math.inf
                if not most
                else float(self.places[-1])
            )
        low, high = float(self.places[spot - 1]), float(self.places[spot])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if self.run(middle) >= level else (middle, high)
        return low if most else high


def _on(tracer: Tracer, pair: Pair, law: Law) -> Evidence | None:
    """Return a refuting tail event of one direction, or None."""
    for sign in (1.0, -1.0):
        try:
            left, right = (_side(tracer, data, law, sign) for data in (pair.left, pair.right))
            if left is None or right is None:
                continue
            for level in _levels(tracer, law, left, right):
                evidence = _at(tracer, pair, law, (left, right), level, sign)
                if evidence is not None:
                    return evidence
        except (TapeEndError, ArithmeticError, LookupError, ValueError, TypeError):
            continue
    return None


def _side(tracer: Tracer, data: Any, law: Law, sign: float) -> _Side | None:
    """Return a side with a monotone output, or None."""
    tape, function = tracer.tape, tracer.function
    at = tape.run(function, data, "record")[1][0].argument
    if not isinstance(at, (int, float)):
        return None

    def run(place: float) -> float:
        shown = numbers(tape.run(function, data, "force", [at + law.scale * place])[0])
        if shown is None or len(shown) != 1 or not math.isfinite(shown[0]):
            raise ValueError
        return sign * shown[0]

    even = np.linspace(-_REACH, _REACH, _POINTS // 2)
    places = np.unique(np.concatenate([even, tracer.rng.normal(0, 2, _POINTS // 2)]))
    outputs = np.array([run(float(place)) for place in places])
    return _Side(run, places, outputs) if (np.diff(outputs) >= 0).all() else None


def _tail(law: Law, place: float) -> float:
    """Return the probability that the noise is at least so many scales."""
    return float((stats.laplace if law.family == "laplace" else stats.norm).sf(place))


def _levels(tracer: Tracer, law: Law, left: _Side, right: _Side) -> list[float]:
    """Return the left's output levels with the largest excess."""
    factor = math.exp(min(float(tracer.curve.grid[0]), 700.0))
    spots = np.searchsorted(right.outputs, left.outputs)
    ends = np.concatenate([right.places, [math.inf]])
    excess = [
        _tail(law, float(place)) - factor * _tail(law, float(ends[spot]))
        for place, spot in zip(left.places, spots, strict=True)
    ]
    best = np.argsort(excess)[::-1][: 4 * _LEVELS]
    return list(dict.fromkeys(float(left.outputs[k]) for k in best))[:_LEVELS]


def _at(
    tracer: Tracer, pair: Pair, law: Law, sides: tuple[_Side, _Side], level: float, sign: float
) -> Evidence | None:
    left, right = sides
    p = _tail(law, left.above(level, most=False))
    q = _tail(law, right.above(level, most=True))
    epsilon, delta = float(tracer.curve.grid[0]), float(tracer.curve.deltas[0])
    factor = math.exp(min(epsilon, 700.0))
    if not p - factor * q > delta * (1 + _MARGIN) + 1e-12:
        return None
    if not clean_tapes(tracer.tape, tracer.function, pair):
        return None
    for data, share in ((pair.left, p), (pair.right, q)):
        same = equal_runs(tracer.tape, tracer.obj, tracer.function, data)
        if not same or not _fits(tracer.obj, data, level, sign, share):
            return None
    side = "at least" if sign > 0 else "at most"
    return Evidence(
        "event",
        f"the output follows its one draw: output {side} {sign * level:.6g} is too likely",
        allowed(tracer, epsilon, delta),
        f"{p:.6g} on the left, {q:.6g} on the right: delta {p - factor * q:.6g} at epsilon {epsilon:.4g}",
        pair,
        None,
        CALCULATED,
        {"how": "calculated", "epsilon": epsilon, "delta": delta},
    )


def _fits(obj: Callable[[Any], Any], data: Any, level: float, sign: float, share: float) -> bool:
    """Return whether real releases confirm the event's probability."""
    return agrees(lambda: sign * (numbers(obj(data)) or [math.nan])[0] >= level, share, share)


# --------------------------------------------------------------------------------------------------
# Outputs of one side that no draw gives the other.
_TRIES, _LOOKS, _WORTH, _SHARE = 6, 30, 0.1, 0.5
"""Pairs tried, values looked at of each, how many must be out of reach, and the part of what is left."""

_OUT = "outputs of one side are out of reach from the other, whatever the noise"
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
                detail = _FLOATS if (rows != np.rint(rows)).any() else _OUT
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
