"""Public rows that are the private ones under another name: known by file, object and memory, by no value."""

from __future__ import annotations

import gc
import os
import weakref
from functools import partial

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.io.plugins import register_io_source
from pyarrow import dataset, fs

from opendp_sim.core.errors import ReleaseError
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.frames import from_table
from opendp_sim.io.origin import Named, Origin, Remembered, origin_of, public_rows, refuse_private

X = np.arange(400.0).reshape(100, 4)
FRAME = pd.DataFrame(
    {
        "a": np.arange(10.0),
        "text": list("abcdefghij"),
        "whole": pd.array(range(10), dtype="Int64"),
        "kind": pd.Categorical(list("abababcdab")),
        "day": pd.date_range("2026-01-01", periods=10, tz="UTC"),
        "any": pd.Series(list("abcdefghij"), dtype=object),
    }
)
POLARS = pl.DataFrame({"a": np.arange(10.0), "text": ["a longer text than twelve"] * 10})
NESTED = pl.DataFrame({"parts": [{"b": 1.5 * n} if n % 3 else None for n in range(10)]})
MADE = type("Frame", (pd.DataFrame,), {})(FRAME)
ARROW = pa.table(
    {
        "a": np.arange(10.0),
        "lists": [[1, 2]] * 10,
        "vectors": pa.array([[1.0, 2.0]] * 10, pa.list_(pa.float64(), 2)),
        "parts": [{"b": 1.5}] * 10,
        "words": pa.array(["u", "v"] * 5).dictionary_encode(),
        "truth": [True, False] * 5,
    }
)
ROWS = [[1, 2], [3, 4]]


def chunks():
    yield {"a": X[:, 0]}


ONE = {
    "itself": (X, X),
    "some rows": (X, X[::3]),
    "a row": (X, X[3]),
    "a column": (X, X[:, 1]),
    "transposed": (X, X.T),
    "flat": (X, X.ravel()),
    "seen as bytes": (X, X.view(np.uint8)),
    "a column of a dict": ({"x": X}, {"y": X[5:9]}),
    "a list of rows": (X, [X[0], X[1]]),
    "masked": (X, np.ma.masked_array(X, X > 5)),
    "one field": (np.zeros(3, [("a", float), ("b", int)]),) * 2,
    "a frame": (FRAME, FRAME),
    "columns of a frame": (FRAME, FRAME[["a"]]),
    "rows of a frame": (FRAME, FRAME.iloc[2:5]),
    "a numpy column": (FRAME, {"z": FRAME["a"].to_numpy()}),
    "Polars": (POLARS, POLARS[3:5]),
    "a column of Polars": (POLARS, {"q": POLARS["a"]}),
    "a text column of Polars": (POLARS, POLARS["text"]),
    "Polars as Arrow": (POLARS, POLARS.to_arrow()),
    "Polars as numpy": (POLARS, {"a": POLARS["a"].to_numpy()}),
    "a part of Polars' structures": (NESTED, {"b": NESTED["parts"].struct.field("b")}),
    "a type made of pandas'": (MADE, {"z": MADE["a"].to_numpy()}),
    "a type made of Polars'": (type("Frame", (pl.DataFrame,), {})(POLARS), POLARS["a"]),
    "a batch": (ARROW, ARROW.to_batches()[0]),
    "rows of a list": (ROWS, ROWS[:1]),
    "a list as a column": ({"x": ROWS}, ROWS),
    "a lazy frame": (POLARS, POLARS.lazy()),
    "of a lazy frame": (POLARS.lazy().filter(pl.col("a") > 2), POLARS["a"]),
    "two lazy frames": (POLARS.lazy(), pl.concat([POLARS.lazy().select("text")] * 2)),
    "a dataset in memory": (ARROW, dataset.dataset(ARROW)),
    "a partial function": (partial(chunks, X), partial(len, X)),
    "a function": (chunks, chunks),
    "a method": (FRAME.head, FRAME.head),
    **{f"a pandas column {n}": (FRAME, {"q": FRAME[n]}) for n in FRAME},
    **{f"an Arrow column {n}": (ARROW, {"q": ARROW[n]}) for n in ARROW.column_names},
}
TWO = {
    "a copy": (X, X.copy()),
    "halves": (X[:50], X[50:]),
    "every other": (X[::2], X[1::2]),
    "halves by column": (np.asfortranarray(X)[:50], np.asfortranarray(X)[50:]),
    "halves of a frame": (FRAME.iloc[:5], FRAME.iloc[5:]),
    "halves of Polars": (POLARS[:5], POLARS[5:]),
    "halves of Arrow": (ARROW.slice(0, 5), ARROW.slice(5)),
    "equal lists": ([1, 2], [1, 2]),
    "nothing": ((), ()),
    "values": ({"a": 1, "b": "text"}, {"c": 1, "d": "text"}),
    "empty": ({}, {}),
}


