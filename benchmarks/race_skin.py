"""Skin segmentation (UCI, 245,056 x 3): error of private kernel densities, predicted and measured.

The predicted error of a query is what its own answer reports: the deviation of the noise (known from
the plan) and of the sketch (estimated from the release). Measured is against the exact kernel sums of
the private points, on 2,000 held-out queries, averaged over releases with fresh hashes and noise.
"""

from __future__ import annotations

import math

import numpy as np
import opendp.prelude as dp
from scipy.spatial.distance import cdist

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks._results import parser, table, write_figure
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows
from opendp_sim.postprocessing.density import Density

dp.enable_features("contrib")
WIDTH, DELTA, RELEASES = 5.0, 1e-6, 20
SPACE = RealRows(width=3, lower=(0.0,), upper=(255.0,))


def pipeline(repetitions: int, seed: int):
    race = {
        "repetitions": repetitions,
        "buckets": 512,
        "seed": seed,
        "family": {"p_stable_l2": {"width": WIDTH}},
    }
    steps = [lookup("quantize")(bits=12), lookup("race_sketch").from_spec(race)]
    return bind_steps(SPACE, Symmetric(), steps)


def exact(points: np.ndarray, queries: np.ndarray, kernel) -> np.ndarray:
    parts = (kernel(cdist(points[i : i + 4096], queries)) for i in range(0, len(points), 4096))
    return sum(part.sum(axis=0) for part in parts)


def noise_for(epsilon: float, measure: str, sensitivity):
    """The noise mechanism at this budget, its scale solved by inverting OpenDP's own map."""
    if measure == "pure":
        make, norm, d = dp.m.make_laplace, dp.l1_distance(T="i64"), sensitivity.bound("l1", 1)
        scale = dp.binary_search_param(lambda s: make(_VECTOR, norm, s), d, epsilon)
        return lookup("laplace")(scale=scale), "l1"
    rho = dp.binary_search(lambda r: _epsilon(r) <= epsilon, bounds=(1e-9, 50.0))
    make, norm, d = dp.m.make_gaussian, dp.l2_distance(T=float), sensitivity.bound("l2", 1)
    scale = dp.binary_search_param(lambda s: make(_VECTOR, norm, s), d, rho)
    return lookup("gaussian")(scale=scale), "l2"


_SKETCHES: dict = {}
_VECTOR = dp.vector_domain(dp.atom_domain(T="i64"))


def _epsilon(rho: float) -> float:
    unit = dp.m.make_gaussian(_VECTOR, dp.l2_distance(T=float), 1.0 / math.sqrt(2 * rho))
    return float(dp.c.make_zCDP_to_approxDP(unit).map(1.0).epsilon(DELTA))


def sketched(points, repetitions, seed):
    """The pipeline and its noiseless sketch; built once for every budget."""
    if (repetitions, seed) not in _SKETCHES:
        stages = pipeline(repetitions, seed)
        flat = whole_function(stages[-1].claim)(stages[0].claim.function(points))
        _SKETCHES[repetitions, seed] = stages, flat
    return _SKETCHES[repetitions, seed]


def one_release(points, queries, truth, epsilon, measure, seed):
    """Mean relative error, predicted and measured, and the noise alone."""
    f = truth.mean()
    guess = epsilon * math.sqrt(len(points) * f) / math.sqrt(2)
    # zCDP: noise does not grow with R, so compute decides. Pure: a quarter of the worst-case balance.
    repetitions = 1600 if measure == "zcdp" else int(np.clip(guess / 4, 100, 1600))
    stages, flat = sketched(points, repetitions, seed)
    output = stages[-1].claim.output
    mechanism, norm = noise_for(epsilon, measure, output.sensitivity)
    claim = mechanism.bind(output, output.metric(norm))
    release = Release.of_sketch(stages, claim.function(flat), claim.noise, {})
    answer = (
        Density()
        .bind(release.released, Symmetric())
        .function(release.arrays, release.queries(queries))
    )
    error = np.abs(answer["density"][:, 0] - truth) / truth
    total = np.hypot(answer["noise_error"], answer["sketch_error"])[:, 0]
    predicted = math.sqrt(2 / math.pi) * total / truth
    noise = math.sqrt(2 / math.pi) * answer["noise_error"][:, 0] / truth
    return repetitions, noise.mean(), predicted.mean(), error.mean(), claim.noise.scale


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    data = np.load(options.data / "skin.npz")["x"].astype(np.float64)
    order = np.random.default_rng(0).permutation(len(data))
    queries, points = data[order[:2000]], data[order[2000:]]
    kernel = pipeline(2, 0)[-1].claim.capabilities["kernel_sums"].kernel
    truth = exact(points, queries, kernel)
    rows = []
    for measure in ("pure", "zcdp"):
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            runs = np.array(
                [
                    one_release(points, queries, truth, epsilon, measure, seed)
                    for seed in range(RELEASES)
                ]
            )
            r, noise, predicted, measured, _ = runs.mean(axis=0)
            rows.append(
                [measure, epsilon, int(r), noise, predicted, measured, measured / predicted]
            )
            print(rows[-1], flush=True)
    head = [
        "measure",
        "epsilon",
        "R",
        "noise part (predicted)",
        "relative error predicted",
        "measured",
        "measured / predicted",
    ]
    text = table(head, rows) + (
        f"\n\nn = {len(points)}, 2,000 held-out queries, {RELEASES} releases each (fresh hashes; errors of queries in one release go together); mean kernel sum "
        f"{truth.mean():.0f}, smallest {truth.min():.0f}; p-stable L2 kernel of width {WIDTH:g}; zCDP at "
        f"delta = {DELTA:g}. Data: UCI skin segmentation, CC BY 4.0."
    )
    print(text)
    if options.write:
        write_figure("kernels/race-skin", text, "python -m benchmarks.race_skin --write")


if __name__ == "__main__":
    main()
