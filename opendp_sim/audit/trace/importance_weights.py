"""Runs that are weighed: both sides at the very same noisy values, and how likely either makes them.

Where noise is hidden, its luck is most of what two releases differ by. With noisy values in common a
sparse vector or a noisy maximum gives one output on both sides, and what is left of the round is the
ratio of two known probabilities: a few hundred runs say what ten thousand releases say.

A round has two tapes: one drawn on the left and forced on the right, one the other way round. A tape
counts for a side by that side's probability of its noisy values over the mean of both, at most 2. The
mean over a round is then, for every event, an unbiased estimate of its probability (``layer.md``,
section 8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.domain_filter import quiet_member
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.common_noise import Common
from opendp_sim.audit.outputs.encoding import Raised, outcome
from opendp_sim.audit.statistics.sampling import differ
from opendp_sim.audit.statistics.score_bets import text_of
from opendp_sim.audit.statistics.scores import RAISED, Cells, cells_of
from opendp_sim.audit.trace.bets import allowed
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.undisclosed_noise import cases

_POINTS, _CUTS = 6, (-0.2, -0.1, 0.0, 0.1, 0.2, 0.4)
"""Points of the claimed curve that are tried, and where scores are cut, beside each point's epsilon."""
_PRIOR, _PLACE_PRIOR, _MOST, _FAR = 0.5, 2.0, 4000, 20.0
"""Pseudo-counts of an output and of a place; outputs beyond which places are not read."""
_LUCK, _DOUBT = (1.0, 2.0, 3.0), 4.0
"""What luck is thought to have added, in standard errors, by a player each; and a pseudo-count."""
_STAKES = np.concatenate([np.geomspace(1e-3, 0.3, 16), np.linspace(0.4, 0.98, 12)])
_ENOUGH, _STILL = 3000, 1.5
"""Rounds after which a pair is left that is so few standard errors above the claim."""
_GROWTH, _LARGEST = 1.4, 4000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Event:
    """Outputs of which the left is thought to have too many, and what was seen of them."""

    swapped: bool
    cut: float
    epsilon: float
    delta: float
    strength: float
    payoffs: Floats
    """Of the rounds that it was judged on."""

    @property
    def worst(self) -> float:
        """The most that a round can lose."""
        return 2 * math.exp(min(self.epsilon, 60.0)) + self.delta


