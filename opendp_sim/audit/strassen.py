"""Randomised transformations: is there *any* coupling that keeps the outputs within the map?

By Strassen's theorem there is none exactly when some set O has ``P[f(x) in O] > P[f(x') within
d_out of O]``. O is chosen on one sample and certified on another, so two random outputs that merely
differ never raise an alarm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opendp_sim.audit.counting import lower_limit, upper_limit
from opendp_sim.audit.distances import to_float
from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.neighbours import Pair

__all__ = ["Coupling", "couple"]

_ROUNDING = 1e-9
_CENTRES, _SCORING, _CERTIFYING = 60, 120, 400


@dataclass(frozen=True)
class Coupling:
    """The outcome of one test."""

    runs: int
    evidence: Evidence | None


def couple(
    run: Callable[[Any], Any],
    pair: Pair,
    distance: Callable[[Any, Any], Any],
    d_out: float,
    risk: float,
) -> Coupling:
    """Test one pair in both directions; each has half of the risk."""
    runs = 0
    for side in (pair, pair.flipped()):
        found = _one_way(run, side, distance, d_out, risk / 2)
        runs += 2 * (_SCORING + _CERTIFYING) + _CENTRES
        if found is not None:
            return Coupling(runs, found)
    return Coupling(runs, None)


def _one_way(
    run: Callable[[Any], Any],
    pair: Pair,
    distance: Callable[[Any, Any], Any],
    d_out: float,
    risk: float,
) -> Evidence | None:
    centres = [run(pair.left) for _ in range(_CENTRES)]
    train_left = [run(pair.left) for _ in range(_SCORING)]
    train_right = [run(pair.right) for _ in range(_SCORING)]
    reached = d_out * (1 + _ROUNDING)  # what rounding alone carried too far is near
    near = [[to_float(distance(b, c)) for c in centres] for b in train_right]
    same = [[to_float(distance(a, c)) for c in centres] for a in train_left]
    best, chosen, radius = 0.0, list(range(_CENTRES)), 0.0
    for reach in (0.0, d_out):
        # drop centres that the other side comes close to most often, a quarter at a time
        crowd = [sum(row[c] <= reach + reached for row in near) for c in range(_CENTRES)]
        order = sorted(range(_CENTRES), key=crowd.__getitem__)
        for keep in (_CENTRES, 45, 30, 15, 5, 1):
            kept = order[:keep]
            gap = _hits(same, kept, reach) - _hits(near, kept, reach + reached)
            if gap > best:
                best, chosen, radius = gap, kept, reach
    if best <= 0:
        return None
    inside = sum(
        _within(distance, run(pair.left), centres, chosen, radius) for _ in range(_CERTIFYING)
    )
    close = sum(
        _within(distance, run(pair.right), centres, chosen, radius + reached)
        for _ in range(_CERTIFYING)
    )
    low = lower_limit(inside, _CERTIFYING, risk / 2)
    high = upper_limit(close, _CERTIFYING, risk / 2)
    if low <= high:
        return None
    return Evidence(
        "coupling",
        "no coupling of the two random outputs stays within the stability map",
        d_out,
        f"P[left in O] >= {low:.4f} > {high:.4f} >= P[right within the map of O]",
        pair,
        (centres[chosen[0]], train_right[0]),
        f"1 - {risk:.1g}",
    )


def _hits(rows: list[list[float]], kept: list[int], radius: float) -> float:
    return sum(any(row[c] <= radius for c in kept) for row in rows) / len(rows)


def _within(
    distance: Callable[[Any, Any], Any],
    value: Any,
    centres: list[Any],
    kept: list[int],
    radius: float,
) -> bool:
    return any(to_float(distance(value, centres[c])) <= radius for c in kept)
