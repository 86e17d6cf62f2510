"""Scores of outputs with several cells, learned cell by cell: what each place says, added up.

Whole outputs of a sparse vector hardly repeat, and each of its answers tells a little; the sum of the
log-ratios of the single places tells most of it. A score, so it proves nothing: bets on new draws do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.curves import Curve

__all__ = ["RAISED", "Rates", "cells_of", "clearest", "learned", "scored_cells", "surplus"]

Cells = tuple[str, ...]
Rates = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
RAISED: Cells = ("Raised",)
"""The places of an exception."""
_MOST, _LONGEST_TEXT, _PRIOR = 64, 64, 2.0
_CUTS, _POINTS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98), 8


def cells_of(value: Any) -> Cells:
    """Return the places of an output as texts; one that has none is a single place."""
    if isinstance(value, str) and 1 < len(value) <= _LONGEST_TEXT:
        return tuple(value)
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if isinstance(value, (list, tuple)) and 1 < len(value) <= _MOST:
        return tuple(map(repr, value))
    return (repr(value)[:200],)


def learned(left: Sequence[Cells], right: Sequence[Cells]) -> dict[tuple[int, str], float]:
    """Return the log-ratio of each place's values, drawn towards nothing where little was seen."""
    counts = [
        Counter((i, c) for cells in side for i, c in enumerate(cells)) for side in (left, right)
    ]
    a, b = counts
    shift = math.log((len(right) + _PRIOR) / (len(left) + _PRIOR))
    return {k: math.log((a[k] + _PRIOR) / (b[k] + _PRIOR)) + shift for k in a.keys() | b.keys()}


def scored_cells(
    run: Callable[[Any], Any],
    weights: dict[tuple[int, str], float],
    cells: Callable[[Any], Cells] = cells_of,
) -> Callable[[Any], list[float]]:
    """Return the run with its outputs replaced by the sum of what their places say."""

    def scored(data: Any) -> list[float]:
        try:
            places = cells(run(data))
        except Exception:  # noqa: BLE001 - an exception is an output of one place
            places = RAISED
        return [_total(weights, places)]

    return scored


def _total(weights: dict[tuple[int, str], float], cells: Cells) -> float:
    return math.fsum(weights.get(place, 0.0) for place in enumerate(cells))


def surplus(curve: Curve, left: Sequence[Cells], right: Sequence[Cells]) -> float:
    """Return the excess of the best event of the score over a claim, in standard errors.

    Weights and cuts come from one half of the draws; the other half judges, both ways round. A search,
    no test.
    """
    count = len(left) // 2
    if not count:
        return 0.0
    rates = []
    for first, second in ((0, 1), (1, 0)):
        weights = learned(left[first::2], right[first::2])
        cuts = np.quantile([_total(weights, c) for c in left[first::2]], _CUTS)
        a, b = (_above(weights, side[second::2], cuts) for side in (left, right))
        rates.append((a.mean(axis=0), b.mean(axis=0), (a & b).mean(axis=0)))
    return clearest(curve, rates, count)


def clearest(curve: Curve, rates: Sequence[Rates], count: int) -> float:
    """Return the largest excess of an event over a claim, in standard errors.

    Of each half of the draws: how often the events came on the left, on the right, and in both outputs of
    a round. Where rounds have their noise in common the last takes away most of what is luck.
    """
    best, step = 0.0, max(1, len(curve.grid) // _POINTS)
    for epsilon, delta in zip(curve.grid[::step], curve.deltas[::step], strict=True):
        factor = math.exp(min(float(epsilon), 50.0))
        over = sum(p - factor * q - float(delta) for p, q, _ in rates)
        squares = (p + factor * factor * q - 2 * factor * both for p, q, both in rates)
        variance = sum((square + 4 / count) / count for square in squares)
        best = max(best, float((over / np.sqrt(variance)).max()))
    return best


def _above(
    weights: dict[tuple[int, str], float], side: Sequence[Cells], cuts: NDArray[np.float64]
) -> NDArray[np.bool_]:
    totals = np.array([_total(weights, cells) for cells in side])
    return np.asarray(totals[:, None] > cuts[None, :])
