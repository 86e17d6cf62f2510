"""Tables that libraries export, in any of their options: the same cells come back, or a coded refusal."""

from __future__ import annotations

import csv
import datetime as dt
import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from opendp_sim.core.errors import DataError
from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.open import open_source

RECORDS = Records(
    (
        Column("real", "float64"),
        Column("whole", "int64"),
        Column("text", "str"),
        Column("truth", "bool"),
        Column("day", "date"),
    )
)
Cells = dict[str, list[Any]]
Options = dict[str, Any]
Made = tuple[str, Options, Callable[[Path, Cells], None]]
"""The kind of source, its options, and what writes the file."""

_LETTERS = st.sampled_from(list("ab1é,;|\t\"' .-\n\r\u20ac"))
TEXTS = (
    st.text(_LETTERS, min_size=1, max_size=6).map(str.strip).filter(lambda t: t not in ("", "-"))
)
DAYS = st.dates(dt.date(1950, 1, 1), dt.date(2100, 1, 1))
REALS = st.floats(-1e12, 1e12, allow_subnormal=False).map(lambda v: v + 0.0)
WHOLES = st.integers(-(2**53), 2**53)


def cells(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> Cells:
    count = draw(st.integers(1, 5))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(st.none() | values, min_size=count, max_size=count))

    kinds = {"real": REALS, "whole": WHOLES, "text": texts, "truth": st.booleans(), "day": DAYS}
    return {name: column(values) for name, values in kinds.items()}


def arrow(table: Cells) -> pa.Table:
    kinds = {
        "real": pa.float64(),
        "whole": pa.int64(),
        "text": pa.string(),
        "truth": pa.bool_(),
        "day": pa.date32(),
    }
    return pa.table({name: pa.array(table[name], kind) for name, kind in kinds.items()})


def frame(table: Cells) -> pd.DataFrame:
    """Return a frame of pandas' own types with gaps."""
    kinds = {
        "real": "float64",
        "whole": "Int64",
        "text": "object",
        "truth": "boolean",
        "day": "object",
    }
    return pd.DataFrame({n: pd.Series(table[n], dtype=kind) for n, kind in kinds.items()})


# --- text files -----------------------------------------------------------------------------------


@st.composite
def of_pandas_csv(draw: st.DrawFn) -> tuple[Made, Cells]:
    sep, decimal = draw(
        st.sampled_from([(",", "."), (";", ","), ("\t", "."), ("|", ","), (";", ".")])
    )
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    quote, mark = draw(st.sampled_from("\"'")), draw(st.sampled_from(["", "NA", "-", "NULL"]))
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    suffix = draw(st.sampled_from(["", ".gz"])) if encoding != "utf-16" else ""
    told = {"delimiter": sep, "decimal": decimal, "quote": quote, "encoding": encoding}
    if mark:
        told["missing"] = [mark]

    def write(path: Path, table: Cells) -> None:
        frame(table).to_csv(
            path,
            index=draw_index,
            sep=sep,
            decimal=decimal,
            quoting=quoting,
            quotechar=quote,
            na_rep=mark,
            encoding=encoding,
            lineterminator=end,
        )

    draw_index = draw(st.booleans())
    texts = TEXTS
    if (
        quoting == csv.QUOTE_MINIMAL
    ):  # Python's csv writer leaves some line ends without quotes there:
        if end == "\r":  # then both end a line
            texts = TEXTS.filter(lambda t: "\r" not in t)
        elif end == "\n":  # a letter, but at the end of a line, where \r\n is one end
            texts = TEXTS.filter(lambda t: not t.endswith("\r"))
    return ("csv", {"file": f"t.csv{suffix}", **told}, write), cells(draw, texts)


