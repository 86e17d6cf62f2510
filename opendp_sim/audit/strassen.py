"""Randomised transformations: is there *any* coupling that keeps the outputs within the map?

By Strassen's theorem there is none exactly when some set O has ``P[f(x) in O] > P[f(x') within
d_out of O]``. O is chosen on one sample and certified on another, so two random outputs that merely
differ never raise an alarm.
"""

from __future__ import annotations

import hashlib
import pickle
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
    runs, outputs = 0, _Outputs(run, distance)
    for side in (pair, pair.flipped()):
        found = _one_way(outputs, side, d_out, risk / 2)
        runs += 2 * (_SCORING + _CERTIFYING) + _CENTRES
        if found is not None:
            return Coupling(runs, found)
    return Coupling(runs, None)


class _Outputs:
    """Draws of a random function, numbered by content, and their distances, each worked out once.

    A function whose coin seldom falls has few contents; a distance of long outputs takes milliseconds.
    """

    def __init__(self, run: Callable[[Any], Any], distance: Callable[[Any, Any], Any]) -> None:
        self.run, self._distance = run, distance
        self.values: list[Any] = []
        self._numbers: dict[bytes, int] = {}
        self._known: dict[tuple[int, int], float] = {}

    def draw(self, data: Any, count: int) -> list[int]:
        """Run the function, and return the number of each output."""
        return [self._number(self.run(data)) for _ in range(count)]

    def distance(self, left: int, right: int) -> float:
        """Return the distance of two outputs by their numbers."""
        if (left, right) not in self._known:
            found = self._distance(self.values[left], self.values[right])
            self._known[left, right] = to_float(found)
        return self._known[left, right]

    def _number(self, value: Any) -> int:
        new = len(self.values)
        try:
            content = hashlib.sha256(pickle.dumps(value)).digest()
        except Exception:  # noqa: BLE001 - a stranger's object may refuse in any way
            content = new.to_bytes(8, "big")  # what has no bytes is a content of its own
        number = self._numbers.setdefault(content, new)
        if number == new:
            self.values.append(value)
        return number


def _one_way(outputs: _Outputs, pair: Pair, d_out: float, risk: float) -> Evidence | None:
    centres = outputs.draw(pair.left, _CENTRES)
    train_left = outputs.draw(pair.left, _SCORING)
    train_right = outputs.draw(pair.right, _SCORING)
    reached = d_out * (1 + _ROUNDING)  # what rounding alone carried too far is near
    near = [[outputs.distance(b, c) for c in centres] for b in train_right]
    same = [[outputs.distance(a, c) for c in centres] for a in train_left]
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
    near_these = [centres[c] for c in chosen]
    inside = _within(outputs, pair.left, near_these, radius)
    close = _within(outputs, pair.right, near_these, radius + reached)
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
        (outputs.values[near_these[0]], outputs.values[train_right[0]]),
        f"1 - {risk:.1g}",
    )


def _hits(rows: list[list[float]], kept: list[int], radius: float) -> float:
    return sum(any(row[c] <= radius for c in kept) for row in rows) / len(rows)


def _within(outputs: _Outputs, data: Any, centres: list[int], radius: float) -> int:
    """How many of fresh outputs come so near to one of the centres."""
    fresh = outputs.draw(data, _CERTIFYING)
    return sum(any(outputs.distance(value, c) <= radius for c in centres) for value in fresh)
