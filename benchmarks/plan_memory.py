"""The memory that a plan states, beside what the process then held at most: each run in a process of its own.

python -m benchmarks.plan_memory [--write]

What a plan adds to what the process holds when it has opened no data is compared with what the run added.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._results import parser, table, write_section

COMMAND = "python -m benchmarks.plan_memory --write"
STABLE = {"p_stable_l2": {"width": 2.0}}
STEPS: dict[str, dict[str, Any]] = {
    "moments": {"moments_sketch": {}},
    "64 thresholds": {"threshold_sketch": {"thresholds": 64}},
    "moment tree, 8 levels": {"moment_tree": {"levels": 8}},
    "race 100 x 256": {
        "race_sketch": {"repetitions": 100, "buckets": 256, "family": STABLE, "seed": 1}
    },
    "race 1,000 x 4,096": {
        "race_sketch": {"repetitions": 1000, "buckets": 4096, "family": STABLE, "seed": 1}
    },
    "slices, 8,192 x 128": {"slice_sketch": {"seed": 1}},
    "Fourier, 500": {
        "fourier_sketch": {
            "frequencies": 500,
            "kernel": {"gaussian": {"bandwidth": 2.0}},
            "seed": 1,
        }
    },
}
CASES = (
    ("moments", "parquet", 10**6, 16),
    ("moments", "parquet", 10**7, 4),
    ("moments", "csv", 2 * 10**5, 16),
    ("moments", "npz", 10**6, 16),
    ("64 thresholds", "parquet", 10**6, 16),
    ("64 thresholds", "npz", 10**5, 256),
    ("moment tree, 8 levels", "parquet", 10**6, 16),
    ("race 100 x 256", "parquet", 10**6, 16),
    ("race 100 x 256", "csv", 10**5, 16),
    ("race 1,000 x 4,096", "npz", 10**5, 16),
    ("race 1,000 x 4,096", "parquet", 10**6, 16),
    ("slices, 8,192 x 128", "npz", 10**5, 16),
    ("slices, 8,192 x 128", "parquet", 10**6, 16),
    ("Fourier, 500", "parquet", 10**5, 16),
    ("Fourier, 500", "parquet", 10**6, 16),
    ("Fourier, 500", "npz", 10**5, 64),
)


def write_rows(path: Path, kind: str, rows: int, width: int) -> None:
    values = np.random.default_rng(1).uniform(-1, 1, (rows, width)).astype(np.float32)
    if kind == "npz":
        np.savez(path, x=values)
    elif kind == "csv":
        head = ",".join(f"x_{j}" for j in range(width))
        np.savetxt(path, values, delimiter=",", fmt="%.5f", header=head, comments="")
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {f"x_{j}": values[:, j] for j in range(width)}
        pq.write_table(pa.table(columns), path, row_group_size=2**17)


def one(step: str, kind: str, width: int, folder: Path) -> None:
    """Run one case and print what was stated and what was held."""
    from opendp_sim.core.memory import process_memory
    from opendp_sim.dsl import apply, plan_of
    from opendp_sim.dsl.builder import program

    columns = {"x": {"dtype": f"array[f32, {width}]", "bounds": [-1, 1]}}
    made = (
        program("t", folder=str(folder))
        .data("t", source={kind: f"t.{kind}"}, columns=columns)
        .privacy(unit={"add_remove": 1, "of": "row"}, measure="zcdp", budget={"rho": 1.0})
        .stage(
            "s", "t", steps=[{"select": {"features": "x"}}, {"quantize": {"bits": 8}}, STEPS[step]]
        )
        .stage("n", "s", release={"noise": "gaussian", "spend": 1.0})
        .output("o", "n", save="o.npz")
    )
    plan = plan_of(made.draft())
    before = process_memory()
    apply(plan, into=folder)
    stated = plan.plain()["memory_bytes"]
    print(json.dumps([before, stated, process_memory() - before]))


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--one", nargs=4, default=None)
    args = options.parse_args()
    if args.one:
        step, kind, width, folder = args.one
        one(step, kind, int(width), Path(folder))
        return
    found = []
    for step, kind, rows, width in CASES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write = "from benchmarks.plan_memory import write_rows; from pathlib import Path; "
            call = f"write_rows(Path({str(folder / f't.{kind}')!r}), {kind!r}, {rows}, {width})"
            env = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
            subprocess.run([sys.executable, "-c", write + call], check=True, env=env)
            child = [sys.executable, "-m", "benchmarks.plan_memory", "--one"]
            done = subprocess.run(
                [*child, step, kind, str(width), name],
                check=True,
                env=env,
                capture_output=True,
                text=True,
            )
        before, stated, added = (v / 2**20 for v in json.loads(done.stdout.splitlines()[-1]))
        ratio = (before + stated) / (before + added)
        found.append([step, kind, f"{rows:,} x {width}", before, stated, added, f"{ratio:.2f}"])
        print(found[-1], flush=True)
    head = [
        "sketch",
        "file",
        "rows",
        "before, MiB",
        "stated for the run, MiB",
        "added by the run, MiB",
        "stated peak / peak of the process",
    ]
    text = table(head, found)
    print(text)
    if args.write:
        write_section("plan: memory", text, COMMAND)


if __name__ == "__main__":
    main()
