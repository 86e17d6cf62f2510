"""Tests of residuals, release minus noiseless part, against a declared law: each gives a p-value.

Every p-value is an upper bound of the probability under the law, at any number of runs and cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from opendp_sim.audit.noise import NoiseLaw

__all__ = ["NoiseTest", "residual_tests"]

_COARSEST = 2.0**-10
"""The most that a rounded value of a continuous law has: cells of coarser floats are left out."""


@dataclass(frozen=True)
class NoiseTest:
    """One test: what it looked at, its p-value, what was expected and seen."""

    kind: str
    p: float
    claimed: Any
    measured: Any


def residual_tests(
    law: NoiseLaw, residual: NDArray[np.float64], rng: np.random.Generator
) -> Iterator[NoiseTest]:
    """Yield the tests of one dataset's residuals, shape (runs, cells)."""
    runs, cells = residual.shape
    scales = law.scales(cells)
    if law.discrete:
        off = np.abs(residual / law.grid - np.rint(residual / law.grid)).max()
        yield NoiseTest(
            "support", 0.0 if off > 1e-6 else 1.0, "a grid", "values between grid points"
        )
    silent = scales <= 0
    if silent.any():
        yield NoiseTest("scale", 0.0, "a positive scale", "a declared scale of zero")
        return
    yield from _scale_tests(law, residual, scales)
    yield _shape_test(law, residual, scales, rng)
    yield _sign_test(law, residual, scales)
    if cells > 1:
        yield from _independence_tests(residual)
    if runs > 1:
        yield _lag_test(residual)
        yield _repeat_test(law, residual, scales)


def _scale_tests(
    law: NoiseLaw, residual: NDArray[np.float64], scales: NDArray[np.float64]
) -> Iterator[NoiseTest]:
    """Test the pooled sufficient statistic and each cell's own; normal with a Bernstein correction."""
    runs, cells = residual.shape
    statistic = law.statistic(residual, scales)
    moments = {v: law.spread(float(v)) for v in np.unique(scales)}
    mean = np.array([moments[v][0] for v in scales])
    variance = np.array([moments[v][1] for v in scales])
    jump = float(law.statistic(law.grid, scales.min())) if law.discrete else 0.0
    total = float((statistic - mean).sum())
    yield NoiseTest(
        "scale",
        _tail(total, float(variance.sum()) * runs, law, jump),
        "the declared scale",
        f"{_scale_ratio(law, float(statistic.mean() / mean.mean())):.4g} of it",
    )
    each = (statistic - mean).sum(axis=0)
    ps = [_tail(float(e), float(v) * runs, law, jump) for e, v in zip(each, variance, strict=True)]
    spot = int(np.argmin(ps))
    seen = _scale_ratio(law, float(statistic[:, spot].mean() / mean[spot]))
    yield NoiseTest(
        "scale in one cell",
        min(1.0, ps[spot] * cells),
        "the declared scale",
        f"{seen:.4g} of it (cell {spot})",
    )


def _scale_ratio(law: NoiseLaw, statistic: float) -> float:
    return math.sqrt(max(statistic, 0.0)) if law.gaussian else statistic


def _tail(deviation: float, variance: float, law: NoiseLaw, jump: float = 0.0) -> float:
    """Two-sided Bernstein tail for sums of sub-exponential statistics: an upper bound on p.

    |z|/b is Exp(1) and z^2/s^2 is chi-square(1): both satisfy Bernstein's moment condition with
    constant 1 (Laplace) and 2 (Gaussian); their lower tails are sub-Gaussian. A discrete law leaves 0
    by a whole ``jump``, which the constant must cover: at scales below a step it is the larger part.
    """
    if deviation == 0:
        return 1.0
    if deviation < 0:
        return min(1.0, 2 * math.exp(-(deviation**2) / (2 * max(variance, 1e-300))))
    constant = (2.0 if law.gaussian else 1.0) + jump
    return min(1.0, 2 * math.exp(-(deviation**2) / (2 * (variance + constant * deviation))))


def _shape_test(
    law: NoiseLaw,
    residual: NDArray[np.float64],
    scales: NDArray[np.float64],
    rng: np.random.Generator,
) -> NoiseTest:
    """Kolmogorov-Smirnov with the Dvoretzky-Kiefer-Wolfowitz-Massart bound on p."""
    uniform = np.empty_like(residual)
    for value in np.unique(scales):
        cells = scales == value
        uniform[:, cells] = law.uniform(residual[:, cells], float(value), rng)
    flat = np.sort(uniform.ravel())
    n = flat.size
    ranks = np.arange(n)
    gap = float(max(np.max((ranks + 1) / n - flat), np.max(flat - ranks / n)))
    return NoiseTest(
        "shape",
        min(1.0, 2 * math.exp(-2 * n * gap * gap)),
        f"{law.family}",
        f"a KS distance of {gap:.3g}",
    )


