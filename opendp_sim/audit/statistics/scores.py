"""Compute scores of an output that separate two neighbours.

Events are ``score >= t``. Every score is learned on past outputs only; none needs to be right, a bad
one just wins nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.outputs.encoding import Encoded

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
