"""Bet on draws of a traced pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from scipy import stats

from opendp_sim.audit.findings import Evidence, mirrored
from opendp_sim.audit.statistics.score_bets import Won, lean_bets
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.work import work_seconds

CALCULATED = (
    "calculated and not drawn: exact if a run is a function of its dataset and its tape, OpenDP's noise"
    " has the law that its constructor names (real releases fit it), and no branch on values of the"
    " noise that were not tried carries the claim"
)

_GUARD_RISK, _GUARD_RUNS, _FEWEST_RUNS, _GUARD_SECONDS = 1e-7, 400, 120, 0.4
"""A guard's level, its releases, and how few are enough of a slow object, after so many seconds."""


def verdict_run(tracer: Tracer) -> tuple[Callable[[Any], Any], str]:
    """Return sound draws for a verdict, with their name."""
    if tracer.stateful or tracer.hidden or tracer.tape.unseen:
        return tracer.obj, "releases of the object"
    if tracer.direct:
        words = "runs of its Python function, noise of OpenDP's laws drawn in bulk"
        return tracer.tape.live(tracer.function, "bulk"), words
    return tracer.obj, "releases of the object"


def drawn(detail: str, won: Won, tracer: Tracer, words: str, claimed: str = "") -> Evidence:
    """Return evidence from won bets, whose plain event comes later."""
    bet = won.bet
    return Evidence(
        "event",
        detail,
        claimed or allowed(tracer, bet.epsilon, bet.delta),
        f"about {bet.hits[0]:.4g} on the left, {bet.hits[1]:.4g} on the right",
        won.pair,
        None,
        f"1 - {math.exp(-won.wealth.peak):.1g} (betting on {words})",
        {
            "epsilon": bet.epsilon,
            "delta": bet.delta,
            "log_wealth": won.wealth.peak,
            "rounds": won.wealth.rounds,
            "how": "drawn",
        },
    )


def confirmed(
    tracer: Tracer,
    price: Evidence,
    score: Any,
    looks: Iterable[tuple[Callable[[Any], list[float]], str, float]],
) -> Evidence | None:
    """Keep a price, and return it where bets confirm it."""
    tracer.price(price)
    if price.pair is None:
        return None
    for row, words, most in looks:
        seconds = min(most, max(0.1, tracer.left()))
        won = lean_bets(row, price.pair, score, tracer.curve, seconds, tracer.risk(0.03), first=400)
        if won is None:
            continue
        same = won.pair.left is price.pair.left
        told = [v if same else mirrored(v) for v in (price.detail, price.claimed, price.measured)]
        found = drawn(told[0], won, tracer, words, told[1])
        outputs = price.outputs if same or price.outputs is None else price.outputs[::-1]
        return replace(
            found,
            kind=price.kind,
            measured=told[2],
            outputs=outputs,
            confidence=f"calculated, and {found.confidence}",
            extra={**found.extra, "how": "calculated and drawn"},
        )
    return None


def agrees(one: Callable[[], bool], low: float, high: float) -> bool:
    """Return whether releases have an event as often as two bounds allow."""
    seen = guard_runs(one)
    hits, runs = sum(seen), len(seen)
    spread = min(stats.binom.cdf(hits, runs, high), stats.binom.sf(hits - 1, runs, low))
    return bool(spread >= _GUARD_RISK)


def guard_runs(one: Callable[[], Any]) -> list[Any]:
    """Return many releases' results, fewer of a slow object."""
    begin, out = work_seconds(), list[Any]()
    while len(out) < _GUARD_RUNS:
        if len(out) >= _FEWEST_RUNS and work_seconds() - begin > _GUARD_SECONDS:
            break
        out.append(one())
    return out


def allowed(tracer: Tracer, epsilon: float, delta: float) -> str:
    """Return the claim as a sentence about an event."""
    return f"{tracer.curve.text}: P[left in S] <= e^{epsilon:.4g} P[right in S] + {delta:.3g}"