@st.composite
def of_polars_csv(draw: st.DrawFn) -> tuple[Made, Cells]:
    comma = draw(st.booleans())
    sep = draw(st.sampled_from(";\t|" if comma else ",;\t|"))
    style = draw(st.sampled_from(["necessary", "always", "non_numeric", "never"]))
    mark, bom = draw(st.sampled_from(["", "NA", "-"])), draw(st.booleans())
    end = draw(st.sampled_from(["\n", "\r\n"]))
    told: Options = {"delimiter": sep, "decimal": "," if comma else "."}
    told |= {"missing": [mark]} if mark else {}
    texts = TEXTS
    if style == "never":
        told["quote"] = "none"
        texts = TEXTS.filter(lambda t: not set(t) & {sep, "\n", "\r"})

    def write(path: Path, table: Cells) -> None:
        pl.from_arrow(arrow(table)).write_csv(
            path,
            separator=sep,
            quote_style=style,
            null_value=mark,
            include_bom=bom,
            line_terminator=end,
            decimal_comma=comma,
        )

    return ("csv", {"file": "t.csv", **told}, write), cells(draw, texts)


@st.composite
def of_arrow_csv(draw: st.DrawFn) -> tuple[Made, Cells]:
    sep, style = draw(st.sampled_from(",;\t|")), draw(st.sampled_from(["needed", "all_valid"]))

    def write(path: Path, table: Cells) -> None:
        options = pa_csv.WriteOptions(delimiter=sep, quoting_style=style)
        pa_csv.write_csv(arrow(table), path, options)

    return ("csv", {"file": "t.csv", "delimiter": sep}, write), cells(draw, TEXTS)


@st.composite
def of_duckdb_csv(draw: st.DrawFn) -> tuple[Made, Cells]:
    sep, quote = draw(st.sampled_from(",;\t|")), draw(st.sampled_from("\"'"))
    mark, force = draw(st.sampled_from(["", "NA", "-"])), draw(st.booleans())
    told: Options = {"delimiter": sep, "quote": quote} | ({"missing": [mark]} if mark else {})

    def write(path: Path, table: Cells) -> None:
        quoted = quote.replace("'", "''")
        more = ", force_quote *" if force else ""
        copied(
            path,
            table,
            f"(format csv, header, delimiter '{sep}', quote '{quoted}', "
            f"escape '{quoted}', nullstr '{mark}'{more})",
        )

    return ("csv", {"file": "t.csv", **told}, write), cells(draw, TEXTS)


def copied(path: Path, table: Cells, how: str) -> None:
    with duckdb.connect() as held:
        held.register("made", arrow(table))
        held.sql(f"copy made to '{path}' {how}")


# --- files with types -----------------------------------------------------------------------------


@st.composite
def of_lines(draw: st.DrawFn) -> tuple[Made, Cells]:
    def by_polars(path: Path, table: Cells) -> None:
        pl.from_arrow(arrow(table)).write_ndjson(path)

    def by_duckdb(path: Path, table: Cells) -> None:
        copied(path, table, "(format json)")

    return ("jsonl", {"file": "t.jsonl"}, draw(st.sampled_from([by_polars, by_duckdb]))), cells(
        draw, TEXTS
    )


@st.composite
def of_parquet(draw: st.DrawFn) -> tuple[Made, Cells]:
    zipped = draw(st.sampled_from(["snappy", "zstd", "gzip"]))
    version, rows = draw(st.sampled_from(["1.0", "2.4", "2.6"])), draw(st.integers(1, 9))
    words = draw(st.booleans())
    large = draw(st.booleans())

    def by_arrow(path: Path, table: Cells) -> None:
        made = arrow(table)
        if large:
            made = made.cast(
                pa.schema(
                    [
                        f if f.name != "text" else pa.field("text", pa.large_string())
                        for f in made.schema
                    ]
                )
            )
        pq.write_table(
            made,
            path,
            compression=zipped,
            version=version,
            row_group_size=rows,
            use_dictionary=words,
            data_page_version="2.0" if large else "1.0",
        )

    def by_pandas(path: Path, table: Cells) -> None:
        frame(table).to_parquet(path, compression=zipped, index=large)

    def by_polars(path: Path, table: Cells) -> None:
        pl.from_arrow(arrow(table)).write_parquet(path, compression=zipped, row_group_size=rows)

    def by_duckdb(path: Path, table: Cells) -> None:
        copied(path, table, f"(format parquet, compression '{zipped}')")

    write = draw(st.sampled_from([by_arrow, by_pandas, by_polars, by_duckdb]))
    return ("parquet", {"file": "t.parquet"}, write), cells(draw, TEXTS)


