"""One door: files, memory, native chains and sessions read a cell alike, and ``enforce`` is total."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opendp_sim.core.errors import DataError
from opendp_sim.domains.cell import LONGEST_TEXT
from opendp_sim.domains.records import Column, Records
from opendp_sim.io import csv_files as lines
from opendp_sim.io.csv_files import ShortLines
from opendp_sim.io.gate import Ingest, check_form, gated_blocks
from opendp_sim.io.open import open_source
from opendp_sim.io.protocol import Source, from_arrays

TEXT = Records((Column("v", "str"), Column("n", "float64", bounds=(0.0, 99.0))))


def kept(source: Source, rows: int | None = None, mode: Ingest = "enforce") -> dict[str, list[Any]]:
    blocks = list(gated_blocks(source, mode, rows)())
    return {c.name: [v for b in blocks for v in b[c.name].tolist()] for c in source.records.columns}


def one(dtype: str, **rest: Any) -> Records:
    return Records((Column("v", dtype, **rest), Column("n", "float64", bounds=(0.0, 99.0))))


# --- a cell's length --------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [LONGEST_TEXT + 1, 10 * LONGEST_TEXT])
def test_one_long_cell_costs_its_record_and_no_memory(tmp_path: Path, size: int) -> None:
    """As an array of fixed width the block would have been 26 GB; now it is what the cells are."""
    rows = [f"p{at},{at % 90}" for at in range(70_000)]
    rows[5] = "x" * size + ",5"
    (tmp_path / "t.csv").write_text("\n".join(["v,n", *rows]) + "\n")
    found = kept(open_source("csv", "t.csv", TEXT, tmp_path))
    assert len(found["v"]) == 69_999
    assert "p5" not in found["v"][:9]


def test_a_long_cell_is_missing_by_every_route(tmp_path: Path) -> None:
    words = ["a", "x" * (LONGEST_TEXT + 1), "b"]
    np.savez(tmp_path / "t.npz", v=np.array(words), n=np.arange(3.0))
    pq.write_table(pa.table({"v": words, "n": [0.0, 1.0, 2.0]}), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("v,n\n" + "".join(f"{w},{i}\n" for i, w in enumerate(words)))
    routes = [open_source(k, f"t.{k}", TEXT, tmp_path) for k in ("npz", "parquet", "csv")]
    routes.append(from_arrays(TEXT, {"v": words, "n": [0, 1, 2]}))
    for source in routes:
        assert kept(source, 2) == {"v": ["a", "b"], "n": [0.0, 2.0]}
        with pytest.raises(DataError, match="OS603"):
            kept(source, 2, "refuse")


RECORD_ENDS = {
    "an open quote": '"' + "y" * 90 + "\nq,7\n",
    "a line of cells": "y," * 60 + "\n",
    "a quoted line": '"' + "y" * 90 + '",1\n',
    "lines in quotes": '"' + "y\n" * 60 + '",1\n',
    "doubled quotes": '"' + '""' * 60 + '",1\n',
    "quotes over lines": '"' + '""y\n' * 60 + '",1\n',
    "a wrong quote": '"' + "y" * 90 + '"z,1\n',
}


@pytest.mark.parametrize("long", RECORD_ENDS.values(), ids=RECORD_ENDS)
def test_a_long_record_ends_where_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: str
) -> None:
    """Cut or not, the records beside a long one are the same; a long one is missing."""
    (tmp_path / "t.csv").write_text("v,n\na,1\n" + long + "b,2\nc,3\n")
    whole = kept(open_source("csv", "t.csv", TEXT, tmp_path))
    plain = ShortLines.__init__
    monkeypatch.setattr(ShortLines, "__init__", lambda s, f, d, **k: plain(s, f, d, 16, **k))
    cut = kept(open_source("csv", "t.csv", TEXT, tmp_path))
    assert cut["v"] == [word for word in whole["v"] if "y" not in word and '"' not in word]
    for word in ("a", "b", "c"):
        assert (word in cut["v"]) == (word in whole["v"])


def test_short_records_are_not_cut(tmp_path: Path) -> None:
    text = "v,n\n" + "".join(f'"a {at}\nb",{at}\n' for at in range(50))
    (tmp_path / "t.csv").write_text(text)
    with (tmp_path / "t.csv").open(newline="") as file:
        assert "".join(ShortLines(file, ",")) == text
    assert lines.LONGEST_RECORD >= 2**20


# --- the declared type decides ----------------------------------------------------------------

ODD = {
    "decimals": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal(2)], pa.decimal128(9, 2)),
    "strings": pa.array(["1", None, "2"]),
    "dates": pa.array([dt.date(2020, 1, 1), None, dt.date(2020, 1, 2)]),
    "times": pa.array([1, None, 2], pa.timestamp("us")),
    "binary": pa.array([b"1", None, b"2"]),
    "nulls": pa.nulls(3),
    "views": pa.array(["1", None, "2"]).cast(pa.string_view()),
    "words": pa.array(["1", None, "2"]).dictionary_encode(),
    "structs": pa.array([{"a": 1}, None, {"a": 2}]),
}


@pytest.mark.parametrize("stored", ODD.values(), ids=ODD)
@pytest.mark.parametrize("shape", ["lists", "cells"])
@pytest.mark.parametrize(
    "dtype", ["array[f64, 1]", "array[i64, 1]", "float64", "int64", "str", "category", "texts"]
)
def test_one_null_more_never_turns_a_refusal_into_an_answer(
    tmp_path: Path, stored: Any, shape: str, dtype: str
) -> None:
    """What is refused of a column's type is refused whatever the cells are; the rest is total."""
    keys = {"category": ("1", 2), "texts": ("1",)}.get(dtype)
    records = one(dtype) if keys is None else one("category", keys=keys)
    said = set()
    for cells in (stored, stored.slice(0, 1), stored.slice(1, 1), stored.slice(0, 0)):
        column = cells
        if shape == "lists":
            offsets = pa.array(range(len(cells) + 1), pa.int32())
            column = pa.ListArray.from_arrays(offsets, cells)
        table = pa.table({"v": column, "n": np.zeros(len(cells))})
        pq.write_table(table, tmp_path / "t.parquet")
        source = open_source("parquet", "t.parquet", records, tmp_path)
        try:
            kept(source, 2)
        except DataError as error:
            said.add(error.code)
        else:
            said.add("answered" if len(cells) else "empty")
    assert said in ({"answered"}, {"answered", "empty"}, {"OS602"}, {"OS602", "empty"})


