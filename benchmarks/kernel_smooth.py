"""1/(1+z): one mixture of frequencies against a sum of exponentials with a structure a term.

Equal compute (the same number of frequencies in all), equal budget: noise, error and build time.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks._kernels import exact_flat, exact_sums, noisy, pipeline, through
from benchmarks._results import parser, table, write_section
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.postprocessing.density import Density

FREQUENCIES, RELEASES = 4096, 8


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    rng = np.random.default_rng(0)
    points = np.clip(rng.normal(0, 0.4, (10_000, 3)), -1, 1)
    queries = np.clip(rng.normal(0, 0.4, (200, 3)), -1, 1)
    space, rows = RealRows(width=3, lower=(-1.0,), upper=(1.0,)), []
    for distance in ("l2_squared", "l2", "l1"):
        kernel = {"rational": {"bandwidth": 0.5, "distance": distance}}
        mixture = {"fourier_sketch": {"frequencies": FREQUENCIES, "kernel": kernel, "seed": 1}}
        sums = {"bandwidth": 0.5, "distance": distance, "accuracy": 0.01, "seed": 1}
        each = {"structure": {"fourier": {"frequencies": FREQUENCIES // 8}}}
        variants = {
            "mixture": mixture,
            "sum, weighted": {"exponential_sum": {**sums, **each, "split": "weighted"}},
            "sum, equal split": {"exponential_sum": {**sums, **each, "split": "equal"}},
        }
        if distance == "l2_squared":
            each = {"structure": {"gauss_transform": {"order": 7}}}
            variants["sum of Gauss transforms"] = {
                "exponential_sum": {**sums, **each, "accuracy": 0.03}
            }
        for name, step in variants.items():
            stages = pipeline(space, {"quantize": {"bits": 12}}, step)
            reader = stages[-1].claim.capabilities["kernel_sums"]
            grid = through(stages, points)
            start = time.process_time()
            exact_flat(stages[1:], grid)
            spent = time.process_time() - start
            truth = exact_sums(points, queries, reader)
            line: list[object] = [distance, name, stages[-1].claim.output.size, spent]
            builds = []
            for seed in range(RELEASES):
                ((key, params),) = step.items()
                again = pipeline(space, {"quantize": {"bits": 12}}, {key: {**params, "seed": seed}})
                builds.append((again, exact_flat(again[1:], grid)))
            for measure in ("zcdp", "pure"):
                errors = []
                for again, flat in builds:
                    of = noisy(again, flat, 1.0, measure)
                    post = Density().bind(of.released, Symmetric())
                    found = post.function(of.arrays, of.queries(Rows(queries)))
                    errors.append(np.abs(found["density"][:, 0] - truth).mean())
                line += [post.expected["noise_error"], float(np.mean(errors))]
            rows.append(line)
            print(line, flush=True)
    text = table(
        [
            "z",
            "structure",
            "cells",
            "build, s",
            "zCDP noise (predicted)",
            "zCDP mean |error|",
            "pure noise (predicted)",
            "pure mean |error|",
        ],
        rows,
    )
    text += (
        "\n\n10,000 records in 3 columns, 200 queries, epsilon = 1 (delta = 1e-6 for zCDP), "
        f"{RELEASES} releases; 4,096 frequencies in all (8 terms of 512 at accuracy 0.01). "
        "Errors are in kernel sums and include sampling error; every release has a seed of its own."
    )
    print(text)
    if options.write:
        write_section("Kernels: smooth kernels", text, "python -m benchmarks.kernel_smooth --write")


if __name__ == "__main__":
    main()
