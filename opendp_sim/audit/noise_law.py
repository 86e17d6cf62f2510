"""L2: is what is added the declared law? Residuals of repeated releases against core + noise.

Every test is a p-value; all of them share the layer's risk equally, so a sound mechanism is accused
with probability at most the layer's beta however many cells it has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from opendp_sim.audit.findings import Budget, Evidence, LayerResult
from opendp_sim.audit.freshness import fresh_tests
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.noise import NoiseLaw, difference, flat
from opendp_sim.audit.spaces import PairSpace
from opendp_sim.audit.subject import Subject

__all__ = ["NoiseTest", "noise_layer", "residual_tests"]

_LAYER = "L2 noise law"
_MOST_CELLS = 2000


@dataclass(frozen=True)
class NoiseTest:
    """One test: what it looked at, its p-value, what was expected and seen."""

    kind: str
    p: float
    claimed: Any
    measured: Any


def noise_layer(
    subject: Subject,
    space: PairSpace,
    budget: Budget,
    rng: np.random.Generator,
    beta: float,
    hint: Pair | None = None,
) -> LayerResult:
    """Test the residuals on a few datasets: the emptiest, the one L1 liked, two random ones."""
    begin = time.process_time()
    if subject.core is None or subject.noise is None:
        return LayerResult(_LAYER, "skipped", "no declared noise (core=, noise=)")
    if subject.law(1) is None:
        return LayerResult(_LAYER, "skipped", "the noise is another measurement; audit that one")
    datasets = _datasets(space, rng, hint)
    tests: list[tuple[NoiseTest, Any]] = []
    runs, cells, first_runs = 0, 0, 0
    law: NoiseLaw | None = None
    for number, data in enumerate(datasets):
        try:
            if number == 0:
                first_runs = _first_runs(subject, data, budget)
            sample = _sample(subject, data, max(4, first_runs // (1 if number == 0 else 4)))
        except Exception as error:  # noqa: BLE001 - whatever a mechanism raises
            return LayerResult(_LAYER, "skipped", f"a run failed: {type(error).__name__}")
        if sample is None:
            return LayerResult(
                _LAYER, "skipped", "the release is not noiseless part + noise, cell by cell"
            )
        runs += len(sample[1])
        if sample[1].size:
            law, residual = sample
            cells = max(cells, residual.shape[1])
            tests += [(t, data) for t in residual_tests(law, residual, rng)]
    if law is None:
        return LayerResult(_LAYER, "skipped", "every dataset tried releases no cell")
    tests += [(t, datasets[0]) for t in fresh_tests(subject, datasets[0], forks=budget.forks)]
    worst, data = min(tests, key=lambda item: item[0].p)
    seconds = time.process_time() - begin
    p = min(1.0, worst.p * len(tests))
    if p <= beta:
        evidence = Evidence(
            f"noise {worst.kind}", f"the residuals do not follow the declared {law.family} law",
            worst.claimed, worst.measured, Pair(data, data, 0), None, f"p = {p:.2g}",
        )  # fmt: skip
        return LayerResult(_LAYER, "refuted", "", runs, seconds, evidence)
    return LayerResult(
        _LAYER, "not refuted", "", runs, seconds, power=_power(law, first_runs, cells, beta, len(tests)),
        facts={"smallest_p": p, "tests": len(tests)},
    )  # fmt: skip


def _first_runs(subject: Subject, data: Any, budget: Budget) -> int:
    """Return how many runs the first dataset gets, from its cells and the cost of one run."""
    tick = time.process_time()
    subject.releases(data, 1)
    return _runs(budget, subject.noiseless(data).size, time.process_time() - tick)


def _sample(subject: Subject, data: Any, count: int) -> tuple[NoiseLaw, NDArray[np.float64]] | None:
    """Return the law and the residuals, shape (runs, cells); None if the shapes do not fit."""
    core = subject.noiseless(data)
    released = [flat(r) for r in subject.releases(data, count)]
    law = subject.law(core.size)
    if law is None or any(r.size != core.size for r in released):
        return None
    law, core, released = _without_edges(law, core, released)
    return law, np.stack([difference(r, core) for r in released])


def _without_edges(
    law: NoiseLaw, core: Any, released: list[Any]
) -> tuple[NoiseLaw, Any, list[Any]]:
    """Leave out cells so large that adding noise saturates (integers) or is rounded away (floats).

    Both are post-processing of the noisy sum, which is sound, and both hide the law.
    """
    scales = law.scales(core.size)
    if core.dtype.kind == "f":
        keep = np.isfinite(core) & (np.abs(core) < 1e6 * scales / np.finfo(float).eps / 1e9)
    else:
        keep = np.abs(core.astype(float)) < 2.0**62
    if core.size > _MOST_CELLS:  # enough to see any law: evenly spread cells of a huge release
        spread = np.zeros(core.size, bool)
        spread[np.linspace(0, core.size - 1, _MOST_CELLS).astype(np.int64)] = True
        keep &= spread
    if keep.all():
        return law, core, released
    return replace(law, scale=scales[keep]), core[keep], [r[keep] for r in released]


def _datasets(space: PairSpace, rng: np.random.Generator, hint: Pair | None) -> list[Any]:
    first = next(iter(space.corners(rng)))
    out = [first.left, first.right, space.draw(rng).left, space.draw(rng).right]
    return out if hint is None else [out[0], hint.left, *out[1:3]]


def _runs(budget: Budget, cells: int, cost: float) -> int:
    """Small releases are run more often, slow ones less: what counts is runs times cells."""
    wanted = max(
        budget.noise_runs, min(8 * budget.noise_runs, 60 * budget.noise_runs // max(cells, 1))
    )
    return max(8, min(wanted, int(0.3 * budget.seconds / max(cost, 1e-6))))


def _power(law: NoiseLaw, runs: int, cells: int, beta: float, tests: int) -> str:
    """The scale error that the pooled test sees with probability .95, from its own moments."""
    mean, variance = law.spread(float(np.ravel(law.scale)[0]))
    width = float(stats.norm.isf(beta / tests / 2) + stats.norm.isf(0.05))
    relative = width * math.sqrt(variance / (runs * cells)) / mean
    relative = relative / 2 if law.gaussian else relative
    return f"a scale wrong by {100 * relative:.2g} % in all cells would have shown"


# --- tests on residuals ---------------------------------------------------------------


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
    yield _sign_test(residual)
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
    total = float((statistic - mean).sum())
    yield NoiseTest(
        "scale", _tail(total, float(variance.sum()) * runs, law),
        "the declared scale", f"{_scale_ratio(law, float(statistic.mean() / mean.mean())):.4g} of it",
    )  # fmt: skip
    each = (statistic - mean).sum(axis=0)
    ps = [_tail(float(e), float(v) * runs, law) for e, v in zip(each, variance, strict=True)]
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


def _tail(deviation: float, variance: float, law: NoiseLaw) -> float:
    """Two-sided Bernstein tail for sums of sub-exponential statistics: an upper bound on p.

    |z|/b is Exp(1) and z^2/s^2 is chi-square(1): both satisfy Bernstein's moment condition with
    constant 1 (Laplace) and 2 (Gaussian); their lower tails are sub-Gaussian.
    """
    if deviation <= 0:
        return min(1.0, 2 * math.exp(-(deviation**2) / (2 * variance)))
    constant = 2.0 if law.gaussian else 1.0
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


def _sign_test(residual: NDArray[np.float64]) -> NoiseTest:
    """The law is symmetric: rounding down instead of adding discrete noise is not."""
    up, moved = int((residual > 0).sum()), int((residual != 0).sum())
    p = float(stats.binomtest(up, moved, 0.5).pvalue) if moved else 0.0
    return NoiseTest("symmetry", p, "half of the residuals positive", f"{up} of {moved}")


def _independence_tests(residual: NDArray[np.float64]) -> Iterator[NoiseTest]:
    """Signs of different cells agree half of the time, given that neither is zero."""
    sign = np.sign(residual).astype(np.float32)
    cells = min(sign.shape[1], 300)
    sign = sign[:, :cells]
    agree = sign.T @ sign
    both = np.abs(sign).T @ np.abs(sign)
    first, second = np.triu_indices(cells, 1)
    pairs = len(first)
    z = np.abs(agree[first, second]) / np.sqrt(np.maximum(both[first, second], 1))
    spot = int(np.argmax(z))
    count, sum_ = int(both[first[spot], second[spot]]), int(agree[first[spot], second[spot]])
    p = float(stats.binomtest((count + sum_) // 2, count, 0.5).pvalue) if count else 1.0
    yield NoiseTest(
        "independence of cells", min(1.0, p * pairs), "half of the signs agree",
        f"{(count + sum_) // 2} of {count} (cells {first[spot]}, {second[spot]})",
    )  # fmt: skip
    equal = (residual[:, :-1] == residual[:, 1:]) & (residual[:, 1:] != 0)
    share = float(equal.mean())
    expected = _equal_share(residual)
    n = (
        equal.size // 2
    )  # equalities of overlapping pairs depend on each other: count every other one
    excess = max(0.0, share - expected)
    yield NoiseTest(
        "repeats in one release", min(1.0, math.exp(-2 * n * excess**2) * 2 if excess else 1.0),
        f"{expected:.3g} of neighbouring cells equal", f"{share:.3g}",
    )  # fmt: skip


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
    collision = 1.0
    for scale in scales:
        if not law.discrete:
            collision = 0.0
            break
        _, p = law.support(float(scale))
        collision *= float((p**2).sum())
        if collision < 1e-30:
            break
    repeats = int(runs - len(np.unique(residual, axis=0)))
    pairs = runs * (runs - 1) / 2
    if repeats == 0:
        return NoiseTest("repeated releases", 1.0, "no repeats", "none")
    chance = min(1.0, float(pairs * collision / repeats))  # Markov on the number of equal pairs
    return NoiseTest(
        "repeated releases",
        max(chance, 1e-12),
        "fresh noise in each run",
        f"{repeats} repeats in {runs} runs",
    )
