"""Resident memory of a chunked build: 20 million rows of 16 columns that never are in memory at once.

Run: ``python benchmarks/race_memory.py [--write] [--rows N] [--workers N]``.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _results import parser, table, write_section

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.fold import build_sketch
from opendp_sim.io.gate import gated_blocks
from opendp_sim.io.protocol import from_chunks

WIDTH, CHUNK = 16, 100_000
RECORDS = Records((Column("x", f"array[f32, {WIDTH}]", bounds=(-4.0, 4.0)),))


def chunks(rows: int) -> Iterator[dict[str, Any]]:
    """Draw the same rows every time, a chunk at a time."""
    generator = np.random.Generator(np.random.Philox(key=1))
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        yield {"x": generator.standard_normal((count, WIDTH), dtype=np.float32)}


def resident() -> float:
    """Return the largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--workers", type=int, default=2)
    args = options.parse_args()
    before = resident()
    source = from_chunks(RECORDS, lambda: chunks(args.rows))
    mechanisms = [
        lookup("select")(features="x"),
        lookup("quantize")(bits=12),
        lookup("race_sketch")(
            repetitions=100, buckets=1024, family={"p_stable_l2": {"width": 6.0}}, seed=1
        ),
    ]
    stages = bind_steps(RECORDS, Symmetric(), mechanisms)
    start = time.process_time()
    flat = build_sketch(stages, gated_blocks(source, "enforce"), workers=args.workers)
    spent, peak = time.process_time() - start, resident()
    released = stages[-1].claim.output.split(flat)
    assert (released["counts"].sum(axis=2) == args.rows).all()
    assert peak < 1024, f"{peak:.0f} MiB"
    text = table(
        ["rows", "columns", "workers", "before [MiB]", "peak [MiB]", "CPU [s]", "must be below"],
        [
            [
                f"{args.rows:,}",
                WIDTH,
                args.workers,
                round(before),
                round(peak),
                round(spent, 1),
                "1,024 MiB",
            ]
        ],
    )
    text += (
        "\n\nR = 100, 1,024 buckets; float32 chunks through the gate (`enforce`), `select`, "
        f"`quantize` (12 bits) and `race_sketch`; the rows alone would take "
        f"{args.rows * WIDTH * 4 / 2**20:,.0f} MiB. CPU time includes drawing the rows. Load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    )
    print(text)
    if args.write:
        write_section("RACE: memory", text, "python benchmarks/race_memory.py --write")


if __name__ == "__main__":
    main()
