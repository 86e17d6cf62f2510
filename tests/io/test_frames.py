"""Tables in memory: the same records by every library as from Arrow itself and from Parquet."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from opendp_sim.core.errors import DataError
from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.columns import from_polars, in_arrow, typed_column
from opendp_sim.io.frames import from_table
from opendp_sim.io.gate import check_block
from opendp_sim.io.open import open_source
from opendp_sim.io.origin import origin_of
from opendp_sim.io.protocol import Source

D = decimal.Decimal
NAN = float("nan")
M = MISSING


def col(dtype: str, **rest: Any) -> Column:
    return Column("c", dtype, **rest)


DATE, TRUTH = col("date", bounds=(18000.0, 19000.0)), col("bool")
REAL, WHOLE, TEXT, PAIR = col("float64"), col("int64"), col("str"), col("array[f32, 2]")
AB, NUMBERS = col("category", keys=("a", "b")), col("category", keys=(3, 517))
CASES: dict[str, tuple[Any, Column, list[Any] | None]] = {
    "int64": (pa.array([1, None, 2**53 + 1]), WHOLE, [1, M, 2**53 + 1]),
    "uint64": (pa.array([1, 2**63 + 5, 3], pa.uint64()), WHOLE, [1, M, 3]),
    "int8": (pa.array([1, None, -128], pa.int8()), WHOLE, [1, M, -128]),
    "bool as a number": (pa.array([True, None, False]), WHOLE, [1, M, 0]),
    "bool as a real": (pa.array([True, None, False]), REAL, [1.0, NAN, 0.0]),
    "int as a real": (pa.array([1, None, 2**53 + 1]), REAL, [1.0, NAN, 2.0**53]),
    "nan and null": (pa.array([1.5, None, NAN]), REAL, [1.5, NAN, NAN]),
    "float32": (pa.array([0.1, 0.5, None], pa.float32()), REAL, [0.1, 0.5, NAN]),
    "decimal": (
        pa.array([D("0.10"), None, D("2.25")], pa.decimal128(10, 2)),
        REAL,
        [0.1, NAN, 2.25],
    ),
    "decimal id": (
        pa.array([D(1), None, D(2**53 + 1)], pa.decimal128(38, 0)),
        WHOLE,
        [1, M, 2**53 + 1],
    ),
    "decimal beyond": (pa.array([D(1), D(2**70), D(3)], pa.decimal128(38, 0)), WHOLE, [1, M, 3]),
    "text": (pa.array(["a", None, " é"]), TEXT, ["a", "", "é"]),
    "large text": (pa.array(["a", None, "b"], pa.large_string()), TEXT, ["a", "", "b"]),
    "text view": (pa.array(["a", None, "b"], pa.string_view()), TEXT, ["a", "", "b"]),
    "dictionary": (pa.array(["a", None, "z"]).dictionary_encode(), AB, [0, -1, -1]),
    "dictionary as text": (pa.array(["a", None, "b"]).dictionary_encode(), TEXT, ["a", "", "b"]),
    "numbers as keys": (pa.array([3, None, 517], pa.int32()), NUMBERS, [0, -1, 1]),
    "reals as keys": (pa.array([3.0, None, 3.5]), NUMBERS, [0, -1, -1]),
    "texts as keys": (pa.array(["517.0", None, "3"]), NUMBERS, [1, -1, 0]),
    "lists": (
        pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32())),
        PAIR,
        [[1, 2], [NAN, NAN], [3, 4]],
    ),
    "inner nulls": (
        pa.array([[1.0, None], [5.0, 6.0], [3.0]], pa.list_(pa.float64())),
        PAIR,
        [[1, NAN], [5, 6], [NAN, NAN]],
    ),
    "fixed lists": (
        pa.array([[1, 2], [5, 6], [3, 4]], pa.list_(pa.float32(), 2)),
        PAIR,
        [[1, 2], [5, 6], [3, 4]],
    ),
    "no cell": (pa.nulls(3), REAL, [NAN, NAN, NAN]),
    "no text": (pa.nulls(3), TEXT, ["", "", ""]),
    "days": (pa.array([dt.date(2020, 1, 2), None, dt.date(1969, 1, 1)]), DATE, [18263, M, -365]),
    "times of days": (pa.array([1, None, -1], pa.timestamp("us")), DATE, [0, M, -1]),
    "zoned times of days": (pa.array([1, None, -1], pa.timestamp("us", "UTC")), DATE, [0, M, -1]),
    "numbers of days": (pa.array([1, None, 3]), DATE, None),
    "text for a date": (pa.array(["2020-01-02", None, "x"]), DATE, None),
    "truths": (pa.array([True, None, False]), TRUTH, [1, M, 0]),
    "numbers as truths": (pa.array([1, None, 2], pa.int8()), TRUTH, [1, M, M]),
    "reals as truths": (pa.array([1.0, None, NAN]), TRUTH, [1, M, M]),
    "text for a truth": (pa.array(["true", None, "x"]), TRUTH, None),
    "no date": (pa.nulls(3), DATE, [M, M, M]),
    "date": (pa.array([dt.date(2020, 1, 2), None, dt.date(1969, 1, 1)]), WHOLE, None),
    "time": (pa.array([1, None, 3], pa.timestamp("us")), REAL, None),
    "zoned": (pa.array([1, None, 3], pa.timestamp("us", "UTC")), WHOLE, None),
    "duration": (pa.array([1, None, 3], pa.duration("us")), WHOLE, None),
    "binary": (pa.array([b"a", None, b"\xff"]), TEXT, None),
    "structures": (pa.array([{"a": 1}, None, {"a": 3}]), REAL, None),
    "text for a number": (pa.array(["1", None, "3"]), WHOLE, None),
    "a number for text": (pa.array([1, None, 3]), TEXT, None),
    "lists for a number": (pa.array([[1.0], None, [3.0]]), REAL, None),
}
"""An Arrow array, a declaration, and the cells that come of them; None for a refusal (OS602)."""


def _duckdb(table: Any) -> Any:
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(table)


FRAMES = {
    "arrow": lambda t: t,
    "chunked": lambda t: pa.concat_tables([t.slice(0, 1), t.slice(1)]),
    "batch": lambda t: t.to_batches()[0] if t.num_rows else t,
    "reader": lambda t: t.to_reader(),
    "function": lambda t: t.to_reader,
    "dataset": ds.dataset,
    "pandas nullable": lambda t: t.to_pandas(types_mapper=_nullable.get),
    "pandas over arrow": lambda t: t.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
    "polars lazy": lambda t: pl.from_arrow(t).lazy(),
    "narwhals": lambda t: pytest.importorskip("narwhals").from_native(pl.from_arrow(t)),
    "duckdb": _duckdb,
}
OBJECTS = {"date", "binary", "structures", "lists for a number", "time of days"}
"""What pandas without Arrow holds as objects, each of which is read by itself."""
_nullable = {
    pa.int8(): pd.Int8Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.string(): pd.StringDtype(),
    pa.large_string(): pd.StringDtype(),
}


def cells(source: Source, rows: int = 2) -> Any:
    """Return what comes through the door, checked for structure, as plain values; or the refusal."""
    try:
        blocks = list(source.blocks(rows))
        for block in blocks:
            check_block(block, source.records, "assume")
    except DataError as error:
        return error.code
    return [v for block in blocks for v in block["c"].tolist()]


def opened(table: Any, column: Column, rows: int = 2) -> Any:
    try:
        source = from_table(Records((column,)), table)
    except DataError as error:
        return error.code
    return cells(source, rows)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("route", FRAMES)
def test_the_same_records_by_every_route(route: str, case: str, tmp_path: Path) -> None:
    array, column, expected = CASES[case]
    for cut in (slice(0, 1), slice(1, 3), slice(0, 3)):
        table = pa.table({"other": pa.array(["x"] * 3), "c": array})[cut]
        wanted = "OS602" if expected is None else expected[cut]
        frame = FRAMES[route](table)
        if route == "pandas nullable" and case in OBJECTS:  # no type: no cell of it can be read
            wanted = [{"int64": M, "str": "", "float64": NAN}[column.dtype]] * table.num_rows
        assert_same(opened(frame, column), wanted)
        if route == "arrow":
            pq.write_table(table, tmp_path / "t.parquet")
            file = open_source("parquet", "t.parquet", Records((column,)), tmp_path)
            assert_same(cells(file), wanted)


def assert_same(found: Any, wanted: Any) -> None:
    if any(isinstance(v, str) for v in (found, wanted, *wanted[:1])):
        assert found == wanted
    else:
        assert np.array_equal(
            np.array(found, dtype=np.float32), np.array(wanted, dtype=np.float32), equal_nan=True
        )
        assert [v for v in found if isinstance(v, int)] == [v for v in wanted if isinstance(v, int)]


# --- numpy and pandas' own dtypes -----------------------------------------------------------------

TIMES = pd.date_range("2020", periods=3)
PLAIN = {
    "int64 with a gap": (pd.Series([1.0, None, 3.0]), WHOLE, "OS602"),
    "float64": (pd.Series([1.5, None, 3.0]), REAL, [1.5, NAN, 3.0]),
    "float32": (pd.Series([1.5, None, 3.0], dtype="float32"), REAL, [1.5, NAN, 3.0]),
    "uint8": (pd.Series([1, 0, 255], dtype="uint8"), WHOLE, [1, 0, 255]),
    "bool": (pd.Series([True, False, True]), WHOLE, [1, 0, 1]),
    "objects": (pd.Series([1, "x", None, 2.0, "517.0", D(4)], dtype=object), WHOLE, [1, M, M, 2, 517, 4]),
    "object texts": (pd.Series(["a", 5, None], dtype=object), TEXT, ["a", "5", ""]),
    "python texts": (pd.Series(["a", None, "\ud800"], dtype="string[python]"), AB, [0, -1, -1]),
    "category": (pd.Series(["b", None, "z"], dtype="category"), AB, [1, -1, -1]),
    "mixed category": (pd.Series(pd.Categorical(["b", None, 5], categories=["b", 5])), AB, [1, -1, -1]),
    "category of numbers": (pd.Series([517, None, 3], dtype="category"), NUMBERS, [1, -1, 0]),
    "days": (pd.Series(TIMES), DATE, [18262, 18263, 18264]),
    "dates": (pd.Series([dt.date(1970, 1, 2), None, pd.NaT, "2020-01-01", 5], dtype=object), DATE, [1, M, M, 18262, M]),
    "truths": (pd.Series([True, None, "FALSE", 1, 2, "x"], dtype=object), TRUTH, [1, M, 0, 1, M, M]),
    "times": (pd.Series(TIMES), WHOLE, "OS602"),
    "zoned times": (pd.Series(TIMES.tz_localize("Europe/Rome")), REAL, "OS602"),
    "periods": (pd.Series(TIMES.to_period("D")), WHOLE, "OS602"),
    "intervals": (pd.Series(pd.interval_range(0, 3)), REAL, "OS602"),
    "sparse": (pd.Series(pd.arrays.SparseArray([0, 1, 0])), WHOLE, [0, 1, 0]),
    "complex": (pd.Series([1j, 2, 3]), REAL, "OS602"),
    "embeddings": (pd.Series([np.array([1, 2]), None, [3.0, 4.0]]), PAIR, [[1, 2], [NAN, NAN], [3, 4]]),
}  # fmt: skip


@pytest.mark.parametrize("case", PLAIN)
def test_pandas_own_dtypes(case: str) -> None:
    series, column, wanted = PLAIN[case]
    frame = pd.DataFrame({"other": [object()] * len(series), "c": series})
    for rows in (1, 2, 100):
        assert_same(opened(frame, column, rows), wanted)
    for at in range(len(series)):  # a cell is read alone as it is among the others
        alone = opened(frame.iloc[at : at + 1], column)
        assert_same(alone, wanted if isinstance(wanted, str) else wanted[at : at + 1])


def test_numpy_tables_by_name_and_side_by_side() -> None:
    records = Records((REAL, Column("v", "array[f32, 2]"), Column("k", "int64")))
    plain = np.array([(1.5, [1, 2], 3), (2.5, [3, 4], 5)], dtype="f8, (2,)f4, i8")
    plain.dtype.names = ("c", "v", "k")
    masked = np.ma.array(plain, mask=[(False, False, True), (True, False, False)])
    beside = np.array([[1.5, 1, 2, 3.5], [2.5, 3, 4, 5]])
    spread = {"c": plain["c"], "v_0": [1.0, 3.0], "v_1": [2.0, 4.0], "k": plain["k"]}
    frames = [
        plain,
        {n: plain[n] for n in ("c", "v", "k")},
        pd.DataFrame(spread),
        pl.DataFrame(spread),
    ]
    first = None
    for frame in [*frames, pa.table(spread)]:
        (block,) = from_table(records, frame).blocks()
        first = first or block
        assert all(np.array_equal(block[n], first[n]) for n in first)
    (block,) = from_table(records, masked).blocks()
    assert block["k"].tolist() == [M, 5]
    assert np.isnan(block["c"]).tolist() == [False, True]
    reals = Records((REAL, Column("v", "array[f32, 2]"), Column("k", "float64")))
    (block,) = from_table(reals, beside).blocks()
    assert block["v"].tolist() == [[1, 2], [3, 4]]
    for bad in (beside[:, :3], np.float64(3.0) * np.ones(())):
        with pytest.raises(DataError, match=r"OS60[12]"):
            from_table(reals, bad)


# --- what is refused, and what is not said --------------------------------------------------------

SECRET = "p4711"  # noqa: S105 - a record


class Quoting:
    """A frame whose library quotes a record when it fails."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        raise ValueError(SECRET)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (Quoting(), "OS601"),
        (Quoting, "OS601"),
        (lambda: 3, "OS601"),
        ([SECRET], "OS601"),
        (SECRET, "OS601"),
        (None, "OS601"),
        (pd.Series([SECRET]), "OS601"),
        ({"d": [SECRET]}, "OS602"),
        (pd.DataFrame({"d": [SECRET]}), "OS602"),
        (pl.DataFrame({"d": [SECRET]}).lazy(), "OS602"),
        (pa.table({"d": [SECRET]}), "OS602"),
        (ds.dataset(pa.table({"d": [SECRET]})), "OS602"),
        (pd.DataFrame([[1.0, 2.0]], columns=["c", "c"]), "OS602"),
        (pa.table([[1.0], [2.0]], names=["c", "c"]), "OS602"),
        (pl.DataFrame({"c": [4711]}, schema={"c": pl.Int128}), "OS602"),
        (pl.DataFrame({"c": [object()]}), "OS602"),
        (pl.LazyFrame({"c": [SECRET]}).with_columns(pl.col("c").cast(pl.Int64)), "OS601"),
        (pl.Series("c", [4711.0]), "OS601"),
        (pl.DataFrame({"c": [4711.0]}).group_by("c"), "OS601"),
    ],
    ids=lambda v: v if isinstance(v, str) else type(v).__name__,
)
def test_refusals_are_coded_and_quote_nothing(frame: Any, code: str) -> None:
    records = Records((REAL,))
    with pytest.raises(DataError, match=code) as refused:
        [check_block(block, records, "refuse") for block in from_table(records, frame).blocks()]
    error: BaseException | None = refused.value
    assert error is not None
    assert error.__context__ is None
    assert error.__cause__ is None
    assert "4711" not in str(error)


