"""Compute scores of an output that separate two neighbours.

Events are ``score >= t``. Every score is learned on past outputs only; none needs to be right, a bad
one just wins nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.curves import Curve
from opendp_sim.audit.instrument.compare_tapes import numbers
from opendp_sim.audit.outputs.encoding import Encoded

# --------------------------------------------------------------------------------------------------
# Scores of outputs with several cells, learned cell by cell: what each place says, added up.
#
# Whole outputs of a sparse vector hardly repeat, and each of its answers tells a little; the sum of the
# log-ratios of the single places tells most of it. A score, so it proves nothing: bets on new draws do.

Cells = tuple[str, ...]
Rates = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
RAISED: Cells = ("Raised",)
"""The places of an exception."""
_MOST, _LONGEST_TEXT, _PRIOR = 64, 64, 2.0
_CUTS, _POINTS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98), 8


def cells_of(value: Any) -> Cells:
    """Return an output's cells, or itself, as texts."""
    if isinstance(value, str) and 1 < len(value) <= _LONGEST_TEXT:
        return tuple(value)
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if isinstance(value, (list, tuple)) and 1 < len(value) <= _MOST:
        return tuple(map(repr, value))
    return (repr(value)[:200],)


def learned(left: Sequence[Cells], right: Sequence[Cells]) -> dict[tuple[int, str], float]:
    """Return the shrunk log-ratio of each cell's values."""
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
    """Return the run with outputs replaced by their cells' summed weights."""

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
    """Return the best event's excess over a claim, cellwise score."""

    def fit(mine: Sequence[Cells], other: Sequence[Cells]) -> Callable[[Any], NDArray[np.float64]]:
        weights = learned(mine, other)
        return lambda side: np.array([_total(weights, cells) for cells in side])

    return _judged(curve, left, right, fit, _CUTS, np.greater) if len(left) > 1 else 0.0