def test_a_number_with_a_point_is_the_same_whole_number_by_every_route(tmp_path: Path) -> None:
    """What pandas writes of integers beside a missing one: 517.0."""
    records = one("category", keys=(517, 3))
    (tmp_path / "t.csv").write_text("v,n\n517.0,0\n,1\n3,2\n")
    assert kept(open_source("csv", "t.csv", records, tmp_path))["v"] == [0, 1]
    floats = {"v": np.array([517.0, np.nan, 3]), "n": np.arange(3.0)}
    assert kept(from_arrays(records, floats))["v"] == [0, 1]
    assert kept(open_source("csv", "t.csv", one("int64"), tmp_path))["v"] == [517, 3]


@pytest.mark.parametrize(
    "held",
    [
        np.arange(3),
        np.arange(3, dtype=np.uint8),
        np.array([0.0, np.nan, 2.0]),
        np.array([True, False, True]),
        np.ma.array([0, 1, 2], mask=[1, 0, 0]),
        pd.Series([0, 1, None], dtype="Int64"),
        pd.Series([0, 1, 1]).astype("category"),
        pl.Series([0, None, 2]),
        pa.array([0, 1, 2]),
    ],
    ids=lambda held: (
        f"{type(held).__module__}-{held.dtype if hasattr(held, 'dtype') else held.type}"
    ),
)
@pytest.mark.parametrize("mode", ["enforce", "refuse", "assume"])
def test_numbers_are_no_labels_where_every_key_is_a_text(
    tmp_path: Path, held: Any, mode: Ingest
) -> None:
    """Under `enforce` everybody was dropped, and it was paid for: the type of the column says so before."""
    texts = one("category", keys=("0", "1", "2"))
    with pytest.raises(DataError, match=r"OS602 column v: .*labels of the kind of its keys, texts"):
        check_form(from_arrays(texts, {"v": held, "n": np.zeros(3)}))
    with pytest.raises(DataError, match=r"OS602 column v: "):
        kept(from_arrays(texts, {"v": held, "n": np.zeros(3)}), mode=mode)
    if isinstance(held, np.ndarray):
        np.savez(tmp_path / "t.npz", v=held, n=np.zeros(3))
        with pytest.raises(DataError, match=r"OS602 column v: .*labels of the kind"):
            check_form(open_source("npz", "t.npz", texts, tmp_path))
    else:
        pq.write_table(pa.table({"v": held, "n": np.zeros(3)}), tmp_path / "t.parquet")
        with pytest.raises(DataError, match=r"OS602 column v: .*labels of the kind"):
            check_form(open_source("parquet", "t.parquet", texts, tmp_path))
    for keys in (("0", 1), (0, 1)):  # and where one key is a number, a column of numbers is read
        check_form(from_arrays(one("category", keys=keys), {"v": held, "n": np.zeros(3)}))


