"""Sources: peak memory and CPU of each kind of file beside `.csv`, the same records in one process each.

python -m benchmarks.source_doors --write
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._results import write_figure
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.gate import check_entries
from opendp_sim.io.open import open_source

ROWS, WIDTH = 200_000, 8
NAMES = [f"x_{at}" for at in range(WIDTH)]
RECORDS = Records((Column("x", f"array[f64, {WIDTH}]", bounds=(-9.0, 9.0)),))
GERMAN = {"delimiter": ";", "decimal": ","}
DOORS: dict[str, tuple[str, Any]] = {
    "csv": ("csv", "t.csv"),
    "csv, decimal comma": ("csv", {"file": "german.csv", **GERMAN}),
    "csv.gz": ("csv", "t.csv.gz"),
    "folder of 8 .csv": ("csv", "parts"),
    "jsonl": ("jsonl", "t.jsonl"),
    "arrow": ("arrow", "t.arrow"),
    "parquet": ("parquet", "t.parquet"),
    "npz": ("npz", "t.npz"),
    "npz, Fortran order": ("npz", "fortran.npz"),
    "sql, DuckDB": ("sql", {"file": "t.duckdb", "table": "t"}),
    "sql, SQLite": ("sql", {"file": "t.sqlite", "table": "t"}),
}


def write_files(folder: Path, values: np.ndarray) -> None:
    """Write the same records as every kind of file."""
    import sqlite3

    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write_csv(path: Path, rows: np.ndarray, delimiter: str = ",", decimal: str = ".") -> None:
        with path.open("w", newline="") as stream:
            writer = csv.writer(stream, delimiter=delimiter)
            writer.writerow(NAMES)
            writer.writerows([f"{v:.6f}".replace(".", decimal) for v in row] for row in rows)

    write_csv(folder / "t.csv", values)
    write_csv(folder / "german.csv", values, ";", ",")
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes(), 6))
    (folder / "parts").mkdir()
    for at, part in enumerate(np.array_split(values, 8)):
        write_csv(folder / "parts" / f"{at}.csv", part)
    with (folder / "t.jsonl").open("w") as stream:
        for row in values.tolist():
            stream.write(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n")
    table = pa.table({name: values[:, at] for at, name in enumerate(NAMES)})
    with pa.ipc.new_file(folder / "t.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=65536)
    pq.write_table(table, folder / "t.parquet")
    np.savez(folder / "t.npz", x=values)
    np.savez(folder / "fortran.npz", x=np.asfortranarray(values))
    with duckdb.connect(str(folder / "t.duckdb")) as db:
        db.from_arrow(table).create("t")
    with sqlite3.connect(folder / "t.sqlite") as db:
        db.execute(f"CREATE TABLE t ({', '.join(f'{name} REAL' for name in NAMES)})")
        db.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values.tolist())


def peak_memory() -> float:
    """Return this process's peak resident memory in MiB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def read(door: str, folder: Path) -> None:
    """Read every record of a door behind the gate; print CPU, peak memory and a sum."""
    kind, place = DOORS[door]
    for library in ("pyarrow.csv", "pyarrow.parquet", "duckdb", "sqlite3"):
        import_module(library)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = peak_memory()
    start, total = time.process_time(), 0.0
    for block in open_source(kind, place, RECORDS, folder).blocks():
        check_entries(block, RECORDS)
        total += float(np.round(block["x"] * 1e6).sum())
    spent = time.process_time() - start
    print(json.dumps([spent, peak_memory() - before, total]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace the figure")
    parser.add_argument("door", nargs="*")
    given = parser.parse_args()
    if given.door:
        read(given.door[0], Path(given.door[1]))
        return
    values = np.round(np.random.default_rng(1).normal(size=(ROWS, WIDTH)).clip(-8, 8), 6)
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name), values)
        found = {}
        for door in DOORS:
            words = [sys.executable, "-m", "benchmarks.source_doors", door, name]
            run = subprocess.run(words, check=True, capture_output=True, text=True)
            found[door] = json.loads(run.stdout)
    (total,) = {round(one[2]) for one in found.values()}
    assert total == round(float(np.round(values * 1e6).sum()))
    base = found["csv"]
    lines = [
        "| source | CPU, us a row | of .csv | peak memory added, MiB | of .csv |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {door} | {1e6 * spent / ROWS:.2f} | {spent / base[0]:.2f} | {peak:.0f} | {peak / base[1]:.2f} |"
        for door, (spent, peak, _) in found.items()
    ]
    text = "\n".join(lines)
    print(text)
    if given.write:
        write_figure("promises/doors", text, "python -m benchmarks.source_doors --write")


if __name__ == "__main__":
    main()