def test_the_name_of_a_file_is_sent_to_the_plan() -> None:
    """plan.apply("trips.csv") spoke of Arrow streams and readers alone."""
    with pytest.raises(DataError, match=r"source='trips\.csv'"):
        list(from_table(Records((REAL,)), "trips.csv").blocks())


STRANGE = {
    "objects": lambda: pl.Series("c", [object(), None], dtype=pl.Object),
    "no object": lambda: pl.Series("c", [], dtype=pl.Object),
    "128 bits": lambda: pl.Series("c", [1, None], dtype=pl.Int128),
    "a structure, cut": lambda: pl.Series("c", [{"a": 1.0}, None, {"a": 3.0}]).slice(1, 2),
    "lists of structures": lambda: pl.Series("c", [[{"a": 1.0}], None]),
}
"""Columns of Polars that have no type of Arrow's, or come out of it broken."""
ROUTES: dict[str, Any] = {
    "frame": pl.Series.to_frame,
    "lazy": lambda s: s.to_frame().lazy(),
    "narwhals": lambda s: pytest.importorskip("narwhals").from_native(s.to_frame()),
    "function": lambda s: s.to_frame,
    "lazy function": lambda s: s.to_frame().lazy,
    "subclass": lambda s: type("Frame", (pl.DataFrame,), {})(s.to_frame()),
    "dict": lambda s: {"c": s},
    "frame in a dict": lambda s: {"c": s.to_frame()},
}


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("made", STRANGE.values(), ids=STRANGE)
def test_types_that_arrow_lacks_are_refused_before_an_export(made: Any, route: Any) -> None:
    """An export of objects ended the process (Polars 1.36), or gave addresses of memory (2.1)."""
    series = made()
    origin_of(series.to_frame())  # every column, declared or not
    for column in (REAL, TEXT, PAIR):
        assert opened(route(series), column) == "OS602"
    with pytest.raises(DataError, match="OS602"):
        typed_column(series, "c")


