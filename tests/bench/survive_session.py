"""A long session: latency of a question, memory, and the size of its store, from beginning to end."""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import opendp.prelude as dp

from tests.accounting import _kill_session as kill
from tests.bench._results import parser, table, write_section


def resident() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--answers", type=int, default=1_000_000)
    options.add_argument("--seconds", type=float, default=float("inf"))
    args = options.parse_args()
    dp.enable_features("contrib")
    generator, begun = np.random.default_rng(1), time.monotonic()
    rows, times, total = [], [], 0
    part = max(1, args.answers // 8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.session"
        with kill.opened(path) as session:
            while total < args.answers and time.monotonic() - begun < args.seconds:
                start = time.process_time()
                session.ask(np.rint(generator.normal(0, 40, (1, 4))))
                times.append(time.process_time() - start)
                total += 1
                if total % part == 0:
                    cut = np.percentile(np.array(times) * 1e3, [50, 99, 99.9])
                    size = path.stat().st_size / 2**20
                    rows.append([total, *map(float, cut), max(times) * 1e3, size, resident()])
                    times = []
        start = time.perf_counter()
        with kill.opened(path) as session:
            assert session.answered == total
        opening = time.perf_counter() - start
    text = table(
        ["answers", "p50 CPU ms", "p99 ms", "p99.9 ms", "max ms", "store MiB", "memory MiB"], rows
    )
    text += (
        f"\n\nSingle questions to `ind_knn` over {kill.RECORDS} records, each durable before its answer: {total:,} in "
        f"{time.monotonic() - begun:.0f} s; then the store was opened and checked in {opening:.2f} s, and knew all of them. "
        "Latencies are CPU time (the machine was shared): the trend from row to row counts."
    )
    print(text)
    if args.write:
        write_section(
            "Survival: a long session",
            text,
            f"python -m tests.bench.survive_session --answers {args.answers} --write",
        )


if __name__ == "__main__":
    main()
