"""A declared dialect of a text file: every cell by itself, the same from pyarrow and from the csv module."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.domains.records import Column, Records
from opendp_sim.io import csv_files
from opendp_sim.io.conform import conform
from opendp_sim.io.dialect import Dialect
from opendp_sim.io.file_spec import read_place
from opendp_sim.io.gate import gated_blocks
from opendp_sim.io.open import open_source

RECORDS = Records(
    (
        Column("city", "str"),
        Column("sales", "float64"),
        Column("n", "int64"),
        Column("v", "array[f64, 2]"),
    )
)
CITIES, SALES, NUMBERS = ["Alba", "Bruck", "Dole"], [1234.5, -7.25, 0.5], [3, -1200, 1]
PAIRS = [[0.5, 1000.0], [-1.0, 2.0], [3.0, 4.0]]


def table(
    number: Any = str,
    delimiter: str = ",",
    header: str | None = None,
    end: str = "\n",
    tail: str = "",
) -> str:
    rows = io.StringIO()
    writer = csv.writer(rows, delimiter=delimiter, lineterminator=end)
    for row in zip(CITIES, SALES, NUMBERS, PAIRS, strict=True):
        writer.writerow([row[0], *(number(v) for v in (row[1], row[2], *row[3]))])
    names = delimiter.join(["city", "sales", "n", "v_0", "v_1"]) + end if header is None else header
    return (names + rows.getvalue()).replace(end, tail + end)


def comma(value: float) -> str:
    return str(value).replace(".", ",")


def german(value: float) -> str:
    return f"{value:,}".replace(",", "x").replace(".", ",").replace("x", ".")


PLACES = {name: {"at": at} for name, at in (("city", 1), ("sales", 2), ("n", 3))} | {
    "v": [{"at": 4}, {"at": 5}]
}
DIALECTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "plain": (table().encode(), {}),
    "decimal comma": (table(comma, ";").encode(), {"delimiter": ";", "decimal": ","}),
    "both commas": (table(comma).encode(), {"decimal": ","}),
    "german": (table(german, ";").encode(), {"delimiter": ";", "decimal": ",", "thousands": "."}),
    "thousands": (table("{:,}".format).encode(), {"thousands": ","}),
    "narrow blanks": (
        table(lambda v: f"{v:,}".replace(",", "\u202f")).encode(),
        {"thousands": " "},
    ),
    "swiss": (table(lambda v: f"{v:,}".replace(",", "\u2019")).encode(), {"thousands": "'"}),
    "currency": (table("${:,}".format).encode(), {"strip": ["$"], "thousands": ","}),
    "currency behind a sign": (
        table(lambda v: ("-" if v < 0 else "") + f"$ {abs(v)}").encode(),
        {"strip": ["$"]},
    ),
    "units": (table("{} EUR".format).encode(), {"strip": ["EUR", "%"]}),
    "typographic minus": (table(lambda v: str(v).replace("-", "\u2212")).encode(), {}),
    "utf-16": (table().encode("utf-16"), {"encoding": "utf-16"}),
    "utf-16 big": (("\ufeff" + table()).encode("utf-16-be"), {"encoding": "utf-16-be"}),
    "cp1252": (table("{}€".format).encode("cp1252"), {"encoding": "cp1252", "strip": ["€"]}),
    "bom and crlf": (("\ufeff" + table(end="\r\n")).encode(), {}),
    "cr only": (table(end="\r").encode(), {}),
    "preamble": (b"Export of 2024\n\n" + table().encode(), {"skip": 2}),
    "preamble of cr": (("Export\r\r" + table(end="\r")).encode(), {"skip": 2}),
    "sep line": (b"sep=;\r\n" + table(delimiter=";", end="\r\n").encode(), {"delimiter": ";"}),
    "bom, preamble, sep": (b'\xef\xbb\xbfx\n"sep=,"\n' + table().encode(), {"skip": 1}),
    "single quotes": (
        table(delimiter="|").replace("Alba", "'Alba'").encode(),
        {"delimiter": "|", "quote": "'"},
    ),
    "no quotes": (table(delimiter="|").encode(), {"delimiter": "|", "quote": "none"}),
    "names": (table(header="").encode(), {"header": ["city", "sales", "n", "v_0", "v_1"]}),
    "no header": (table(header="").encode(), {"header": "none", "columns": PLACES}),
    "duplicate headers": (table(header="a,a,a,a,a\n").encode(), {"columns": PLACES}),
    "trailing commas": (table(tail=",").replace("v_1,", "v_1", 1).encode(), {"ragged": True}),
    "trailing commas everywhere": (table(tail=",,").encode(), {}),
}


def place_of(path: Path, options: dict[str, Any]) -> Any:
    return read_place({"file": str(path), **options}, path.parent, "csv")


def ways(path: Path, options: dict[str, Any], records: Records = RECORDS) -> list[dict[str, Any]]:
    """Return the table by the csv module, and by pyarrow in chunks of several sizes."""
    place = place_of(path, options)
    found = [csv_files._by_lines(place, records, 2)]
    pytest.importorskip("pyarrow")
    found += [csv_files._by_chunks(place, records, 2, size) for size in (40, 10**5)]
    tables = []
    for pieces in found:
        blocks = [conform(piece, records) for piece in pieces]
        tables.append(
            {c.name: np.concatenate([b[c.name] for b in blocks]).tolist() for c in records.columns}
        )
    return tables


@pytest.mark.parametrize("name", DIALECTS)
def test_a_declared_dialect_reads_the_same_table(name: str, tmp_path: Path) -> None:
    data, options = DIALECTS[name]
    (tmp_path / "t.csv").write_bytes(data)
    for found in ways(tmp_path / "t.csv", options):
        assert found == {"city": CITIES, "sales": SALES, "n": NUMBERS, "v": PAIRS}


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_compressed(suffix: str, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    data = table().encode()
    packed = gzip.compress(data) if suffix == "gz" else arrow.compress(data, "zstd", asbytes=True)
    (tmp_path / f"t.csv.{suffix}").write_bytes(packed)
    for found in ways(tmp_path / f"t.csv.{suffix}", {}):
        assert found["sales"] == SALES
    (tmp_path / f"bad.csv.{suffix}").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="OS601"):
        list(open_source("csv", f"bad.csv.{suffix}", RECORDS, tmp_path).blocks())


CELLS = [
    (
        {"decimal": ","},
        {"1,5": "1.5", "1.5": None, "7": "7", ",5": ".5", "1,5e3": "1.5e3", "1,2,3": None},
    ),
    (
        {"thousands": ","},
        {
            "1,234.5": "1234.5",
            "3,14": None,
            "1,23,456": "123456",
            ",123": None,
            "1234": "1234",
            "12,3456": None,
            "1234,567": None,
        },
    ),
    (
        {"missing": ("-200", "NULL")},
        {"-200.0": None, " NULL": None, "-200": None, "-2e2": None, "-201": "-201", "null": "null"},
    ),
    (
        {"strip": ("$", "USD"), "thousands": ","},
        {"$1,000": "1000", "1,000 USD": "1000", "-$5": "-5", "$-5": "-5", "$": "", "5$USD": "5"},
    ),
    ({"decimal": ",", "missing": ("-200",)}, {"-200,0": None, "-200": None}),
]


@pytest.mark.parametrize(("options", "cells"), CELLS)
def test_a_number_is_read_by_its_cell_alone(
    options: dict[str, Any], cells: dict[str, str | None]
) -> None:
    dialect = Dialect(**options)
    assert {cell: dialect.number(cell) for cell in cells} == cells


def test_ragged_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1\n1,2\n1,2,3\n1,2,3,\n1,2,3,,\n1,2,3,x\n")
    records = Records((Column("a", "int64"), Column("b", "int64")))
    gone = -(2**63)
    for found in ways(tmp_path / "t.csv", {"ragged": True}, records):
        assert found["a"] == [1, 1, 1, 1, 1, gone]
        assert found["b"] == [gone, 2, 2, 2, 2, gone]
    for found in ways(tmp_path / "t.csv", {}, records):
        assert found["a"] == [gone, gone, 1, gone, gone, gone]


@given(
    st.lists(
        st.text(st.sampled_from("0123456789.,-+e $E'\u202f\u2212N\"\n"), max_size=8), max_size=5
    ),
    st.text(st.sampled_from("01,.;\"'$\n\r x"), max_size=8),
)
def test_a_record_elsewhere_changes_no_other(cells: list[str], other: str) -> None:
    """Neighbours under add/remove: the other records' cells are the same, whatever one record holds."""
    for options in (
        {"decimal": ","},
        {"thousands": ","},
        {"missing": ["N", 1], "strip": ["$"], "ragged": True},
    ):
        place = read_place({"file": "t.csv", "delimiter": ";", **options}, Path(), "csv")
        records = Records((Column("x", "float64"),))

        def read(rows: list[str], place: Any = place, records: Records = records) -> str:
            text = io.StringIO(newline="")
            csv.writer(text, delimiter=";").writerows([["x", "y"], *([row, "1"] for row in rows)])
            lines = csv_files.csv_records(place, io.BytesIO(text.getvalue().encode()))
            layout = csv_files.layout_of(place, records, csv_files.csv_header(place, lines))
            found = [conform(p, records)["x"] for p in csv_files._pieces(lines, 3, layout)]
            return repr([v for part in found for v in part.tolist()])

        alone = [read([cell])[1:-1] for cell in cells]
        assert read([*cells, other]) == f"[{', '.join([*alone, read([other])[1:-1]])}]"


