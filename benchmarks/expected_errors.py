"""Expected errors of a plan, from 400 public rows and a size, beside what releases of other rows measure.

Rows of each table are put in a random order: 200 are the queries, up to 5,000 the data, and of the others 400 are the
public points, other ones for each seed where there are more. Every release has a fresh seed where there is one,
and fresh noise.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from benchmarks._kernels import exact_flat, noise_for, pipeline
from benchmarks._results import parser, table, write_figure
from benchmarks._tables import DIAMOND_BOUNDS, diamonds, digits, keel
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.capabilities import sliced
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.postprocessing._impl.expected_distance import expected_distance_error
from opendp_sim.postprocessing._impl.expected_error import PublicExample, expected_kernel_error, far

POINTS, QUERIES, MOST, DELTA = 400, 200, 5000, 1e-6
PARTS = ("noise", "sampling", "maps", "bias")


@dataclass(frozen=True)
class Pair:
    """A chain and a question on the first columns of one table."""

    data: str
    columns: int
    steps: tuple[dict[str, dict[str, Any]], ...]
    post: tuple[str, dict[str, Any]] = ("density", {})
    epsilon: float = 1.0
    measure: str = "zcdp"
    seeded: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """The keys of the chain, and what tells it from others of the same keys."""
        return " + ".join(f"{key}" for step in self.steps for key in step)


def gaussian(width: float) -> dict[str, Any]:
    return {"gaussian": {"bandwidth": width}}


GRID = {"quantize": {"bits": 12}}
PAIRS = {
    "Gaussian, random": Pair(
        "satimage",
        36,
        (
            GRID,
            {"fourier_sketch": {"frequencies": 500, "kernel": gaussian(1.2), "features": "random"}},
        ),
    ),
    "Gaussian, random, public points": Pair(
        "satimage",
        36,
        (
            GRID,
            {"fourier_sketch": {"frequencies": 500, "kernel": gaussian(1.2), "features": "random"}},
        ),
        ("density", {"public": "queries"}),
    ),
    "Laplacian, mean kernel values": Pair(
        "penbased",
        16,
        (
            GRID,
            {"fourier_sketch": {"frequencies": 500, "kernel": {"laplacian": {"bandwidth": 4.0}}}},
        ),
        ("density", {"normalise": True}),
        epsilon=0.1,
    ),
    "Gaussian, lattice": Pair(
        "penbased", 2, (GRID, {"fourier_sketch": {"frequencies": 2000, "kernel": gaussian(0.1)}})
    ),
    "Gaussian, lattice and tail": Pair(
        "diamonds", 6, (GRID, {"fourier_sketch": {"frequencies": 500, "kernel": gaussian(0.5)}})
    ),
    "Gaussian behind a projection": Pair(
        "optdigits",
        64,
        (
            GRID,
            {"jl_projection": {"dimension": 24}},
            {"fourier_sketch": {"frequencies": 500, "kernel": gaussian(2.0)}},
        ),
    ),
    "RACE, l2": Pair(
        "optdigits",
        64,
        (
            GRID,
            {
                "race_sketch": {
                    "repetitions": 300,
                    "buckets": 512,
                    "family": {"p_stable_l2": {"width": 2.0}},
                }
            },
        ),
    ),
    "RACE, l1": Pair(
        "penbased",
        16,
        (
            GRID,
            {
                "race_sketch": {
                    "repetitions": 300,
                    "buckets": 512,
                    "family": {"p_stable_l1": {"width": 4.0}},
                }
            },
        ),
    ),
    "RACE, 2 bits, median of means": Pair(
        "satimage",
        36,
        (
            {"quantize": {"bits": 2}},
            {
                "race_sketch": {
                    "repetitions": 300,
                    "buckets": 512,
                    "family": {"p_stable_l2": {"width": 1.0}},
                }
            },
        ),
        ("density", {"estimator": "median_of_means"}),
    ),
    "1/(1+z)": Pair(
        "digits",
        64,
        (
            GRID,
            {
                "exponential_sum": {
                    "bandwidth": 2.0,
                    "accuracy": 0.1,
                    "structure": {"fourier": {"frequencies": 300}},
                }
            },
        ),
    ),
    "Gauss transform, pure": Pair(
        "diamonds",
        2,
        (GRID, {"gauss_transform_sketch": {"bandwidth": 0.1, "order": 8}}),
        measure="pure",
    ),
    "Gauss transform, order 3": Pair(
        "satimage",
        1,
        (GRID, {"gauss_transform_sketch": {"bandwidth": 0.2, "order": 3}}),
        epsilon=2.0,
    ),
    "thresholds, l1": Pair(
        "penbased", 16, (GRID, {"threshold_sketch": {"thresholds": 256}}), ("distance", {})
    ),
    "thresholds, 8 of them": Pair(
        "satimage",
        36,
        (GRID, {"threshold_sketch": {"thresholds": 8}}),
        ("distance", {"mean": True}),
    ),
    "moment tree, l1, pure": Pair(
        "digits", 64, (GRID, {"moment_tree": {"levels": 13}}), ("distance", {}), measure="pure"
    ),
    "distance tree, p = 1.5": Pair(
        "diamonds",
        6,
        (GRID, {"distance_tree": {"levels": 10, "consistent": True}}),
        ("distance", {"p": 1.5}),
        epsilon=0.1,
    ),
    "moments, squared l2": Pair("optdigits", 64, (GRID, {"moments_sketch": {}}), ("distance", {})),
    "moments behind a projection": Pair(
        "satimage",
        36,
        (GRID, {"jl_projection": {"dimension": 16}}, {"moments_sketch": {}}),
        ("distance", {"mean": True}),
    ),
    "l2 as l1": Pair(
        "penbased",
        16,
        (
            GRID,
            {"l1_embedding": {"directions": 64, "clip": 2.5}},
            {"threshold_sketch": {"thresholds": 256}},
        ),
        ("distance", {}),
        epsilon=0.5,
    ),
    "slices, l2": Pair(
        "satimage",
        36,
        (GRID, {"slice_sketch": {"directions": 1024}}),
        ("distance", {}),
        epsilon=2.0,
    ),
    "moments, 3 bits": Pair(
        "diamonds", 6, ({"quantize": {"bits": 3}}, {"moments_sketch": {}}), ("distance", {})
    ),
}
_SEEDED = (
    *("fourier_sketch", "race_sketch", "exponential_sum"),
    *("jl_projection", "l1_embedding", "slice_sketch"),
)


def tables(folder: Path) -> dict[str, np.ndarray]:
    """Rows on [0, 1] by public bounds, in a random order."""
    found = {name: keel(folder, name) for name in ("penbased", "satimage", "optdigits")}
    found["digits"] = digits()
    every = {name: (x - low) / (high - low) for name, (x, _, low, high) in found.items()}
    low, high = (np.array(v) for v in DIAMOND_BOUNDS)
    every["diamonds"] = np.clip((diamonds(folder) - low) / (high - low), 0.0, 1.0)
    return {k: x[np.random.default_rng(16).permutation(len(x))] for k, x in every.items()}


def seeded(pair: Pair, seed: int) -> list[dict[str, dict[str, Any]]]:
    """The chain's steps with this seed wherever one is."""
    return [
        {key: {**given, "seed": seed} if key in _SEEDED else given for key, given in step.items()}
        for step in pair.steps
    ]


