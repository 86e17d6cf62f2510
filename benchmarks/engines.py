"""Engines against one thread, as ratios of CPU time of all processes, warm, alternated; equal bits asserted.

python benchmarks/engines.py dask 10_000_000 race votes persons     # two processes
python benchmarks/engines.py spark 10_000_000 race votes persons    # local[2]: the JVM and its Python workers

Where the CPU goes is told by process: this one (the driver), Python workers, the JVM. Files are written in
blocks of a million rows; beyond ten, further names of the same blocks (hard links), which are read again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from opendp_sim.dsl import plan_of
from opendp_sim.dsl.builder import program
from opendp_sim.engines.engine import Local
from tests.engines import clusters, made

BLOCK, WIDTH, PARTS = 1_000_000, 16, 8
RACE = {
    "race_sketch": {
        "repetitions": 100,
        "buckets": 256,
        "seed": 1,
        "family": {"p_stable_l2": {"width": 1.0}},
    }
}
ROWS = [{"select": {"features": "x"}}, {"quantize": {"bits": 12}}]
SPECS: dict[str, tuple[str, list[Any]]] = {
    "race": ("row", [*ROWS, RACE]),
    "moments": ("row", [*ROWS, {"moments_sketch": {}}]),
    "votes": (
        "user",
        [{"vote_counts": {"item": "item", "items": list(range(50)), "max_items": 4}}],
    ),
    "persons": ("user", [{"bound_contributions": {"max_rows": 3}}, *ROWS, RACE]),
}


def write(folder: Path, rows: int, block: int = BLOCK) -> None:
    for at in range(rows // block):
        path = folder / f"b{at:04}.parquet"
        if at >= 10:
            os.link(folder / f"b{at % 10:04}.parquet", path)
            continue
        g = np.random.default_rng(at)
        columns = {f"x_{j}": g.uniform(-1, 1, block).astype(np.float32) for j in range(WIDTH)}
        columns["user"] = g.integers(0, rows // 5, block)
        columns["item"] = np.minimum(g.zipf(1.3, block), 60)
        pq.write_table(pa.table(columns), path, row_group_size=131_072, compression="none")


def plan_for(name: str, folder: Path) -> Any:
    of, steps = SPECS[name]
    columns: dict[str, Any] = {
        "user": {"dtype": "int64", "role": "privacy_id"},
        "item": {"dtype": "int64"},
        "x": {"dtype": f"array[f32, {WIDTH}]", "bounds": [-1, 1]},
    }
    one = program("bench", folder=str(folder)).data(
        "r", source={"parquet": "files"}, columns=columns
    )
    one = one.privacy(unit={"add_remove": 1, "of": of}, measure="zcdp", budget={"rho": 1.0})
    one = one.stage("s", "r", steps=steps)
    one = one.stage("n", "s", release={"noise": "gaussian", "scale": 1e9})
    return plan_of(one.output("o", "n", save="o.npz").draft())


def spent() -> dict[str, float]:
    """Return CPU seconds of this process, its Python workers and the JVM, the dead included."""
    import psutil  # of the extra `dask`

    found = {"driver": 0.0, "workers": 0.0, "jvm": 0.0}
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.Error:
            continue
        kind = "driver" if process == me else "jvm" if "java" in name else "workers"
        found[kind] += times.user + times.system
        if process != me and kind != "jvm":  # of those that ended
            found[kind] += times.children_user + times.children_system
    return found


def measured(job: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    before = spent()
    value, after = job(), spent()
    return value, {kind: after[kind] - before[kind] for kind in after}


@contextmanager
def engine(name: str, folder: Path) -> Iterator[Any]:
    from opendp_sim.engines.on_dask import _QUIET, Dask
    from opendp_sim.engines.on_spark import Spark

    if name == "dask":
        quiet = import_module("dask").config.set(_QUIET)  # as in a cluster that the engine starts
        with quiet, clusters.dask_cluster() as client:
            yield Dask(client, PARTS)
        return
    events = folder / "events"
    events.mkdir()
    more = {"spark.eventLog.enabled": "false", "spark.driver.memory": "4g"}
    with clusters.spark_session(events, "local[2]", **more) as session:
        yield Spark(session, PARTS)


def main(name: str, rows: int, specs: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as made_in:
        folder, small = Path(made_in), Path(made_in) / "small"
        for where, count in ((folder, rows), (small, 2 * BLOCK)):
            (where / "files").mkdir(parents=True)
            write(where / "files", count)
        with engine(name, folder) as cluster:
            for spec in specs:
                cluster.sums(plan_for(spec, small))  # warm: imports, the JVM's compiler
                plan = plan_for(spec, folder)
                warm = plan if rows <= 10_000_000 else plan_for(spec, small)
                for _ in range(2):  # plans, and kernels that are compiled after some work: here too
                    cluster.sums(warm)
                    Local(PARTS, 1).sums(warm)
                one, first = measured(lambda: Local(PARTS, 1).sums(plan)["n"])  # noqa: B023
                two, there = measured(lambda: cluster.sums(plan)["n"])  # noqa: B023
                _, last = measured(lambda: Local(PARTS, 1).sums(plan)["n"])  # noqa: B023
                assert made.same(one, two)
                base = (first["driver"] + last["driver"]) / 2
                told = ", ".join(f"{kind} {s:.1f}" for kind, s in there.items() if s > 0.05)
                print(
                    f"{spec:<8} {rows:,} rows: one thread {first['driver']:.1f} and {last['driver']:.1f} s, "
                    f"{name} {sum(there.values()):.1f} s ({told}): "
                    f"efficiency {base / sum(there.values()):.2f}; equal bits",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