def test_every_type_of_polars_that_is_exported_comes_whole() -> None:
    """Of each type that this Polars has, a cut column of nulls; a new type is refused until it is listed."""
    plain = [kind for kind in vars(pl.datatypes).values() if isinstance(kind, type)]
    plain = [kind for kind in plain if issubclass(kind, pl.DataType) and in_arrow(kind)]
    whole = [kind() for kind in plain if kind not in (pl.Decimal, pl.Enum, pl.List, pl.Array)]
    whole += [pl.Decimal(38, 2), pl.Enum(["a"])]
    assert len(whole) >= 20
    assert not any(map(in_arrow, (pl.Object(), pl.List(pl.Object), pl.Array(pl.Struct({}), 2))))
    for kind in [*whole, *map(pl.List, whole), *(pl.Array(one, 2) for one in whole)]:
        cells = from_polars(pl.Series("c", [None] * 3, dtype=kind).slice(1, 2), "c")
        cells.validate(full=True)
        assert cells.to_pylist() == [None, None]


def test_a_reader_is_read_once_and_never_an_empty_table_afterwards() -> None:
    reader = pa.table({"c": [1.0, 2.0]}).to_reader()
    source = from_table(Records((REAL,)), reader)
    assert [cells(source), cells(source)] == [[1.0, 2.0]] * 2
    with pytest.raises(DataError, match="OS601"):
        from_table(Records((REAL,)), reader)