@pytest.mark.parametrize(
    "held",
    [[0, 1, 2], np.array([0, "1", None], dtype=object), ["0", "1", "2"], [None] * 3, pa.nulls(3)],
    ids=["list", "objects", "texts", "nothing", "nulls"],
)
def test_cells_without_a_type_are_read_one_by_one_whatever_the_keys_are(held: Any) -> None:
    for keys in (("0", "1"), (0, 1)):
        source = from_arrays(one("category", keys=keys), {"v": held, "n": np.zeros(3)})
        check_form(source)
        assert len(kept(source)["v"]) <= 2


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["enforce", "refuse"])
@pytest.mark.parametrize(
    ("dtype", "cells"),
    [
        ("float64", [0.1, 0.2, 7.0, 8.0]),
        ("int64", [1, 2, 7, 8]),
        ("str", ["a", "b", "SECRET", "SECRET"]),
        ("array[f32, 1]", [[1.0], [2.0], [7.0], [8.0]]),
    ],
    ids=["float64", "int64", "str", "vector"],
)
def test_masked_records_are_not_read_through_their_mask(
    dtype: str, cells: list[Any], mode: Ingest
) -> None:
    mask = np.array([False, False, True, True]).reshape(-1, *np.shape(cells)[1:])
    source = from_arrays(one(dtype), {"v": np.ma.array(cells, mask=mask), "n": np.zeros(4)})
    if mode == "enforce":
        assert kept(source)["v"] == cells[:2]
    else:
        with pytest.raises(DataError, match="OS603"):
            kept(source, mode=mode)


OBJECTS = [None, np.nan, "", b"a", object(), [1], {}, dt.date(2020, 1, 1), 1j]


@pytest.mark.parametrize("dtype", ["float64", "int64", "str", "array[f32, 2]", "array[i32, 2]"])
@pytest.mark.parametrize("odd", OBJECTS, ids=lambda v: f"{type(v).__name__} {v!s:.9}")
def test_enforce_is_total_on_objects(dtype: str, odd: object) -> None:
    good = {"float64": 1.5, "int64": 3, "str": "a"}.get(dtype, [1, 2])
    for cells in ([good, odd, good], [odd, odd, good], [odd], [good, [good, odd]]):
        column = np.empty(len(cells), dtype=object)
        for at, cell in enumerate(cells):
            column[at] = cell
        for v in (column, cells, tuple(cells)):
            found = kept(from_arrays(one(dtype), {"v": v, "n": np.zeros(len(cells))}))
            assert found["v"] == [good for cell in cells if cell is good]


def test_names_have_no_blanks_around_by_any_route(tmp_path: Path) -> None:
    words = ["a", " a ", "a\t", "b", "  "]
    np.savez(tmp_path / "t.npz", v=np.array(words), n=np.arange(5.0))
    pq.write_table(pa.table({"v": words, "n": np.arange(5.0)}), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("v,n\n" + "".join(f'"{w}",{i}\n' for i, w in enumerate(words)))
    routes = [open_source(k, f"t.{k}", TEXT, tmp_path) for k in ("npz", "parquet", "csv")]
    for source in [*routes, from_arrays(TEXT, {"v": words, "n": np.arange(5)})]:
        assert kept(source)["v"] == ["a", "a", "a", "b"]