WRONG: list[dict[str, Any]] = [
    {"decimal": ",."},
    {"decimal": "1"},
    {"decimal": ",", "thousands": ","},
    {"thousands": "-"},
    {"quote": ";", "delimiter": ";"},
    {"quote": ""},
    {"missing": []},
    {"missing": "NULL"},
    {"missing": [None]},
    {"missing": [True]},
    {"strip": ["0"]},
    {"strip": [""]},
    {"strip": ["."]},
    {"skip": -1},
    {"skip": True},
    {"encoding": "utf-7"},
    {"encoding": "iso2022_jp"},
    {"encoding": "base64"},
    {"encoding": 5},
    {"header": []},
    {"header": "first"},
    {"ragged": 1},
    {"columns": {"x": {"at": 0}}},
    {"columns": {"x": {"of": 1}}},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="OS304"):
        read_place({"file": "t.csv", **options}, Path(), "csv")


def test_options_of_text_files_are_of_text_files_alone() -> None:
    with pytest.raises(SpecError, match=r"OS303.*decimal"):
        read_place({"file": "t.npz", "decimal": ","}, Path(), "npz")
    with pytest.raises(SpecError, match="OS304"):
        read_place({"file": "t.npz", "columns": {"x": {"at": 1}}}, Path(), "npz")


