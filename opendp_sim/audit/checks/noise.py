"""Test added noise against the declared law (layer L2).

Residuals of repeated releases against core + noise. Every test is a p-value; all of them share the
layer's risk equally, so a sound mechanism is accused with probability at most the layer's beta however
many cells it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from opendp_sim.audit.claims.noise_laws import NoiseLaw, difference, flattened
from opendp_sim.audit.findings import Effort, Evidence, LayerResult
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import work_seconds

# --------------------------------------------------------------------------------------------------
# Tests of residuals, release minus noiseless part, against a declared law: each gives a p-value.
#
# Every p-value is an upper bound of the probability under the law, at any number of runs and cells.

_COARSEST = 2.0**-10
"""The most that a rounded value of a continuous law has: cells of coarser floats are left out."""


@dataclass(frozen=True)
class NoiseTest:
    """Describe a noise test's statistic, p-value, expected and observed values."""

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
    if cells > 1:
        yield _independence_test(residual)
    if runs > 1:
        yield _lag_test(residual)
        yield _repeat_test(law, residual, scales)


def _scale_tests(
    law: NoiseLaw, residual: NDArray[np.float64], scales: NDArray[np.float64]
) -> Iterator[NoiseTest]:
    """Test the pooled statistic and the statistic of each cell."""
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
    """Return the two-sided Bernstein tail, a bound on the p-value.

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


def _independence_test(residual: NDArray[np.float64]) -> NoiseTest:
    """Test the independence of cells by their signs."""
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
    return NoiseTest(
        "independence of cells",
        min(1.0, p * pairs),
        "half of the signs agree",
        f"{(count + sum_) // 2} of {count} (cells {first[spot]}, {second[spot]})",
    )


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
    chance = min(1.0, runs * (runs - 1) / 2 * _collision_residuals(law, scales) / repeats)  # Markov
    return NoiseTest(
        "repeated releases",
        max(chance, 1e-12),
        "fresh noise in each run",
        f"{repeats} repeats in {runs} runs",
    )


def _collision_residuals(law: NoiseLaw, scales: NDArray[np.float64]) -> float:
    """Return the collision probability of two releases."""
    if not law.discrete:
        return float(_COARSEST ** len(scales))
    chance = 1.0
    for scale in scales:
        _, p = law.support(float(scale))
        chance *= float((p**2).sum())
        if chance < 1e-30:
            break
    return chance


# --------------------------------------------------------------------------------------------------

_LAYER = "L2 noise law"
LOOKS = ((1 / 16, 0.25), (1.0, 0.75))
"""Two looks, each at a part of the runs and of the risk: gross faults need few runs."""
_MOST_CELLS = 2000
_SHARE = 0.2
"""Part of L3's seconds that the runs on the first dataset may take; the others together as much."""


def noise_layer(
    subject: Subject,
    space: PairSpace,
    budget: Effort,
    rng: np.random.Generator,
    beta: float,
    hint: Pair | None = None,
) -> LayerResult:
    """Test the residuals on the emptiest, a known and two random datasets."""
    begin = work_seconds()
    if reason := _silent(subject):
        return LayerResult(_LAYER, "skipped", reason)
    datasets = _datasets(space, rng, hint)
    runs = 0
    for part, share in LOOKS:
        found = _look(subject, datasets, budget, rng, part, beta * share)
        runs += found.runs
        if found.status != "not refuted":
            break
    return replace(found, runs=runs, seconds=work_seconds() - begin)


