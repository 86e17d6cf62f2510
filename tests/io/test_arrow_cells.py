"""Arrow arrays that few writers make: list views, texts that are no UTF-8, dictionaries in chunks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opendp_sim.core.errors import DataError
from opendp_sim.domains.normalise import normal
from opendp_sim.domains.records import Column, Records
from opendp_sim.io import arrow, conform
from opendp_sim.io.arrow import from_arrow
from opendp_sim.io.file_spec import FileOptions
from opendp_sim.io.frames import from_table
from opendp_sim.io.gate import check_form, gated_blocks
from opendp_sim.io.open import open_source
from opendp_sim.io.parquet import parquet_of, parquet_parts
from opendp_sim.io.protocol import Source, from_arrays

PAIRS = Records((Column("c", "array[f64, 2]", (-1e9, 1e9)),))
TEXT = Records((Column("c", "str"),))


def kept(source: Source, mode: Any = "enforce") -> list[Any]:
    return [v for block in gated_blocks(source, mode)() for v in block["c"].tolist()]


# --- list views -----------------------------------------------------------------------------------

VIEWS = {"view": (pa.ListViewArray, "int32"), "large view": (pa.LargeListViewArray, "int64")}
CUTS = {
    "batches": lambda t: pa.Table.from_batches(t.to_batches(max_chunksize=64)),
    "reader": lambda t: pa.RecordBatchReader.from_batches(t.schema, t.to_batches(max_chunksize=64)),
    "function": lambda t: lambda: t.to_reader(max_chunksize=64),
}


def viewed(kind: str, rows: Any) -> Any:
    make, size = VIEWS[kind]
    starts = pa.array(range(0, 2 * len(rows), 2), size)
    return make.from_arrays(starts, pa.array([2] * len(rows), size), pa.array(np.ravel(rows)))


@pytest.mark.few(3)
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", VIEWS)
def test_one_record_in_front_is_one_record_more(kind: str, cut: str) -> None:
    """Batches of 64: a reader that loses or invents the last list of each is far from 1-stable."""
    rows = np.arange(12_800.0).reshape(-1, 2)
    more = np.vstack([[[-1.0, -2.0]], rows])
    found = [
        kept(from_table(PAIRS, CUTS[cut](pa.table({"c": viewed(kind, r)})))) for r in (rows, more)
    ]
    assert found == [rows.tolist(), more.tolist()]


@pytest.mark.parametrize("held", ["f2", "f4", "f8", "i1", "i8", "u8", "bool"])
@pytest.mark.parametrize("kind", VIEWS)
def test_views_in_any_order_are_read_as_their_cells(kind: str, held: str) -> None:
    """Places that overlap, run backwards or are not used; nulls; slices; other lengths."""
    make, size = VIEWS[kind]
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2 if held == "bool" else 99, 50).astype(held)
    for _ in range(20):
        starts, lengths, none = (
            rng.integers(0, 45, 30),
            rng.choice([1, 2, 2, 2, 3], 30),
            rng.random(30) < 0.2,
        )
        views = make.from_arrays(
            pa.array(starts, size), pa.array(lengths, size), pa.array(numbers), mask=pa.array(none)
        )
        wanted = [
            [np.nan, np.nan] if gone or length != 2 else numbers[at : at + 2].astype(float).tolist()
            for at, length, gone in zip(starts, lengths, none, strict=True)
        ]
        for part in (slice(0, 30), slice(3, 20), slice(29, 30), slice(0, 0)):
            found = from_arrow(views[part], PAIRS.columns[0])
            assert np.array_equal(found, np.reshape(wanted[part], (-1, 2)), equal_nan=True)


# --- texts that are no UTF-8 ----------------------------------------------------------------------


def test_whatever_arrow_says_of_a_column_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quoting(*_: object) -> Any:
        raise pa.ArrowException("SECRET")

    pq.write_table(pa.table({"c": ["a"]}), tmp_path / "t.parquet")
    tables = [
        from_table(TEXT, pa.table({"c": ["a"]})),
        from_table(TEXT, pa.table({"c": ["a"]}).to_pandas()),
        from_arrays(TEXT, {"c": ["a"]}),
        open_source("parquet", "t.parquet", TEXT, tmp_path),
    ]
    for place, name in ((arrow, "_texts"), (arrow, "_laid_out"), (conform, "normal")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, quoting)
            for source in tables if place is conform else (tables[0], tables[3]):
                for read in (kept, check_form):
                    with pytest.raises(DataError, match="OS602") as refused:
                        read(source)
                    told: BaseException = refused.value
                    assert "SECRET" not in str(told)
                    assert told.__cause__ is None
                    assert told.__context__ is None


# --- dictionaries in chunks -----------------------------------------------------------------------


# --- a file that changes while it is read ---------------------------------------------------------


@pytest.mark.parametrize("pinned", [False, True])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, *, pinned: bool) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"c": np.arange(100).astype(str)}), file, row_group_size=100)
    place = FileOptions(file, {})
    if pinned:
        (parts,), _ = parquet_parts(place, 1)
        source: Source = parquet_of(place, TEXT, parts)
    else:
        source = open_source("parquet", "t.parquet", TEXT, tmp_path)
    assert sum(len(block["c"]) for block in source.blocks(10)) == 100
    blocks = source.blocks(10)
    next(blocks)
    os.utime(file, ns=(0, 0))
    with pytest.raises(DataError, match="OS601"):
        list(blocks)


HOSTILE = [
    b"a",
    b" a ",
    b"",
    b"\xff",
    b"\xed\xa0\x80",
    b"a\x00",
    "é\u2028".encode(),
    b"\xc0\xaf",
    b"\xf4\x90\x80\x80",
    "\U0010ffff\x1f".encode(),
    b"x" * 70_000,
    b"\xe2\x80",
    b"5",
    None,
]


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary", "string_view"])
@pytest.mark.parametrize(
    "declared", [Column("v", "str"), Column("v", "category", keys=("a", "é", 5, "\udcff"))]
)
def test_texts_read_together_are_the_cells_read_alone(kind: str, declared: Column) -> None:
    """The fast ways (all UTF-8, all plain texts) give what one cell after another gives."""

    def column(cells: list[bytes | None]) -> Any:
        raw = pa.array(cells, pa.binary() if kind != "large_string" else pa.large_binary())
        found = raw.view("large_string" if kind == "large_string" else "string")
        if kind == "string_view":
            return found.cast("string_view") if all(map(_is_utf8, cells)) else found
        return found.dictionary_encode() if kind == "dictionary" else found

    rng = np.random.default_rng(4)
    alone = [normal(from_arrow(column([cell]), declared), declared).tolist()[0] for cell in HOSTILE]
    for size in (0, 1, 2, 3, 9, 40):
        for _ in range(12):
            picked = rng.integers(0, len(HOSTILE), size)
            if rng.random() < 0.5:  # nothing but texts that are UTF-8: the fast way
                picked = np.array([at for at in picked if _is_utf8(HOSTILE[at])], dtype=int)
            whole = normal(from_arrow(column([HOSTILE[at] for at in picked]), declared), declared)
            assert whole.tolist() == [alone[at] for at in picked]
            assert [type(cell) for cell in whole.tolist()] == [type(alone[at]) for at in picked]


def _is_utf8(cell: bytes | None) -> bool:
    try:
        return cell is None or cell.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


@pytest.mark.parametrize("nulls", [False, True])
def test_a_dictionary_of_any_type_is_read_as_what_it_stands_for(nulls: bool) -> None:
    """By its codes, for keys too: numbers, truth values, decimals, times, and refused types."""
    declared = Column("v", "category", keys=("a", 5, "7", 1))
    some: list[Any] = [
        pa.array([5, 7, 1, 2**40]),
        pa.array([5.0, 7.5, float("nan"), 1.0]),
        pa.array(["a ", " 5", "7", "\x00"]),
        pa.array([True, False, True]),
        pa.array([5, 7], pa.decimal128(9, 2)),
        pa.array([5, 7], pa.timestamp("s")),
    ]
    for words in some:
        codes = pa.array([0, 1, None, 1, 0, len(words) - 1] if nulls else [1, 1, 0], pa.int8())
        table = pa.DictionaryArray.from_arrays(codes, words)
        found, wanted = (from_arrow(one, declared) for one in (table, table.dictionary_decode()))
        assert found.dtype == wanted.dtype
        assert normal(found, declared).tolist() == normal(wanted, declared).tolist()


# --- a vector in one column an entry --------------------------------------------------------------


@pytest.mark.parametrize("declared", ["f32", "f64"])
@pytest.mark.parametrize(
    "kinds",
    [["f2", "f4", "f8"], ["f4", "f4", "f4"], ["f8", "i8", "f4"], ["f2", "f4", "f8", "f4"] * 17],
)
def test_entries_beside_each_other_are_what_each_alone_is(declared: str, kinds: list[str]) -> None:
    """Cast as one entry alone and then as a vector: the same bits, beyond float32 and for nulls too."""
    column = Column("c", f"array[{declared}, {len(kinds)}]")
    entry = arrow.entry_of(column)
    odd = np.array([0.1, -0.0, 1e300, -1e39, np.inf, np.nan, 2.0**53 + 2, 1e-310])
    whole = np.array([0, -1, 2**24 + 1, 2**53 + 1, -(2**63), 7, 8], dtype=np.int64)
    with np.errstate(all="ignore"):
        cells = [
            pa.array([*(whole if k == "i8" else odd.astype(k)), *[None] * (2 if k == "i8" else 1)])
            for k in kinds
        ]
        alone = [normal(from_arrow(cell, entry), entry) for cell in cells]
        expected = normal(np.stack(alone, axis=1), column)
    found = normal(arrow.arrow_column(column, cells), column)
    assert found.dtype == expected.dtype
    assert found.flags.c_contiguous
    assert found.tobytes() == expected.tobytes()
