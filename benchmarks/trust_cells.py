"""Mutated cells through csv, parquet, npz, memory and session lines: the same records in any blocks and order.

Each round writes one table of odd cells by every route, reads it under `enforce` in blocks of 1, 3 and all, and again with
the records turned around. A failure is an exception, a result that depends on blocks or order, or a route that reads a
text cell otherwise than the others.

python benchmarks/trust_cells.py --cells 100000 --write
"""

from __future__ import annotations

import csv
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from benchmarks._results import parser, table, write_figure  # noqa: E402
from opendp_sim.core.errors import DataError  # noqa: E402
from opendp_sim.domains.records import Column, Records  # noqa: E402
from opendp_sim.dsl.run.session import checked_columns  # noqa: E402
from opendp_sim.io.gate import gated_blocks  # noqa: E402
from opendp_sim.io.open import open_source  # noqa: E402
from opendp_sim.io.protocol import Source, from_arrays  # noqa: E402

RECORDS = Records(
    (
        Column("v", "str"),
        Column("k", "category", keys=("a", 5, "é")),
        Column("i", "int64", bounds=(-9.0, 9.0)),
        Column("f", "float64", bounds=(-9.0, 9.0)),
    )
)
SEEDS = {
    "v": ["a", " a ", "None", "", "nan", "x" * 70_000, "5", "é", "a\0", '"', ",", "\r", "a\nb"],
    "k": ["a", "5", "5.0", " é", "", "b", "05", "1e999999999", "a\0"],
    "i": ["3", "3.0", "-3e0", "9999999999999999999999", "", "x", "1_0", "nan", "1e999999999"],
    "f": ["0.5", "-inf", "1e400", "nan", "", "0x1", "9" * 500, "1_0.5", " 2 ", "-0.0"],
}
ROWS = 60


def cell(rng: random.Random, name: str) -> str:
    """Return a seed, or one with a character changed, doubled or lost."""
    found = rng.choice(SEEDS[name])
    if rng.random() < 0.5:
        at = rng.randrange(len(found) + 1)
        found = (
            found[:at]
            + rng.choice(["", "a", "0", ".", "e", "-", " ", "\t", "é", "_"])
            + found[at + 1 :]
        )
    return found


def rows_of(source: Source, rows: int | None) -> list[tuple[Any, ...]]:
    """Return the records that `enforce` keeps, in order."""
    out: list[tuple[Any, ...]] = []
    for block in gated_blocks(source, "enforce", rows)():
        out += zip(*(block[c.name].tolist() for c in RECORDS.columns), strict=True)
    return out


def routes(cells: dict[str, list[str]], folder: Path) -> dict[str, Source]:
    """Return the same cells as sources: text everywhere, typed by route where the route has types."""
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(cells)
        writer.writerows(zip(*cells.values(), strict=True))
    numbers = {
        n: from_arrays(RECORDS, {m: boxed(c) for m, c in cells.items()}) for n in ("memory",)
    }
    block = next(iter(numbers["memory"].blocks(10**6)))
    typed = {"v": cells["v"], "k": cells["k"], "i": block["i"], "f": block["f"]}
    pq.write_table(pa.table(typed), folder / "t.parquet")
    held = {n: np.array(v) for n, v in typed.items()}
    np.savez(folder / "t.npz", **held)
    files = {k: open_source(k, f"t.{k}", RECORDS, folder) for k in ("csv", "parquet", "npz")}
    return {**files, **numbers}


def boxed(cells: list[str]) -> np.ndarray:
    """Return cells as an array of objects."""
    return np.array(cells, dtype=object)


def session(cells: dict[str, list[str]], kept: list[tuple[Any, ...]]) -> int:
    """Return how many names a session line reads otherwise than the files."""
    wrong = 0
    one = Records((RECORDS.columns[0],))
    for name in cells["v"]:
        try:
            found = checked_columns(one, [{"v": name}])["v"].tolist()
        except DataError:
            found = [""]
        expected = next(iter(from_arrays(one, {"v": [name]}).blocks()))["v"].tolist()
        wrong += found != expected
    return wrong


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--cells", type=int, default=100_000, help="mutated cells")
    args = options.parse_args()
    rng, tried, faults = random.Random(13), Counter[str](), Counter[str]()  # noqa: S311 - no secret
    with tempfile.TemporaryDirectory() as name:
        while sum(tried.values()) < args.cells:
            cells = {c.name: [cell(rng, c.name) for _ in range(ROWS)] for c in RECORDS.columns}
            turned = {n: column[::-1] for n, column in cells.items()}
            first: list[tuple[Any, ...]] | None = None
            for at, source in routes(cells, Path(name)).items():
                tried[at] += ROWS * len(cells)
                try:
                    found = [rows_of(source, rows) for rows in (None, 1, 3)]
                except Exception as error:  # noqa: BLE001 - counted
                    faults[f"{at}: {type(error).__name__}"] += 1
                    continue
                faults[f"{at}: blocks"] += found[0] != found[1] or found[0] != found[2]
                first = found[0] if first is None else first
                if (
                    at != "npz"
                ):  # its fixed width drops the NULs at the end of a text: numpy's doing
                    faults[f"{at}: another route"] += found[0] != first
                kept = found[0]
            tried["session"] += ROWS
            faults["session: names"] += session(cells, kept)
            for at, source in routes(turned, Path(name)).items():
                faults[f"{at}: order"] += at == "csv" and rows_of(source, None)[::-1] != first
    rows = [[at, tried[at], sum(n for k, n in faults.items() if k.startswith(at))] for at in tried]
    seen = ", ".join(f"{k} {n}" for k, n in faults.items() if n) or "none"
    text = table(["route", "cells", "faults"], rows) + f"\n\nFaults: {seen}."
    print(text)
    if args.write:
        command = f"python benchmarks/trust_cells.py --cells {args.cells} --write"
        write_figure("survival/cells", text, command)


if __name__ == "__main__":
    main()