def exact(
    pair: Pair, sums: Any, asked: PublicExample, rows: np.ndarray, queries: np.ndarray
) -> np.ndarray:
    """Brute force on the rows as they are: kernel sums, or sums of powers of distances."""
    key, given = pair.post
    total = np.zeros(len(queries))
    for start in range(0, len(rows), 2000):
        part = rows[start : start + 2000]
        if key == "density":
            metric = {"l1": "cityblock", "l2": "euclidean"}[asked.claimed(sums.distance)]
            total += sums.kernel(far(part, queries, metric)).sum(axis=0)
        elif sliced(sums) or asked.claimed("l1") == "l2":
            total += far(part, queries, "euclidean").sum(axis=0)
        else:
            power = given.get("p", sums.power)
            total += (far(part, queries, "minkowski", p=power) ** power).sum(axis=0)
    mean = given.get("mean") or given.get("normalise")
    return total / len(rows) if mean else total


def size_of(x: np.ndarray) -> int:
    """How many of a table's rows are the data."""
    return min(MOST, len(x) - POINTS - QUERIES)


def measure(pair: Pair, x: np.ndarray, seeds: int, draws: int) -> dict[str, Any]:
    """Predicted parts and what is measured, root mean squares over seeds, draws and queries."""
    values = x[:, : pair.columns]
    queries, rows, pool = np.split(values, [QUERIES, QUERIES + size_of(x)])
    space = RealRows(width=pair.columns, lower=(0.0,), upper=(1.0,))
    predicted, off, truth = [], [], None
    for seed in range(seeds):
        stages = pipeline(space, *seeded(pair, 100 + seed))
        output = stages[-1].claim.output
        mechanism, norm = noise_for(pair.epsilon, pair.measure, output.sensitivity)
        noise = mechanism.bind(output, output.metric(norm))
        like = pool[np.random.default_rng(seed).permutation(len(pool))[:POINTS]]
        asked = PublicExample(stages, noise.noise.deviation, Rows(like), Rows(queries), len(rows))
        predict = expected_kernel_error if pair.post[0] == "density" else expected_distance_error
        post = lookup(pair.post[0]).from_spec(pair.post[1])
        predicted.append(predict(asked, post))
        flat = exact_flat(stages, Rows(rows))
        capability = "kernel_sums" if pair.post[0] == "density" else "distance_sums"
        if truth is None:
            sums = stages[-1].claim.capabilities[capability]
            truth = exact(pair, sums, asked, rows, queries)
        for _ in range(draws):
            of = Release.of_sketch(stages, noise.function(flat), noise.noise, {})
            answer = post.bind(of.released, Symmetric()).function(
                of.arrays, of.queries(Rows(queries))
            )
            off.append(np.square(answer[pair.post[0]][:, 0] - truth).mean())
    squares = np.reshape(off, (seeds, draws)).mean(axis=1)
    found = math.sqrt(squares.mean())
    parts = {p: math.sqrt(np.mean([getattr(e, p) ** 2 for e in predicted])) for p in PARTS}
    total = math.sqrt(np.mean([e.total**2 for e in predicted]))
    # Of the ratio; the scatter of seeds holds that of the noise.
    error = squares.std(ddof=1) / math.sqrt(seeds) / (2 * squares.mean()) * found / total
    return parts | {"total": total, "measured": found, "ratio": found / total, "se": error}


