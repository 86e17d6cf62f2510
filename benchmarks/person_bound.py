"""Bounding contributions: CPU seconds for a million rows, the survey and the pass after it.

python benchmarks/person_bound.py --write
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks._results import parser, table, write_section  # noqa: E402
from opendp_sim.core.pipeline import bind_steps, resolve  # noqa: E402
from opendp_sim.domains.metrics import IdDistance  # noqa: E402
from opendp_sim.domains.records import Column, Records  # noqa: E402
from opendp_sim.io.blocks import block_rows  # noqa: E402
from opendp_sim.transformations.row_maps.bound_contributions import BoundContributions  # noqa: E402

ROWS = 10**6


def measured(width: int, each: float) -> list[object]:
    """One setting: columns, rows a person on average."""
    rng = np.random.default_rng(0)
    data = {"user": rng.integers(0, int(ROWS / each), ROWS), "x": rng.normal(size=(ROWS, width))}
    records = Records(
        (Column("user", "int64", role="privacy_id"), Column("x", f"array[f64, {width}]"))
    )
    stages = bind_steps(records, IdDistance("user"), [BoundContributions(max_rows=4)])
    size = block_rows(records)

    def blocks() -> Iterator[dict[str, Any]]:
        for start in range(0, ROWS, size):
            yield {name: column[start : start + size] for name, column in data.items()}

    begin = time.process_time()
    function = resolve(stages, blocks)
    middle = time.process_time()
    kept = sum(len(function(block)["user"]) for block in blocks())
    end = time.process_time()
    np.unique(data["user"])
    sorting = time.process_time() - end
    took = (middle - begin, end - middle, end - begin)
    return [width, each, kept, *(f"{part:.2f}" for part in took), f"{took[2] / sorting:.1f}"]


def main() -> None:
    args = parser(__doc__ or "").parse_args()
    rows = [measured(*setting) for setting in ((1, 10), (8, 1.2), (64, 10))]
    text = table(
        [
            "columns",
            "rows a person",
            "kept (k = 4)",
            "survey, s",
            "pass, s",
            "both, s",
            "both, over np.unique of the persons",
        ],
        rows,
    )
    text = f"One million rows, CPU seconds of one thread.\n\n{text}"
    print(text)
    if args.write:
        write_section("person_bound", text, "python benchmarks/person_bound.py --write")


if __name__ == "__main__":
    main()
