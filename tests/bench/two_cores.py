"""Wall time of a sum on one and on two threads, from Parquet to the integers, and what bounds it; equal bits asserted.

Run it alone on an idle machine; ``--reading`` tells the share of one thread's CPU time that reading and checking take, which
any load leaves as it is: in ``apply`` one thread does that for all, so it bounds what further threads gain.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from opendp_sim.dsl.inputs import Inputs, open_private, open_public
from opendp_sim.dsl.released import data_of
from opendp_sim.engines.engine import Local
from tests.bench import engines
from tests.bench._results import parser, table, write_section
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
    return open_private(plan, {}, _untold, open_public(plan, {}, _untold))


def _untold(_phase: str, _rows: int) -> None:
    """Show nothing."""


def applied(plan: Any, workers: int) -> Any:
    """What ``apply`` does before the noise, with that many threads beside the one that reads."""
    return data_of(plan.releases["n"], opened(plan), workers, _untold)


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


def turns(jobs: Sequence[Callable[[], Any]], times: int) -> list[float]:
    best = [float("inf")] * len(jobs)
    for _ in range(times):
        found = []
        for at, job in enumerate(jobs):
            start = time.perf_counter()
            found.append(job())
            best[at] = min(best[at], time.perf_counter() - start)
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
                jobs += [lambda w=w, p=plan: Local(8, w).sums(p)["n"] for w in (1, 2)]  # type: ignore[misc]
                one, two, tasks_one, tasks_two = turns(jobs, args.times)
                rows[-1] += [one, two, one / two, tasks_one, tasks_two, tasks_one / tasks_two]
            print(rows[-1], flush=True)
    head = ["what", "share of reading"]
    if not args.reading:
        head += ["apply, 1 thread, s", "2 threads, s", "gain"]
        head += ["tasks, 1 thread, s", "2 threads, s", "gain"]
    text = table(head, rows)
    text += f"\n\n{args.rows:,} rows of 16 float32 columns from Parquet in memory; least of {args.times} turns; equal bits asserted."
    print(text)
    if args.write:
        write_section("two cores", text, "python -m tests.bench.two_cores --write")


if __name__ == "__main__":
    main()
