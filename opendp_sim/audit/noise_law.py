"""L2: is what is added the declared law? Residuals of repeated releases against core + noise.

Every test is a p-value; all of them share the layer's risk equally, so a sound mechanism is accused
with probability at most the layer's beta however many cells it has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from opendp_sim.audit.clock import cpu_seconds
from opendp_sim.audit.findings import Budget, Evidence, LayerResult
from opendp_sim.audit.freshness import fresh_tests
from opendp_sim.audit.neighbours import Pair, PairSpace
from opendp_sim.audit.noise import NoiseLaw, difference, flat
from opendp_sim.audit.residuals import NoiseTest, residual_tests
from opendp_sim.audit.subject import Subject

__all__ = ["LOOKS", "noise_layer"]

_LAYER = "L2 noise law"
LOOKS = ((1 / 16, 0.25), (1.0, 0.75))
"""Two looks, each at a part of the runs and of the risk: gross faults need few runs."""
_MOST_CELLS = 2000
_SHARE = 0.2
"""Part of L3's seconds that the runs on the first dataset may take; the others together as much."""


def noise_layer(
    subject: Subject,
    space: PairSpace,
    budget: Budget,
    rng: np.random.Generator,
    beta: float,
    hint: Pair | None = None,
) -> LayerResult:
    """Test the residuals on a few datasets: the emptiest, the one L1 liked, two random ones."""
    begin = cpu_seconds()
    if reason := _silent(subject):
        return LayerResult(_LAYER, "skipped", reason)
    datasets = _datasets(space, rng, hint)
    runs = 0
    for part, share in LOOKS:
        found = _look(subject, datasets, budget, rng, part, beta * share)
        runs += found.runs
        if found.status != "not refuted":
            break
    return replace(found, runs=runs, seconds=cpu_seconds() - begin)


def _look(
    subject: Subject,
    datasets: list[Any],
    budget: Budget,
    rng: np.random.Generator,
    part: float,
    beta: float,
) -> LayerResult:
    """Test the residuals of a part of the runs, at a part of the risk."""
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
    if part == 1:
        fresh = fresh_tests(subject, datasets[0], forks=budget.forks)
        seen.tests += [(t, datasets[0]) for t in fresh]
    return _judged(seen, seen.law, beta)


@dataclass
class _Seen:
    """What a look has seen: tests with the dataset of each, runs and cells."""

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
    """Return what the least of all p-values says at this risk, which the tests share."""
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
    """Say why no noise law can be tested, or return None if one can."""
    if subject.traced:
        return "noise is added answer by answer; L1 prices what it hides along one transcript"
    if subject.core is None or subject.noise is None:
        return "no declared noise (core=, noise=)"
    return "the noise is another measurement; audit that one" if subject.law(1) is None else ""


def _first_runs(subject: Subject, data: Any, budget: Budget) -> int:
    """Return how many runs the first dataset gets, from its cells and the cost of one run."""
    tick = cpu_seconds()
    subject.releases(data, 1)
    return _runs(budget, subject.noiseless(data).size, cpu_seconds() - tick)


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


def _runs(budget: Budget, cells: int, cost: float) -> int:
    """Small releases are run more often, slow ones less: what counts is runs times cells."""
    wanted = max(
        budget.noise_runs, min(8 * budget.noise_runs, 60 * budget.noise_runs // max(cells, 1))
    )
    return max(8, min(wanted, int(_SHARE * budget.seconds / max(cost, 1e-6))))


def _power(law: NoiseLaw, runs: int, cells: int, beta: float, tests: int) -> str:
    """The scale error that the pooled test sees with probability .95, from its own moments."""
    mean, variance = law.spread(float(np.ravel(law.scale)[0]))
    width = float(stats.norm.isf(beta / tests / 2) + stats.norm.isf(0.05))
    relative = width * math.sqrt(variance / (runs * cells)) / mean
    relative = relative / 2 if law.gaussian else relative
    return f"a scale wrong by {100 * relative:.2g} % in all cells would have shown"