@pytest.mark.parametrize(("private", "public"), ONE.values(), ids=ONE)
def test_one_origin(private, public):
    assert origin_of(private).meets(origin_of(public))
    assert origin_of(public).meets(origin_of(private))
    with pytest.raises(ReleaseError, match="OS704 here"):
        refuse_private(origin_of(public), origin_of(private), "here")


@pytest.mark.parametrize(("private", "public"), TWO.values(), ids=TWO)
def test_two_origins(private, public):
    assert not origin_of(private).meets(origin_of(public))


class Streamed:
    """A table of a library that nobody knows."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, asked=None):
        return self.table.__arrow_c_stream__(asked)


class Held:
    """An array of a library that nobody knows."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


READ = {
    "a reader": (ARROW, ARROW.to_reader),
    "a function": (ARROW, lambda: lambda: ARROW),
    "an object that streams": (POLARS, lambda: Streamed(POLARS)),
    "an object that streams pandas": (FRAME, lambda: Streamed(FRAME[["a"]])),
    "a memoryview": (X, lambda: {"a": memoryview(X[:, 1])}),
    "an object with an array": (X, lambda: {"a": Held(X[:, 2])}),
    "chunks of a function": (X, lambda: lambda: pa.table({"a": X[3]})),
}
"""What has no address before it is read."""


@pytest.mark.parametrize(("private", "made"), READ.values(), ids=READ)
def test_what_has_no_address_is_compared_as_it_is_read(private, made):
    records = Records((Column("a", "float64"),))
    ours, theirs = origin_of(private), origin_of(np.zeros(3))
    with pytest.raises(ReleaseError, match="OS704 here"):
        list(public_rows(from_table(records, made()), ours, "here").blocks())
    assert list(public_rows(from_table(records, made()), theirs, "here").blocks())


HELD = pl.DataFrame({"a": np.arange(10.0)})
GIVEN = {
    "a plugin": lambda: register_io_source(lambda *_: iter([HELD]), schema=HELD.schema),
    "a function of frames": lambda: pl.LazyFrame({"a": [1.0]}).map_batches(
        lambda _: HELD, schema=HELD.schema
    ),
    "a stream": lambda: Streamed(HELD),
    "a reader": lambda: HELD.to_arrow().to_reader(),
    "a lazy frame": HELD.lazy,
}


@pytest.mark.parametrize("made", GIVEN.values(), ids=GIVEN)
def test_the_result_of_a_query_is_a_private_table_too(made):
    """It was read and kept under no address: the table that it came from passed as public."""
    records = Records((Column("a", "float64"),))
    private = origin_of(from_table(records, made()))
    for public in (HELD, HELD[:3], HELD["a"].to_numpy(), HELD.to_arrow()):
        assert private.meets(origin_of(public))
    assert not private.meets(origin_of(HELD.select(pl.col("a") + 1)))
    assert sum(len(block["a"]) for block in from_table(records, made()).blocks()) == 10


