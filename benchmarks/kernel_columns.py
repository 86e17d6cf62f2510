"""Gaussian kernel in one, two and three columns: Gauss transform beside Fourier features.

A mixture of clusters in the unit box, epsilon 1, pure and zCDP; errors of kernel sums at held-out
points of the mixture, with fresh seeds and noise for each release.
"""

from __future__ import annotations

import math
import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from benchmarks._kernels import exact_flat, exact_sums, noise_for, noisy, pipeline, through
from benchmarks._results import parser, table, write_section
from opendp_sim.domains.rows import RealRows, Rows

BANDWIDTH, COUNT, RELEASES, QUERIES, EPSILON = 0.2, 20_000, 12, 200, 1.0
FREQUENCIES = {"zcdp": 4000, "pure": 4000}


def mixture(columns: int, count: int, seed: int) -> np.ndarray:
    """Five clusters and a uniform background, the same for every seed."""
    centres = np.random.default_rng(0).uniform(0.15, 0.85, (5, columns))
    rng = np.random.default_rng(seed)
    near = centres[rng.integers(0, 5, count)] + rng.normal(0, 0.08, (count, columns))
    far = rng.random((count, columns))
    return np.clip(np.where(rng.random((count, 1)) < 0.8, near, far), 0, 1)


def sketches(columns: int, measure: str, seed: int) -> dict[str, dict]:
    kernel = {"gaussian": {"bandwidth": BANDWIDTH}}
    # Under pure DP more features mean more noise: the published size is about epsilon n / 2.
    balanced = round(EPSILON * COUNT / 2)
    size = FREQUENCIES[measure] if measure == "zcdp" else min(FREQUENCIES["pure"], balanced)
    return {
        "fourier_sketch": {"frequencies": size, "kernel": kernel, "seed": seed},
        "gauss_transform_sketch": {"bandwidth": BANDWIDTH},
    }


def errors(columns: int, measure: str, key: str) -> tuple[float, float, float]:
    """Mean absolute error, its standard error over releases, and the predicted noise deviation."""
    space = RealRows(width=columns, lower=(0.0,), upper=(1.0,))
    points, asked = mixture(columns, COUNT, 1), mixture(columns, QUERIES, 2)
    found, flat = [], None
    for seed in range(RELEASES):
        step = {key: sketches(columns, measure, seed)[key]}
        stages = pipeline(space, {"quantize": {"bits": 12}}, step)
        reader = stages[-1].claim.capabilities["kernel_sums"]
        if flat is None or key == "fourier_sketch":
            flat = exact_flat(stages[1:], through(stages[:1], points))
        of = noisy(stages, flat, EPSILON, measure)
        at = of.queries(Rows(asked))
        values = reader.estimate(of.arrays, at).groups[0, 0]
        exact = exact_sums(
            through(stages[:1], points).values * stages[-1].domain.unit,
            at.values * stages[-1].domain.unit,
            reader,
        )
        found.append(np.abs(values - exact).mean())
    mechanism, norm = noise_for(EPSILON, measure, stages[-1].claim.output.sensitivity)
    output = stages[-1].claim.output
    noise = mechanism.bind(output, output.metric(norm)).noise.deviation * reader.noise_factor()
    return float(np.mean(found)), float(np.std(found) / math.sqrt(RELEASES - 1)), noise


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    rows: list[list[object]] = []
    for columns in (1, 2, 3):
        for measure in ("zcdp", "pure"):
            fourier, gauss = (
                errors(columns, measure, key)
                for key in ("fourier_sketch", "gauss_transform_sketch")
            )
            rows.append([columns, measure, *fourier, *gauss, fourier[0] / gauss[0]])
            print(rows[-1], flush=True)
    head = [
        "columns",
        "measure",
        "Fourier, mean |error|",
        "its se",
        "its noise",
        "Gauss, mean |error|",
        "its se",
        "its noise",
        "Fourier / Gauss",
    ]
    text = (
        f"{table(head, rows)}\n\n{COUNT:,} records, {QUERIES} queries, {RELEASES} releases, epsilon "
        f"{EPSILON:g} (delta = 1e-6 for zCDP), bandwidth {BANDWIDTH:g} of the box, "
        f"{FREQUENCIES['zcdp']:,} frequencies; errors of kernel sums. In one column the Gauss transform "
        "under pure DP must have less noise than under zCDP."
    )
    print(text)
    assert rows[1][6] < rows[0][6]
    if options.write:
        write_section(
            "Kernels: up to three columns", text, "python -m benchmarks.kernel_columns --write"
        )


if __name__ == "__main__":
    main()
