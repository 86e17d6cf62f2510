"""Time of a sum in `apply` on one and on two threads, from Parquet to the integers; equal bits asserted.

Wall time, and wall time less what threads waited for a core (``Idle``), which a busy machine leaves nearly as it is. On one
thread columns are decoded by that thread too. ``--reading`` tells the share of reading and checking.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import engines
from benchmarks._results import parser, table, write_figure
from opendp_sim.dsl.run.execute import data_of
from opendp_sim.dsl.run.inputs import Inputs, open_private, open_public
from opendp_sim.io import fold as threads, open as opening, parquet
from tests.engines import made

FOURIER = {
    "fourier_sketch": {
        "frequencies": 100,
        "kernel": {"gaussian": {"bandwidth": 1.0}},
        "features": "random",
        "seed": 2,
    }
}
SPECS = {
    "race": engines.SPECS["race"],
    "fourier": ("row", [*engines.ROWS, FOURIER]),
    "thresholds": ("row", [*engines.ROWS, {"threshold_sketch": {"thresholds": 1024}}]),
    "votes": engines.SPECS["votes"],
}


def opened(plan: Any) -> Inputs:
    real = opening._FILES["parquet"]
    opening._FILES["parquet"] = lambda place, records: parquet.parquet_of(
        place, records, parquet._parts(place)
    )
    try:
        return _opened(plan)
    finally:
        opening._FILES["parquet"] = real


def _opened(plan: Any) -> Inputs:
    return open_private(plan, {}, _untold, open_public(plan, {}, _untold), whole=False)


def _untold(_phase: str, _rows: int) -> None:
    """Show nothing."""


def applied(plan: Any, workers: int) -> Any:
    """What ``apply`` does before the noise: gate and sum in one pass, by that many threads."""
    inputs = opened(plan)
    found = data_of(plan.releases["n"], inputs, workers, _untold)
    inputs.finish()
    return found


def reading_share(plan: Any) -> float:
    """Return how much of one thread's CPU time the blocks take: reading, decoding, the gate."""
    release, inputs = plan.releases["n"], opened(plan)
    name, spent = release.typed.entry.name, [0.0]
    blocks = inputs.blocks[name]

    def timed() -> Iterator[Any]:
        found = iter(blocks())
        while True:
            start = time.thread_time()
            block = next(found, None)
            spent[0] += time.thread_time() - start
            if block is None:
                return
            yield block

    start = time.thread_time()
    data_of(release, replace(inputs, blocks={**inputs.blocks, name: timed}), 1, _untold)
    return spent[0] / (time.thread_time() - start)


def _waited() -> float:
    """Return for how long this thread was ready and had no core, in seconds, as the kernel counts."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


class Idle:
    """Wall time less what threads waited for a core: an upper bound of the time on an idle machine.

    Of threads side by side the longest counts. A thread that waits for the interpreter's lock counts as
    working, also while who holds the lock waits for a core.
    """

    def __init__(self) -> None:
        self.saved = 0.0

    def timed(self, job: Callable[[], Any]) -> tuple[Any, float]:
        real, self.saved = threads.map_in_order, 0.0
        threads.map_in_order = partial(self._side_by_side, real)  # type: ignore[assignment]
        start, waited = time.perf_counter(), _waited()
        try:
            found = job()
        finally:
            threads.map_in_order = real
        return found, time.perf_counter() - start - (_waited() - waited) - self.saved

    def _side_by_side(self, real: Any, function: Any, items: Any, workers: int) -> Any:
        longest: dict[int, list[float]] = {}

        def run(item: Any, goes_on: Any) -> Any:
            start, waited = time.perf_counter(), _waited()
            own = longest.setdefault(threading.get_ident(), [start, 0.0, waited])
            try:
                return function(item, goes_on)
            finally:
                own[1] = time.perf_counter() - start_all - (_waited() - own[2])

        start_all, own_wait = time.perf_counter(), _waited()
        found = real(run, items, workers)
        wall = time.perf_counter() - start_all
        busy = max((one[1] for one in longest.values()), default=wall)
        self.saved += max(0.0, wall - busy - (_waited() - own_wait))
        return found


def turns(jobs: Sequence[Callable[[], Any]], times: int) -> list[tuple[float, float]]:
    """Return of each job the least time less waits, and the least wall time."""
    best = [(float("inf"), float("inf"))] * len(jobs)
    for _ in range(times):
        found = []
        for at, job in enumerate(jobs):
            start = time.perf_counter()
            value, seconds = Idle().timed(job)
            wall = time.perf_counter() - start
            found.append(value)
            best[at] = min(best[at][0], seconds), min(best[at][1], wall)
        assert all(made.same(found[0], one) for one in found)
    return best


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--reading", action="store_true")
    args = options.parse_args()
    engines.SPECS.update(SPECS)
    rows: list[list[Any]] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        (folder / "files").mkdir()
        engines.write(folder / "files", args.rows, min(args.rows, engines.BLOCK))
        for spec in SPECS:
            plan = engines.plan_for(spec, folder)
            share = reading_share(plan)
            rows.append([spec, share])
            if not args.reading:
                jobs: list[Callable[[], Any]] = [partial(applied, plan, w) for w in (1, 2)]
                (one, wall), (two, beside) = turns(jobs, args.times)
                rows[-1] += [one, two, one / two, wall, beside, wall / beside]
            print(rows[-1], flush=True)
    head = ["what", "share of reading"]
    if not args.reading:
        head += ["less waits: 1 thread, s", "2 threads, s", "gain"]
        head += ["wall: 1 thread, s", "2 threads, s", "gain"]
    text = table(head, rows)
    text += (
        f"\n\n{args.rows:,} rows of 16 float32 columns from Parquet in memory; least of {args.times} turns; equal bits "
        f"asserted. Load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    )
    print(text)
    if args.write:
        write_figure("engines/two-cores", text, "python -m benchmarks.two_cores --write")


if __name__ == "__main__":
    main()
