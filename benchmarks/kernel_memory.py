"""Resident memory of a chunked Fourier build: 20 million rows that never are in memory at once.

The rows are drawn a chunk at a time, built whole, in another chunking, permuted inside chunks, and as
two merged halves (the last three on the first rows only): the same bits.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import numpy as np

from benchmarks._kernels import pipeline
from benchmarks._results import parser, table, write_section
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.io.fold import build_sketch

WIDTH, CHUNK = 16, 100_000


def chunks(rows: int, *, halves: bool = False, permuted: bool = False) -> Iterator[Rows]:
    generator = np.random.Generator(np.random.Philox(key=1))
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        values = np.rint(generator.standard_normal((count, WIDTH)).clip(-4, 4) * 512)
        if permuted:
            values = values[np.random.Generator(np.random.Philox(key=start)).permutation(count)]
        cut = 31_337 if halves else count
        yield Rows(values[:cut])
        if halves:
            yield Rows(np.asfortranarray(values[cut:]))


def resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--rows", type=int, default=20_000_000)
    args = options.parse_args()
    grid = GridRows(width=WIDTH, unit=1 / 512, lower=(-2048,), upper=(2048,))
    stages = pipeline(
        grid,
        {
            "fourier_sketch": {
                "frequencies": 200,
                "kernel": {"gaussian": {"bandwidth": 4.0}},
                "seed": 1,
            }
        },
    )
    before, start = resident(), time.process_time()
    flat = build_sketch(stages, lambda: chunks(args.rows))
    spent, peak = time.process_time() - start, resident()
    assert flat[-1] % args.rows == 0
    assert peak < 1024, f"{peak:.0f} MiB"
    few = min(args.rows, 500_000)
    whole = build_sketch(stages, lambda: [Rows(np.concatenate([c.values for c in chunks(few)]))])
    for options_of in ({}, {"halves": True}, {"permuted": True}):
        assert np.array_equal(whole, build_sketch(stages, lambda o=options_of: chunks(few, **o)))
    parts = list(chunks(few))
    merged = sum(build_sketch(stages, lambda p=part: [p]) for part in parts)
    assert np.array_equal(whole, merged)
    text = table(
        ["rows", "columns", "frequencies", "before, MiB", "peak, MiB", "CPU, s", "must be below"],
        [[f"{args.rows:,}", WIDTH, 200, round(before), round(peak), round(spent, 1), "1,024 MiB"]],
    )
    text += (
        f"\n\nThe rows alone would take {args.rows * WIDTH * 8 / 2**20:,.0f} MiB; CPU time includes "
        f"drawing them. On the first {few:,} rows: whole, chunked, cut elsewhere, permuted and "
        "merged builds were bit-identical."
    )
    print(text)
    if args.write:
        write_section("Kernels: memory", text, "python -m benchmarks.kernel_memory --write")


if __name__ == "__main__":
    main()
