"""An estimator beside the same spec over Parquet: time, and whether the table is copied.

python -m benchmarks.sklearn_speed [--write] [--rows 49000] [--columns 384] [--rounds 5]
"""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import opendp_sim as sim
from benchmarks._results import parser, table as markdown, write_figure
from opendp_sim.sklearn import DPNearestCentroid

CLASSES = list(range(10))


def parquet(folder: Path, X: np.ndarray, y: np.ndarray) -> Path:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    pq.write_table(pa.table({"x": lists, "label": y}), folder / "t.parquet")
    return folder / "t.parquet"


def peak_of(est, X, y) -> float:
    """Return the MiB that Python and numpy hold at most during one fit."""
    tracemalloc.start()
    est.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def measured(rows: int, columns: int, rounds: int):
    draw = np.random.default_rng(1)
    y = draw.integers(0, 10, rows)
    X = (draw.normal(size=(10, columns))[y] + draw.normal(size=(rows, columns))).astype(np.float32)
    told = {"bounds": (-6, 6), "classes": CLASSES}
    out = []
    with TemporaryDirectory() as folder:
        file = parquet(Path(folder), X, y)
        for est in (DPNearestCentroid(**told),):
            plan = est.fit(X[:500], y[:500]).plan_
            text = plan.to_yaml().replace("memory: records", f"parquet: {file}")
            spec = sim.plan(text)
            fits, runs = [], []
            for at in range(rounds):
                start = time.perf_counter()
                sim.apply(spec, into=Path(folder) / f"{type(est).__name__}{at}")
                runs.append(time.perf_counter() - start)
                start = time.perf_counter()
                est.fit(X, y)
                fits.append(time.perf_counter() - start)
            half, whole = (peak_of(est, X[:n], y[:n]) for n in (rows // 2, rows))
            ratio = np.median(np.array(fits) / np.array(runs))
            out.append(
                [
                    type(est).__name__,
                    f"{np.median(fits):.2f}",
                    f"{np.median(runs):.2f}",
                    f"{ratio:.2f}",
                    f"{half:.0f}, {whole:.0f}",
                    f"{X.nbytes / 2**20:.0f}",
                ]
            )
    return out


if __name__ == "__main__":
    ask = parser(__doc__)
    ask.add_argument("--rows", type=int, default=49_000)
    ask.add_argument("--columns", type=int, default=384)
    ask.add_argument("--rounds", type=int, default=5)
    asked = ask.parse_args()
    head = [
        "estimator",
        "fit, s",
        "same spec over Parquet, s",
        "ratio",
        "peak of half the rows, of all, MiB",
        "table, MiB",
    ]
    text = markdown(head, measured(asked.rows, asked.columns, asked.rounds))
    text += (
        f"\n\n{asked.rows:,} x {asked.columns} float32, 10 classes; in turns, {asked.rounds} rounds, medians (the ratio is the "
        "median of rounds). The peak is of what Python and numpy allocate during one fit (tracemalloc): blocks, whatever the number of rows."
    )
    print(text)
    if asked.write:
        write_figure(
            "engines/sklearn", text, "python -m benchmarks.sklearn_speed --rounds 2 --write"
        )