def main() -> None:
    given = parser(__doc__ or "")
    given.add_argument("--packages", type=Path, required=True)
    given.add_argument("--seeds", type=int, default=24)
    given.add_argument("--draws", type=int, default=3)
    given.add_argument("--only", default="")
    options = given.parse_args()
    data, rows = tables(options.packages), []
    for name, pair in PAIRS.items():
        if options.only not in name:
            continue
        began = time.process_time()
        found = measure(pair, data[pair.data], options.seeds, options.draws)
        size = size_of(data[pair.data])
        texts = [found[p] for p in (*PARTS, "total", "measured")]
        ratio = f"{found['ratio']:.3f} ± {found['se']:.1g}"
        what = f"{pair.data}, {size} x {pair.columns}"
        rows.append([name, what, f"{pair.epsilon} {pair.measure}", *texts, ratio])
        print(rows[-1], f"{time.process_time() - began:.1f} s", flush=True)
    head = ["structure", "data", "epsilon", *PARTS, "expected", "measured", "measured / expected"]
    text = (
        f"{table(head, rows)}\n\nRoot mean squares over {QUERIES} queries, {options.seeds} seeds and "
        f"{options.draws} releases each, against brute force on the rows as they are, before the grid; sums "
        f"unless means are asked for; delta = {DELTA}. `maps` is rounding to the grid, clipping and projection. "
        + " ".join((__doc__ or "").split())
    )
    print(text)
    if options.write and not options.only:
        command = "python -m benchmarks.expected_errors --write --packages FOLDER"
        write_figure("promises/expected-errors", text, command)


if __name__ == "__main__":
    main()
