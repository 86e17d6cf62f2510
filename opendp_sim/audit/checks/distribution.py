"""Test a release against the whole claimed curve (layer L3).

Searched pairs, learned events, testing by betting. First a race of pairs, then the bets on the best
three of them, on fresh outputs only. The wealth is one process over both, over all pairs, directions
and events.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.claims.noise_laws import difference
from opendp_sim.audit.findings import Effort, Evidence, LayerResult
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.audit.outputs.encoding import WIDEST, Encoded
from opendp_sim.audit.statistics.betting import Bet, Wealth, best_bet, both_ways, settle_bets
from opendp_sim.audit.statistics.clopper_pearson import (
    certified_delta,
    certified_epsilon,
    smallest_chance,
    smallest_excess,
)
from opendp_sim.audit.statistics.sampling import PairSample, data_key, differ
from opendp_sim.audit.statistics.scores import Score, learn
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import work_seconds

# --------------------------------------------------------------------------------------------------
# The race of L3: many pairs, few runs each, the strongest kept, changed a little, and run more.
#
# No run is wasted: from its second turn on a pair whose past is clear is bet on while it runs. The wealth
# is one process over all pairs, directions and events, and every bet is chosen from what was drawn before
# it, so gross faults end in the race and nothing has to be corrected for it.

_FEW = 20
"""Runs a side in the first round of a race, at least; slower mechanisms do not race."""
_ROUND = 0.13
"""Part of the time for each of the three rounds; the race may use two fifths."""
_ONE_PAIR = 0.2
"""Part of the seconds that the first turn of one pair may take."""
_CLEAR = 4.0
"""Standard errors from which a pair is bet on during the race: what the luckiest of many seldom has."""


@dataclass(frozen=True)
class NextBet:
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
    budget: Effort
    rng: np.random.Generator
    beta: float
    events: dict[str, Score]
    begin: float = field(default_factory=work_seconds)
    curves: dict[Any, Curve] = field(default_factory=dict)
    runs: int = 0
    wealth: Wealth = field(default_factory=Wealth)
    known: list[PairSample] = field(default_factory=list)
    """The best pairs of an earlier, shorter race: they run again."""
    won: tuple[PairSample, Bet] | None = None
    """The oriented pair and the bet that refuted the claim."""

    def curve(self, pair: Pair) -> Curve:
        """Return the claimed curve at the distance of a pair."""
        if pair.distance not in self.curves:
            self.curves[pair.distance] = self.subject.curve(pair.distance)
        return self.curves[pair.distance]

    def left_over(self, share: float = 1.0) -> float:
        """Return the seconds until a share of the budget is spent."""
        return self.begin + share * self.budget.seconds - work_seconds()

    def extend(self, sample: PairSample, count: int) -> tuple[Encoded, Encoded]:
        """Draw fresh outputs of a pair."""
        self.runs += 2 * count
        return sample.extend(self.subject, count)

    def affordable(self, sample: PairSample, share: float) -> int:
        """Return the affordable number of runs a side for a pair."""
        cost = sample.seconds / max(sample.runs, 1)
        return int(share * self.budget.seconds / max(cost, 4e-6))

    def too_slow(self, pair: Pair, count: int) -> bool:
        """Return whether runs, by one, would take too much time."""
        begin = work_seconds()
        with contextlib.suppress(Exception):
            self.subject.run(pair.left)
        return 2 * count * (work_seconds() - begin) > _ONE_PAIR * self.budget.seconds

    def play(self, sample: PairSample, choice: NextBet | None, count: int) -> bool:
        """Bet on fresh outputs by past ones, returning whether refuted."""
        bet = None if choice is None else choice.bet
        if choice is None or bet is None:
            self.extend(sample, count)
            return False
        past = sample.all()
        bet = both_ways(bet, choice.other, *(past[::-1] if choice.swapped else past))
        fresh = self.extend(sample, count)
        left, right = fresh[::-1] if choice.swapped else fresh
        if self.wealth.add(settle_bets(bet, left, right), -math.log(self.beta)):
            pair = sample.pair.flipped() if choice.swapped else sample.pair
            # Nothing of what the bets saw, but the cells they were on and what a run costs.
            self.won = replace(sample, pair=pair, left=[], right=[]), bet
        return self.won is not None


def search(race: Race, hints: tuple[Pair, ...]) -> list[PairSample]:
    """Return the most promising pairs, strongest first, unless the claim is refuted."""
    first = _candidates(race, hints, 4)
    known = race.known
    probe = known[0] if known else PairSample(first[0])
    race.extend(probe, _FEW)
    affordable = race.affordable(probe, _ROUND)
    if len(first) == 1 or affordable < 4 * _FEW:
        return known or [probe]
    count = max(4, min(race.budget.search_pairs, affordable // (2 * _FEW)))
    each = max(_FEW, min(race.budget.search_runs, affordable // count))
    turn: list[tuple[PairSample, NextBet | None]] = [
        *((sample, choose(race, sample)) for sample in known),
        *((PairSample(pair), None) for pair in _candidates(race, hints, count)),
    ]
    samples = [probe]
    for keep in (max(3, count // 4), 3, 3):
        ranked: list[tuple[float, int, PairSample, NextBet]] = []
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
            turn += [(PairSample(pair), None) for pair in _changed(race, samples, count // 6)]
        each = max(_FEW, min(3 * each, affordable // len(turn)))
    return samples


def _candidates(race: Race, hints: tuple[Pair, ...], count: int) -> list[Pair]:
    """Return hints, then corners and fresh pairs, each pair once."""
    structured = list(race.space.corners(race.rng))
    race.rng.shuffle(structured)
    out: dict[frozenset[Any], Pair] = {}
    for pair in [*hints, *structured[: 4 * count]]:
        if len(out) >= count // 2 and len(out) >= len(hints):
            break
        _admit(out, pair)
    for _ in range(10 * count):
        if len(out) >= count:
            break
        _admit(out, race.space.draw(race.rng, 0 if race.rng.random() < 0.08 else None))
    return list(out.values()) or [race.space.draw(race.rng)]


def _admit(out: dict[frozenset[Any], Pair], pair: Pair) -> None:
    """Add a pair of two datasets, unless they are there."""
    sides = frozenset((data_key(pair.left), data_key(pair.right)))
    if len(sides) == 2:
        out.setdefault(sides, pair)


def _changed(race: Race, samples: list[PairSample], count: int) -> list[Pair]:
    """Return small changes of the strongest pairs."""
    pairs = [
        race.space.mutate(sample.pair, race.rng)
        for sample in samples
        for _ in range(2)
        if sample.pair.genome is not None
    ]
    return [pair for pair in pairs if differ(pair.left, pair.right)][: max(2, count)]


def choose(race: Race, sample: PairSample) -> NextBet:
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
    return NextBet(found[swapped], swapped, found[not swapped])


def _signed(score: Score, sign: float) -> Score:
    return lambda e: np.asarray(sign * score(e))


def _white_box(subject: Subject, sample: PairSample) -> dict[str, Score]:
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


# --------------------------------------------------------------------------------------------------

_LAYER = "L3 distribution"
_TOO_FEW = "too few draws to see anything"
"""What the first line of a report says, too, where nothing else is known of a release."""
_SMALL_DELTA = 0.1
"""Where on a curve the power is stated: at the first epsilon with so little beside it."""
_FEWEST = 150
"""Runs a side below which the whole-curve test says nothing."""
_BATCH, _GROWTH, _STEADY = 60, 1.5, 1.25
"""Rounds of the first batch of bets; batches grow by half until they have 300, then by a quarter."""
_LAST = 0.9
"""Part of the time after which no new batch begins: the rest is for the lower bound."""
_SHORTEST = 0.25
"""Seconds of the shortest first stage."""
_CONFIRM = 0.05
"""Further part of the time that the second tester may always take once the claim is refuted; it may take
half of what race and bets took."""


def distribution_layer(
    subject: Subject,
    space: PairSpace,
    d_in: Any,
    budget: Effort,
    rng: np.random.Generator,
    beta: float,
    hints: tuple[Pair, ...] = (),
    events: dict[str, Score] | None = None,
) -> LayerResult:
    """Search pairs, then bet until refutation or the budget's end."""
    if not subject.private:
        return LayerResult(_LAYER, "skipped", "a stability claim has no curve; L1 decides")
    race = Race(subject, space, d_in, budget, rng, beta, events or {})
    if math.isinf(float(race.curve(Pair(None, None, d_in)).grid[0])):
        return LayerResult(_LAYER, "skipped", "the claim is infinite")
    cost = _cost(race, hints)
    if 2 * cost * _FEWEST > budget.seconds:
        return LayerResult(_LAYER, "skipped", _too_slow(subject, cost))
    bets = 0  # of one stage: what the others bet on may have been another event
    for seconds in _stages(budget.seconds):
        race.budget = replace(budget, seconds=seconds)
        samples = race.known = search(race, hints)
        searched = race.wealth.rounds
        if race.won is None:
            _bet(race, samples)
        bets = max(bets, race.wealth.rounds - searched)
        if race.won is not None:
            break
    seconds, draws = work_seconds() - race.begin, race.runs - 2 * race.wealth.unused
    if race.won is None:
        return _quiet(race, bets, samples[0])
    evidence = _evidence(race, budget.seconds, *race.won)
    return LayerResult(
        _LAYER,
        "refuted",
        "",
        race.runs,
        seconds,
        evidence,
        facts={"log_wealth": race.wealth.peak, "rounds": race.wealth.rounds, "draws": draws},
    )


