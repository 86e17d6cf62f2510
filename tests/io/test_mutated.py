"""A small slice of ``benchmarks/trust_cells.py``: odd cells by every route, in any blocks and order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import trust_cells as campaign


@pytest.mark.parametrize("seed", range(4))
def test_mutated_cells_are_read_alike(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    columns = campaign.RECORDS.columns
    cells = {c.name: [campaign.cell(rng, c.name) for _ in range(30)] for c in columns}
    turned = {name: column[::-1] for name, column in cells.items()}
    whole = {}
    for at, source in campaign.routes(cells, tmp_path).items():
        whole[at] = campaign.rows_of(source, None)
        for rows in (1, 7):
            assert campaign.rows_of(source, rows) == whole[at], at
    assert whole["csv"] == whole["memory"] == whole["parquet"]
    assert campaign.session(cells, whole["csv"]) == 0
    back = campaign.rows_of(campaign.routes(turned, tmp_path)["csv"], 4)
    assert back[::-1] == whole["csv"]