def test_a_source_of_somebody_else_is_compared_as_it_is_read():
    class Theirs:
        records, length = Records((Column("a", "float64"),)), 10

        def blocks(self, rows=None):
            yield {"a": X.ravel()[:10]}

    assert list(public_rows(Theirs(), origin_of(np.zeros(3)), "here").blocks())
    with pytest.raises(ReleaseError, match="OS704 here"):
        list(public_rows(Theirs(), origin_of(X), "here").blocks())


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "a.npz", x=X, y=X)
    FRAME[["a"]].to_csv(tmp_path / "a.csv")
    (tmp_path / "soft").symlink_to("a.npy")
    (tmp_path / "hard").hardlink_to(tmp_path / "a.npy")
    (tmp_path / "days" / "year=1").mkdir(parents=True)
    for name in ("one.parquet", "year=1/two.parquet"):
        FRAME[["a"]].to_parquet(tmp_path / "days" / name)
    (tmp_path / "link.parquet").symlink_to("days/year=1/two.parquet")
    for kind in ("csv", "jsonl", "arrow", "npz"):
        (tmp_path / "all" / "year=1").mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / "year=1" / f"a.{kind}").write_text("a")
        (tmp_path / f"link.{kind}").symlink_to(f"all/year=1/a.{kind}")
    (tmp_path / "a.duckdb").write_text("a")
    (tmp_path / "link.db").symlink_to("a.duckdb")
    return tmp_path


FILES = [
    ("npy", "a.npy", ["soft", "hard", "days/../a.npy", {"file": "a.npy"}]),
    ("parquet", "days", ["days/one.parquet", "days/*.parquet", "days/year=1", "link.parquet"]),
    ("parquet", "days/o*.parquet", ["days", "days/one.parquet"]),
    *(
        (kind, "all", [f"link.{kind}", "all/year=1", "all/year=1/*"])
        for kind in ("csv", "jsonl", "arrow", "npz")
    ),
    (
        "sql",
        {"file": "a.duckdb", "query": "select 1"},
        [
            {"file": "a.duckdb", "table": "other"},
            {"file": "link.db", "query": "select 2"},
            {"file": "else.db", "query": "select x from t where y in (from 'DIR/a.duckdb')"},
        ],
    ),
    ("sql", {"file": "a.duckdb", "table": "people"}, [{"file": "copy.duckdb", "table": "people"}]),
    ("npz", "a.npz", [{"file": "a.npz", "columns": {"x": "y"}}]),
]


@pytest.mark.parametrize(
    ("kind", "private", "public"), [(k, o, v) for k, o, many in FILES for v in many], ids=str
)
def test_one_file_under_any_name(kind, private, public, files):
    if isinstance(public, dict) and "query" in public:
        public = public | {"query": public["query"].replace("DIR", str(files))}
    ours, theirs = (Named(kind, of, files) for of in (private, public))
    assert origin_of(ours).meets(origin_of(theirs))


def test_files_that_libraries_hold(files):
    def of(kind, name):
        return origin_of(Named(kind, name, files))

    folder = str(files / "days")
    one = str(files / "days" / "one.parquet")
    assert of("npy", "a.npy").meets(origin_of(np.load(files / "a.npy", mmap_mode="r")[3:]))
    with np.load(files / "a.npz") as archive:
        assert of("npz", "a.npz").meets(origin_of(archive))
    assert of("parquet", "days").meets(origin_of(dataset.dataset(folder)))
    assert of("parquet", "days").meets(origin_of(pl.scan_parquet(one)))
    whole = fs.SubTreeFileSystem(str(files), fs.LocalFileSystem())
    for named in (
        duckdb.sql(f"from '{one}'"),
        duckdb.sql(f"from '{folder}/*.parquet'"),
        duckdb.sql(f"from read_parquet('file://{one}')"),
        duckdb.read_parquet(one),
        pl.scan_parquet(f"file://{one}"),
        pl.scan_parquet(f"{folder}/*.parquet").select(pl.len()),
        pl.scan_pyarrow_dataset(dataset.dataset(one)),
        dataset.dataset([dataset.dataset(one)]),
        dataset.dataset("days/one.parquet", filesystem=whole),
        dataset.dataset(one).filter(dataset.field("a") > 3),
    ):
        assert of("parquet", "days").meets(origin_of(named))
        assert not of("npy", "a.npy").meets(origin_of(named))
    assert not of("npy", "a.npy").meets(of("csv", "a.csv"))
    assert not of("builtin", "digits").meets(of("builtin", "digits_test"))
    assert of("builtin", "digits").meets(of("builtin", "digits"))