def _stages(seconds: float) -> list[float]:
    """Return the lengths of stages, each four times the previous.

    All begin at the same time, the wealth goes on, and the best pairs of one run again in the next.
    """
    stages = [seconds]
    while stages[0] / 4 >= _SHORTEST:
        stages.insert(0, stages[0] / 4)
    return stages


def _cost(race: Race, hints: tuple[Pair, ...]) -> float:
    """Return the nominal seconds of one run, from two on either side."""
    probe = PairSample((hints or (race.space.draw(race.rng),))[0])
    race.extend(probe, 2)
    return probe.seconds / 4


def _too_slow(subject: Subject, cost: float) -> str:
    covered = (
        ""
        if subject.core is None or subject.noise is None
        else ("; L1 looked at the noiseless part and L2 at the noise")
    )
    return f"a run takes {cost:.2g} s: too few for the whole curve{covered}"


def _bet(race: Race, samples: list[PairSample]) -> None:
    """Bet on the strongest pair of the moment, batch after batch."""
    batch, number = _BATCH, 0
    begun = race.wealth.rounds
    while race.left_over(_LAST) > 0 and race.wealth.rounds - begun < race.budget.bet_pairs:
        choices = [(choose(race, sample), sample) for sample in samples]
        choices.sort(key=lambda item: -item[0].strength)
        choice, top = choices[0]
        number += 1
        if number % 4 == 0:  # look at the others again: no bet, only knowledge
            for _, rest in choices[1:]:
                race.extend(rest, batch // 2)
        left = race.budget.bet_pairs - (race.wealth.rounds - begun)
        in_time = race.affordable(top, race.left_over(_LAST) / race.budget.seconds)
        if race.play(top, choice, max(20, min(batch, left, in_time))):
            return
        batch = int(batch * (_GROWTH if batch < 300 else _STEADY))


# --- what is reported -----------------------------------------------------------------


def _evidence(race: Race, whole: float, sample: PairSample, bet: Bet) -> Evidence:
    """Measure the winning event on fresh outputs by Clopper-Pearson.

    The bets may have won on two events together; a second tester of one of them needs more runs, so it
    gets four times as many as there were rounds, as far as its part of the ``whole`` seconds goes.
    """
    wealth = race.wealth
    elapsed = max(work_seconds() - race.begin, 1e-3)
    seconds = max(_CONFIRM * whole, elapsed / 2)
    in_time = race.affordable(sample, seconds / race.budget.seconds)
    runs = max(200, min(max(4 * wealth.rounds, 4000), in_time, 8000))
    left, right = race.extend(sample, runs)
    hits = int(bet.holds(left).sum()), int(bet.holds(right).sum())
    excess = certified_delta(hits, (runs, runs), bet.epsilon, race.beta)
    epsilon = certified_epsilon(hits, (runs, runs), bet.delta, race.beta)
    curve = race.curve(sample.pair)
    return Evidence(
        "event",
        f"an event learned from draws (a score of its {bet.name}, from {bet.cut:.4g}) is likelier than "
        "the claim allows",
        f"{curve.text}: P[left in S] <= e^{bet.epsilon:.4g} P[right in S] + {bet.delta:.3g}",
        f"{hits[0]} of {runs} on the left, {hits[1]} of {runs} on the right",
        sample.pair,
        (_shown(left), _shown(right)),
        f"1 - {math.exp(-wealth.peak):.1g} (betting)",
        {
            "clopper_pearson_agrees": bool(excess > bet.delta),
            "certified_delta_at_epsilon": max(excess, 0.0),
            "certified_epsilon_at_delta": epsilon,
            "epsilon": bet.epsilon,
            "delta": bet.delta,
            "log_wealth": wealth.peak,
            "rounds": wealth.rounds,
        },
    )


def _shown(outputs: Encoded) -> str:
    symbol = outputs.symbols[0]
    return str(outputs.cells[0].tolist()) if isinstance(symbol, bytes) else str(symbol)


def _quiet(race: Race, rounds: int, sample: PairSample) -> LayerResult:
    curve = race.curve(replace(sample.pair, distance=race.d_in))
    small = np.flatnonzero(curve.deltas <= _SMALL_DELTA)
    spot = small[0] if small.size else len(curve.grid) - 1
    epsilon, delta = float(curve.grid[spot]), float(curve.deltas[spot])
    least = smallest_excess(epsilon, rounds, race.beta, delta)
    bound = _lower_bound(race, sample)
    told = _bound_text(epsilon, delta, rounds, race.beta, least)
    idle = {"idle": told} if told.startswith(_TOO_FEW) and race.subject.core is None else {}
    return LayerResult(
        _LAYER,
        "not refuted" if rounds else "skipped",
        "" if rounds else told,
        race.runs,
        work_seconds() - race.begin,
        power=told if rounds else "",
        facts={
            "log_wealth": race.wealth.log,
            "rounds": rounds,
            "lower_bound": bound,
            "smallest_epsilon_seen": least if math.isfinite(least) else None,
            **idle,
        },
    )


def _bound_text(epsilon: float, delta: float, rounds: int, beta: float, least: float) -> str:
    """Say what so many draws would have shown."""
    beside = f" beside delta {delta:.2g}" if delta else ""
    where = f"where epsilon {epsilon:.3g} is allowed{beside}"
    shown = "would have shown with probability .95, were it known"
    if math.isfinite(least):
        return (
            f"{rounds} draws a side: an event of probability 1/2 with a true epsilon of {least:.3g} "
            f"where {epsilon:.3g} is allowed{beside} {shown}"
        )
    chance = smallest_chance(epsilon, rounds, beta, delta)
    if math.isinf(chance):
        return f"{_TOO_FEW}: {rounds} a side {where}"
    return (
        f"{rounds} draws a side: an event of probability {math.ceil(1000 * chance) / 1000:.3g} that a "
        f"neighbour never has, {where}, {shown}"
    )


def _lower_bound(race: Race, sample: PairSample) -> dict[str, float]:
    """Certify a lower bound on epsilon by Clopper-Pearson."""
    choice = choose(race, sample)
    bet = choice.bet
    if bet is None:
        return {"epsilon": 0.0, "delta": 0.0}
    runs = max(50, min(2000, sample.runs, race.affordable(sample, 1 - _LAST)))
    fresh = race.extend(sample, runs)
    left, right = fresh[::-1] if choice.swapped else fresh
    hits = int(bet.holds(left).sum()), int(bet.holds(right).sum())
    delta = bet.delta if bet.delta < 0.2 else 0.0
    return {"epsilon": certified_epsilon(hits, (runs, runs), delta, race.beta), "delta": delta}


# --------------------------------------------------------------------------------------------------
# Small finite outputs, exactly (layer L4): every pair of a small universe, every outcome, no sampling, by
# the mechanism's own pmf.


_EXACT = "L4 enumeration"
_GAP = 1e-9
Pmf = Callable[[Any], Mapping[Hashable, Any]]


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
        return LayerResult(_EXACT, "skipped", "no exact distribution declared (pmf=)")
    if not subject.private:
        return LayerResult(_EXACT, "skipped", "a stability claim has no curve")
    pairs, outcomes, worst = 0, 0, 0.0
    top: list[Pair] = []
    curves: dict[Any, Curve] = {}
    end = begin + min(5.0, 0.5 * budget.seconds)
    for pair in _enumerated_pairs(space, rng, top):
        if work_seconds() > end and pairs:
            break
        pairs += 1
        if pair.distance not in curves:
            curves[pair.distance] = subject.curve(pair.distance)
        curve = curves[pair.distance]
        left, right = pmf(pair.left), pmf(pair.right)
        outcomes = max(outcomes, len(left), len(right))
        for side, a, b in ((pair, left, right), (pair.flipped(), right, left)):
            excess, epsilon, allowed = _worst_gap(curve, a, b)
            if excess > _GAP:
                found = _exact_evidence(side, epsilon, allowed, excess)
                cpu = work_seconds() - begin
                return LayerResult(_EXACT, "refuted", "", pairs, cpu, found)
            if allowed + excess > worst:
                worst, top[:] = allowed + excess, [pair]
    return LayerResult(
        _EXACT,
        "not refuted",
        "",
        pairs,
        work_seconds() - begin,
        power=f"{pairs} pairs of up to {outcomes} outcomes, exactly: any excess of {_GAP:.0e} "
        "on one of them would have shown",
    )


def _exact_evidence(side: Pair, epsilon: float, allowed: float, excess: float) -> Evidence:
    return Evidence(
        "exact distribution",
        "an event is likelier than the claim allows, exactly",
        f"delta({epsilon:.4g}) <= {allowed:.6g}",
        f"{allowed + excess:.6g}",
        side,
    )


def _enumerated_pairs(space: PairSpace, rng: np.random.Generator, top: list[Pair]) -> Any:
    yield from space.corners(rng)
    for _ in range(2000):
        if top and top[0].genome is not None and rng.random() < 0.5:
            yield space.mutate(top[0], rng)
        else:
            yield space.draw(rng)


def _worst_gap(
    curve: Curve, left: Mapping[Hashable, Any], right: Mapping[Hashable, Any]
) -> tuple[float, float, float]:
    gaps = [
        (hockey_stick(left, right, float(e)) - float(d), float(e), float(d))
        for e, d in zip(curve.grid, curve.deltas, strict=True)
    ]
    return max(gaps)
