"""What numba's kernels (extra ``fast``) gain: builds beside a bare product, questions beside a bare gather; CPU time, one thread.

The product writes into ``out=``, in chunks of the size that the build uses; numpy's code, the compiled code and the base take
turns, and equal bits are asserted.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks._results import parser, table, write_figure
from opendp_sim.core.arithmetic import compiled as fast
from opendp_sim.core.arithmetic.grid import chunks
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows

ROWS, WIDTH, QUERIES, COLUMNS, TOP = 200_000, 32, 10_000, 64, 4096
BUILDS: dict[str, dict[str, Any]] = {
    "race_sketch": {
        "repetitions": 200,
        "buckets": 1024,
        "family": {"p_stable_l2": {"width": 8.0}},
        "seed": 1,
    },
    "fourier_sketch": {
        "frequencies": 256,
        "kernel": {"gaussian": {"bandwidth": 8.0}},
        "seed": 2,
        "features": "random",
    },
}


def turns(jobs: dict[str, Callable[[], Any]], times: int) -> dict[str, float]:
    """Return the least CPU time of each job."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(times):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            best[name] = min(best[name], time.process_time() - start)
    return best


def ways(kernel: fast.CompiledLoop, job: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """Return the job with numpy's code and with the compiled one."""
    made = fast._compiled(kernel._loop, kernel._signature)
    if made is None:
        raise SystemExit("numba is not installed: pip install 'opendp_sim[fast]'")

    def run(compiled: Any) -> Any:
        kernel._tried, kernel._made = True, compiled
        return job()

    return {"numpy": partial(run, None), "numba": partial(run, made)}


def build(key: str, values: Any, grid: GridRows, times: int) -> list[Any]:
    claim: Any = lookup(key)(**BUILDS[key]).bind(grid, Symmetric())
    reader = claim.capabilities["kernel_sums"]
    matrix = np.ascontiguousarray(reader.projection.folded[:, :-1])
    out = np.empty((len(matrix), 16384))

    def product() -> None:
        for part in chunks(len(values), len(matrix)):
            np.matmul(matrix, values[part].T, out=out[:, : part.stop - part.start])

    def built() -> Any:
        found = np.zeros(claim.output.size, dtype=np.int64)
        claim.accumulate(Rows(values), found)
        return found

    jobs = ways(fast.COUNTED, built)
    assert np.array_equal(jobs["numpy"](), jobs["numba"]())
    found = turns({"base": product} | jobs, times)
    base = found["base"]
    return [f"{key}, {ROWS:,} rows", base, found["numpy"] / base, found["numba"] / base]


def question(times: int) -> list[Any]:
    g = np.random.default_rng(0)
    space = GridRows(width=COLUMNS, unit=1 / TOP, lower=(0,), upper=(TOP,), l2=8 * TOP)
    queries = np.minimum(g.integers(0, TOP + 1, (QUERIES, COLUMNS)) + 0.25, TOP)
    numbers, places = g.random((COLUMNS, TOP + 2)), np.ascontiguousarray(queries.T.astype(int))
    claim: Any = lookup("threshold_sketch")(thresholds=TOP).bind(space, Symmetric())
    arrays = claim.output.split(g.integers(0, 10**6, claim.output.size))
    reading = claim.capabilities["distance_sums"].reading(arrays, None, 0.1)
    jobs = ways(fast.INTERPOLATED, partial(reading.at, queries))
    assert np.array_equal(jobs["numpy"]().values, jobs["numba"]().values)
    gather = {"base": lambda: sum(numbers[c].take(places[c]) for c in range(COLUMNS))}
    found = turns(gather | jobs, times)
    base = found["base"]
    name = f"threshold_sketch, {QUERIES:,} questions"
    return [name, base, found["numpy"] / base, found["numba"] / base]


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--times", type=int, default=5)
    args = options.parse_args()
    g = np.random.default_rng(1)
    values = np.rint(g.normal(size=(ROWS, WIDTH)).clip(-4, 4) * 512)
    grid = GridRows(width=WIDTH, unit=1 / 512, lower=(-2048,), upper=(2048,))
    rows = [build(key, values, grid, args.times) for key in BUILDS]
    rows.append(question(args.times))
    text = table(["what", "base, s", "numpy / base", "numba / base"], rows)
    text += (
        f"\n\nBase of the builds: the float64 product written into `out=` (d = {WIDTH}; 200 repetitions of 1,024 buckets, 256 "
        f"frequencies); of the questions: a bare gather a coordinate, places given ({COLUMNS} columns, {TOP:,} thresholds). "
        f"Least of {args.times} turns; equal bits asserted. Load {os.getloadavg()[0]:.1f} on 2 cores."
    )
    print(text)
    if args.write:
        write_figure("engines/compiled", text, "python -m benchmarks.fast_kernels --write")


if __name__ == "__main__":
    main()
