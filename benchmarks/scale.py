"""Scale: text files, votes and engines, as ratios of CPU time alternated in one run; equal bits asserted.

python benchmarks/scale.py            # csv and votes
python benchmarks/scale.py passes     # the gate in the pass of the first sum, and in one of its own
python benchmarks/scale.py dask       # one thread against Dask's two processes, CPU of all processes
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Column, Records
from opendp_sim.io import csv_files as delimited
from opendp_sim.io.conform import conform
from opendp_sim.io.file_spec import FileOptions
from opendp_sim.transformations.sketches.counts.vote_counts import VoteCounts

ROUNDS = 3


def cpu(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def least(jobs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the least CPU seconds of each job, over rounds in which they alternate."""
    rounds = [{name: cpu(job) for name, job in jobs.items()} for _ in range(ROUNDS)]
    return {name: min(one[name] for one in rounds) for name in jobs}


def csv(folder: Path, rows: int = 100_000) -> None:
    from pyarrow import csv as arrow

    path, names = folder / "t.csv", [f"x_{j}" for j in range(16)]
    values = np.random.default_rng(1).normal(size=(rows, 16))
    np.savetxt(path, values, delimiter=",", fmt="%.6f", header=",".join(names), comments="")
    records = Records((Column("x", "array[f32, 16]", bounds=(-4.0, 4.0)),))

    def by(way: Any) -> Any:
        pieces = [conform(p, records)["x"] for p in way(FileOptions(path, {}), records, 65536)]
        return np.concatenate(pieces)

    ways = {"csv module": delimited._by_lines, "chunks": delimited._by_chunks}
    assert len({by(way).tobytes() for way in ways.values()}) == 1
    told = least(
        {"pyarrow": lambda: arrow.read_csv(path)} | {n: lambda w=w: by(w) for n, w in ways.items()}
    )
    for name, seconds in told.items():
        print(
            f"csv {rows:,} x 16: {name:<10} {1e6 * seconds / rows:6.2f} us a row, {seconds / told['pyarrow']:5.1f} of pyarrow"
        )


def votes(rows: int = 1_000_000) -> None:
    import polars as pl

    g = np.random.default_rng(7)
    who, what = g.integers(0, rows // 5, rows), np.minimum(g.zipf(1.3, rows), 10**6)
    blocks = [
        {"who": who[a : a + 65536], "what": what[a : a + 65536]} for a in range(0, rows, 65536)
    ]
    records = Records((Column("who", "int64"), Column("what", "int64")))
    claims = {
        m: VoteCounts(item="what", max_items=m).bind(records, IdDistance("who")) for m in (None, 4)
    }
    frame = pl.DataFrame({"who": who, "what": what})
    peer = lambda: frame.unique().group_by("what").len().sort("what")  # noqa: E731 - a job
    found = claims[None].fold(lambda: blocks)
    assert found["votes"].tolist() == peer()["len"].to_list()
    told = least(
        {
            "polars": peer,
            "ours": lambda: claims[None].fold(lambda: blocks),
            "ours, max_items 4": lambda: claims[4].fold(lambda: blocks),
        }
    )
    for name, seconds in told.items():
        print(
            f"votes {rows:,}: {name:<18} {seconds:6.2f} s, {seconds / told['polars']:5.2f} of polars"
        )


def passes(folder: Path, rows: int = 400_000) -> None:
    """CPU of `apply` with the gate in the pass of the first sum, and with a pass of its own as before."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from opendp_sim.dsl import apply, plan_of
    from opendp_sim.dsl.builder import program
    from opendp_sim.dsl.run import execute
    from opendp_sim.dsl.run.inputs import open_private

    values = np.random.default_rng(1).uniform(-1, 1, (rows, 16)).astype(np.float32)
    pq.write_table(pa.table({f"x_{j}": values[:, j] for j in range(16)}), folder / "t.parquet")
    columns = {"x": {"dtype": "array[f32, 16]", "bounds": [-1, 1]}}
    for name, step in (
        ("moments", {"moments_sketch": {}}),
        ("thresholds", {"threshold_sketch": {"thresholds": 64}}),
    ):
        made = program("t", folder=str(folder)).data(
            "t", source={"parquet": "t.parquet"}, columns=columns
        )
        made = made.privacy(
            unit={"add_remove": 1, "of": "row"}, measure="zcdp", budget={"rho": 1.0}
        )
        made = made.stage(
            "s", "t", steps=[{"select": {"features": "x"}}, {"quantize": {"bits": 8}}, step]
        )
        made = made.stage("n", "s", release={"noise": "gaussian", "spend": 1.0})
        plan = plan_of(made.output("o", "n", save="o.npz").draft())

        def run(*, apart: bool, plan: Any = plan) -> None:
            real = execute.open_private
            if apart:
                execute.open_private = lambda *args, **_: open_private(*args)
            try:
                apply(plan, into=folder)
            finally:
                execute.open_private = real

        told = least({"one": lambda: run(apart=False), "two": lambda: run(apart=True)})
        print(
            f"apply, {name}, {rows:,} x 16: {told['two']:.2f} s in two passes, {told['one']:.2f} s in one: {told['one'] / told['two']:.2f}"
        )


def dask(folder: Path, rows: int = 300_000) -> None:
    import distributed
    import psutil

    from opendp_sim.engines.engine import Local
    from opendp_sim.engines.on_dask import Dask
    from tests.engines import made

    made.write(folder, made.table(rows), files=2, groups=2)
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        pids = client.run(lambda: __import__("os").getpid()).values()

        def spent() -> float:
            workers = sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)
            return workers + time.process_time()

        for name in ("race", "persons", "words"):
            plan, told = made.plan_for(name, folder), {}
            for _ in range(2):  # the first warms up
                for kind, engine in (("one thread", Local(4, 1)), ("dask", Dask(client, 4))):
                    start = spent()
                    told[kind] = engine.sums(plan)["n"], spent() - start
            assert made.same(told["one thread"][0], told["dask"][0])
            one, two = told["one thread"][1], told["dask"][1]
            print(
                f"{name:<8} {rows:,} rows: one thread {one:.1f} s, dask {two:.1f} s of CPU: efficiency {one / two:.2f}; equal bits"
            )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made_in:
        what = sys.argv[1]
        votes() if what == "votes" else {"csv": csv, "dask": dask, "passes": passes}[what](
            Path(made_in)
        )
