"""RACE's other tasks on released densities: modes found, lonely queries flagged, points drawn.

Three clusters of 1,500, 800 and 400 records in the unit square; releases with
fresh seeds and noise at each epsilon.
"""

from __future__ import annotations

import math
import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks._kernels import exact_flat, exact_sums, noisy, pipeline, through
from benchmarks._results import parser, table, write_section
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows

EPSILONS, RELEASES, BANDWIDTH = (0.1, 0.5, 1.0, 2.0), 8, 0.1
CENTRES, SIZES = np.array([[0.25, 0.3], [0.7, 0.75], [0.75, 0.2]]), (1500, 800, 400)
THRESHOLD, ALARMS, SIDE, DRAWS = 0.02, 0.05, 25, 5000
SKETCHES = {
    "gauss_transform_sketch": lambda seed: {"bandwidth": BANDWIDTH},
    "fourier_sketch": lambda seed: {
        "frequencies": 4000,
        "kernel": {"gaussian": {"bandwidth": BANDWIDTH}},
        "seed": seed,
    },
}


def records() -> np.ndarray:
    rng = np.random.default_rng(1)
    near = [c + rng.normal(0, 0.05, (n, 2)) for c, n in zip(CENTRES, SIZES, strict=True)]
    return np.clip(np.concatenate(near), 0, 1)


def asked(of, key: str, queries=None, **params) -> dict[str, np.ndarray]:
    post = lookup(key)(**params).bind(of.released, Symmetric())
    return post.function(of.arrays, None if queries is None else of.queries(Rows(queries)))


def one(of, exact: np.ndarray, places: np.ndarray, seed: int) -> list[float]:
    """What one release finds, and what it said that it would."""
    modes = asked(of, "modes", seed=seed, starts=24)
    real = modes["mode"][
        modes["height"] > 4 * np.hypot(modes["noise_error"], modes["sketch_error"])
    ]
    found = cdist(CENTRES, real).min(axis=1) < BANDWIDTH / 2 if len(real) else np.zeros(3)
    flags = asked(of, "outliers", places, threshold=THRESHOLD, false_alarms=ALARMS)
    mean, count = exact / len(DATA), len(DATA)
    inliers, lonely = mean >= THRESHOLD, mean < THRESHOLD / 4
    outlier = flags["outlier"][:, 0].astype(bool)
    drawn = asked(of, "sample", places, size=DRAWS, seed=seed)["candidate"]
    share = np.bincount(drawn, minlength=len(places)) / DRAWS
    # Places where next to nothing is: what is drawn there is phantom.
    empty = exact < count * 1e-4
    density = asked(of, "density", places)
    t = float(np.hypot(density["noise_error"], density["sketch_error"])[empty, 0].mean())
    predicted = 0.4 * empty.sum() * t / np.maximum(density["density"][:, 0], 0).sum()
    return [
        float(found.mean()),
        float(len(real)),
        float(outlier[inliers].mean()),
        float(outlier[lonely].mean()),
        float(share[empty].sum()),
        float(predicted),
        float(np.abs(share - exact / exact.sum()).sum() / 2),
    ]


DATA = records()


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    axis = (np.arange(SIDE) + 0.5) / SIDE
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    space, rows = RealRows(width=2, lower=(0.0,), upper=(1.0,)), []
    for name, params in SKETCHES.items():
        made = {}
        for seed in range(RELEASES):
            stages = pipeline(space, {"quantize": {"bits": 12}}, {name: params(seed)})
            made[seed] = stages, exact_flat(stages[1:], through(stages[:1], DATA))
        reader = stages[-1].claim.capabilities["kernel_sums"]
        exact = exact_sums(DATA, places, reader)
        for epsilon in EPSILONS:
            each = [one(noisy(*made[s], epsilon), exact, places, s) for s in range(RELEASES)]
            rows.append([name, epsilon, *map(float, np.mean(each, axis=0))])
            print(rows[-1], flush=True)
    head = [
        "structure",
        "epsilon",
        "clusters found",
        "modes above 4 errors",
        "inliers flagged",
        "lonely flagged",
        "phantom share",
        "predicted",
        "drawn off the density",
    ]
    floor = math.sqrt(2 / math.pi) / 2 * float(np.sqrt(exact / exact.sum() / DRAWS).sum())
    text = (
        f"{table(head, rows)}\n\nMean of {RELEASES} releases, zCDP at delta = 1e-6; {len(DATA):,} records, "
        f"Gaussian kernel of bandwidth {BANDWIDTH}. `modes`: 24 starts; a cluster is found by a mode within half a "
        f"bandwidth. `outliers`: {SIDE**2} places on a grid, threshold {THRESHOLD}, stated rate of false "
        f"alarms {ALARMS} at the threshold; lonely is below a quarter of it. `sample`: {DRAWS:,} draws of the same places; "
        "phantom are draws where the exact density is below 0.01 % of the records, predicted by `sample.md`; the last "
        f"column is half the L1 distance to the exact shares, of which {floor:.3g} is the draws' own."
    )
    print(text)
    if options.write:
        write_section("Kernels: tasks", text, "python -m benchmarks.kernel_tasks --write")


if __name__ == "__main__":
    main()
