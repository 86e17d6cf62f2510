"""Bet on weighed runs: hidden noise of known laws, the pair found by weights as well."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.common import Common
from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.hidden import cases
from opendp_sim.audit.members import quiet_member
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.sampling import differ
from opendp_sim.audit.steps import allowed
from opendp_sim.audit.tracer import Tracer
from opendp_sim.audit.weighed import Weighed, WeighedWin, weighed_bets

__all__ = ["weighed_step"]

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
