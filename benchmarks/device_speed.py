"""Sums and neighbours on a card beside the same machine's CPU: equal bits first, then seconds of wall.

    python -m benchmarks.device_speed                     # `cuda`; about three minutes on a large machine
    python -m benchmarks.device_speed --device stand-in --scale 0.001

Each line is asked of the code that users run: `build_sketch` (blocks in memory, rows to a sketch, with every
transfer, and the records that are counted again) and `Pool.near` (queries among resident rows). The CPU has one
worker a core. Least of three runs; one JSON object a line, the tables last.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks._results import parser, table, write_figure
from opendp_sim.core.device import device_named, using_device
from opendp_sim.core.device.stand_in import StandIn
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, RealRows, Rows
from opendp_sim.dsl import plan_of
from opendp_sim.dsl.builder import program
from opendp_sim.engines.on_dask import IN_MEMORY, Dask
from opendp_sim.io.fold import build_sketch
from opendp_sim.measurements.knn._impl.features import Lens
from opendp_sim.measurements.knn._impl.pool import Pool
from opendp_sim.measurements.linear._impl.descent import DeviceGradients, gradient, whole_weights
from opendp_sim.measurements.linear._impl.scaled import GRID_SIDE, ScaledRows

CORES = len(os.sched_getaffinity(0))
RUNS = 3


def normal(count: int, width: int, dtype: type = np.float64) -> np.ndarray:
    draws, out = np.random.default_rng(5), np.empty((count, width), dtype)
    for start in range(0, count, 2**16):
        part = out[start : start + 2**16]
        part[:] = draws.standard_normal(part.shape, dtype=np.float32) * 0.3
    return out


def seconds(call: Callable[[], Any], runs: int = RUNS) -> tuple[float, Any]:
    found, times = None, []
    for _ in range(runs):
        start = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - start)
    return min(times), found


SKETCHES: dict[str, tuple[int, int, type, list[tuple[str, dict[str, Any]]]]] = {
    "race": (4_000_000, 32, np.float64, [
        ("race_sketch", {"repetitions": 200, "buckets": 1024, "seed": 1,
                         "family": {"p_stable_l2": {"width": 4.0}}})]),
    "race of signs": (400_000, 32, np.float64, [
        ("race_sketch", {"repetitions": 200, "buckets": 1024, "seed": 1, "family": {"srp": {"bits": 6}}})]),
    "fourier, random": (200_000, 64, np.float64, [
        ("fourier_sketch", {"frequencies": 8000, "seed": 1, "features": "random",
                            "kernel": {"gaussian": {"bandwidth": 2.0}}})]),
    "fourier, lattice": (100_000, 4, np.float64, [
        ("fourier_sketch", {"frequencies": 8000, "seed": 1, "kernel": {"gaussian": {"bandwidth": 0.4}}})]),
    "second moments": (400_000, 256, np.float64, [("second_moments", {"radius": 1.5})]),
    "projection and fourier": (400_000, 768, np.float32, [
        ("jl_projection", {"dimension": 128, "seed": 1}),
        ("fourier_sketch", {"frequencies": 1000, "seed": 1, "features": "random",
                            "kernel": {"gaussian": {"bandwidth": 8.0}}})]),
}  # fmt: skip


def sketches(device: Any, scale: float, names: list[str]) -> Iterator[list[object]]:
    for name in names:
        count, width, dtype, steps = SKETCHES[name]
        values = normal(max(1, int(count * scale)), width, dtype)
        real = RealRows(width=width, lower=(-1.0,), upper=(1.0,))
        made = [lookup("quantize")(bits=12), *(lookup(key)(**given) for key, given in steps)]
        stages = bind_steps(real, Symmetric(), made)
        size = max(256, min(65536, 2**20 // width))  # as `io.blocks.block_rows`

        def opened(values: np.ndarray = values, size: int = size) -> Iterator[Rows]:
            return (Rows(values[a : a + size]) for a in range(0, len(values), size))

        cpu, wanted = seconds(lambda: build_sketch(stages, opened, workers=CORES))  # noqa: B023
        row: list[object] = [name, len(values), width]
        with using_device(device):
            build_sketch(stages, lambda: iter([Rows(values[:size])]), workers=1)  # noqa: B023 - kernels compile
            best = float("inf")
            for workers in (1, 2, 4):
                card, found = seconds(lambda w=workers: build_sketch(stages, opened, workers=w), 2)  # noqa: B023
                equal = bool(np.array_equal(found, wanted))
                told = {
                    "what": name,
                    "workers": workers,
                    "seconds": card,
                    "cpu": cpu,
                    "equal": equal,
                }
                print(json.dumps(told), flush=True)
                assert equal, name
                best = min(best, card)
        yield [*row, "yes", best, cpu, cpu / best]


def neighbours(device: Any, scale: float) -> Iterator[list[object]]:
    count, width, asked = max(1000, int(1_000_000 * scale)), 768, 1000 if scale >= 1 else 50
    grid = GridRows(width=width, labels=("a",), unit=1 / 2048, lower=(-2048,), upper=(2048,))
    lens = Lens.plain(grid, normalise=True)
    values = np.rint(normal(count, width, np.float32) * 1000)
    labels, owners = np.zeros(count, np.int64), np.arange(count)
    pools = {}
    for name, where in (("cpu", None), ("card", device)):
        start = time.perf_counter()
        pools[name] = Pool(lens, lens.dtype("bench"), None, where)
        pools[name].add(values, labels, owners)
        print(
            json.dumps(
                {"what": "rows seen", "where": name, "seconds": time.perf_counter() - start}
            ),
            flush=True,
        )
    queries = lens.see_queries(np.rint(normal(asked, width) * 1000 + 40), lens.dtype("bench"))
    norms = np.square(queries.astype(np.float64)).sum(axis=1).astype(np.int64)
    first = next(iter(pools["cpu"].products(queries[:1])))
    limits = np.full(asked, int(np.sort(first)[-min(400, count // 2)]))

    def near(name: str, some: slice) -> list[Any]:
        given = queries[some], norms[some], limits[some]
        return list(pools[name].near(*given, angular=True))

    for what, some, runs in (
        ("a batch of queries", slice(0, asked), 2),
        ("one query", slice(0, 1), 5),
    ):
        cpu, wanted = seconds(lambda s=some, r=runs: near("cpu", s), runs)
        near("card", some)
        card, found = seconds(lambda s=some: near("card", s), 5)
        equal = all(
            np.array_equal(a, b)
            for x, y in zip(found, wanted, strict=True)
            for a, b in zip(x, y, strict=True)
        )
        size = sum(len(places) for places, _ in wanted)
        print(
            json.dumps({"what": what, "near": size, "seconds": card, "cpu": cpu, "equal": equal}),
            flush=True,
        )
        assert equal, what
        asked_now = len(queries[some])
        yield [
            f"{what} among rows that stay",
            f"{count} and {asked_now}",
            width,
            "yes",
            card,
            cpu,
            cpu / card,
        ]


def gradients(device: Any, scale: float) -> Iterator[list[object]]:
    count, width, classes = max(1000, int(1_000_000 * scale)), 64, 10
    grid = GridRows(width=width, labels=("a",), unit=1 / 2048, lower=(-2048,), upper=(2048,))
    rows = ScaledRows(grid, by_length=True)(np.rint(normal(count, width, np.float32) * 1000))
    labels = np.random.default_rng(2).integers(0, classes, count)
    drawn = np.random.default_rng(3).normal(0, 0.5, (width + 1, classes))
    whole, f = whole_weights(drawn, GRID_SIDE**2 + 102**2)
    cpu, wanted = seconds(lambda: gradient(rows, labels, whole, f), 2)
    sums = DeviceGradients(device, rows, labels, classes)
    card, found = seconds(lambda: sums(whole, f), 5)
    equal = bool(np.array_equal(found, wanted))
    told = {"what": "softmax gradient", "seconds": card, "cpu": cpu, "equal": equal}
    print(json.dumps(told), flush=True)
    assert equal
    yield ["a step of a softmax model of 10 classes", count, width, "yes", card, cpu, cpu / card]


def cluster(name: str, scale: float) -> Iterator[list[object]]:
    """Sum up Parquet files by workers of Dask, each on the one card, and by a worker a core without it."""
    import dask
    import distributed

    count, width, few = max(4096, int(1_000_000 * scale)), 64, 4
    words = {"seed": 1, "features": "random", "kernel": {"gaussian": {"bandwidth": 2.0}}}
    steps = [{"select": {"features": "x"}}, {"quantize": {"bits": 12}}]
    steps += [{"fourier_sketch": {"frequencies": 8000, **words}}]
    columns: dict[str, Any] = {"x": {"dtype": f"array[f32, {width}]", "bounds": [-1, 1]}}
    with tempfile.TemporaryDirectory() as folder:
        for part in range(16):
            values = normal(count // 16, width, np.float32)
            table = pa.table({f"x_{j}": values[:, j] for j in range(width)})
            pq.write_table(table, Path(folder) / f"{part:02}.parquet")
        made = program("cluster", folder=folder)
        made = made.data("rows", source={"parquet": "*.parquet"}, columns=columns, ingest="enforce")
        made = made.privacy(
            unit={"add_remove": 1, "of": "row"}, measure="zcdp", budget={"rho": 1.0}
        )
        made = made.stage("s", "rows", steps=steps)
        made = made.stage("n", "s", release={"noise": "gaussian", "scale": 1e9})
        plan = plan_of(made.output("o", "n", save="o.npz").draft())
        found: dict[str, tuple[float, Any]] = {}
        for what, workers, card in (("cores", CORES, None), ("card", few, name)):
            with (
                dask.config.set(IN_MEMORY),
                distributed.LocalCluster(
                    workers, threads_per_worker=1, dashboard_address=None
                ) as own,
                distributed.Client(own) as client,
            ):
                engine = Dask(client, parts=16)
                engine.sums(plan, card)  # plans are made, the card is proved in each worker
                found[what] = seconds(lambda e=engine, c=card: e.sums(plan, c)["n"], 2)
    (cpu, wanted), (card_s, sums) = found["cores"], found["card"]
    assert np.array_equal(wanted, sums)
    told = f"random fourier from Parquet, {few} workers of Dask on one card"
    print(json.dumps({"what": told, "seconds": card_s, "cpu": cpu, "equal": True}), flush=True)
    yield [told, count, width, "yes", card_s, cpu, cpu / card_s]


def main() -> None:
    asked = parser(__doc__)
    asked.add_argument("--device", default="cuda")
    asked.add_argument("--scale", type=float, default=1.0)
    asked.add_argument("--only", default="", help="names, with commas between; `neighbours` is one")
    asked.add_argument("--out", type=Path, default=None, help="also write the table there")
    given = asked.parse_args()
    start = time.perf_counter()
    device = device_named(StandIn(2**24) if given.device == "stand-in" else given.device)
    print(
        json.dumps(
            {"what": "proof", "device": device.name, "seconds": time.perf_counter() - start}
        ),
        flush=True,
    )
    every = [*SKETCHES, "gradients", "neighbours"] + ["cluster"] * (given.device != "stand-in")
    names = [n for n in given.only.split(",") if n] or every
    rows = list(sketches(device, given.scale, [name for name in names if name in SKETCHES]))
    if "gradients" in names:
        rows += gradients(device, given.scale)
    if "neighbours" in names:
        rows += neighbours(device, given.scale)
    if "cluster" in names:
        rows += cluster(given.device, given.scale)
    head = [
        "what",
        "rows",
        "columns",
        "equal bits",
        f"seconds on {device.name}",
        f"seconds on {CORES} cores",
        "times",
    ]
    text = table(head, rows)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n", "utf-8")
    if given.write:
        parts = (
            ("kernels", rows[: len(SKETCHES)]),
            ("linear", rows[len(SKETCHES) : -3]),
            ("knn", rows[-3:-1]),
            ("engines", rows[-1:]),
        )
        for room, some in parts:
            text = table(head, some)
            write_figure(f"{room}/device", text, "python -m benchmarks.device_speed --write")


if __name__ == "__main__":
    main()
