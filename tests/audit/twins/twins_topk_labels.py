"""The front doors of private selection, each broken in one way: `pate_labels` and `top_k`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from opendp_sim.domains.counts import USERS, votes_space
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.gap_utility import GapUtility
from opendp_sim.measurements.selection._impl.peeling import peeled
from opendp_sim.measurements.selection.pate_labels import (
    PateLabels,
    StableVotes,
    answer_stable,
    whole_votes,
)
from opendp_sim.measurements.selection.stable_top_k import StablePlan, draw_stable
from opendp_sim.measurements.selection.top_k import TopK
from tests.audit.twins.selection import VOTES, best, claimed, gap, row, twins

# --- pate_labels: three teachers or four, two queries of three labels --------------------------------

_LABELS, _S = 3, 1.2
_ROWS = RealRows(width=2 * _LABELS)
_PATE = PateLabels(labels=_LABELS, rule=StableVotes(k_max=2), scale=_S, delta=0.05)
_QUERY = votes_space("twin", IntVector(_LABELS), USERS)
_T = int(claimed(_PATE, _ROWS, Symmetric()).expected["threshold"])
_PLAN = StablePlan(GapUtility(2, None, None, 0.0), _S, _T)


def _read(rows: Any) -> Any:
    return np.asarray(rows, dtype=float).reshape(-1, 2 * _LABELS)


def _answers(coins: Any, rows: Any, plan: StablePlan = _PLAN) -> Any:
    return answer_stable(coins, _QUERY, whole_votes(rows), plan)


def _queries(rows: Any) -> Any:
    return whole_votes(rows).reshape(-1, _LABELS)


def _weights(coins: Any, rows: Any) -> Any:
    return answer_stable(coins, _QUERY, rows.sum(axis=0).astype(np.int64), _PLAN)


def _empty_skipped(coins: Any, rows: Any) -> Any:
    """A query that nobody answers costs nothing and is marked as such."""
    found = zip(_answers(coins, rows), _queries(rows), strict=True)
    return [labels if votes.any() else "nobody" for labels, votes in found]


def _one_noise(coins: Any, rows: Any) -> Any:
    noise = int(coins.noisy(np.zeros(1, dtype=np.int64), _S)[0])
    return [bool(votes[0] - votes[1] + noise >= 2) for votes in _queries(rows)]


def _untested(coins: Any, rows: Any) -> Any:
    return [
        sorted(np.argsort(-v, kind="stable")[: 1 + coins.best(-np.diff(-np.sort(-v)), _S)].tolist())
        for v in _queries(rows)
    ]


def _agreed(_: Any, rows: Any) -> Any:
    return [np.flatnonzero(2 * votes > len(rows)).tolist() for votes in _queries(rows)]


def _votes(first: list[int], second: list[int], times: int = 1) -> list[list[float]]:
    return [[float(i in part) for part in (first, second) for i in range(_LABELS)]] * times


_EVEN = _votes([0, 1], [0, 1], 3)
_LEADS = _votes([0, 1], [], 3)

# --- top_k -------------------------------------------------------------------------------------------

_FIXED = TopK(k=2, scale=2.0, delta=0.05)
_FREE = TopK(k_max=3, scale=_S, delta=0.05)
_OWN = _FREE.chosen(VOTES)[0].plan()


def _top(coins: Any, h: Any, k: int = 2) -> Any:
    return peeled(coins, VOTES, h, k, 2.0)


def _better_of_two(coins: Any, h: Any) -> Any:
    return max((_top(coins, h) for _ in range(2)), key=lambda found: int(h[found].sum()))


def _by_the_counts(coins: Any, h: Any) -> Any:
    """The exact gap picks the mechanism."""
    return best(h, 2) if gap(h, 2) >= 2 else _top(coins, h)


def _catalogue_of_the_data(coins: Any, h: Any) -> Any:
    items = np.flatnonzero(h)
    if len(items) <= 2:
        return [int(i) for i in items]
    return sorted(int(items[i]) for i in coins.top(h[items], 2, 2.0))


TWINS = [
    *twins(
        _PATE,
        row(
            "weights_as_votes: a teacher's number counts as that many votes",
            _weights,
            _EVEN,
            [*_EVEN, [0.0, 9.0, 0.0, 0.0, 9.0, 0.0]],
        ),
        row(
            "empty_query_told: a query without votes is told from one without an answer",
            _empty_skipped,
            [[0.0] * 6],
            [[0.0] * 6, *_votes([0], [0])],
        ),
        row(
            "one_noise_for_all: both queries are tested with one draw",
            _one_noise,
            _votes([0], [0], 2),
            _votes([0], [0], 2) + _votes([0], [1]),
        ),
        row(
            "no_test: labels down to the drawn rank, untested",
            _untested,
            _EVEN,
            _EVEN + _votes([1], [1]),
        ),
        row(
            "exact_majority: labels of more than half of the teachers, without noise",
            _agreed,
            _votes([0], [0]),
            _votes([0], [0]) + _votes([], []),
        ),
        row(
            "threshold_two_low: the threshold of the answer is two votes too low",
            lambda c, rows: _answers(c, rows, replace(_PLAN, threshold=_T - 2)),
            _LEADS + _votes([1], [1]),
            _LEADS,
        ),
        space=_ROWS,
        metric=Symmetric(),
        read=_read,
    ),
    *twins(
        _FIXED,
        row(
            "better_of_two: two releases, the one with more votes is kept",
            _better_of_two,
            "0000 0001",
        ),
        row(
            "mechanism_by_the_counts: the exact gap decides whether the set is noisy",
            _by_the_counts,
            "0110 0220",
        ),
        row(
            "catalogue_of_the_data: peels among the items with votes",
            _catalogue_of_the_data,
            "0000 0001",
        ),
        row(
            "unvoted_dropped: items without votes are taken out of the answer",
            lambda c, h: [i for i in _top(c, h) if h[i] > 0],
            "1101 0000",
        ),
    ),
    *twins(
        _FREE,
        row(
            "largest_gap_for_nothing: without k the set above the exact largest gap",
            lambda _, h: best(h, 1 + int(np.argmax(VOTES.rank(h, 4).gaps))),
            "0000 0001",
        ),
        row(
            "threshold_one_low: the threshold is rounded down once too often",
            lambda c, h: draw_stable(c, VOTES, h, replace(_OWN, threshold=_OWN.threshold - 1)),
            "0112 0011",
        ),
    ),
]
