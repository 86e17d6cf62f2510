"""How CPU time grows with rows, columns, repetitions, cells, persons and questions: fitted exponents.

Run: ``python benchmarks/growth.py [--write]``. One thread; least of three alternated runs at each size. The
exponent is the slope of log time against log size, by least squares over the three largest sizes; a fixed part
that still matters at small sizes makes it smaller than 1 for a linear job.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np  # noqa: E402

import opendp_sim.prelude  # noqa: E402, F401 - fills the registry
from benchmarks import engines  # noqa: E402
from benchmarks._results import parser, table, write_section  # noqa: E402
from opendp_sim.accounting.release.release import Release  # noqa: E402
from opendp_sim.core.claims import Noise  # noqa: E402
from opendp_sim.core.mechanism import lookup  # noqa: E402
from opendp_sim.core.pipeline import bind_steps, resolve  # noqa: E402
from opendp_sim.domains.metrics import IdDistance, Symmetric  # noqa: E402
from opendp_sim.domains.records import Column, Records  # noqa: E402
from opendp_sim.domains.rows import GridRows, Rows  # noqa: E402
from opendp_sim.engines.engine import Local  # noqa: E402
from opendp_sim.io.fold import build_sketch  # noqa: E402
from opendp_sim.measurements.noise._impl.samplers import add_gaussian  # noqa: E402
from opendp_sim.transformations.row_maps.bound_contributions import BoundContributions  # noqa: E402
from opendp_sim.transformations.sketches.counts.vote_counts import VoteCounts  # noqa: E402

BLOCK, RUNS = 8192, 3
_FILES = tempfile.TemporaryDirectory()
Job = Callable[[], Any]


def race(n: int = 60_000, d: int = 16, repetitions: int = 50, buckets: int = 256) -> Job:
    return sketch(
        "race_sketch",
        n,
        d,
        repetitions=repetitions,
        buckets=buckets,
        seed=1,
        family={"p_stable_l2": {"width": 1.0}},
    )[0]


def sketch(key: str, n: int, d: int, **settings: Any) -> tuple[Job, Any]:
    grid = GridRows(width=d, unit=1 / 1024, lower=(-1024,), upper=(1024,))
    stages = bind_steps(grid, Symmetric(), [lookup(key)(**settings)])
    values = np.random.default_rng(0).integers(-1024, 1025, (BLOCK, d)).astype(np.float64)

    def blocks() -> Iterator[Rows]:
        for start in range(0, n, BLOCK):
            yield Rows(values[: n - start])

    return lambda: build_sketch(stages, blocks, workers=1), stages


def fourier(n: int = 60_000, frequencies: int = 64) -> Job:
    kernel = {"gaussian": {"bandwidth": 1.0}}
    return sketch("fourier_sketch", n, 16, frequencies=frequencies, kernel=kernel, seed=2)[0]


def table_of(persons: int, each: int) -> tuple[Records, Callable[[], Iterator[Any]]]:
    g = np.random.default_rng(0)
    n = persons * each
    user = g.permutation(np.arange(n) // each)
    data = {"user": user, "item": np.minimum(g.zipf(1.3, n), 10**6), "x": g.normal(size=(n, 8))}
    records = Records(
        (
            Column("user", "int64", role="privacy_id"),
            Column("item", "int64"),
            Column("x", "array[f64, 8]"),
        )
    )
    return records, lambda: (
        {name: column[at : at + 65536] for name, column in data.items()}
        for at in range(0, n, 65536)
    )


def bounded(persons: int) -> Job:
    records, blocks = table_of(persons, 5)
    stages = bind_steps(records, IdDistance("user"), [BoundContributions(max_rows=3)])

    def run() -> None:
        function = resolve(stages, blocks)
        for block in blocks():
            function(block)

    return run


def votes(persons: int) -> Job:
    records, blocks = table_of(persons, 5)
    claim = VoteCounts(item="item", max_items=3).bind(records, IdDistance("user"))
    return lambda: claim.fold(blocks)


def questions(count: int) -> Job:
    build, stages = sketch(
        "race_sketch",
        20_000,
        16,
        repetitions=50,
        buckets=256,
        seed=1,
        family={"p_stable_l2": {"width": 1.0}},
    )
    release = Release.of_sketch(stages, build(), Noise("discrete_gaussian", 3.0), {"rho": 0.5})
    asked = Rows(np.random.default_rng(3).integers(-1024, 1025, (count, 16)).astype(np.float64))
    capability = release.released.capability("kernel_sums", "bench")
    return lambda: capability.estimate(release.arrays, asked)


def noise(cells: int) -> Job:
    zeros = np.zeros(cells, dtype=np.int64)
    return lambda: add_gaussian(zeros, [(cells, Fraction(30))])


def from_files(rows: int) -> Job:
    """From Parquet to the sum: opening, the gate, the sketch of 100 x 256 and 16 float32 columns."""
    folder = Path(_FILES.name) / str(rows)
    (folder / "files").mkdir(parents=True)
    engines.write(folder / "files", rows, block=rows // 4)
    plan = engines.plan_for("race", folder)
    return lambda: Local(4, 1).sums(plan)


AXES: dict[str, tuple[str, tuple[int, ...], Callable[[int], Job]]] = {
    "rows n, race 50 x 256, d 16": ("n", (10_000, 40_000, 160_000, 640_000), lambda n: race(n=n)),
    "rows n, fourier 64": ("n", (10_000, 40_000, 160_000, 640_000), lambda n: fourier(n=n)),
    "columns d, race": ("d", (8, 32, 128, 512), lambda d: race(d=d)),
    "repetitions R, race": ("R", (25, 50, 100, 200), lambda r: race(repetitions=r)),
    "frequencies, fourier": ("D", (32, 64, 128, 256), lambda f: fourier(frequencies=f)),
    "cells of one repetition W, race": ("W", (256, 1024, 4096, 16384), lambda w: race(buckets=w)),
    "cells, discrete Gaussian noise": ("cells", (204_800, 819_200, 3_276_800), noise),
    "persons, bound_contributions, 5 rows each": ("persons", (10_000, 40_000, 160_000), bounded),
    "persons, vote_counts, 5 rows each": ("persons", (10_000, 40_000, 160_000), votes),
    "rows n, from Parquet to the sum": ("n", (65_536, 262_144, 1_048_576), from_files),
    "questions, race 50 x 256, d 16": ("queries", (1_000, 4_000, 16_000, 64_000), questions),
}


def main() -> None:
    args = parser(__doc__ or "").parse_args()
    rows: list[list[object]] = []
    for name, (letter, sizes, made) in AXES.items():
        jobs = [made(size) for size in sizes]
        took = [float("inf")] * len(jobs)
        for _ in range(RUNS):
            for at, job in enumerate(jobs):
                start = time.process_time()
                job()
                took[at] = min(took[at], time.process_time() - start)
        slope = np.polyfit(np.log(sizes[-3:]), np.log(took[-3:]), 1)[0]
        each = 1e9 * took[-1] / sizes[-1]
        rows.append(
            [
                name,
                f"{letter} = {sizes[0]:,} to {sizes[-1]:,}",
                *(f"{took[i]:.3f}" for i in (0, -1)),
                f"{slope:.2f}",
                f"{each:,.0f}",
            ]
        )
        print(*rows[-1], flush=True)
    head = ["what grows", "sizes", "least, s", "largest, s", "exponent", "ns a unit at the largest"]
    text = (
        table(head, rows)
        + "\n\n"
        + beyond({str(row[0]): float(str(row[5]).replace(",", "")) for row in rows})
    )
    print(text)
    if args.write:
        write_section("growth", text, "python benchmarks/growth.py --write")


def beyond(each: dict[str, float]) -> str:
    """Say what 10^9 and 10^12 rows would take: nanoseconds a row, times rows, over cores that are 70 % used."""
    rows: list[list[object]] = []
    jobs = {
        "one sum by record, from Parquet": each["rows n, from Parquet to the sum"],
        "bounding 5 rows each to 3": each["persons, bound_contributions, 5 rows each"] / 5,
        "votes of 5 rows each": each["persons, vote_counts, 5 rows each"] / 5,
    }
    for name, ns in jobs.items():
        for n in (10**9, 10**12):
            hours = ns * n / 3.6e12
            rows.append([name, f"{n:.0e}", f"{hours:,.1f}", f"{hours * 3600 / 0.7 / 1000:,.0f}"])
    head = ["extrapolated", "rows", "core hours", "seconds on 1,000 cores, 70 % used"]
    return (
        "Assumed: the cost of a row at the largest size measured (so buckets of 160,000 persons: by person time grows faster than "
        "their number in one bucket), cores like this one, storage that feeds them (64 bytes a row), no cost of the shuffle "
        "itself (measured in `engines`: it is the larger part of a cluster's loss). 10^12 rows are beyond what a job takes today: "
        "2^31 records are refused (OS610), because no partial sum may leave int64.\n\n"
        + table(head, rows)
    )


if __name__ == "__main__":
    main()
