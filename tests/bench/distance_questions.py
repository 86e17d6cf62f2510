"""Time of a question about l1 distances over 64 columns, beside one bare gather a coordinate; CPU time, one thread.

The bare gather takes and adds one number of a table for each coordinate, whose places are given; a question also finds its
places, and returns noise, bias, rounding and an interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.mechanism import lookup
from opendp_sim.spaces.metrics import Symmetric
from opendp_sim.spaces.released import Released
from opendp_sim.spaces.rows import GridRows
from tests.bench._results import parser, table, write_section

COMMAND = "python -m tests.bench.distance_questions --write"
COLUMNS, TOP, QUERIES = 64, 4096, 10_000


def cpu(work: Callable[[], Any], times: int) -> float:
    spent = []
    for _ in range(times):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    g = np.random.default_rng(0)
    space = GridRows(width=COLUMNS, unit=1 / TOP, lower=(0,), upper=(TOP,), l2=8 * TOP)
    queries = g.integers(0, TOP + 1, (QUERIES, COLUMNS)) + 0.25
    numbers, places = g.random((COLUMNS, TOP + 2)), np.ascontiguousarray(queries.T.astype(int))
    bare = cpu(lambda: sum(numbers[c].take(places[c]) for c in range(COLUMNS)), 5)
    rows = [["bare gather", "", 1e6 * bare / QUERIES, 1.0, "", ""]]
    for name, key, params in (
        ("threshold sketch, 4,096 thresholds", "threshold_sketch", {"thresholds": 4096}),
        ("threshold sketch, 1,000 thresholds", "threshold_sketch", {"thresholds": 1000}),
        ("moment tree, 12 levels", "moment_tree", {"levels": 12}),
        ("distance tree, 12 levels", "distance_tree", {"levels": 12}),
    ):
        claim: Any = lookup(key)(**params).bind(space, Symmetric())
        about = Released(claim.output, claim.capabilities, None, space)
        answer = lookup("distance")().bind(about, Symmetric()).function
        arrays = claim.output.split(g.integers(0, 10**6, claim.output.size))
        first = cpu(partial(answer, arrays, queries[:10]), 1)
        reading = claim.capabilities["distance_sums"].reading(arrays, None, 0.1)
        sums = cpu(partial(reading.at, queries), 3)
        whole = cpu(partial(answer, arrays, queries), 3)
        rows.append(
            [name, first, 1e6 * sums / QUERIES, sums / bare, 1e6 * whole / QUERIES, whole / bare]
        )
        print(rows[-1], flush=True)
    head = ["", "first ten, s", "sums and noise, us", "x bare", "a whole question, us", "x bare"]
    text = table(head, rows) + f"\n\n{QUERIES:,} queries at once, 12 bits; least of three."
    print(text)
    if options.write:
        write_section("Distances: questions", text, COMMAND)


if __name__ == "__main__":
    main()
