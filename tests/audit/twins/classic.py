"""The published set, written from its descriptions: sparse vector, noisy max, histograms, sums.

Inputs are the exact answers of queries; neighbours differ by at most one in every answer (or in one
cell, for histograms), and every mechanism claims epsilon = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.prelude as dp

from tests.audit.twins.stand_ins import FINE, PURE, laplace, measurement

ANSWERS = dp.vector_domain(dp.atom_domain(bounds=(0, 2)), size=6)
EVERY_ANSWER = dp.linf_distance(T=int)
ONE_CELL = dp.l1_distance(T=int)
Many = Callable[[Any, int], list[Any]]


def entry(many: Many, metric: Any = EVERY_ANSWER) -> tuple[Any, dict[str, Any]]:
    return measurement(ANSWERS, metric, PURE, many, lambda d: 1.0 * d), {"sample": many}


def sparse_vector(
    *,
    threshold_scale: float,
    query_scale: float,
    limit: int | None,
    value_scale: float = 0.0,
    redraw: bool = False,
) -> Many:
    """Compare noisy answers with a noisy threshold of 1; stop after ``limit`` are above it."""

    def many(x: Any, count: int) -> list[Any]:
        answers = np.asarray(x, dtype=float)
        n = len(answers)
        bar = 1 + laplace((count, 1), threshold_scale, FINE)
        noisy = answers + (
            laplace((count, n), query_scale, FINE) if query_scale else np.zeros((count, n))
        )
        again = 1 + laplace((count, n), threshold_scale, FINE) if redraw else None
        values = answers + laplace((count, n), value_scale, FINE) if value_scale else noisy
        out = []
        for k in range(count):
            line: list[Any] = []
            above, level = 0, float(bar[k, 0])
            for i in range(n):
                if noisy[k, i] >= level:
                    line.append(float(np.rint(values[k, i])) if value_scale else True)
                    above += 1
                    if again is not None:
                        level = float(again[k, i])
                    if limit is not None and above >= limit:
                        break
                else:
                    line.append(False)
            out.append(tuple(line))
        return out

    return many


def noisy_max(*, exponential: bool, value: bool) -> Many:
    """Report the largest noisy answer: its index, or (broken) its value."""

    def many(x: Any, count: int) -> list[Any]:
        noise = laplace((count, len(x)), 2.0, FINE)
        noisy = np.asarray(x, dtype=float) + (np.abs(noise) if exponential else noise)
        top = noisy.argmax(axis=1)
        return [float(np.rint(noisy[k, i])) if value else int(i) for k, i in enumerate(top)]

    return many


def histogram(scale: float) -> Many:
    return lambda x, count: list(np.asarray(x) + laplace((count, len(x)), scale))


def prefix_sum(scale: float) -> Many:
    def many(x: Any, count: int) -> list[Any]:
        return list(np.cumsum(np.asarray(x)) + laplace((count, len(x)), scale))

    return many


def parallel_laplace(scale: float) -> Many:
    """One answer released through every cell again."""
    return lambda x, count: list(np.asarray(x)[0] + laplace((count, 20), scale))
