"""L3: is the release within the whole claimed curve? Searched pairs, learned events, betting.

First a race of pairs, then the bets on the best three of them, on fresh outputs only. The wealth is one
process over both, over all pairs, directions and events.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from opendp_sim.audit.betting import Bet
from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.counting import (
    certified_delta,
    certified_epsilon,
    smallest_chance,
    smallest_excess,
)
from opendp_sim.audit.encoding import Encoded
from opendp_sim.audit.findings import Budget, Evidence, LayerResult
from opendp_sim.audit.neighbours import Pair, PairSpace
from opendp_sim.audit.pair_search import Race, choose, search
from opendp_sim.audit.sampling import Sample
from opendp_sim.audit.scores import Score
from opendp_sim.audit.subject import Subject

__all__ = ["distribution_layer"]

_LAYER = "L3 distribution"
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
    budget: Budget,
    rng: np.random.Generator,
    beta: float,
    hints: tuple[Pair, ...] = (),
    events: dict[str, Score] | None = None,
) -> LayerResult:
    """Search pairs, then bet until the claim is refuted or the budget ends."""
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
    seconds, draws = cpu_seconds() - race.begin, race.runs - 2 * race.wealth.unused
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
    """Short audits first, each of four times the one before: gross faults need no long race.

    All begin at the same time, the wealth goes on, and the best pairs of one run again in the next.
    """
    stages = [seconds]
    while stages[0] / 4 >= _SHORTEST:
        stages.insert(0, stages[0] / 4)
    return stages


def _cost(race: Race, hints: tuple[Pair, ...]) -> float:
    """Return the CPU seconds of one run, from two on either side."""
    probe = Sample((hints or (race.space.draw(race.rng),))[0])
    race.extend(probe, 2)
    return probe.seconds / 4


def _too_slow(subject: Subject, cost: float) -> str:
    covered = (
        ""
        if subject.core is None or subject.noise is None
        else ("; L1 looked at the noiseless part and L2 at the noise")
    )
    return f"a run takes {cost:.2g} s: too few for the whole curve{covered}"


def _bet(race: Race, samples: list[Sample]) -> None:
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


def _evidence(race: Race, whole: float, sample: Sample, bet: Bet) -> Evidence:
    """Measure the winning event on fresh outputs: Clopper-Pearson, nothing shared with the bets.

    The bets may have won on two events together; a second tester of one of them needs more runs, so it
    gets four times as many as there were rounds, as far as its part of the ``whole`` seconds goes.
    """
    wealth = race.wealth
    elapsed = max(cpu_seconds() - race.begin, 1e-3)
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


def _quiet(race: Race, rounds: int, sample: Sample) -> LayerResult:
    curve = race.curve(replace(sample.pair, distance=race.d_in))
    small = np.flatnonzero(curve.deltas <= _SMALL_DELTA)
    spot = small[0] if small.size else len(curve.grid) - 1
    epsilon, delta = float(curve.grid[spot]), float(curve.deltas[spot])
    least = smallest_excess(epsilon, rounds, race.beta, delta)
    bound = _lower_bound(race, sample)
    told = _told(epsilon, delta, rounds, race.beta, least)
    return LayerResult(
        _LAYER,
        "not refuted" if rounds else "skipped",
        "" if rounds else told,
        race.runs,
        cpu_seconds() - race.begin,
        power=told if rounds else "",
        facts={
            "log_wealth": race.wealth.log,
            "rounds": rounds,
            "lower_bound": bound,
            "smallest_epsilon_seen": least if math.isfinite(least) else None,
        },
    )


def _told(epsilon: float, delta: float, rounds: int, beta: float, least: float) -> str:
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
        return f"too few draws to see anything: {rounds} a side {where}"
    return (
        f"{rounds} draws a side: an event of probability {math.ceil(1000 * chance) / 1000:.3g} that a "
        f"neighbour never has, {where}, {shown}"
    )


def _lower_bound(race: Race, sample: Sample) -> dict[str, float]:
    """Certify a lower bound on epsilon: event chosen from the past, Clopper-Pearson on fresh outputs."""
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
