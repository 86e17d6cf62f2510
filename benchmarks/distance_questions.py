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
from benchmarks._results import parser, table, write_section
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.released import Released
from opendp_sim.domains.rows import GridRows

COMMAND = "python -m benchmarks.distance_questions --write"
COLUMNS, TOP, QUERIES = 64, 4096, 10_000


def turns(jobs: dict[str, Callable[[], Any]], times: int) -> dict[str, float]:
    """Return the least CPU time of each job; they take turns."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(times):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    g = np.random.default_rng(0)
    space = GridRows(width=COLUMNS, unit=1 / TOP, lower=(0,), upper=(TOP,), l2=8 * TOP)
    queries = g.integers(0, TOP + 1, (QUERIES, COLUMNS)) + 0.25
    numbers, places = g.random((COLUMNS, TOP + 2)), np.ascontiguousarray(queries.T.astype(int))
    rows: list[list[Any]] = []
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
        first = turns({"first": partial(answer, arrays, queries[:10])}, 1)["first"]
        reading = claim.capabilities["distance_sums"].reading(arrays, None, 0.1)
        jobs: dict[str, Callable[[], Any]] = {
            "bare": lambda: sum(numbers[c].take(places[c]) for c in range(COLUMNS)),
            "sums": partial(reading.at, queries),
            "whole": partial(answer, arrays, queries),
        }
        least = turns(jobs, 5)
        bare, sums, whole = (1e6 * least[job] / QUERIES for job in ("bare", "sums", "whole"))
        rows.append([name, first, bare, sums, sums / bare, whole, whole / bare])
        print(rows[-1], flush=True)
    head = ["", "first ten, s", "bare gather, us", "sums and noise, us", "x bare"]
    head += ["a whole question, us", "x bare"]
    text = table(head, rows) + f"\n\n{QUERIES:,} queries at once, 12 bits; least of five turns."
    print(text)
    if options.write:
        write_section("Distances: questions", text, COMMAND)


if __name__ == "__main__":
    main()
