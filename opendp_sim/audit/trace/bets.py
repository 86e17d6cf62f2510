"""Bet on draws of a traced pair, whole outputs or blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from opendp_sim.audit.checks.distribution import distribution_layer
from opendp_sim.audit.findings import Evidence
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import GivenPairs
from opendp_sim.audit.outputs.encoding import outcome
from opendp_sim.audit.statistics.score_bets import Won, bones, lean_bets, symbol, valued
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.output_sample import Glance
from opendp_sim.audit.work import work_seconds

CALCULATED = (
    "calculated and not drawn: exact if a run is a function of its dataset and its tape, OpenDP's noise"
    " has the law that its constructor names (real releases fit it), and no branch on values of the"
    " noise that were not tried carries the claim"
)


_TABLE, _GLANCE, _CLEAR, _LEARN = 6000, 1200, 1.0, 0.15
_SHORT, _MANY = 0.05, 600
_FEWEST, _READ = 60, 3e-5
"""Draws that a table is learned from at least; seconds to read an output place by place, once drawn."""


def verdict_run(tracer: Tracer) -> tuple[Callable[[Any], Any], str]:
    """Return sound draws for a verdict, with their name."""
    if tracer.stateful or tracer.hidden or tracer.tape.unseen:
        return tracer.obj, "releases of the object"
    if tracer.direct:
        words = "runs of its Python function, noise of OpenDP's laws drawn in bulk"
        return tracer.mode_run("bulk"), words
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


def allowed(tracer: Tracer, epsilon: float, delta: float) -> str:
    """Return the claim as a sentence about an event."""
    return f"{tracer.curve.text}: P[left in S] <= e^{epsilon:.4g} P[right in S] + {delta:.3g}"


def bet_on_table(
    tracer: Tracer,
    pair: Pair,
    detail: str,
    seconds: float,
    share: float,
    count: int = _TABLE,
    seen: Glance | None = None,
) -> Evidence | None:
    """Bet on outputs' log-ratios, learned from draws without verdict."""
    end = work_seconds() + seconds
    scout = tracer.obj if tracer.stateful else tracer.mode_run("scout")
    seen = Glance() if seen is None else seen
    count = int(max(_FEWEST, min(count, _LEARN * seconds / (2 * (_cost(scout, pair) + _READ)))))
    seen.more(scout, pair, count - len(seen), tracer.glanced)

    def rest() -> float:
        return max(0.3 * seconds, end - work_seconds())

    table, reduce = seen.table(), _whole
    bare = seen.table(bones=True)
    if bare is not None and (table is None or _telling(bare) > 1.2 * _telling(table)):
        table, reduce = bare, bones
    known = table if table is not None and len(table) <= _MANY else None
    if known is not None and reduce is bones and _telling(known) < _CLEAR:
        known = None
    scored = _scored(tracer, seen, known, reduce)
    if scored is None:
        return bet_freely(tracer, pair, detail, rest(), share)
    value, scores = scored
    run, words = verdict_run(tracer)
    row = partial(_valued_output, run, value)
    rounds, risk = tracer.rounds(pair), tracer.risk(share)
    won = lean_bets(row, pair, scores, tracer.curve, rest(), risk, rounds=rounds)
    return None if won is None else drawn(detail, won, tracer, words)


Row = Callable[[Any], list[float]]


def _scored(
    tracer: Tracer, seen: Glance, table: dict[str, float] | None, reduce: Any
) -> tuple[Row, list[Any]] | None:
    """Return an output's row and the scores of rows, or None.

    The first number says what places or whole outputs tell; the others are the output's own, for the
    score of a shift. Which of the two is bet on, the rounds themselves decide.
    """
    cells, clear = seen.by_cells(tracer.curve), max(_CLEAR, seen.by_outputs(tracer.curve))
    shift = seen.by_shift(tracer.curve)
    leaning = seen.leaning() if shift > 0 else None
    if leaning is not None and shift > max(
        clear, cells
    ):  # reading places besides would take longer
        return leaning.rows(_as_it_is), [leaning.score]
    first: Row | None = None
    if cells > clear:
        first = seen.score(_as_it_is)
    elif table is not None:
        first = valued(reduce(_as_it_is), table)
    if leaning is None:
        return None if first is None else (first, [_first_number])
    row = leaning.rows(_as_it_is)
    if first is None:
        return row, [leaning.score]
    return partial(_joined, first, row), [_first_number, lambda rows: leaning.score(rows[:, 1:])]


def _joined(first: Row, second: Row, out: Any) -> list[float]:
    return first(out) + second(out)


def _valued_output(run: Callable[[Any], Any], value: Row, data: Any) -> list[float]:
    return value(outcome(run, data))


def _first_number(rows: Any) -> Any:
    return rows[:, 0]


def _as_it_is(out: Any) -> Any:
    return out


def _whole(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return run


def _telling(table: dict[str, float]) -> float:
    """Return the largest log-ratio of a table, either way."""
    return max((abs(v) for v in table.values()), default=0.0)


def bet_freely(
    tracer: Tracer, pair: Pair, detail: str, seconds: float, share: float
) -> Evidence | None:
    """Bet on one pair with scores learned from its outputs."""
    run, words = verdict_run(tracer)
    subject = replace(tracer.subject, run=run, outer=None)
    found = distribution_layer(
        subject,
        GivenPairs((pair,)),
        tracer.d_in,
        replace(tracer.budget, seconds=seconds),
        tracer.rng,
        tracer.risk(share),
        (pair,),
    )
    if found.evidence is None:
        return None
    told = found.evidence
    return replace(
        told,
        detail=detail,
        confidence=told.confidence.replace("betting", f"betting on {words}"),
        extra={**told.extra, "how": "drawn"},
    )


def _cost(run: Callable[[Any], Any], pair: Pair) -> float:
    begin = work_seconds()
    symbol(run, pair.left), symbol(run, pair.right)
    return max((work_seconds() - begin) / 2, 2e-6)


def strength(
    tracer: Tracer, pair: Pair, seconds: float = 0.02, seen: Glance | None = None
) -> float:
    """Return the best event's excess over the claim.

    In standard errors; for a search, no test. What was drawn of the pair before counts on.
    """
    run = tracer.mode_run("scout")
    most = _GLANCE if seconds < _SHORT else _TABLE
    count = int(max(40, min(most, seconds / (2 * (_cost(run, pair) + _READ)))))
    return (
        (Glance() if seen is None else seen)
        .more(run, pair, count, tracer.glanced)
        .worth(tracer.curve)
    )