@pytest.mark.parametrize(
    ("text", "options", "hint"),
    [
        (table().encode("utf-16"), {}, "encoding: utf-16"),
        (b"sep=;\n" + table().encode(), {}, "declare the delimiter"),
        (table(header="sales,sales,n,v_0,v_1\n").encode(), {}, "OS602"),
        (table(header="city,sales,sales,v_0,v_1\n").encode(), {}, "at: 3"),
        (table(header="").encode(), {}, "`header`"),
        (table(header="").encode(), {"header": "none"}, "OS602"),
        (table().encode(), {"columns": {"sales": {"at": 6}}}, "OS602"),
    ],
)
def test_form_is_refused_with_the_fix(
    text: bytes, options: dict[str, Any], hint: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_bytes(text)
    with pytest.raises(DataError) as refused:
        open_source("csv", {"file": "t.csv", **options}, RECORDS, tmp_path)
    assert hint in str(refused.value)


def test_no_line_of_a_file_without_a_header_changes_another(tmp_path: Path) -> None:
    """The first line is a record: how many cells it has decides about no other line."""
    records = Records((Column("a", "int64", bounds=(0, 9)),))
    for first in ("1", "1,2", "1,2,3", '"1'):
        (tmp_path / "t.csv").write_text(f"{first}\n")
        options = {"header": "none", "columns": {"a": {"at": 2}}}
        (tmp_path / "t.csv").write_text(
            f"{first}\n5,6\n7,8,9\n3\n" if first != '"1' else "5,6\n7,8,9\n3\n"
        )
        source = open_source("csv", {"file": "t.csv", **options}, records, tmp_path)
        found = [v for block in gated_blocks(source, "enforce")() for v in block["a"].tolist()]
        assert found[-2:] == [6, 8]
