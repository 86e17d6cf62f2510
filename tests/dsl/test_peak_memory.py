"""The plan's memory is what a run takes: peaks of whole processes, in files of several shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.core.memory import process_memory
from opendp_sim.domains.records import Column
from opendp_sim.io import arrow
from opendp_sim.io.parquet import read_ahead

RUN = """
import os, sys
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import json
import opendp_sim as sim
from opendp_sim.core.memory import process_memory
from opendp_sim.dsl.run.execute import apply

plan = sim.plan("spec.yaml")
before = process_memory()
apply(plan, into="out", workers=2)
whole = process_memory()
print(json.dumps([plan.plain()["memory_bytes"], whole - before, whole, "pandas" in sys.modules]))
"""
SPEC = """
spec: opendp_sim/1
name: peak
data:
  rows:
    source: {{{kind}: {file}}}
    columns: {{x: {{dtype: "array[f64, {width}]", bounds: [-1, 1]}}}}
privacy: {{unit: {{add_remove: 1, of: row}}, measure: zcdp, budget: {{rho: 1.0}}}}
flow:
  sums:
    from: rows
    steps: [{{select: {{features: x}}}}, {{quantize: {{bits: 8}}}}, {{moments_sketch: {{}}}}]
  noisy: {{from: sums, release: {{noise: gaussian, scale: solve, spend: 100%}}}}
outputs:
  means: {{from: noisy, save: out.npz}}
"""


def write(file: Path, rows: int, width: int, group: int) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    values = np.random.default_rng(1).uniform(-1, 1, (rows, width))
    if group < 0:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), width)
        parquet.write_table(pa.table({"x": lists}), file, row_group_size=-group)
        return
    table = pa.table({f"x_{j}": np.ascontiguousarray(values[:, j]) for j in range(width)})
    if group:
        parquet.write_table(table, file, row_group_size=group, use_dictionary=False)
    else:
        csv.write_csv(table, file)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux" or not process_memory(), reason="peaks by Linux")
@pytest.mark.parametrize(
    ("kind", "rows", "width", "group"),
    [
        ("csv", 300_000, 16, 0),
        ("parquet", 60_000, 256, 60_000),  # 315 MiB when each column's reader asked for 1 MiB
        ("parquet", 600_000, 16, 100_000),
        ("parquet", 40_000, 256, -5_000),
    ],
)
def test_a_run_takes_the_memory_that_its_plan_states(
    tmp_path: Path, kind: str, rows: int, width: int, group: int
) -> None:
    """An upper bound, and no idle one; what a larger row group adds is stated beside it."""
    file = f"rows.{kind}"
    write(tmp_path / file, rows, width, group)
    (tmp_path / "spec.yaml").write_text(SPEC.format(kind=kind, file=file, width=width))
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, check=True, timeout=120
    )
    stated, taken, whole, pandas = json.loads(done.stdout)
    assert whole <= 250 * 2**20  # of the interpreter and all libraries too
    assert not pandas  # 34 MiB and a third of a second, for numbers
    assert 0.9 * stated / 1.3 <= taken <= 1.05 * stated


def test_the_readers_of_all_columns_ask_for_4_mib_together() -> None:
    assert [read_ahead(n) for n in (1, 4, 256, 4096)] == [2**20, 2**20, 2**14, 2**12]


@pytest.mark.parametrize("kind", ["int8", "uint64", "float16", "float32", "float64"])
def test_numbers_of_arrow_are_those_that_arrow_makes_itself(kind: str) -> None:
    """Without pandas: with and without nulls, cut, and empty."""
    import pyarrow as pa

    cells = np.array([1, 2, 3], dtype=kind)
    column = Column("x", "float64")
    for mask in (None, np.array([False, True, False]), np.ones(3, dtype=bool)):
        whole = pa.array(cells, mask=mask)
        for one in (whole, whole[1:], whole[:0]):
            found = arrow.from_arrow(one, column)
            wanted = one.cast("float64") if kind[0] != "f" else one
            np.testing.assert_array_equal(found, wanted.to_numpy(zero_copy_only=False), strict=True)


def test_a_table_without_rows_has_the_types_of_its_schema() -> None:
    import pyarrow as pa

    schema = pa.schema(
        [("a", pa.dictionary(pa.int8(), pa.string())), ("b", pa.list_(pa.int8(), 2))]
    )
    assert arrow.no_rows(schema).equals(schema.empty_table())
