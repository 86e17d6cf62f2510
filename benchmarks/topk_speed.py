"""CPU time of selection over one million items, beyond counting; counting itself; memory of passes."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
from _results import parser, table, write_figure
from _topk_mechanisms import dense

from opendp_sim.domains.counts import USERS, OpenCounts
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Column, Records
from opendp_sim.measurements.selection.gated_peel import GatedPeel
from opendp_sim.measurements.selection.limited_domain import LimitedDomain
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.stable_top_k import StableTopK
from opendp_sim.measurements.selection.top_stable import TopStable
from opendp_sim.transformations.sketches.counts.vote_counts import VoteCounts

ITEMS = 10**6


def least(run, times: int = 3) -> float:
    found = []
    for _ in range(times):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    args = parser(__doc__).parse_args()
    generator = np.random.default_rng(7)
    counts = np.minimum(generator.zipf(1.5, ITEMS), 10**5).astype(np.int64)
    rows = [
        [
            "numpy argpartition of the top 50 (not private)",
            least(lambda: np.argpartition(-counts, 50)),
        ]
    ]
    for mechanism in (
        Peel(k=10, scale=20.0),
        Peel(k=50, scale=20.0),
        GatedPeel(k=50, scale=20.0, delta=1e-6),
        StableTopK(k_max=100, scale=20.0, delta=1e-6),
        LimitedDomain(k=50, k_max=500, scale=20.0, delta=1e-6),
        TopStable(k=50, k_max=100, epsilon=0.1, delta=1e-6),
    ):
        claim = mechanism.bind(dense(counts), USERS)
        size = getattr(mechanism, "k", None) or mechanism.k_max
        rows.append(
            [
                f"{mechanism.key}, k {size}, 10^6 listed items",
                least(lambda c=claim: c.function(counts)),
            ]
        )
    stored = {"item": np.arange(ITEMS) * 7, "votes": counts}
    claim = Peel(k=50, scale=20.0).bind(OpenCounts(False, 2**60), USERS)
    rows.append(
        ["peel, k 50, universe of 2^60, 10^6 stored", least(lambda: claim.function(stored))]
    )
    worst = max(row[1] for row in rows[1:])
    text = table(["step", "CPU seconds"], rows)
    text += "\n\n" + counting(generator)
    print(text)
    if args.write:
        write_figure(
            "selection/speed",
            text,
            "OPENBLAS_NUM_THREADS=1 python benchmarks/topk_speed.py --write",
        )
    assert worst < 0.2, worst


def counting(generator: np.random.Generator) -> str:
    """Count 1 million votes in blocks, in one pass and in eight."""
    records = Records((Column("who", "int64"), Column("what", "int64")))
    who, what = (
        generator.integers(0, 200_000, 1_000_000),
        np.minimum(generator.zipf(1.3, 1_000_000), 10**6),
    )
    blocks = [
        {"who": who[i : i + 250_000], "what": what[i : i + 250_000]}
        for i in range(0, len(who), 250_000)
    ]
    rows, kept = [], []
    for passes in (1, 8):
        claim = VoteCounts(item="what", passes=passes).bind(records, IdDistance("who"))
        seconds = least(lambda c=claim: c.fold(lambda: blocks), 1)
        tracemalloc.start()
        kept.append(claim.fold(lambda: blocks))
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        rows.append([f"vote_counts, 1 million rows, {passes} passes", seconds, peak])
    start = time.process_time()
    pairs = np.unique(who * 2**31 + what)
    np.unique(pairs & (2**31 - 1), return_counts=True)
    rows.append(
        ["numpy: two np.unique over everything", time.process_time() - start, 1e6 * 8 * 4 / 2**20]
    )
    assert all(np.array_equal(kept[0][name], kept[1][name]) for name in ("item", "votes"))
    return table(["counting", "CPU seconds", "peak MiB beside the data"], rows)


if __name__ == "__main__":
    main()
