"""``enforce`` never fails on what a cell holds, and a missing integer never becomes a number."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import trust_cells as campaign
from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.records import Column, Records
from opendp_sim.io import numpy_files as arrays
from opendp_sim.io.gate import gated_blocks
from opendp_sim.io.open import open_source
from opendp_sim.io.protocol import Source, from_arrays

LONG = "1" * 200_000


def kept(source: Source, rows: int | None = None) -> dict[str, np.ndarray]:
    """What ``enforce`` lets through; every block satisfies the declaration."""
    blocks = list(gated_blocks(source, "enforce", rows)())
    for block in blocks:
        source.records.check(block)
    return {c.name: np.concatenate([b[c.name] for b in blocks]) for c in source.records.columns}


def one(dtype: str, bounds: Any = (-9.0, 9.0)) -> Records:
    return Records((Column("v", dtype, bounds=bounds), Column("n", "float64", bounds=(0.0, 99.0))))


def table(folder: Path, column: Any, records: Records) -> Source:
    arrow = pa.table({"v": column, "n": np.arange(len(column), dtype=float)})
    pq.write_table(arrow, folder / "t.parquet")
    return open_source("parquet", "t.parquet", records, folder)


# --- text -------------------------------------------------------------------------------------

BAD_CELLS = {
    "nested lists": "[" * 100_000,
    "nested, within the list": '"[' + "[" * 900 + "]" * 900 + ',1]"',
    "a quote in the wrong place": '"[1, 2]"x',
    "a number of many digits": f'"[{LONG}, 2]"',
    "a long cell": f'"[{LONG * 2}"',
    "a long cell of many lines": '"' + "[3, 4],3\n" * 40_000 + '"',
    "bytes that are no text": b"\xff\xfe",
    "a zero byte": "\0",
}


@pytest.mark.parametrize("cell", BAD_CELLS.values(), ids=BAD_CELLS)
@pytest.mark.parametrize("rows", [1, 9])
def test_a_bad_cell_costs_its_own_record(tmp_path: Path, cell: str | bytes, rows: int) -> None:
    data = cell if isinstance(cell, bytes) else cell.encode()
    (tmp_path / "t.csv").write_bytes(b'v,n\n"[1, 2]",0\n' + data + b',1\n"[3, 4]",2\n')
    found = kept(open_source("csv", "t.csv", one("array[f64, 2]"), tmp_path), rows)
    assert found["n"].tolist() == [0.0, 2.0]
    assert found["v"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_names_of_other_bytes_are_other_persons(tmp_path: Path) -> None:
    records = Records((Column("who", "str", role="privacy_id"), Column("n", "int64")))
    (tmp_path / "t.csv").write_bytes(b"who,n\nA\xff,0\nA\xfe,1\nA,2\n")
    found = kept(open_source("csv", "t.csv", records, tmp_path))
    assert len(set(found["who"])) == 3


@pytest.mark.parametrize("dtype", ["array[u8, 1]", "array[i32, 1]", "array[i64, 1]", "int64"])
def test_a_missing_integer_of_a_text_drops_its_record(tmp_path: Path, dtype: str) -> None:
    (tmp_path / "t.csv").write_text("v,n\n3,0\n,1\nx,2\n4,3\n")
    found = kept(open_source("csv", "t.csv", one(dtype), tmp_path))
    assert found["n"].tolist() == [0.0, 3.0]
    assert found["v"].ravel().tolist() == [3, 4]


# --- parquet ----------------------------------------------------------------------------------

INTEGERS = {
    "int64": pa.array([3, None, 4], pa.int64()),
    "int8": pa.array([3, None, 4], pa.int8()),
    "uint64": pa.array([3, None, 4], pa.uint64()),
    "bool": pa.array([True, None, False], pa.bool_()),
    "lists": pa.array([[3], [None], [4]], pa.list_(pa.int64())),
    "null lists": pa.array([[3], None, [4]], pa.list_(pa.uint8())),
}


@pytest.mark.parametrize("stored", INTEGERS.values(), ids=INTEGERS)
@pytest.mark.parametrize(
    "dtype", ["array[f32, 1]", "array[f64, 1]", "array[u8, 1]", "array[i32, 1]", "float64", "int64"]
)
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_missing_integer_drops_its_record(
    tmp_path: Path, stored: pa.Array, dtype: str, rows: int
) -> None:
    if pa.types.is_list(stored.type) and not dtype.startswith("array"):
        pytest.skip("a list is no scalar")
    found = kept(table(tmp_path, stored, one(dtype)), rows)
    assert found["n"].tolist() == [0.0, 2.0]
    numbers = stored.flatten() if pa.types.is_list(stored.type) else stored
    assert found["v"].ravel().tolist() == [float(n) for n in numbers.drop_null().to_pylist()]


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize(("dtype", "expected"), [("float64", [0, 1, 3]), ("int64", [0, 3])])
def test_a_large_unsigned_number_is_read_by_itself(
    tmp_path: Path, rows: int, dtype: str, expected: list[int]
) -> None:
    """Clamped where floats are declared; missing, as in a text, where no int64 holds it."""
    stored = pa.array([3, 2**63 + 5000, None, 4], pa.uint64())
    found = kept(table(tmp_path, stored, one(dtype)), rows)
    assert found["n"].tolist() == expected
    assert found["v"].tolist() == [3.0, *([9.0] if dtype == "float64" else []), 4.0]


# --- arrays -----------------------------------------------------------------------------------


@pytest.mark.parametrize("held", ["<i8", ">i8"])
@pytest.mark.parametrize(
    "dtype", ["array[f32, 2]", "array[u8, 2]", "array[i32, 2]", "array[i64, 2]"]
)
def test_the_missing_integer_of_an_array_drops_its_record(held: str, dtype: str) -> None:
    arrays = {"v": np.array([[1, 2], [MISSING, 3], [4, 5]], dtype=held), "n": np.arange(3.0)}
    found = kept(from_arrays(one(dtype), arrays))
    assert found["n"].tolist() == [0.0, 2.0]
    with pytest.raises(DataError, match=r"OS60[35]"):
        list(gated_blocks(from_arrays(one(dtype), arrays), "refuse")())


@pytest.mark.parametrize("dtype", ["float64", "array[f32, 1]", "array[i64, 1]"])
def test_a_number_that_may_be_missing_names_nobody(dtype: str) -> None:
    with pytest.raises(SpecError, match="OS304"):
        Column("who", dtype, role="privacy_id")
    Column("who", "category", keys=("a",), role="privacy_id")


# --- wide texts in arrays ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_wide_texts_are_read_in_small_slices(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block held 65,536 records of any width: one of 100 kB made it 26 GB, as in a csv."""
    records = Records((Column("v", "str"),))
    names = np.array([f"p{at}" for at in range(40)], dtype="U500")
    if kind == "npz":
        np.savez(tmp_path / "t.npz", v=names)
    else:
        np.save(tmp_path / "t.npy", np.array([(n,) for n in names], dtype=[("v", "U500")]))
    monkeypatch.setattr(arrays, "_SLICE", 8000)  # four records
    seen: list[int] = []
    read = arrays._Stream.slices
    monkeypatch.setattr(
        arrays._Stream, "slices", lambda self, rows: seen.append(rows) or read(self, rows)
    )
    source = open_source(kind, f"t.{kind}", records, tmp_path)
    assert np.concatenate([b["v"] for b in source.blocks()]).tolist() == names.tolist()
    assert max(seen) == 4


def test_a_text_dtype_without_end_is_refused_by_its_header(tmp_path: Path) -> None:
    header = {"descr": f"<U{2**29}", "fortran_order": False, "shape": (3,)}
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive, archive.open("v.npy", "w") as file:
        np.lib.format.write_array_header_2_0(file, header)
    with pytest.raises(DataError, match="OS601"):
        open_source("npz", "t.npz", Records((Column("v", "str"),)), tmp_path)


@pytest.mark.few(2)
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
