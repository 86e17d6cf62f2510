"""Enumerate small finite outputs exactly (layer L4).

Every pair of a small universe, every outcome, no sampling. The distribution comes from the mechanism
itself: ``pmf`` (dataset -> probabilities), or a program with rational coins, whose whole tree of runs
is walked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.findings import Effort, Evidence, LayerResult
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import work_seconds

_LAYER = "L4 enumeration"
_TOLERANCE = 1e-9
Pmf = Callable[[Any], Mapping[Hashable, Any]]


class Coins:
    """Enumerate randomness as paths of a tree, one a run."""

    def __init__(self, path: list[int]) -> None:
        self._path, self._depth, self.weight = path, 0, Fraction(1)
        self.widths: list[int] = []

    def choose(self, weights: list[Fraction]) -> int:
        """Return an index; over all runs, ``i`` has probability ``weights[i] / sum(weights)``."""
        if self._depth == len(self._path):
            self._path.append(0)
        spot = self._path[self._depth]
        self._depth += 1
        self.widths.append(len(weights))
        self.weight *= Fraction(weights[spot]) / sum(map(Fraction, weights))
        return spot

    def flip(self, probability: Fraction) -> bool:
        """Return True with this probability."""
        return self.choose([probability, 1 - probability]) == 0


def tree_pmf(program: Callable[[Any, Coins], Hashable], data: Any) -> dict[Hashable, Fraction]:
    """Return the exact distribution of ``program(data, coins)``."""
    out: dict[Hashable, Fraction] = {}
    path: list[int] = []
    while True:
        coins = Coins(path)
        result = program(data, coins)
        out[result] = out.get(result, Fraction(0)) + coins.weight
        while path and path[-1] + 1 >= coins.widths[len(path) - 1]:
            path.pop()
        if not path:
            return out
        path[-1] += 1


def hockey_stick(
    left: Mapping[Hashable, Any], right: Mapping[Hashable, Any], epsilon: float
) -> float:
    """Return ``max_S left(S) - e^eps right(S)``."""
    factor = math.exp(min(epsilon, 700.0))
    return float(sum(max(0.0, float(p) - factor * float(right.get(s, 0))) for s, p in left.items()))


def enumeration_layer(
    subject: Subject, space: PairSpace, budget: Effort, rng: np.random.Generator, pmf: Pmf | None
) -> LayerResult:
    """Compare exact distributions of many pairs with the claimed curve."""
    begin = work_seconds()
    if pmf is None:
        return LayerResult(_LAYER, "skipped", "no exact distribution declared (pmf=)")
    if not subject.private:
        return LayerResult(_LAYER, "skipped", "a stability claim has no curve")
    pairs, outcomes, worst = 0, 0, 0.0
    top: list[Pair] = []
    curves: dict[Any, Curve] = {}
    end = begin + min(5.0, 0.5 * budget.seconds)
    for pair in _pairs(space, rng, top):
        if work_seconds() > end and pairs:
            break
        pairs += 1
        if pair.distance not in curves:
            curves[pair.distance] = subject.curve(pair.distance)
        curve = curves[pair.distance]
        left, right = pmf(pair.left), pmf(pair.right)
        outcomes = max(outcomes, len(left), len(right))
        for side, a, b in ((pair, left, right), (pair.flipped(), right, left)):
            excess, epsilon, allowed = _worst(curve, a, b)
            if excess > _TOLERANCE:
                found = _evidence(side, epsilon, allowed, excess)
                cpu = work_seconds() - begin
                return LayerResult(_LAYER, "refuted", "", pairs, cpu, found)
            if allowed + excess > worst:
                worst, top[:] = allowed + excess, [pair]
    return LayerResult(
        _LAYER,
        "not refuted",
        "",
        pairs,
        work_seconds() - begin,
        power=f"{pairs} pairs of up to {outcomes} outcomes, exactly: any excess of {_TOLERANCE:.0e} "
        "on one of them would have shown",
    )


def _evidence(side: Pair, epsilon: float, allowed: float, excess: float) -> Evidence:
    return Evidence(
        "exact distribution",
        "an event is likelier than the claim allows, exactly",
        f"delta({epsilon:.4g}) <= {allowed:.6g}",
        f"{allowed + excess:.6g}",
        side,
    )


def _pairs(space: PairSpace, rng: np.random.Generator, top: list[Pair]) -> Any:
    yield from space.corners(rng)
    for _ in range(2000):
        if top and top[0].genome is not None and rng.random() < 0.5:
            yield space.mutate(top[0], rng)
        else:
            yield space.draw(rng)


def _worst(
    curve: Curve, left: Mapping[Hashable, Any], right: Mapping[Hashable, Any]
) -> tuple[float, float, float]:
    gaps = [
        (hockey_stick(left, right, float(e)) - float(d), float(e), float(d))
        for e, d in zip(curve.grid, curve.deltas, strict=True)
    ]
    return max(gaps)
