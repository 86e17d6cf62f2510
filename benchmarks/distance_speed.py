"""Time of building and asking the distance structures, one BLAS thread, process CPU time.

The threshold sketch of 64 columns and 4,096 thresholds over a million rows is set against numpy's own
histogram of every column of the same data; the other structures against the bare sum of the rows.
"""

from __future__ import annotations

import os
import time
from functools import partial

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks._results import parser, table, write_figure
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows

COMMAND = "python -m benchmarks.distance_speed --write"
ROWS, COLUMNS, TOP, QUERIES = 1_000_000, 64, 4096, 10_000


def least(function, times: int) -> float:
    spent = []
    for _ in range(times):
        start = time.process_time()
        function()
        spent.append(time.process_time() - start)
    return min(spent)


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    x = np.random.default_rng(0).integers(0, TOP + 1, (ROWS, COLUMNS)).astype(np.float64)
    space = GridRows(width=COLUMNS, unit=1 / TOP, lower=(0,), upper=(TOP,), l2=8 * TOP)
    queries = x[:QUERIES] + 0.25

    def histograms():
        for column in range(COLUMNS):
            np.histogram(x[:, column], bins=TOP, range=(0, TOP))

    bare = least(lambda: x.sum(axis=0), 3)
    counted = least(histograms, 2)
    rows = [["numpy histogram of each column", counted, 1.0, counted / bare, ""]]
    for name, key, params in (
        ("threshold sketch, 4,096 thresholds", "threshold_sketch", {"thresholds": 4096}),
        ("threshold sketch, 1,000 thresholds", "threshold_sketch", {"thresholds": 1000}),
        ("moment tree, 12 levels", "moment_tree", {"levels": 12}),
        ("moment tree, 8 levels", "moment_tree", {"levels": 8}),
        ("distance tree, 12 levels", "distance_tree", {"levels": 12}),
        ("moments sketch", "moments_sketch", {}),
    ):
        claim = lookup(key)(**params).bind(space, Symmetric())
        out = np.zeros(claim.output.size, dtype=np.int64)
        build = least(partial(claim.accumulate, x, out), 2)
        about = Released(claim.output, claim.capabilities, None, space)
        answer = lookup("distance")().bind(about, Symmetric()).function
        arrays = claim.output.split(out)
        answer(arrays, queries[:10])
        asked = least(partial(answer, arrays, queries), 2)
        rows.append([name, build, build / counted, build / bare, 1e6 * asked / QUERIES])
        print(rows[-1], flush=True)
    head = ["", "build, s", "times the histograms", "times the bare sum", "a query, us"]
    text = table(head, rows) + (
        f"\n\n{ROWS:,} rows of {COLUMNS} columns, quantized to 12 bits; batches of {QUERIES:,} queries. "
        f"The bare sum takes {bare:.3g} s."
    )
    print(text)
    if options.write:
        write_figure("distances/speed", text, COMMAND)


if __name__ == "__main__":
    main()