@st.composite
def of_ipc(draw: st.DrawFn) -> tuple[Made, Cells]:
    zipped = draw(st.sampled_from(["uncompressed", "lz4", "zstd"]))
    views, rows = draw(st.booleans()), draw(st.integers(1, 9))

    def by_arrow(path: Path, table: Cells) -> None:
        made = arrow(table)
        if views:
            made = made.set_column(2, "text", made["text"].dictionary_encode())
        options = pa.ipc.IpcWriteOptions(compression=None if zipped == "uncompressed" else zipped)
        form = pa.ipc.new_stream if rows % 2 else pa.ipc.new_file
        with form(path, made.schema, options=options) as sink:
            sink.write_table(made.unify_dictionaries(), max_chunksize=rows)

    def by_polars(path: Path, table: Cells) -> None:
        made = pl.from_arrow(arrow(table))
        made.write_ipc(
            path,
            compression=zipped,
            compat_level=pl.CompatLevel.newest() if views else pl.CompatLevel.oldest(),
        )

    def by_pandas(path: Path, table: Cells) -> None:
        frame(table).to_feather(path, compression=zipped)

    write = draw(st.sampled_from([by_arrow, by_polars, by_pandas]))
    return ("arrow", {"file": "t.arrow"}, write), cells(draw, TEXTS)


@st.composite
def of_databases(draw: st.DrawFn) -> tuple[Made, Cells]:
    def by_duckdb(path: Path, table: Cells) -> None:
        with duckdb.connect(str(path)) as held:
            held.register("made", arrow(table))
            held.sql("create table t as select * from made")

    def by_pandas(path: Path, table: Cells) -> None:
        with closing(sqlite3.connect(path)) as held:
            frame(table).to_sql("t", held, index=False)

    write = draw(st.sampled_from([by_duckdb, by_pandas]))
    return ("sql", {"file": "t.db", "table": "t"}, write), cells(draw, TEXTS)


# --------------------------------------------------------------------------------------------------


def expected(table: Cells) -> dict[str, list[Any]]:
    """Return what the cells are when they are read as declared."""
    zero = dt.date(1970, 1, 1)
    return {
        "real": [math.nan if v is None else v for v in table["real"]],
        "whole": [MISSING if v is None else v for v in table["whole"]],
        "text": ["" if v is None else v for v in table["text"]],
        "truth": [MISSING if v is None else int(v) for v in table["truth"]],
        "day": [MISSING if v is None else (v - zero).days for v in table["day"]],
    }


def comes_back(made: tuple[Made, Cells], folder: Path) -> None:
    (kind, options, write), table = made
    path = folder / options["file"]
    path.unlink(missing_ok=True)
    try:
        "".join(t for t in table["text"] if t).encode(options.get("encoding", "utf-8"))
    except UnicodeEncodeError:
        return
    write(path, table)
    blocks, code = [], ""
    try:
        blocks = list(open_source(kind, options, RECORDS, folder).blocks())
    except DataError as error:
        code = error.code
    if code:
        assert code in ("OS601", "OS602")
        return
    for name, cells_of in expected(table).items():
        found = np.concatenate([block[name] for block in blocks]).tolist()
        assert list(map(repr, found)) == list(map(repr, cells_of)), name


MADE = {
    "csv of pandas": of_pandas_csv(),
    "csv of Polars": of_polars_csv(),
    "csv of pyarrow": of_arrow_csv(),
    "csv of DuckDB": of_duckdb_csv(),
    "JSON lines": of_lines(),
    "Parquet": of_parquet(),
    "Arrow": of_ipc(),
    "databases": of_databases(),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("count", [8, pytest.param(150, marks=pytest.mark.long)])
def test_what_a_library_exports_is_read_as_its_cells(
    name: str, count: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("exported")

    @settings(max_examples=count, deadline=None)
    @given(MADE[name])
    def check(made: tuple[Made, Cells]) -> None:
        comes_back(made, folder)

    check()