@dataclass
class Weighed:
    """Rounds of a pair: four outputs each and their weights, in the order left, right, left, right."""

    names: dict[str, int] = field(default_factory=dict)
    places: list[Cells] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.outputs) // 4

    def more(self, run: Callable[[Any], Any], pair: Pair, count: int, common: Common) -> Weighed:
        """Make so many more rounds."""
        with common.weighed():
            for _ in range(count):
                for left_first in (True, False):
                    first, second = (
                        (pair.left, pair.right) if left_first else (pair.right, pair.left)
                    )
                    common.begin()
                    one = self._spot(outcome(run, first))
                    common.again()
                    other = self._spot(outcome(run, second))
                    share = 2 / (1 + math.exp(max(-60.0, min(60.0, common.log_ratio))))
                    if left_first:
                        self.outputs += (one, other)
                        self.weights += (share, 2 - share)
                    else:
                        self.outputs += (other, one)
                        self.weights += (2 - share, share)
        return self

    def _spot(self, out: Any) -> int:
        text = text_of(out)
        spot = self.names.get(text)
        if spot is None:
            spot = self.names[text] = len(self.names)
            self.places.append(RAISED if isinstance(out, Raised) else cells_of(out))
        return spot

    def arrays(self, since: int = 0) -> tuple[NDArray[np.int64], Floats]:
        """Return outputs and weights, shape (rounds, 4)."""
        outputs = np.array(self.outputs[4 * since :], dtype=np.int64).reshape(-1, 4)
        return outputs, np.array(self.weights[4 * since :]).reshape(-1, 4)

    def scores(self, outputs: NDArray[np.int64], weights: Floats) -> Floats:
        """Return the log-ratio of every output that is known, left over right."""
        left, right = self._sums(outputs, weights)
        lean = self._leanings(left, right)
        return np.asarray(
            np.log(left + _PRIOR * np.exp(lean / 2)) - np.log(right + _PRIOR * np.exp(-lean / 2))
        )

    def _sums(self, outputs: NDArray[np.int64], weights: Floats) -> tuple[Floats, Floats]:
        spots, counts = (outputs[:, ::2], outputs[:, 1::2]), (weights[:, ::2], weights[:, 1::2])
        size = len(self.names)
        return _summed(spots[0], counts[0], size), _summed(spots[1], counts[1], size)

    def _leanings(self, left: Floats, right: Floats) -> Floats:
        """Return what the places of each output tell, added up: whole ones may be seen seldom."""
        lean = np.zeros(len(self.names))
        if len(self.names) > _MOST or all(len(cells) == 1 for cells in self.places[:50]):
            return lean
        sums: dict[tuple[int, str], list[float]] = {}
        for cells, a, b in zip(self.places, left.tolist(), right.tolist(), strict=True):
            for place in enumerate(cells):
                total = sums.setdefault(place, [_PLACE_PRIOR, _PLACE_PRIOR])
                total[0] += a
                total[1] += b
        told = {place: math.log(a / b) for place, (a, b) in sums.items()}
        for spot, cells in enumerate(self.places):
            lean[spot] = math.fsum(told[place] for place in enumerate(cells))
        return np.clip(lean, -_FAR, _FAR)

    def best(self, curve: Curve) -> _Event | None:
        """Return the event that looks strongest: chosen on half of the rounds, judged on the others."""
        outputs, weights = self.arrays()
        if len(outputs) < _DOUBT:
            return None
        judged: dict[tuple[bool, float, int], list[Floats]] = {}
        points = range(0, len(curve.grid), max(1, len(curve.grid) // _POINTS))
        for half in (0, 1):
            scores = self.scores(outputs[half::2], weights[half::2])
            rest = outputs[1 - half :: 2], weights[1 - half :: 2]
            for swapped in (False, True):
                for point in points:
                    epsilon, delta = float(curve.grid[point]), float(curve.deltas[point])
                    for cut in _CUTS:
                        paid = _payoffs(*rest, scores, swapped, epsilon + cut, epsilon, delta)
                        judged.setdefault((swapped, cut, point), []).append(paid)
        found: _Event | None = None
        for (swapped, cut, point), parts in judged.items():
            epsilon, delta = float(curve.grid[point]), float(curve.deltas[point])
            paid = np.concatenate(parts)
            spread = math.sqrt((float(paid.var()) + _DOUBT / len(paid) ** 2) / len(paid))
            strength = float(paid.mean()) / max(spread, 1e-12)
            if found is None or strength > found.strength:
                found = _Event(swapped, epsilon + cut, epsilon, delta, strength, paid)
        return found

    def hits(self, event: _Event, scores: Floats) -> tuple[float, float]:
        """Return how often the event's side, and the other, was in it: outputs that have a score."""
        inside = (-scores if event.swapped else scores) > event.cut
        left, right = (
            float(side[: len(scores)][inside].sum() / (2 * len(self)))
            for side in self._sums(*self.arrays())
        )
        return (right, left) if event.swapped else (left, right)

    def worth(self, curve: Curve) -> float:
        """Return the excess of the best event over the claim, in standard errors: a search, no test."""
        event = self.best(curve)
        return 0.0 if event is None else event.strength


def _summed(spots: NDArray[np.int64], counts: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(spots.ravel(), counts.ravel(), size), dtype=np.float64)


def _payoffs(
    outputs: NDArray[np.int64],
    weights: Floats,
    scores: Floats,
    swapped: bool,
    cut: float,
    epsilon: float,
    delta: float,
) -> Floats:
    """Return what each round says of ``P[left in S] - e^eps P[right in S] - delta``."""
    inside = (-scores if swapped else scores) > cut
    paid = weights * inside[outputs]
    left, right = paid[:, 0] + paid[:, 2], paid[:, 1] + paid[:, 3]
    if swapped:
        left, right = right, left
    return np.asarray((left - math.exp(min(epsilon, 60.0)) * right) / 2 - delta)


@dataclass(frozen=True)
class WeighedWin:
    """Bets on weighed runs that refuted a claim."""

    pair: Pair
    epsilon: float
    delta: float
    hits: tuple[float, float]
    """Estimated probabilities of the event."""
    log_wealth: float
    rounds: int


def weighed_bets(
    run: Callable[[Any], Any],
    pair: Pair,
    curve: Curve,
    seconds: float,
    beta: float,
    common: Common,
    seen: Weighed | None = None,
    *,
    first: int = 150,
) -> WeighedWin | None:
    """Bet on weighed rounds until the wealth refutes the claim or the seconds are over.

    ``seen`` holds rounds that a search has made: bets are chosen from them too, none is on them.
    """
    begin, goal = cpu_seconds(), -math.log(beta)
    seen = Weighed() if seen is None else seen
    logs = np.full(len(_LUCK), -math.log(len(_LUCK)))
    if len(seen) < first:
        seen.more(run, pair, first - len(seen), common)
    count, rounds = first, 0
    while cpu_seconds() - begin < seconds:
        event = seen.best(curve)
        if event is None or (len(seen) > _ENOUGH and event.strength < _STILL):
            return None  # by now what is there would show
        scores = seen.scores(*seen.arrays())
        stakes = _stakes(event)
        old = len(seen)
        spent = cpu_seconds()
        seen.more(run, pair, count, common)
        cost = max((cpu_seconds() - spent) / count, 1e-6)
        if stakes.any():
            paid = _paid(event, scores, seen, old)
            paths = logs[:, None] + np.cumsum(np.log1p(stakes[:, None] * paid), axis=1)
            together = np.logaddexp.reduce(paths, axis=0)
            reached = np.flatnonzero(together >= goal)
            if reached.size:
                stop = int(reached[0])
                hits = seen.hits(event, scores)
                oriented = pair.flipped() if event.swapped else pair
                wealth, rounds = float(together[stop]), rounds + stop + 1
                return WeighedWin(oriented, event.epsilon, event.delta, hits, wealth, rounds)
            logs = paths[:, -1]
        rounds += count
        rest = (seconds - (cpu_seconds() - begin)) / cost
        count = int(max(20, min(count * _GROWTH, _LARGEST, rest)))
    return None


def _paid(event: _Event, scores: Floats, seen: Weighed, since: int) -> Floats:
    """Return what an event pays in the rounds that came after it was chosen."""
    # What was never seen before is in the event by its places alone, which nobody has read.
    new = np.full(len(seen.names) - len(scores), -math.inf if not event.swapped else math.inf)
    known = np.append(scores, new)
    return _payoffs(
        *seen.arrays(since), known, event.swapped, event.cut, event.epsilon, event.delta
    )


def _stakes(event: _Event) -> Floats:
    """Return each player's stake: Kelly's, at an excess shrunk for having been the largest of many."""
    out = []
    mean = float(event.payoffs.mean())
    for luck in _LUCK:
        if event.strength <= luck:
            out.append(0.0)
            continue
        less = event.payoffs - mean * (luck / event.strength) ** 2
        stakes = _STAKES / event.worst
        growth = np.log1p(np.maximum(stakes[:, None] * less[None, :], -0.99)).mean(axis=1)
        spot = int(np.argmax(growth))
        out.append(float(stakes[spot]) if growth[spot] > 0 else 0.0)
    return np.array(out)


# --------------------------------------------------------------------------------------------------
# Bet on weighed runs: hidden noise of known laws, the pair found by weights as well.

_ROUNDS = ((25, 12), (120, 6), (400, 4), (1500, 2))
"""Rounds that each pair gets, and how many pairs are kept."""
_SHARES, _NOTHING = (0.35, 0.6, 0.8, 1.0), 0.05
"""Of the search's seconds, at which the rounds end: a slow run still gets to the last. And the worth of
the best pair at which the second round ends the search."""
_SECONDS, _PART, _LEVELS, _CHANGED = 2.0, 0.2, 16, 12
"""Of the search, or that part of what is left where it is more; numbers of the code that vectors are
moved to; changed pairs that are tried."""
_BETS, _LEAST = 2, 0.7
"""How many bets there are, and seconds of one at least."""
_ALIKE, _CLEAR, _MORE_SECONDS = 2.0, 2.5, 2.5
"""Worth from which a pair is bet on, and from which it gets more seconds."""
_SLOW = 1e-3
"""Seconds of a run from which there are no rounds to spare."""


@dataclass
class _Case:
    name: str
    pair: Pair
    seen: Weighed = field(default_factory=Weighed)
    worth: float = 0.0


def weighed_step(tracer: Tracer) -> Evidence | None:
    """Race pairs on weighed rounds and bet on the best, where some draw hides a number by a known law."""
    common = tracer.glanced
    if common is None or tracer.seconds_a_run > _SLOW or not _worth_it(tracer):
        return None
    ranked = _ranked(tracer, common)
    if ranked and ranked[0].worth > _CLEAR:
        tracer.extend(_MORE_SECONDS)
    for number, case in enumerate(ranked[:_BETS]):
        if case.worth < _ALIKE or tracer.left() < _LEAST:
            break
        lent = tracer.rounds(case.pair)
        if lent is None:
            continue
        share = 0.6 if case.worth > _CLEAR and not number else 0.35
        seconds = max(_LEAST, share * tracer.left())
        won = weighed_bets(
            tracer.mode_run("bulk"),
            case.pair,
            tracer.curve,
            seconds,
            tracer.risk(0.06),
            lent,
            case.seen,
        )
        if won is not None:
            return _evidence(tracer, case.name, won)
    return None


def _worth_it(tracer: Tracer) -> bool:
    """Say whether a tape costs more than the claim, or shows something odd, and noise can be weighed."""
    some = [found for found in tracer.seen.best[:20] if found.view.draws]
    if not any(d.law is not None and d.law.whole for found in some for d in found.view.draws):
        return False
    return bool(tracer.seen.odd) or any(found.loss > 1 + 1e-9 for found in some)


def _ranked(tracer: Tracer, common: Common) -> list[_Case]:
    run, begin = tracer.mode_run("scout"), cpu_seconds()
    seconds = min(max(_SECONDS, _PART * tracer.left()), 0.5 * tracer.left())
    found = [_Case(name, pair) for name, pair in cases(tracer, _LEVELS)]
    for number, (rounds, keep) in enumerate(_ROUNDS):
        for case in found:
            if cpu_seconds() > begin + _SHARES[number] * seconds and case.seen.outputs:
                continue
            case.seen.more(run, case.pair, rounds, common)
            case.worth = case.seen.worth(tracer.curve)
        found = sorted(found, key=lambda case: -case.worth)[:keep]
        if number == 0:
            found += [_Case(c.name, p) for c in found[:2] for p in _changed(tracer, c.pair)]
        if number == 1 and found and found[0].worth < _NOTHING:
            break  # weights that tell nothing: what moves many noisy values at once gives none
    return found


def _changed(tracer: Tracer, pair: Pair) -> Iterator[Pair]:
    """Yield similar pairs: mutations, and vectors of numbers moved up and down together."""
    if pair.genome is not None:
        for _ in range(_CHANGED // 2):
            other = tracer.space.mutate(pair, tracer.rng)
            if differ(other.left, other.right):
                yield other
        return
    sides = pair.left, pair.right
    if not all(isinstance(s, list) and all(type(v) is int for v in s) for s in sides):
        return
    if len(pair.left) != len(pair.right):
        return
    member = quiet_member(tracer.subject.input_domain)
    for step in (-2, 2, -5, 5):
        left, right = ([v + step for v in side] for side in sides)
        if member(left) and member(right):
            yield Pair(left, right, pair.distance)


def _evidence(tracer: Tracer, detail: str, won: WeighedWin) -> Evidence:
    return Evidence(
        "event",
        detail,
        allowed(tracer, won.epsilon, won.delta),
        f"about {won.hits[0]:.4g} on the left, {won.hits[1]:.4g} on the right",
        won.pair,
        None,
        f"1 - {math.exp(-won.log_wealth):.1g} (betting on runs of its Python function, both sides at the "
        "same noisy values, weighed by OpenDP's laws)",
        {
            "epsilon": won.epsilon,
            "delta": won.delta,
            "log_wealth": won.log_wealth,
            "rounds": won.rounds,
            "how": "drawn and weighed",
        },
    )
