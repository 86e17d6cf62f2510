"""Bet on one numeric score that is fixed before the draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.outputs.encoding import Encoded, outcome, unordered
from opendp_sim.audit.statistics.betting import Bet, Wealth, best_bet, both_ways, settle_bets
from opendp_sim.audit.statistics.sampling import both_sides
from opendp_sim.audit.statistics.scores import Score
from opendp_sim.audit.work import work_seconds

RowScore = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_MOST = 8000
_GROWTH = 1.4
_FRESH_SHARE = 0.3


@dataclass(frozen=True)
class Won:
    """Bets that refuted a claim."""

    pair: Pair
    """The way round in which the left is too likely to be in the event."""
    bet: Bet
    wealth: Wealth
    seconds: float


def lean_bets(
    run: Callable[[Any], Any],
    pair: Pair,
    score: RowScore,
    curve: Curve,
    seconds: float,
    beta: float,
    *,
    first: int = 1500,
) -> Won | None:
    """Bet on the score of an output, both ways.

    ``score(numbers of the output)``, until it wins or the seconds are over.

    Args:
        run: dataset to a row of numbers, always of one length.
        pair: the two datasets.
        score: rows of numbers, shape (n, k), to scores, shape (n,); chosen before the draws.
        curve: the claim.
        seconds: nominal seconds.
        beta: risk.
        first: rounds of the first batch, which only shows what to bet on.
    """
    begin, wealth = work_seconds(), Wealth()
    up, down = ({"traced": _on_cells(score, sign)} for sign in (1.0, -1.0))
    probe = work_seconds()
    _draw(run, pair, 4)
    cost = max((work_seconds() - probe) / 4, 1e-6)
    count = int(max(40, min(first, _FRESH_SHARE / 3 * seconds / cost)))
    left, right = _draw(run, pair, count)
    while work_seconds() - begin < seconds:
        ahead = best_bet(up, left, right, curve, slice(None))
        behind = best_bet(down, right, left, curve, slice(None))
        if ahead is None or behind is None:
            return None
        swap = behind.strength > ahead.strength
        sides = (right, left) if swap else (left, right)
        bet = both_ways(behind, ahead, *sides) if swap else both_ways(ahead, behind, *sides)
        fresh = _draw(run, pair, count)
        if wealth.add(settle_bets(bet, *(fresh[::-1] if swap else fresh)), -math.log(beta)):
            oriented = pair.flipped() if swap else pair
            return Won(oriented, bet, wealth, work_seconds() - begin)
        left, right = Encoded.join([left, fresh[0]]), Encoded.join([right, fresh[1]])
        rest = (seconds - (work_seconds() - begin)) / cost
        count = int(max(40, min(count * _GROWTH, _MOST, rest)))
        if wealth.rounds > 20 * first and max(ahead.strength, behind.strength) < 0:
            return None  # nothing above the claim in any event of this score
    return None


def _on_cells(score: RowScore, sign: float) -> Score:
    return lambda outputs: np.asarray(sign * score(outputs.cells))


def _draw(run: Callable[[Any], Any], pair: Pair, count: int) -> tuple[Encoded, Encoded]:
    sides = both_sides(lambda data: [run(data)], pair, count)
    first, second = (np.array(side, dtype=float).reshape(count, -1) for side in sides)
    return _encoded(first), _encoded(second)


def _encoded(cells: NDArray[np.float64]) -> Encoded:
    count = len(cells)
    return Encoded(
        np.zeros(count, dtype=int), np.nan_to_num(cells, nan=-1e300), np.zeros((count, 1))
    )


def symbol(run: Callable[[Any], Any], data: Any) -> str:
    """Return one output as text; an exception is an output."""
    return text_of(outcome(run, data))


def text_of(value: Any) -> str:
    """Return an output as a symbol."""
    return repr(value.tolist() if isinstance(value, np.ndarray) else unordered(value))[:400]


def valued(run: Callable[[Any], Any], table: dict[str, float]) -> Callable[[Any], list[float]]:
    """Return the run with outputs scored by a table, else 0."""

    def scored(data: Any) -> list[float]:
        return [table.get(symbol(run, data), 0.0)]

    return scored