def test_what_arrow_holds_in_memory_is_shared() -> None:
    table = pa.table({"c": np.arange(2**16, dtype=np.float64)})
    before = pa.total_allocated_bytes()
    source = from_table(Records((REAL,)), pl.from_arrow(table))
    assert pa.total_allocated_bytes() - before < table.nbytes // 4
    (block,) = source.blocks(2**16)
    assert np.array_equal(block["c"], np.arange(2**16))


# --- the same files --------------------------------------------------------------------------------


def test_dates_and_truths_by_every_route(tmp_path: Path) -> None:
    """Also from text, and behind the gate: what is clamped, and what is dropped."""
    records = Records((Column("d", "date", bounds=(18262.0, 18300.0)), Column("b", "bool")))
    table = pa.table(
        {
            "d": [dt.date(2020, 1, 2), dt.date(1999, 1, 1), None, dt.date(2020, 1, 3)],
            "b": [True, False, True, None],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("d,b\n2020-01-02,True\n1999-01-01,0\n,true\n2020-01-03,maybe\n")
    np.savez(
        tmp_path / "t.npz",
        d=np.array(["2020-01-02", "1999-01-01", "NaT", "2020-01-03"], dtype="M8[s]"),
        b=np.array([1, 0, 1, 7]),
    )
    routes: list[Source] = [
        open_source(kind, f"t.{kind}", records, tmp_path) for kind in ("parquet", "csv", "npz")
    ]
    routes += [from_table(records, t) for t in (table, table.to_pandas(), pl.from_arrow(table))]
    for source in routes:
        kept = [check_block(block, records, "enforce") for block in source.blocks(3)]
        assert np.concatenate([part["d"] for part in kept]).tolist() == [18263, 18262]
        assert np.concatenate([part["b"] for part in kept]).tolist() == [1, 0]
    for dtype in ("M8[Y]", "M8[M]", "M8[ns]", "M8[D]"):
        far = np.array([2**62, -(2**62)]).astype(dtype)
        assert len(from_table(Records((DATE,)), {"c": far}).form()["c"]) == 0
        (block,) = from_table(Records((DATE,)), {"c": far}).blocks()
        assert block["c"][0] > 0 > block["c"][1]


def test_a_release_is_the_same_whatever_holds_the_table(tmp_path: Path) -> None:
    """End to end without noise to speak of: the counts behind a density, by table and by file."""
    import opendp_sim as sim

    fit = sim.density({"c": (0.0, 1.0)}, bandwidth=0.3, epsilon=1e7)
    values = [0.1, None, 0.5, 7.0]
    frames = [
        FRAMES[route](pa.table({"c": values})) for route in ("arrow", "polars lazy", "reader")
    ]
    frames += [pd.DataFrame({"c": values}), {"c": values}]
    found = []
    for at, frame in enumerate(frames):
        release = fit.apply(frame, into=tmp_path / str(at))
        found.append(release.density({"c": [0.1, 0.9]})["density"].ravel())
    assert np.allclose(found, found[0], atol=0.05)
    assert found[0][0] > 1.0


MIXED = ["101", 101, np.int64(102), 102.0, D("103"), " 103 ", "V45"]


def test_a_polars_column_of_objects_is_refused_by_its_type() -> None:
    table = pl.DataFrame({"c": pl.Series(MIXED, dtype=pl.Object)})
    with pytest.raises(DataError, match=r"OS60[12]"):
        list(from_table(Records((TEXT,)), table).blocks())
