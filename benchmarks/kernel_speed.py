"""How fast Fourier and Gauss transform sketches are built and read, beside the bare float64 product.

CPU time, one BLAS thread on each side, least of several alternated runs. The fast build is first
asserted equal, bit for bit, to a plain one (integer phases, floor, table look-up).
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._kernels import pipeline
from benchmarks._results import parser, table, write_figure
from opendp_sim.domains.rows import GridRows, Rows

ROWS, WIDTH, FREQUENCIES, QUERIES = 50_000, 64, 1000, 2000


def least(runs: int, *jobs: Callable[[], Any]) -> list[float]:
    best = [float("inf")] * len(jobs)
    for _ in range(runs):
        for i, job in enumerate(jobs):
            start = time.process_time()
            job()
            best[i] = min(best[i], time.process_time() - start)
    return best


def plain(reader: Any, values: np.ndarray) -> np.ndarray:
    """Integer phases, floor, remainder, look-up: one frequency after another."""
    projection, turn = reader.projection, reader.mechanism.phases
    out = np.zeros((len(projection.folded), 2), dtype=np.int64)
    for j, folded in enumerate(projection.folded):
        scale = 2 ** int(projection.bits[j])
        steps = np.rint(folded * scale).astype(np.int64)
        phase = np.floor_divide(values.astype(np.int64) @ steps[:-1] + steps[-1], scale)
        out[j] = reader.table[phase % turn].sum(axis=0)
    return out


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--runs", type=int, default=7)
    args = options.parse_args()
    generator = np.random.Generator(np.random.Philox(key=1))
    values = np.rint(generator.normal(size=(ROWS, WIDTH)).clip(-4, 4) * 512)
    grid = GridRows(width=WIDTH, unit=1 / 512, lower=(-2048,), upper=(2048,))
    matrix = generator.normal(size=(WIDTH, FREQUENCIES))
    rows = []
    for name, kernel in (
        ("gaussian", {"gaussian": {"bandwidth": 8.0}}),
        ("rational l1", {"rational": {"bandwidth": 30.0, "distance": "l1"}}),
    ):
        stages = pipeline(
            grid, {"fourier_sketch": {"frequencies": FREQUENCIES, "kernel": kernel, "seed": 1}}
        )
        claim = stages[0].claim
        reader = claim.capabilities["kernel_sums"]
        few = np.zeros(claim.output.size, dtype=np.int64)
        claim.accumulate(Rows(values[:3000]), few)
        assert np.array_equal(claim.output.split(few)["features"][0], plain(reader, values[:3000]))
        flat = np.zeros_like(few)
        queries = Rows(values[:QUERIES])

        def bare() -> None:
            for start in range(0, ROWS, 8192):
                values[start : start + 8192] @ matrix

        def floats() -> None:
            for start in range(0, ROWS, 8192):
                phase = values[start : start + 8192] @ matrix
                np.cos(phase).sum(axis=0)
                np.sin(phase).sum(axis=0)

        def build(claim: Any = claim, flat: np.ndarray = flat) -> None:
            claim.accumulate(Rows(values), flat)

        arrays = claim.output.split(flat)

        def ask(reader: Any = reader, arrays: Any = arrays, queries: Rows = queries) -> None:
            reader.estimate(arrays, queries)

        product, naive, built, asked = least(args.runs, bare, floats, build, ask)
        rows.append(
            [
                name,
                built,
                built / product,
                naive / product,
                asked / QUERIES * 1e6,
                asked / (product * QUERIES / ROWS),
            ]
        )
        print(rows[-1], flush=True)
        assert built / product <= 3, "slower than three bare products"
    text = table(
        [
            "kernel",
            "build, s",
            "build / bare product",
            "float cos and sin / bare product",
            "query, us",
            "queries / bare product of their shape",
        ],
        rows,
    )
    text += (
        f"\n\n{ROWS:,} rows x {WIDTH} columns, D = {FREQUENCIES:,}; {QUERIES:,} queries with "
        f"standard errors; least of {args.runs} alternated runs, load {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} cores. Must be at most 3 bare products."
    )
    print(text)
    if args.write:
        write_figure("kernels/fourier-speed", text, "python -m benchmarks.kernel_speed --write")


if __name__ == "__main__":
    main()
