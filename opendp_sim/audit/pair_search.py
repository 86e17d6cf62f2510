"""The race of L3: many pairs, few runs each, the strongest kept, changed a little, and run more.

No run is wasted: from its second turn on a pair whose past is clear is bet on while it runs. The wealth
is one process over all pairs, directions and events, and every bet is chosen from what was drawn before
it, so gross faults end in the race and nothing has to be corrected for it.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opendp_sim.audit.betting import Bet, Wealth, settle
from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.curves import Curve
from opendp_sim.audit.encoding import WIDEST, Encoded
from opendp_sim.audit.events import best_bet
from opendp_sim.audit.findings import Budget
from opendp_sim.audit.neighbours import Pair, PairSpace
from opendp_sim.audit.noise import difference
from opendp_sim.audit.sampling import Sample, differ
from opendp_sim.audit.scores import Score, learn
from opendp_sim.audit.stakes import both_ways
from opendp_sim.audit.subject import Subject

__all__ = ["Choice", "Race", "choose", "search"]

_FEW = 20
"""Runs a side in the first round of a race, at least; slower mechanisms do not race."""
_ROUND = 0.13
"""Part of the time for each of the three rounds; the race may use two fifths."""
_ONE_PAIR = 0.2
"""Part of the seconds that the first turn of one pair may take."""
_CLEAR = 4.0
"""Standard errors from which a pair is bet on during the race: what the luckiest of many seldom has."""


@dataclass(frozen=True)
class Choice:
    """What the past of a pair says to bet on next."""

    bet: Bet | None
    swapped: bool
    """Whether the bet is on the right side's outputs being too likely."""
    other: Bet | None
    """The other direction's bet."""

    @property
    def strength(self) -> float:
        """Estimated excess in standard errors."""
        return -math.inf if self.bet is None else self.bet.strength


@dataclass
class Race:
    """State of one audit of the whole curve."""

    subject: Subject
    space: PairSpace
    d_in: Any
    budget: Budget
    rng: np.random.Generator
    beta: float
    events: dict[str, Score]
    begin: float = field(default_factory=cpu_seconds)
    curves: dict[Any, Curve] = field(default_factory=dict)
    runs: int = 0
    wealth: Wealth = field(default_factory=Wealth)
    known: list[Sample] = field(default_factory=list)
    """The best pairs of an earlier, shorter race: they run again."""
    won: tuple[Sample, Bet] | None = None
    """The oriented pair and the bet that refuted the claim."""

    def curve(self, pair: Pair) -> Curve:
        """Return the claimed curve at the distance of a pair."""
        if pair.distance not in self.curves:
            self.curves[pair.distance] = self.subject.curve(pair.distance)
        return self.curves[pair.distance]

    def left_over(self, share: float = 1.0) -> float:
        """Return the seconds until a share of the budget is spent."""
        return self.begin + share * self.budget.seconds - cpu_seconds()

    def extend(self, sample: Sample, count: int) -> tuple[Encoded, Encoded]:
        """Draw fresh outputs of a pair."""
        self.runs += 2 * count
        return sample.extend(self.subject, count)

    def affordable(self, sample: Sample, share: float) -> int:
        """Return how many runs a side of this pair fit into a share of the budget."""
        cost = sample.seconds / max(sample.runs, 1)
        return int(share * self.budget.seconds / max(cost, 4e-6))

    def too_slow(self, pair: Pair, count: int) -> bool:
        """Say whether so many runs would take a great part of the seconds, by one of them."""
        begin = cpu_seconds()
        with contextlib.suppress(Exception):
            self.subject.run(pair.left)
        return 2 * count * (cpu_seconds() - begin) > _ONE_PAIR * self.budget.seconds

    def play(self, sample: Sample, choice: Choice | None, count: int) -> bool:
        """Draw fresh outputs and bet on them what their past chose; say whether the claim fell."""
        bet = None if choice is None else choice.bet
        if choice is None or bet is None:
            self.extend(sample, count)
            return False
        past = sample.all()
        bet = both_ways(bet, choice.other, *(past[::-1] if choice.swapped else past))
        fresh = self.extend(sample, count)
        left, right = fresh[::-1] if choice.swapped else fresh
        if self.wealth.add(settle(bet, left, right), -math.log(self.beta)):
            pair = sample.pair.flipped() if choice.swapped else sample.pair
            # Nothing of what the bets saw, but the cells they were on and what a run costs.
            self.won = replace(sample, pair=pair, left=[], right=[]), bet
        return self.won is not None


