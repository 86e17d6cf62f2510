"""A long session: latency of a question, memory, and the size of its store, at 10^3, 10^4, ... answers.

Every answer charges records (the purses are planned for a million questions). ``--folder /dev/shm`` puts the
store into memory, where no disk is waited for; one row is printed as soon as it is measured.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import opendp.prelude as dp

from benchmarks._results import parser, table, write_section
from opendp_sim.accounting.session.session import Session
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.measurements.knn.ind_knn import IndKnn
from tests.accounting import _kill_session as kill

HEAD = [
    "answers",
    "p50 CPU ms",
    "p99",
    "p99.9",
    "p50 wall ms",
    "p99",
    "p99.9",
    "store MiB",
    "memory MiB",
]


def opened(path: Path) -> Session:
    setting = IndKnn(rho=0.5, queries=10**6, size=kill.RECORDS, threshold=0.9, centre=False)
    stages = bind_steps(kill.GRID, Symmetric(), [setting])
    return Session(stages, lambda: [kill.data()], path)


def resident() -> float:
    """Return the MiB that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def stored(path: Path) -> float:
    """Return the MiB of the store and of what SQLite keeps beside it."""
    return sum(each.stat().st_size for each in path.parent.glob(path.name + "*")) / 2**20


def measured(path: Path, marks: list[int], seconds: float) -> list[list[object]]:
    """Ask until the last mark, or until time is over; return a row for each mark that was reached."""
    generator, until = np.random.default_rng(1), time.monotonic() + seconds
    cpu, wall = np.full(marks[-1], 1.0), np.full(marks[-1], 1.0)  # in memory from the start
    rows, since, total = [], 0, 0
    with opened(path) as session:
        while total < marks[-1] and time.monotonic() < until:
            query = np.rint(generator.normal(0, 40, (1, 4)))
            one, two = time.process_time(), time.perf_counter()
            session.ask(query)
            cpu[total], wall[total] = time.process_time() - one, time.perf_counter() - two
            total += 1
            if total in marks or (total == marks[-1] or time.monotonic() >= until):
                cuts = [np.percentile(t[since:total] * 1e3, [50, 99, 99.9]) for t in (cpu, wall)]
                rows.append([total, *map(float, np.concatenate(cuts)), stored(path), resident()])
                print(table(HEAD, rows).splitlines()[-1], flush=True)
                since = total
        assert session.answered == total
    return rows


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--answers", type=int, default=1_000_000)
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--folder", help="where the store lies")
    args = options.parse_args()
    dp.enable_features("contrib")
    marks = sorted(
        {m for m in (10**3, 10**4, 10**5, 5 * 10**5) if m < args.answers} | {args.answers}
    )
    begun = time.process_time()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "s.session"
        rows = measured(path, marks, args.seconds)
        start = time.process_time()
        with opened(path) as session:
            assert session.answered == rows[-1][0]
        opening = time.process_time() - start
    text = table(HEAD, rows)
    text += (
        f"\n\nSingle questions to `ind_knn` over {kill.RECORDS} records, each charged and durable before its answer, in "
        f"{'the default folder' if args.folder is None else args.folder}; a row counts the answers since the row above. "
        f"{time.process_time() - begun:,.0f} CPU s; then the store was opened and checked in {opening:.2f} CPU s, and "
        "knew all answers."
    )
    print(text)
    if args.write:
        name = "a long session" if args.folder is None else "a long session, in memory"
        command = f"python -m benchmarks.survive_session --answers {args.answers}"
        where = "" if args.folder is None else f" --folder {args.folder}"
        write_section(f"Survival: {name}", text, f"{command}{where} --write")


if __name__ == "__main__":
    main()