def _sign_test(
    law: NoiseLaw, residual: NDArray[np.float64], scales: NDArray[np.float64]
) -> NoiseTest:
    """The law is symmetric: rounding down instead of adding discrete noise is not."""
    up, moved = int((residual > 0).sum()), int((residual != 0).sum())
    if not moved:  # noise far below a step is seldom seen
        p = math.exp(len(residual) * sum(_log_silent(law, float(scale)) for scale in scales))
        return NoiseTest("silence", p, "noise", "none in any cell of any run")
    p = float(stats.binomtest(up, moved, 0.5).pvalue)
    return NoiseTest("symmetry", p, "half of the residuals positive", f"{up} of {moved}")


def _log_silent(law: NoiseLaw, scale: float) -> float:
    """Return the log of the probability that the noise of one cell is zero."""
    if not law.discrete:
        return -50.0  # a draw of a continuous law within rounding of zero
    _, p = law.support(scale)
    return math.log(float(p.max()))


def _independence_tests(residual: NDArray[np.float64]) -> Iterator[NoiseTest]:
    """Signs of different cells agree half of the time, given that neither is zero."""
    sign = np.sign(residual).astype(np.float32)
    cells = min(sign.shape[1], 300)
    sign = sign[:, :cells]
    agree = sign.T.dot(sign)
    both = np.abs(sign).T.dot(np.abs(sign))
    first, second = np.triu_indices(cells, 1)
    pairs = len(first)
    z = np.abs(agree[first, second]) / np.sqrt(np.maximum(both[first, second], 1))
    spot = int(np.argmax(z))
    count, sum_ = int(both[first[spot], second[spot]]), int(agree[first[spot], second[spot]])
    p = float(stats.binomtest((count + sum_) // 2, count, 0.5).pvalue) if count else 1.0
    yield NoiseTest(
        "independence of cells",
        min(1.0, p * pairs),
        "half of the signs agree",
        f"{(count + sum_) // 2} of {count} (cells {first[spot]}, {second[spot]})",
    )
    equal = (residual[:, :-1] == residual[:, 1:]) & (residual[:, 1:] != 0)
    share = float(equal.mean())
    expected = _equal_share(residual)
    n = (
        equal.size // 2
    )  # equalities of overlapping pairs depend on each other: count every other one
    excess = max(0.0, share - expected)
    yield NoiseTest(
        "repeats in one release",
        min(1.0, math.exp(-2 * n * excess**2) * 2 if excess else 1.0),
        f"{expected:.3g} of neighbouring cells equal",
        f"{share:.3g}",
    )


def _equal_share(residual: NDArray[np.float64]) -> float:
    """How often two independent cells would be equal and not zero: from cells far apart in time."""
    half = residual.shape[0] // 2
    if half == 0:
        return 1.0
    a, b = residual[:half, :-1], residual[half : 2 * half, 1:]
    share = float(((a == b) & (b != 0)).mean())
    return min(1.0, share + 5 * math.sqrt((share + 1 / a.size) / a.size))


def _lag_test(residual: NDArray[np.float64]) -> NoiseTest:
    """Signs of successive runs agree half of the time."""
    first, second = np.sign(residual[:-1:2]), np.sign(residual[1::2])
    rows = min(len(first), len(second))
    product = first[:rows] * second[:rows]
    same, count = int((product > 0).sum()), int((product != 0).sum())
    p = float(stats.binomtest(same, count, 0.5).pvalue) if count else 1.0
    return NoiseTest("independence of runs", p, "half of the signs agree", f"{same} of {count}")


def _repeat_test(
    law: NoiseLaw, residual: NDArray[np.float64], scales: NDArray[np.float64]
) -> NoiseTest:
    """Whole releases do not repeat more often than their collision probability allows."""
    runs = len(residual)
    repeats = int(runs - len(np.unique(residual, axis=0)))
    if repeats == 0:
        return NoiseTest("repeated releases", 1.0, "no repeats", "none")
    chance = min(1.0, runs * (runs - 1) / 2 * _collision(law, scales) / repeats)  # Markov
    return NoiseTest(
        "repeated releases",
        max(chance, 1e-12),
        "fresh noise in each run",
        f"{repeats} repeats in {runs} runs",
    )


def _collision(law: NoiseLaw, scales: NDArray[np.float64]) -> float:
    """Return the probability that two releases are equal in every cell (an upper bound below 1e-30)."""
    if not law.discrete:
        return float(_COARSEST ** len(scales))
    chance = 1.0
    for scale in scales:
        _, p = law.support(float(scale))
        chance *= float((p**2).sum())
        if chance < 1e-30:
            break
    return chance
