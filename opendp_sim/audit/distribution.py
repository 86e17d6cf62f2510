"""L3: is the release within the whole claimed curve? Searched pairs, learned events, betting.

First a race: many pairs, few runs each, the strongest kept, changed a little, and run more. Then the
bets, on fresh outputs only. The wealth is one process over all pairs, directions and events.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opendp_sim.audit import encoding
from opendp_sim.audit.betting import Bet, Wealth, best_bet, both_ways, settle
from opendp_sim.audit.binomial import certified_delta, certified_epsilon
from opendp_sim.audit.curves import Curve
from opendp_sim.audit.encoding import Encoded
from opendp_sim.audit.findings import Budget, Evidence, LayerResult
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.noise import difference
from opendp_sim.audit.power import smallest_excess
from opendp_sim.audit.sampling import Sample
from opendp_sim.audit.scores import Score, learn
from opendp_sim.audit.spaces import PairSpace
from opendp_sim.audit.subject import Subject

__all__ = ["distribution_layer"]

_LAYER = "L3 distribution"
_FEWEST = 150


@dataclass
class _Race:
    """State of one audit of the whole curve."""

    subject: Subject
    space: PairSpace
    d_in: Any
    budget: Budget
    rng: np.random.Generator
    beta: float
    events: dict[str, Score]
    begin: float = field(default_factory=time.process_time)
    curves: dict[Any, Curve] = field(default_factory=dict)
    runs: int = 0

    def curve(self, pair: Pair) -> Curve:
        if pair.distance not in self.curves:
            self.curves[pair.distance] = self.subject.curve(pair.distance)
        return self.curves[pair.distance]

    def left_over(self, share: float = 1.0) -> float:
        return self.begin + share * self.budget.seconds - time.process_time()

    def extend(self, sample: Sample, count: int) -> tuple[Encoded, Encoded]:
        self.runs += 2 * count
        return sample.extend(self.subject, count)


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
    race = _Race(subject, space, d_in, budget, rng, beta, events or {})
    if math.isinf(float(race.curve(Pair(None, None, d_in)).grid[0])):
        return LayerResult(_LAYER, "skipped", "the claim is infinite")
    cost = _cost(race, hints)
    if 2 * cost * _FEWEST > budget.seconds:
        reason = f"a run takes {cost:.2g} s: too few to say anything; deep, or a smaller release"
        return LayerResult(_LAYER, "skipped", reason)
    samples = _search(race, hints)
    wealth, sample, bet = _bet(race, samples)
    seconds, draws = time.process_time() - race.begin, race.runs
    if bet is None or not wealth.rejects(beta):
        return _quiet(race, wealth, samples[0], seconds)
    return LayerResult(
        _LAYER, "refuted", "", race.runs, seconds, _evidence(race, wealth, sample, bet),
        facts={"log_wealth": wealth.peak, "rounds": wealth.rounds, "draws": draws},
    )  # fmt: skip


def _cost(race: _Race, hints: tuple[Pair, ...]) -> float:
    """Return the CPU seconds of one run, from two on either side."""
    probe = Sample((hints or (race.space.draw(race.rng),))[0])
    race.extend(probe, 2)
    return probe.seconds / 4


# --- the race -------------------------------------------------------------------------


def _candidates(race: _Race, hints: tuple[Pair, ...], count: int) -> list[Pair]:
    """Hints first, then corners and fresh pairs half and half; a few at distance zero."""
    structured = [p for p in race.space.corners(race.rng) if _differ(p)]
    race.rng.shuffle(structured)
    out = [*hints, *structured[: count // 2]]
    tries = 0
    while len(out) < count and tries < 10 * count:
        tries += 1
        pair = race.space.draw(race.rng, 0 if race.rng.random() < 0.08 else None)
        if _differ(pair):
            out.append(pair)
    return out or [race.space.draw(race.rng)]


def _differ(pair: Pair) -> bool:
    return repr(pair.left) != repr(pair.right)


def _search(race: _Race, hints: tuple[Pair, ...]) -> list[Sample]:
    """Return the three most promising pairs, strongest first."""
    first = _candidates(race, hints, 4)
    probe = Sample(first[0])
    race.extend(probe, 20)
    if len({(repr(p.left), repr(p.right)) for p in first}) == 1:
        return [probe]
    cost = max(probe.seconds / 40, 2e-6)
    # the race may use two fifths of the time: three rounds of equal cost
    affordable = int(0.13 * race.budget.seconds / (2 * cost))
    count = max(4, min(race.budget.search_pairs, affordable // 40))
    each = max(20, min(race.budget.search_runs, affordable // count))
    samples = [Sample(pair) for pair in _candidates(race, hints, count)]
    for keep in (max(3, count // 4), 3, 3):
        ranked: list[tuple[float, int, Sample]] = []
        for sample in samples:
            if race.left_over(0.6) < 0 and ranked:
                break
            race.extend(sample, each)
            ranked.append((_strength(race, sample), len(ranked), sample))
        ranked.sort(key=lambda item: (-item[0], item[1]))
        samples = [sample for _, _, sample in ranked[:keep]]
        each *= 3
        if keep > 3:
            changed = [
                Sample(race.space.mutate(s.pair, race.rng))
                for s in samples for _ in range(2) if s.pair.genome is not None
            ]  # fmt: skip
            samples += [s for s in changed if _differ(s.pair)][: max(2, count // 6)]
    return samples


def _strength(race: _Race, sample: Sample) -> float:
    bet = _choose(race, sample)[0]
    return bet.strength if bet is not None else -math.inf


def _choose(race: _Race, sample: Sample) -> tuple[Bet | None, bool, Bet | None]:
    """Learn on one half of the past, choose on the other.

    Returns:
        The better direction's bet, whether it is the swapped one, and the other direction's bet.
    """
    left, right = sample.all()
    half = len(left) // 2
    curve = race.curve(sample.pair)
    found: list[Bet | None] = []
    extra = {**race.events, **_white_box(race.subject, sample.pair)}
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
    return found[swapped], swapped, found[not swapped]


def _signed(score: Score, sign: float) -> Score:
    return lambda e: np.asarray(sign * score(e))


def _white_box(subject: Subject, pair: Pair) -> dict[str, Score]:
    """The likelihood ratio of the declared noise, when there is one."""
    if subject.core is None or subject.noise is None:
        return {}
    try:
        first, second = subject.noiseless(pair.left), subject.noiseless(pair.right)
    except Exception:  # noqa: BLE001
        return {}
    law = subject.law(first.size)
    if (
        law is None
        or not 0 < first.size == second.size <= encoding.WIDEST
        or not (law.scales(first.size) > 0).all()
    ):
        return {}

    shift, base = difference(second, first), first.astype(float)

    def score(encoded: Encoded) -> Any:
        short = max(0, first.size - encoded.cells.shape[1])
        cells = np.pad(encoded.cells[:, : first.size], ((0, 0), (0, short)))
        return np.nan_to_num(law.llr(np.nan_to_num(cells) - base, shift))

    return {"declared likelihood ratio": score}


# --- the bets -------------------------------------------------------------------------


def _bet(race: _Race, samples: list[Sample]) -> tuple[Wealth, Sample, Bet | None]:
    wealth, bet, sample = Wealth(), None, samples[0]
    batch, number = 300, 0
    while race.left_over() > 0 and wealth.rounds < race.budget.bet_pairs:
        choices = [(_choose(race, s), s) for s in samples]
        number += 1
        choices.sort(key=lambda c: -(c[0][0].strength if c[0][0] is not None else -math.inf))
        (chosen, swap, other), top = choices[0]
        if number % 4 == 0 and len(samples) > 1:  # look at the others again: no bet, only knowledge
            for rest in samples:
                if rest is not top:
                    race.extend(rest, batch // 2)
        size = min(batch, race.budget.bet_pairs - wealth.rounds)
        if chosen is not None:
            past = top.all()
            chosen = both_ways(chosen, other, *(past[::-1] if swap else past))
        left, right = _timed(race, top, size)
        if chosen is not None:
            a, b = (right, left) if swap else (left, right)
            if wealth.add(settle(chosen, a, b), -math.log(race.beta)):
                oriented = Sample(top.pair.flipped() if swap else top.pair)
                return wealth, oriented, chosen
            bet = chosen
        batch = int(batch * 1.25)
    return wealth, sample, bet


def _timed(race: _Race, sample: Sample, size: int) -> tuple[Encoded, Encoded]:
    """Draw a batch no larger than the time that is left allows."""
    cost = sample.seconds / max(sample.runs, 1)
    affordable = int(max(race.left_over(), 0.05) / max(cost, 1e-6))
    return race.extend(sample, max(20, min(size, affordable)))


# --- what is reported -----------------------------------------------------------------


def _evidence(race: _Race, wealth: Wealth, sample: Sample, bet: Bet) -> Evidence:
    """Measure the winning event on fresh outputs: Clopper-Pearson, nothing shared with the bets."""
    # The bets may have won on two events together; a second tester of one of them needs more runs.
    cheap = int(race.runs / max(time.process_time() - race.begin, 1e-3))  # a side, in two seconds
    runs = int(min(max(4 * wealth.rounds, min(4000, cheap), 400), 8000))
    left, right = race.extend(sample, runs)
    hits = int(bet.holds(left).sum()), int(bet.holds(right).sum())
    excess = certified_delta(hits, (runs, runs), bet.epsilon, race.beta)
    epsilon = certified_epsilon(hits, (runs, runs), bet.delta, race.beta)
    curve = race.curve(sample.pair)
    return Evidence(
        "event",
        f"an event ({bet.name} score >= {bet.cut:.4g}) is likelier than the claim allows",
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


def _quiet(race: _Race, wealth: Wealth, sample: Sample, seconds: float) -> LayerResult:
    curve = race.curve(replace(sample.pair, distance=race.d_in))
    epsilon = float(curve.grid[len(curve.grid) // 2])
    least = smallest_excess(epsilon, wealth.rounds, race.beta)
    left, right = sample.all()
    bound = _lower_bound(race, sample, left, right)
    return LayerResult(
        _LAYER, "not refuted", "", race.runs, seconds,
        power=f"{wealth.rounds} draws a side: an event of probability 1/2 with a true epsilon of "
        f"{least:.3g} where {epsilon:.3g} is allowed would have shown with probability .95",
        facts={"log_wealth": wealth.log, "rounds": wealth.rounds, "lower_bound": bound,
               "smallest_epsilon_seen": least},
    )  # fmt: skip


def _lower_bound(race: _Race, sample: Sample, left: Encoded, right: Encoded) -> dict[str, float]:
    """Certify a lower bound on epsilon: event chosen on one half, Clopper-Pearson on the other."""
    del left, right
    first, swap, _ = _choose(race, sample)
    if first is None:
        return {"epsilon": 0.0, "delta": 0.0}
    runs = min(2000, max(200, sample.runs))
    a, b = race.extend(sample, runs) if race.left_over() > -1 else sample.all()
    runs = len(a)
    a, b = (b, a) if swap else (a, b)
    hits = int(first.holds(a).sum()), int(first.holds(b).sum())
    delta = first.delta if first.delta < 0.2 else 0.0
    return {"epsilon": certified_epsilon(hits, (runs, runs), delta, race.beta), "delta": delta}