def test_one_table_of_a_database():
    with duckdb.connect() as base:
        base.execute("create table people as select 1.0 as a")
        base.execute("create table other as select 1.0 as a")
        people = base.table("people")
        assert origin_of(people).meets(origin_of(people))
        assert origin_of(people).meets(origin_of(base.sql("select a from people where a > 0")))
        assert not origin_of(people).meets(origin_of(base.table("other")))


def test_what_is_odd_has_an_origin_of_its_own(files):
    os.mkfifo(files / "pipe")
    (files / "ring").symlink_to("ring")
    (files / "bare").mkdir()
    for kind, argument in (
        ("csv", "pipe"),
        ("csv", "ring"),
        ("csv", "nul\0"),
        ("csv", "none"),
        ("parquet", "bare"),
        ("csv", {"wrong": 1}),
        ("csv", 5),
        ("unknown", "x"),
        ("parquet", "no-*.parquet"),
    ):
        assert not origin_of(Named(kind, argument, files)).meets(origin_of(X))

    class Odd:
        def __getattr__(self, name):
            raise RuntimeError(name)

    for odd in (
        Odd(),
        None,
        5,
        "text",
        object(),
        lambda: 1,
        float("nan"),
        np.zeros(0),
        pa.nulls(3),
    ):
        assert not origin_of(odd).meets(origin_of(X))
    assert not Origin()


def test_no_value_is_read():
    """Two tables of one form and other values are told from others alike: the lemma of ``origin.md``."""

    class Seen(np.ndarray):
        def __getitem__(self, key):
            raise AssertionError("read")

    array = X.copy().view(Seen)
    assert origin_of(array).meets(origin_of(array))


def test_many_columns_are_compared_in_order_of_their_addresses():
    wide = {f"c{i}": np.zeros(3) for i in range(2000)}
    other = {f"c{i}": np.zeros(3) for i in range(2000)}
    assert not origin_of(wide).meets(origin_of(other))
    assert origin_of(wide).meets(origin_of(other | {"last": wide["c1999"]}))


@pytest.mark.parametrize(("private", "public"), ONE.values(), ids=ONE)
def test_what_is_remembered_is_found_as_long_as_it_is_there(private, public):
    if not isinstance(private, dict | tuple) and (
        not isinstance(private, list) or isinstance(private[0], np.ndarray)
    ):
        assert Remembered(private).origin().meets(origin_of(public))


@pytest.mark.parametrize(("private", "public"), TWO.values(), ids=TWO)
def test_what_is_remembered_is_no_more_than_what_was_given(private, public):
    assert not Remembered(private).origin().meets(origin_of(public))


def test_what_is_remembered_is_not_kept():
    table, frame = np.zeros((9, 2)), pd.DataFrame({"a": [1.0]})
    known, gone = (
        Remembered(table[2:5], [table[:1]], frame),
        [weakref.ref(table), weakref.ref(frame)],
    )
    assert known.origin().meets(origin_of(table))
    assert known.origin().meets(origin_of(frame))
    assert not known.origin().meets(origin_of(table[5:]))
    del table, frame
    gc.collect()
    assert [each() for each in gone] == [None, None]
    assert not known.origin()