def _judged(
    curve: Curve, left: Any, right: Any, fit: Any, cuts: Sequence[float], above: Any
) -> float:
    """Return the best event's excess over a claim, in standard errors.

    Score and cuts come from one half of the draws; the other half judges, both ways round. A search, no
    test.
    """
    rates = []
    for one, other in ((0, 1), (1, 0)):
        score = fit(left[one::2], right[one::2])
        levels = np.quantile(score(left[one::2]), cuts)
        a, b = (above(score(side[other::2])[:, None], levels) for side in (left, right))
        rates.append((a.mean(axis=0), b.mean(axis=0), (a & b).mean(axis=0)))
    return clearest(curve, rates, len(left) // 2)


def clearest(curve: Curve, rates: Sequence[Rates], count: int) -> float:
    """Return the largest excess over a claim, in standard errors.

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


# --------------------------------------------------------------------------------------------------

Score = Callable[[Encoded], NDArray[np.float64]]
RawScore = Callable[[NDArray[np.float64]], NDArray[np.float64]]
LEARNED = ("symbols", "cells", "linear")
"""Scores fitted to outputs; they are judged on others. The raw ones may be judged on all."""
_BINS = 12
_BEST_CELLS = 12


def learn(left: Encoded, right: Encoded, extra: dict[str, Score] | None = None) -> dict[str, Score]:
    """Return the scores learned from one sample of each side, by name."""
    scores: dict[str, Score] = dict(extra or {})
    symbols = len(set(left.symbols) | set(right.symbols))
    if symbols <= 0.6 * (len(left) + len(right)):
        scores["symbols"] = _table(left, right)
    both = [_cells(left), _cells(right)]
    width = max(b.shape[1] for b in both)
    if left.cells.shape[1] and right.cells.shape[1]:
        scores |= {"first cell": _first(1.0), "minus first cell": _first(-1.0)}
    if width and len(left) >= 20:
        bayes = _bayes(*(_pad(b, width) for b in both))
        if bayes is not None:
            scores["cells"] = _of_summary(bayes, width)
        linear = _linear(_pad(left.cells, width), _pad(right.cells, width))
        if linear is not None:
            scores["linear"] = _of_cells(linear, width)
    return scores


def _first(sign: float) -> Score:
    return lambda e: np.asarray(sign * np.nan_to_num(_pad(e.cells, 1)[:, 0], nan=-1e300 * sign))


def _of_summary(score: RawScore, width: int) -> Score:
    return lambda e: score(_pad(_cells(e), width))


def _of_cells(score: RawScore, width: int) -> Score:
    return lambda e: score(_pad(e.cells, width))


def _cells(encoded: Encoded) -> NDArray[np.float64]:
    return np.concatenate([encoded.summary, encoded.cells], axis=1)


def _pad(cells: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    short = width - cells.shape[1]
    return (
        np.pad(cells, ((0, 0), (0, short)), constant_values=np.nan)
        if short > 0
        else cells[:, :width]
    )


def _table(left: Encoded, right: Encoded) -> Score:
    """Empirical log-ratio of whole outputs."""
    counts: dict[Any, list[float]] = {}
    for side, encoded in enumerate((left, right)):
        for symbol in encoded.symbols:
            counts.setdefault(symbol, [0.5, 0.5])[side] += 1
    ratio = {
        s: float(np.log(a / len(left)) - np.log(b / len(right))) for s, (a, b) in counts.items()
    }
    return lambda e: np.array([ratio.get(s, 0.0) for s in e.symbols])


def _bayes(left: NDArray[np.float64], right: NDArray[np.float64]) -> RawScore | None:
    """Return the summed binned log-ratios of separating cells."""
    parts: list[tuple[float, int, Any, Any]] = []
    for j in range(left.shape[1]):
        pooled = np.concatenate([left[:, j], right[:, j]])
        edges = _edges(pooled)
        if edges is None:
            continue
        a = np.bincount(_bin(left[:, j], edges), minlength=len(edges) + 2) + 1.0
        b = np.bincount(_bin(right[:, j], edges), minlength=len(edges) + 2) + 1.0
        ratio = np.log(a / a.sum()) - np.log(b / b.sum())
        strength = float((((a - b) ** 2) / (a + b)).sum())
        parts.append((strength, j, edges, ratio))
    if not parts:
        return None
    parts.sort(key=lambda part: -part[0])
    chosen = [p for p in parts[:_BEST_CELLS] if p[0] > 2 * _BINS] or parts[:1]

    def score(cells: Any) -> NDArray[np.float64]:
        return np.asarray(sum(ratio[_bin(cells[:, j], edges)] for _, j, edges, ratio in chosen))

    return score


def _edges(pooled: NDArray[np.float64]) -> NDArray[np.float64] | None:
    finite = pooled[np.isfinite(pooled)]
    if not finite.size:
        return None
    edges = np.unique(np.quantile(finite, np.linspace(0, 1, _BINS + 1)[1:-1]))
    values, counts = np.unique(finite, return_counts=True)
    if len(values) > 1 or finite.size < pooled.size:
        atoms = values[counts > max(4, 0.02 * pooled.size)][:24]
        extra = np.concatenate([atoms, np.nextafter(atoms, np.inf)])
        return np.unique(np.concatenate([edges, extra]))
    return None


def _bin(values: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    spots = np.searchsorted(edges, values, side="right")
    return np.where(np.isnan(values), len(edges) + 1, spots)


def _linear(left: NDArray[np.float64], right: NDArray[np.float64]) -> RawScore | None:
    """Difference of means over variance, cell by cell."""
    clean_left, clean_right = np.nan_to_num(left), np.nan_to_num(right)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = clean_left.var(axis=0) + clean_right.var(axis=0)
        weight = (clean_left.mean(axis=0) - clean_right.mean(axis=0)) / np.where(
            spread > 0, spread, np.inf
        )
    weight = np.nan_to_num(weight)
    if not weight.any():
        return None
    return lambda cells: np.asarray(np.nan_to_num(cells).dot(weight))


# --------------------------------------------------------------------------------------------------
# Scores of numeric outputs whose two sides differ by a shift: sums of what each place says of it.
#
# A function that adds noise of its own to several answers shows a little in each; learned place by place
# from few draws most of that is lost in the luck of single values. Two middles and a width a place are
# learned from few. A score, so it proves nothing: bets on new draws do.

_PLACES, _TRIM, _LUCK, _SHIFT_SCORES_MOST, _SHIFT_SCORES_FEWEST = 64, 0.1, 2.5, 8.0, 40
"""Places at most, what is cut off at each end of a mean, the errors that a shift must be clear of, the
most that one place says, and the fewest draws."""
_SHIFT_SCORES_CUTS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)

Rows = NDArray[np.float64]


def rows_of(values: Sequence[Any]) -> Rows | None:
    """Return outputs as rows of numbers of one length, or None."""
    rows = [numbers(value) for value in values]
    sizes = {len(row) if row is not None else 0 for row in rows}
    if len(sizes) != 1 or not 0 < max(sizes) <= _PLACES:
        return None
    table = np.nan_to_num(np.array(rows, dtype=float), nan=-1e300)
    return np.asarray(np.clip(table, -1e300, 1e300))


@dataclass(frozen=True)
class Leaning:
    """Hold each side's centre and the noise's width, by cell."""

    first: Rows
    second: Rows
    width: Rows

    @classmethod
    def of(cls, left: Rows, right: Rows) -> Leaning:
        """Learn from draws; places that have not clearly moved say nothing."""
        first, second = _middle(left), _middle(right)
        width = np.maximum(np.abs(left - first).mean(axis=0), np.abs(right - second).mean(axis=0))
        luck = _LUCK * width * math.sqrt(2 / len(left))
        still = np.abs(second - first) <= luck
        return cls(first, np.where(still, first, second), np.maximum(width, 1e-12))

    def score(self, rows: Rows) -> Rows:
        """Return the scores of rows, nearly log-likelihood ratios, for the left."""
        with np.errstate(over="ignore", invalid="ignore"):
            gain = (np.abs(rows - self.second) - np.abs(rows - self.first)) / self.width
        return np.asarray(
            np.clip(np.nan_to_num(gain), -_SHIFT_SCORES_MOST, _SHIFT_SCORES_MOST).sum(axis=1)
        )

    def rows(self, run: Callable[[Any], Any]) -> Callable[[Any], list[float]]:
        """Return the run with outputs as rows, unfit ones scored 0."""
        nothing: list[float] = ((self.first + self.second) / 2).tolist()

        def one(data: Any) -> list[float]:
            try:
                row = numbers(run(data))
            except Exception:  # noqa: BLE001 - an exception is an output that says nothing here
                return nothing
            return nothing if row is None or len(row) != len(nothing) else row

        return one


def _middle(rows: Rows) -> Rows:
    """Return the means of the places without their ends."""
    cut = int(_TRIM * len(rows))
    return np.asarray(np.sort(rows, axis=0)[cut : len(rows) - cut].mean(axis=0))


def surplus_of_shift(curve: Curve, left: Rows, right: Rows) -> float:
    """Return the best event's excess over a claim, shift score."""
    if len(left) // 2 < _SHIFT_SCORES_FEWEST or left.shape[1] != right.shape[1]:
        return 0.0

    def fit(mine: Rows, other: Rows) -> Callable[[Rows], Rows]:
        return Leaning.of(mine, other).score

    return _judged(curve, left, right, fit, _SHIFT_SCORES_CUTS, np.greater_equal)