def search(race: Race, hints: tuple[Pair, ...]) -> list[Sample]:
    """Return the most promising pairs, strongest first; the race may end with the claim refuted."""
    first = _candidates(race, hints, 4)
    known = race.known
    probe = known[0] if known else Sample(first[0])
    race.extend(probe, _FEW)
    affordable = race.affordable(probe, _ROUND)
    if len(first) == 1 or affordable < 4 * _FEW:
        return known or [probe]
    count = max(4, min(race.budget.search_pairs, affordable // (2 * _FEW)))
    each = max(_FEW, min(race.budget.search_runs, affordable // count))
    turn: list[tuple[Sample, Choice | None]] = [
        *((sample, choose(race, sample)) for sample in known),
        *((Sample(pair), None) for pair in _candidates(race, hints, count)),
    ]
    samples = [probe]
    for keep in (max(3, count // 4), 3, 3):
        ranked: list[tuple[float, int, Sample, Choice]] = []
        for sample, before in turn:
            if race.left_over(0.6) < 0 and ranked:
                break
            if not sample.runs and race.too_slow(sample.pair, each):
                continue
            clear = before if before is not None and before.strength >= _CLEAR else None
            if race.play(sample, clear, each):
                return [sample]
            now = choose(race, sample)
            ranked.append((-now.strength, len(ranked), sample, now))
        if not ranked:
            return known or [probe]
        ranked.sort(key=lambda item: item[:2])
        samples = [sample for _, _, sample, _ in ranked[:keep]]
        turn = [(sample, choice) for _, _, sample, choice in ranked[:keep]]
        if keep > 3:
            turn += [(Sample(pair), None) for pair in _changed(race, samples, count // 6)]
        each = max(_FEW, min(3 * each, affordable // len(turn)))
    return samples


def _candidates(race: Race, hints: tuple[Pair, ...], count: int) -> list[Pair]:
    """Hints first, then corners and fresh pairs half and half; a few at distance zero.

    A pair and the same the other way round are one candidate: bets go both ways.
    """
    structured = list(race.space.corners(race.rng))
    race.rng.shuffle(structured)
    out: list[Pair] = []
    for pair in [*hints, *structured[: 4 * count]]:
        if len(out) >= count // 2 and len(out) >= len(hints):
            break
        _admit(out, pair)
    for _ in range(10 * count):
        if len(out) >= count:
            break
        _admit(out, race.space.draw(race.rng, 0 if race.rng.random() < 0.08 else None))
    return out or [race.space.draw(race.rng)]


def _admit(out: list[Pair], pair: Pair) -> None:
    """Add a pair that differs, unless it is there already."""
    if not differ(pair.left, pair.right):
        return
    for known in out:
        same = not (differ(known.left, pair.left) or differ(known.right, pair.right))
        if same or not (differ(known.left, pair.right) or differ(known.right, pair.left)):
            return
    out.append(pair)


def _changed(race: Race, samples: list[Sample], count: int) -> list[Pair]:
    """Return small changes of the strongest pairs."""
    pairs = [
        race.space.mutate(sample.pair, race.rng)
        for sample in samples
        for _ in range(2)
        if sample.pair.genome is not None
    ]
    return [pair for pair in pairs if differ(pair.left, pair.right)][: max(2, count)]


def choose(race: Race, sample: Sample) -> Choice:
    """Learn on one half of the past, choose on the other."""
    left, right = sample.all()
    half = len(left) // 2
    curve = race.curve(sample.pair)
    found: list[Bet | None] = []
    extra = {**race.events, **_white_box(race.subject, sample)}
    for swap in (False, True):
        a, b = (right, left) if swap else (left, right)
        first, second = slice(0, None, 2), slice(1, None, 2)
        if half < 10:
            first = second = slice(None)
        signed = {name: _signed(score, -1.0 if swap else 1.0) for name, score in extra.items()}
        scores = learn(a.part(first), b.part(first), signed)
        found.append(best_bet(scores, a, b, curve, second))
    strengths = [-math.inf if bet is None else bet.strength for bet in found]
    swapped = strengths[1] > strengths[0]
    return Choice(found[swapped], swapped, found[not swapped])


def _signed(score: Score, sign: float) -> Score:
    return lambda e: np.asarray(sign * score(e))


def _white_box(subject: Subject, sample: Sample) -> dict[str, Score]:
    """The likelihood ratio of the declared noise, when there is one."""
    if subject.core is None or subject.noise is None:
        return {}
    pair, spots = sample.pair, sample.spots
    try:
        first, second = subject.noiseless(pair.left), subject.noiseless(pair.right)
        law = subject.law(first.size)
    except Exception:  # noqa: BLE001 - whatever a mechanism raises
        return {}
    if law is None or first.size != second.size:
        return {}
    if spots is not None:
        law, first, second = law.part(spots, first.size), first[spots], second[spots]
    if not 0 < first.size <= WIDEST or not (law.scales(first.size) > 0).all():
        return {}

    shift, base = difference(second, first), first.astype(float)

    def score(encoded: Encoded) -> Any:
        short = max(0, first.size - encoded.cells.shape[1])
        cells = np.pad(encoded.cells[:, : first.size], ((0, 0), (0, short)))
        return np.nan_to_num(law.llr(np.nan_to_num(cells) - base, shift))

    return {"declared likelihood ratio": score}
