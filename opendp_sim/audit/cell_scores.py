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

__all__ = ["cells_of", "cells_of_run", "learned", "scored_cells", "surplus"]

Cells = tuple[str, ...]
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


def cells_of_run(run: Callable[[Any], Any], data: Any) -> Cells:
    """Return the places of one release; an exception is an output of one place."""
    try:
        return cells_of(run(data))
    except Exception as error:  # noqa: BLE001 - exceptions are outputs
        return (type(error).__name__,)


def learned(left: Sequence[Cells], right: Sequence[Cells]) -> dict[tuple[int, str], float]:
    """Return the log-ratio of each place's values, drawn towards nothing where little was seen."""
    counts = [
        Counter((i, c) for cells in side for i, c in enumerate(cells)) for side in (left, right)
    ]
    a, b = counts
    shift = math.log((len(right) + _PRIOR) / (len(left) + _PRIOR))
    return {k: math.log((a[k] + _PRIOR) / (b[k] + _PRIOR)) + shift for k in a.keys() | b.keys()}


def scored_cells(
    run: Callable[[Any], Any], weights: dict[tuple[int, str], float]
) -> Callable[[Any], list[float]]:
    """Return the run with its outputs replaced by the sum of what their places say."""
    return lambda data: [_total(weights, cells_of_run(run, data))]


def _total(weights: dict[tuple[int, str], float], cells: Cells) -> float:
    return math.fsum(weights.get(place, 0.0) for place in enumerate(cells))


def surplus(curve: Curve, left: Sequence[Cells], right: Sequence[Cells]) -> float:
    """Return the excess of the best event of the score over a claim, in standard errors.

    Weights and cuts come from one half of the draws; the other half judges. A search, no test.
    """
    weights = learned(left[::2], right[::2])
    cuts = np.quantile([_total(weights, c) for c in left[::2]], _CUTS)
    p, q = (_above(weights, side[1::2], cuts) for side in (left, right))
    count, best = len(left[1::2]), 0.0
    step = max(1, len(curve.grid) // _POINTS)
    for epsilon, delta in zip(curve.grid[::step], curve.deltas[::step], strict=True):
        factor = math.exp(min(float(epsilon), 50.0))
        error = np.sqrt((p + factor * factor * q + 4 / count) / count)
        best = max(best, float(((p - factor * q - float(delta)) / error).max()))
    return best


def _above(
    weights: dict[tuple[int, str], float], side: Sequence[Cells], cuts: NDArray[np.float64]
) -> NDArray[np.float64]:
    totals = np.array([_total(weights, cells) for cells in side])
    return (totals[:, None] > cuts[None, :]).mean(axis=0)  # type: ignore[no-any-return]
