"""How fast RACE is built and read, as ratios to the bare float64 product of the same shapes.

Run: ``python benchmarks/race_speed.py [--write]``. CPU time with one BLAS thread on each side, least
of several alternated runs; every fast path is first asserted equal, bit for bit, to a plain one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent))
from _results import parser, table, write_figure

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Noise, Stable
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.io.fold import build_sketch

WIDTH, REPETITIONS, BUCKETS, BLOCK = 32, 200, 1024, 65536


def least(clock: Callable[[], float], runs: int, *jobs: Callable[[], Any]) -> list[float]:
    """Return the least time of each job, the jobs taking turns."""
    best = [float("inf")] * len(jobs)
    for _ in range(runs):
        for i, job in enumerate(jobs):
            start = clock()
            job()
            best[i] = min(best[i], clock() - start)
    return best


def idle_cores(seconds: float) -> float:
    """Return how many cores were idle in the next ``seconds`` (from /proc/stat, ticks of 10 ms)."""

    def ticks() -> int:
        return int(Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[4])

    start = ticks()
    time.sleep(seconds)
    return (ticks() - start) / 100 / seconds


def quiet(limit: float) -> bool:
    """Wait, at most ``limit`` seconds, until two cores are idle: wall times mean nothing before."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if idle_cores(0.3) > 1.9:
            return True
    return False


def plain(reader: Any, values: np.ndarray) -> np.ndarray:
    """Count the slow way: floor of an integer product, then one histogram a repetition."""
    projection = reader.projection
    scale = np.exp2(projection.bits).astype(np.int64)
    matrix = np.rint(projection.folded * scale[:, None]).astype(np.int64)
    phases = values.astype(np.int64) @ matrix[:, :-1].T + matrix[:, -1]
    ids = np.floor_divide(phases, scale) + projection.base
    cells = reader.rehash(np.ascontiguousarray(ids.T)[:, None, :])
    return np.stack([np.bincount(row, minlength=BUCKETS) for row in cells])


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--wait", type=float, default=0, help="seconds to wait for idle cores")
    args = options.parse_args()
    generator = np.random.Generator(np.random.Philox(key=1))
    values = np.rint(generator.normal(size=(args.rows, WIDTH)).clip(-4, 4) * 512)
    grid = GridRows(width=WIDTH, unit=1 / 512, lower=(-2048,), upper=(2048,))
    race = lookup("race_sketch")(
        repetitions=REPETITIONS, buckets=BUCKETS, family={"p_stable_l2": {"width": 8.0}}, seed=1
    )
    stages = bind_steps(grid, Symmetric(), [race])
    claim = stages[0].claim
    assert isinstance(claim, Stable)
    reader = claim.capabilities["kernel_sums"]
    matrix = np.ascontiguousarray(reader.projection.folded[:, :-1].T)

    few = values[:20_000]
    counted = claim.output.split(build_sketch(stages, lambda: [Rows(few)]))["counts"][0]
    assert np.array_equal(counted, plain(reader, few)), "the fast kernel is not the plain one"

    def blocks() -> Iterator[Rows]:
        for start in range(0, args.rows, BLOCK):
            yield Rows(values[start : start + BLOCK])

    def product() -> None:
        for start in range(0, args.rows, 8192):
            values[start : start + 8192] @ matrix

    def one() -> np.ndarray:
        return build_sketch(stages, blocks)

    def two() -> np.ndarray:
        return build_sketch(stages, blocks, workers=2)

    flat = one()
    assert np.array_equal(flat, two()), "two workers are not one"
    bare, build = least(time.process_time, args.runs, product, one)
    walls, calm = [float("inf")] * 2, 0
    for _ in range(args.runs):
        calm += quiet(args.wait / args.runs)
        walls = list(map(min, walls, least(time.perf_counter, 1, one, two)))

    release = Release.of_sketch(stages, flat, Noise("discrete_gaussian", 3.0), {"rho": 0.5})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "race.npz"
        release.save(path)
        loaded = Release.load(path)
    queries = Rows(values[:10_000])
    capability = loaded.released.capability("kernel_sums", "bench")
    asked = least(
        time.process_time,
        args.runs,
        lambda: queries.values @ matrix,
        lambda: capability.estimate(loaded.arrays, queries),
    )
    rows: list[list[object]] = [
        ["build, CPU time", f"{args.rows:,} rows", bare, build, build / bare, "4 (aim 2.3)"],
        [
            "build, wall time, 1 to 2 workers",
            f"{args.rows:,} rows",
            walls[0],
            walls[1],
            walls[1] / walls[0],
            "0.6",
        ],
        [
            "density of queries, CPU time",
            "10,000 queries",
            asked[0],
            asked[1],
            asked[1] / asked[0],
            "10",
        ],
    ]
    text = table(["what", "size", "base [s]", "ours [s]", "ratio", "must be below"], rows)
    text += (
        f"\n\nd = {WIDTH}, R = {REPETITIONS}, {BUCKETS} buckets, blocks of {BLOCK:,} rows, one BLAS "
        f"thread; the base is the float64 product with the hash matrix (for the wall times: one "
        f"worker). Least of {args.runs} alternated runs, load {os.getloadavg()[0]:.1f} on "
        f"{os.cpu_count()} cores; {calm} of the wall pairs began on idle cores. Sketch bits equal to an int64 floor-and-count, and for 1 and 2 workers."
    )
    print(text)
    if args.write:
        write_figure("kernels/race-speed", text, "python benchmarks/race_speed.py --write")


if __name__ == "__main__":
    with threadpool_limits(limits=1, user_api="blas"):
        main()