def _look(
    subject: Subject,
    datasets: list[Any],
    budget: Effort,
    rng: np.random.Generator,
    part: float,
    beta: float,
) -> LayerResult:
    """Test the residuals of some runs at a part of the risk."""
    seen = _Seen()
    for number, data in enumerate(datasets):
        try:
            if number == 0:
                seen.first_runs = max(8, int(part * _first_runs(subject, data, budget)))
            sample = _sample(subject, data, max(4, seen.first_runs // (1 if number == 0 else 4)))
        except Exception as error:  # noqa: BLE001 - whatever a mechanism raises
            return LayerResult(_LAYER, "skipped", f"a run failed: {type(error).__name__}")
        if sample is None:
            return LayerResult(
                _LAYER, "skipped", "the release is not noiseless part + noise, cell by cell"
            )
        seen.add(data, *sample, rng)
    if seen.law is None:
        return LayerResult(_LAYER, "skipped", "every dataset tried releases no cell")
    return _judged(seen, seen.law, beta)


@dataclass
class _Seen:
    """Hold the tests with their datasets, and the numbers of runs."""

    tests: list[tuple[NoiseTest, Any]] = field(default_factory=list)
    law: NoiseLaw | None = None
    runs: int = 0
    cells: int = 0
    first_runs: int = 0
    """Runs on the first dataset."""

    def add(
        self, data: Any, law: NoiseLaw, residual: NDArray[np.float64], rng: np.random.Generator
    ) -> None:
        """Test the residuals of one dataset, shape (runs, cells)."""
        self.runs += len(residual)
        if residual.size:
            self.law = law
            self.cells = max(self.cells, residual.shape[1])
            self.tests += [(t, data) for t in residual_tests(law, residual, rng)]


def _judged(seen: _Seen, law: NoiseLaw, beta: float) -> LayerResult:
    """Return the verdict of the least p-value at a shared risk."""
    tests = seen.tests
    worst, data = min(tests, key=lambda item: item[0].p)
    p = min(1.0, worst.p * len(tests))
    if p <= beta:
        evidence = Evidence(
            f"noise {worst.kind}",
            f"the residuals do not follow the declared {law.family} law",
            worst.claimed,
            worst.measured,
            Pair(data, data, 0),
            None,
            f"p = {p:.2g}",
        )
        return LayerResult(_LAYER, "refuted", "", seen.runs, 0.0, evidence)
    return LayerResult(
        _LAYER,
        "not refuted",
        "",
        seen.runs,
        power=_power(law, seen.first_runs, seen.cells, beta, len(tests)),
        facts={"smallest_p": p, "tests": len(tests)},
    )


def _silent(subject: Subject) -> str:
    """Return the reason why no law can be tested, or nothing."""
    if subject.traced:
        return "noise is added answer by answer; L1 prices what it hides along one transcript"
    if subject.core is None or subject.noise is None:
        return "no declared noise (core=, noise=)"
    return "the noise is another measurement; audit that one" if subject.law(1) is None else ""


def _first_runs(subject: Subject, data: Any, budget: Effort) -> int:
    """Return the number of runs on the first dataset."""
    tick = work_seconds()
    subject.releases(data, 1)
    return _runs(budget, subject.noiseless(data).size, work_seconds() - tick)


def _sample(subject: Subject, data: Any, count: int) -> tuple[NoiseLaw, NDArray[np.float64]] | None:
    """Return the law and the residuals (runs, cells), or None."""
    core = subject.noiseless(data)
    released = [flattened(r) for r in subject.releases(data, count)]
    law = subject.law(core.size)
    if law is None or any(r.size != core.size for r in released):
        return None
    law, core, released = _without_edges(law, core, released)
    return law, np.stack([difference(r, core) for r in released])


def _without_edges(
    law: NoiseLaw, core: Any, released: list[Any]
) -> tuple[NoiseLaw, Any, list[Any]]:
    """Leave out cells where noise saturates or is rounded away.

    Both are post-processing of the noisy sum, which is sound, and both hide the law.
    """
    scales = law.scales(core.size)
    if core.dtype.kind == "f":
        with np.errstate(over="ignore"):
            single = all((r.astype(np.float32) == r).all() for r in released)
        step = np.finfo(np.float32 if single else np.float64).eps
        keep = np.isfinite(core) & (np.abs(core) < 1e-3 * scales / step)
        if law.discrete:  # beyond, a float is no multiple of the law's own step
            keep &= np.abs(core) < 1e-8 * law.grid / step
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


def _runs(budget: Effort, cells: int, cost: float) -> int:
    """Return the number of runs for a number of cells."""
    wanted = max(
        budget.noise_runs, min(8 * budget.noise_runs, 60 * budget.noise_runs // max(cells, 1))
    )
    return max(8, min(wanted, int(_SHARE * budget.seconds / max(cost, 1e-6))))


def _power(law: NoiseLaw, runs: int, cells: int, beta: float, tests: int) -> str:
    """Return the scale error that the pooled test detects, as text."""
    mean, variance = law.spread(float(np.ravel(law.scale)[0]))
    width = float(stats.norm.isf(beta / tests / 2) + stats.norm.isf(0.05))
    relative = width * math.sqrt(variance / (runs * cells)) / mean
    relative = relative / 2 if law.gaussian else relative
    return f"a scale wrong by {100 * relative:.2g} % in all cells would have shown"
