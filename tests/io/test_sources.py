"""Sources: every format gives the same records, in any blocks; bad input gets its own coded error."""

from __future__ import annotations

import builtins
import bz2
import gzip
import json
import lzma
import sqlite3
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from pyarrow import feather

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.errors import DataError, SimError, SpecError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.category_codes import key_indices
from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.builtin import builtin_source
from opendp_sim.io.csv_files import LONGEST_RECORD
from opendp_sim.io.file_spec import COUNTED, NO_OBJECT, reading
from opendp_sim.io.fold import build_sketch, collect_rows
from opendp_sim.io.frames import from_table
from opendp_sim.io.gate import check_block, check_form, gated_blocks
from opendp_sim.io.open import SOURCE_NAMES, open_source
from opendp_sim.io.protocol import PieceSource, Source, from_arrays
from opendp_sim.io.table_files import VoteColumns
from tests._gate import check_source

RECORDS = Records(
    (
        Column("x", "array[f64, 2]", bounds=(0.0, 1.0)),
        Column("user", "int64", role="privacy_id"),
        Column("kind", "category", keys=("a", 3)),
    )
)
COUNT = 500


def raw() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "x": generator.random((COUNT, 2)),
        "user": generator.integers(0, 50, COUNT),
        "kind": generator.choice(np.array(["a", "3"]), COUNT),
    }


def write_npz(path: Path, data: dict[str, np.ndarray]) -> None:
    np.savez_compressed(path, **data)


def write_npy(path: Path, data: dict[str, np.ndarray]) -> None:
    out = np.zeros(len(data["x"]), dtype=[("x", "f8", 2), ("user", ">i8"), ("kind", "U2")])
    for name, column in data.items():
        out[name] = column
    np.save(path, out)


def write_csv(path: Path, data: dict[str, np.ndarray]) -> None:
    lines = ["kind,x_0,x_1,user"]
    for k, (a, b), u in zip(data["kind"], data["x"].tolist(), data["user"], strict=True):
        lines.append(f'"{k}",{a!r}, {b!r},{u}')
    text = "\n".join(lines) + "\n"
    zipped = path.suffix == ".gz"
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())


def write_json_csv(path: Path, data: dict[str, np.ndarray]) -> None:
    lines = ["\ufeffuser;kind;x"]
    for k, x, u in zip(data["kind"], data["x"].tolist(), data["user"], strict=True):
        lines.append(f"{u};{k};{json.dumps(x)}")
    path.write_text("\r\n".join(lines), encoding="utf-8")


def write_parquet(path: Path, data: dict[str, np.ndarray]) -> None:
    x = pa.FixedSizeListArray.from_arrays(pa.array(data["x"].ravel()), 2)
    kind = pa.array(data["kind"]).dictionary_encode()
    pq.write_table(pa.table({"x": x, "user": data["user"], "kind": kind}), path, row_group_size=77)


def write_arrow(path: Path, data: dict[str, np.ndarray]) -> None:
    x = pa.FixedSizeListArray.from_arrays(pa.array(data["x"].ravel()), 2)
    table = pa.table({"other": data["user"], "x": x, "user": data["user"], "kind": data["kind"]})
    zipped = pa.ipc.IpcWriteOptions(compression="zstd" if path.suffix == ".feather" else None)
    form = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    with form(path, table.schema, options=zipped) as sink:
        sink.write_table(table, max_chunksize=77)


def write_jsonl(path: Path, data: dict[str, np.ndarray]) -> None:
    """Write lines of which every second one has a list, the others a key for each entry."""
    lines = []
    for at, (k, x, u) in enumerate(
        zip(data["kind"], data["x"].tolist(), data["user"], strict=True)
    ):
        place = {"x": x} if at % 2 else {"x_1": x[1], "x_0": x[0]}
        lines.append(json.dumps({"kind": k, **place, "user": int(u)}) + "\n")
    text = "".join(lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def write_fortran(path: Path, data: dict[str, np.ndarray]) -> None:
    kind = data["kind"].astype(object)
    np.savez(path, x=np.asfortranarray(data["x"]), user=data["user"], kind=kind)


def write_members(path: Path, data: dict[str, np.ndarray]) -> None:
    np.savez(path, **{f"g{n:02d}": c for n, c in enumerate(data["x"].T, 9)}, **data | {"x": [0]})


def write_folder(path: Path, data: dict[str, np.ndarray]) -> None:
    write = {".jsonl": write_jsonl, ".csv": write_csv}[path.suffix]
    for name, part in (("a", slice(0, 100)), ("b", slice(100, 100)), ("c", slice(100, None))):
        (path / f"part={name}").mkdir(parents=True)
        write(path / f"part={name}" / f"t{path.suffix}", {n: c[part] for n, c in data.items()})


def write_duckdb(path: Path, data: dict[str, np.ndarray]) -> None:
    frame = pa.table({"x": data["x"].tolist(), "user": data["user"], "kind": data["kind"]})
    with duckdb.connect(str(path)) as held:
        held.register("frame", frame)
        held.execute("create table visits as select * from frame")


def write_sqlite(path: Path, data: dict[str, np.ndarray]) -> None:
    with closing(sqlite3.connect(path)) as held, held:
        held.execute("create table visits (kind, user, x_0, x_1)")
        rows = zip(data["kind"].tolist(), data["user"].tolist(), *data["x"].T.tolist(), strict=True)
        held.executemany("insert into visits values (?, ?, ?, ?)", rows)


FORMATS: list[tuple[str, Any, Callable[[Path, Any], None]]] = [
    ("npz", "t.npz", write_npz),
    ("npy", "t.npy", write_npy),
    ("csv", "t.csv", write_csv),
    ("csv", "t.csv.gz", write_csv),
    ("csv", {"file": "j.csv", "delimiter": ";"}, write_json_csv),
    ("parquet", "t.parquet", write_parquet),
    ("arrow", "t.arrow", write_arrow),
    ("arrow", "t.feather", write_arrow),
    ("arrow", "t.arrows", write_arrow),
    ("jsonl", "t.jsonl", write_jsonl),
    ("jsonl", "t.jsonl.gz", write_jsonl),
    ("npz", "f.npz", write_fortran),
    ("npz", {"file": "m.npz", "columns": {"x": {"prefix": "g", "count": 2}}}, write_members),
    ("npz", {"file": "n.npz", "columns": {"x": ["g09 .. g10"]}}, write_members),
    ("csv", {"file": "all.csv", "columns": {"x": {"prefix": "x_", "count": 2}}}, write_folder),
    ("jsonl", "all.jsonl", write_folder),
    ("sql", {"file": "t.duckdb", "table": "main.visits"}, write_duckdb),
    ("sql", {"file": "t.sqlite", "query": "select * from visits; "}, write_sqlite),
]


def whole(source: Source, rows: int | None = None) -> dict[str, np.ndarray]:
    blocks = list(source.blocks(rows))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


@pytest.mark.few(9)
@pytest.mark.parametrize(("kind", "argument", "write"), FORMATS, ids=lambda v: str(v)[:20])
def test_formats_agree_bit_for_bit(
    tmp_path: Path, kind: str, argument: Any, write: Callable[[Path, Any], None]
) -> None:
    data = raw()
    name = argument["file"] if isinstance(argument, dict) else argument
    write(tmp_path / name, data)
    source = open_source(kind, argument, RECORDS, tmp_path)
    check_source(source)
    for rows in (1, 64, 499, 100_000):
        found = whole(source, rows)
        assert found["x"].tobytes() == data["x"].tobytes()
        assert np.array_equal(found["user"], data["user"])
        assert np.array_equal(found["kind"], (data["kind"] == "3").astype(int))
        assert all(len(block["user"]) == rows for block in list(source.blocks(rows))[:-1])
    assert source.length in (None, COUNT)


def test_columns_can_be_renamed(tmp_path: Path) -> None:
    data = raw()
    write_csv(tmp_path / "t.csv", data)
    records = Records((Column("place", "array[f64, 2]"), Column("who", "int64")))
    columns = {"place": ["x_1", "x_0"], "who": "user"}
    source = open_source("csv", {"file": "t.csv", "columns": columns}, records, tmp_path)
    assert np.array_equal(whole(source)["place"], data["x"][:, ::-1])


# --- bad input: each defect its own code, a hint, and never a value ------------------------------

SECRET = "81549300275"  # noqa: S105 - stands for a value of the data


def refused(action: Callable[[], object]) -> SimError:
    with pytest.raises(SimError) as caught:
        action()
    error = caught.value
    assert error.hint
    assert SECRET not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    return error


def spoiled(name: str, value: Any) -> dict[str, np.ndarray]:
    data = raw()
    if isinstance(value, str) or data[name].dtype.kind == "U":
        data[name] = data[name].astype(object)
    data[name][137] = value
    return data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (spoiled("x", np.nan), "OS603"),
        (spoiled("x", np.inf), "OS603"),
        (spoiled("x", -float(SECRET)), "OS605"),
        (spoiled("kind", SECRET), "OS604"),
        (spoiled("user", MISSING), "OS603"),
        (raw() | {"x": np.zeros((COUNT, 3))}, "OS602"),
        (raw() | {"x": np.full((COUNT, 2), SECRET)}, "OS602"),
        (raw() | {"user": np.full(COUNT, 0.5)}, "OS602"),
    ],
)
def test_the_gate_refuses(data: dict[str, np.ndarray], code: str) -> None:
    assert refused(lambda: check_source(from_arrays(RECORDS, data))).code == code


def test_missing_and_unequal_columns_are_refused() -> None:
    data = raw()
    assert refused(lambda: from_arrays(RECORDS, data | {"x": data["x"][:-1]})).code == "OS602"
    del data["user"]
    assert refused(lambda: from_arrays(RECORDS, data)).code == "OS602"
    chunked = PieceSource(RECORDS, lambda _rows: [data])
    assert refused(lambda: check_source(chunked)).code == "OS602"


@pytest.mark.parametrize("kind", sorted(set(SOURCE_NAMES) - {"builtin"}))
def test_missing_and_broken_files(tmp_path: Path, kind: str) -> None:
    none: Any = {"file": "none", "table": "t"} if kind == "sql" else "none"
    assert refused(lambda: open_source(kind, none, RECORDS, tmp_path)).code == "OS601"
    (tmp_path / "broken").write_bytes(b"\x93NUMPY\x01\x00\xff\xfe" + SECRET.encode() * 9)
    broken: Any = {"file": "broken", "table": "t"} if kind == "sql" else "broken"
    error = refused(lambda: check_source(open_source(kind, broken, RECORDS, tmp_path)))
    assert error.code in ("OS601", "OS602")


def test_a_readers_own_words_are_not_kept() -> None:
    """A reader may quote a record; ``from None`` alone would leave its error as the context."""
    with pytest.raises(DataError) as caught, reading(Path("t.csv"), "readable .csv"):
        raise ValueError(SECRET)
    seen: BaseException | None = caught.value
    assert seen is not None
    assert SECRET not in str(seen)
    assert seen.__cause__ is None
    assert seen.__context__ is None


def test_a_wrong_dtype_is_named_as_one_whatever_stands_for_it() -> None:
    """2.345 under int64 is no value outside the bounds; the text is the declaration, nothing else."""
    records = Records((Column("age", "int64", bounds=(0, 150)), Column("x", "array[f64, 1]")))
    texts = []
    for defect in (1, 7):
        ages = np.full(9, 30)
        ages[-defect:] = MISSING
        source = from_arrays(records, {"age": ages, "x": np.zeros((9, 1))})
        error = refused(lambda source=source: check_source(source))
        assert error.code == "OS603"
        assert "age int64" in error.expected
        texts.append(str(error))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["t.npz", "t.npy", "t.parquet", "t.arrow"])
def test_truncated_files(tmp_path: Path, name: str) -> None:
    kind = name.split(".")[1]
    {k: w for k, _, w in reversed(FORMATS)}[kind](tmp_path / name, raw())
    content = (tmp_path / name).read_bytes()
    for part in (0.1, 0.5, 0.99):
        (tmp_path / name).write_bytes(content[: int(len(content) * part)])
        error = refused(lambda: check_source(open_source(kind, name, RECORDS, tmp_path)))
        assert error.code == "OS601"


class _Runs:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_objects_of_an_archive_are_labels_and_run_nothing(tmp_path: Path) -> None:
    """Texts and numbers are cells; any other pickle is refused, and no code of it runs."""
    labels = np.array(["a", 3, None, np.int64(3), "\u00e4", b"a"] * 10, dtype=object)
    np.savez_compressed(tmp_path / "t.npz", kind=labels)
    records = Records((Column("kind", "category", keys=("a", 3)),))
    source = open_source("npz", "t.npz", records, tmp_path)
    assert whole(source, 7)["kind"].tolist() == [0, 1, -1, 1, -1, -1] * 10
    mark = tmp_path / "ran"
    np.savez(tmp_path / "t.npz", kind=np.array([_Runs(mark), SECRET], dtype=object))
    error = refused(lambda: check_source(open_source("npz", "t.npz", records, tmp_path)))
    assert error.code == "OS601"
    assert not mark.exists()
    np.savez(tmp_path / "t.npz", kind=np.array([["a", 3]], dtype=object))
    assert (
        "ascontiguousarray" in refused(lambda: open_source("npz", "t.npz", records, tmp_path)).hint
    )


def test_fortran_order_is_read_column_by_column(tmp_path: Path) -> None:
    table = np.arange(3000.0).reshape(1000, 3)
    np.save(tmp_path / "t.npy", np.asfortranarray(table))
    records = Records((Column("x", "array[f64, 2]"), Column("y", "float64")))
    found = whole(open_source("npy", "t.npy", records, tmp_path), 7)
    assert np.array_equal(found["x"], table[:, :2])
    assert np.array_equal(found["y"], table[:, 2])
    cube = np.asfortranarray(np.arange(24.0).reshape(4, 3, 2))
    np.savez_compressed(tmp_path / "c.npz", x=cube)
    images = Records((Column("x", "array[f64, 6]"),))
    assert np.array_equal(
        whole(open_source("npz", "c.npz", images, tmp_path))["x"], cube.reshape(4, 6)
    )


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_mapped_into_memory_are_arrays(tmp_path: Path, order: Any) -> None:
    table = np.arange(20.0).reshape(10, 2, order=order)
    np.save(tmp_path / "t.npy", table)
    mapped = np.load(tmp_path / "t.npy", mmap_mode="r")
    records = Records((Column("x", "array[f64, 2]"),))
    assert np.array_equal(whole(from_arrays(records, {"x": mapped}), 3)["x"], table)
    assert np.array_equal(whole(from_table(records, mapped), 3)["x"], table)


def test_names_that_begin_alike_are_a_vector_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("g_10,id,g_9,gx\n1,2,3,4\n")
    records = Records((Column("g", "array[f64, 2]"),))
    wide = {"file": "t.csv", "columns": {"g": {"prefix": "g_", "count": 2}}}
    assert whole(open_source("csv", wide, records, tmp_path))["g"].tolist() == [[3, 1]]
    wide["columns"] = {"g": {"prefix": "g", "count": 2}}
    error = refused(lambda: open_source("csv", wide, records, tmp_path))
    assert (error.code, error.got) == ("OS602", "3")
    for wrong in ({"prefix": "g_"}, {"prefix": "g_", "count": 0}, {"prefix": "", "count": 2}):
        wide["columns"] = {"g": wrong}
        with pytest.raises(SpecError):
            open_source("csv", wide, records, tmp_path)
    wide["columns"] = {"g": ["g_9 .. g_10"]}
    assert whole(open_source("csv", wide, records, tmp_path))["g"].tolist() == [[3, 1]]


def test_names_of_folders_are_columns_of_any_kind_of_file(tmp_path: Path) -> None:
    for year in ("2024", "2025"):
        (tmp_path / "t" / f"year={year}").mkdir(parents=True)
        (tmp_path / "t" / f"year={year}" / "a.jsonl").write_text('{"age": 3}\n\nno\n[1]\n')
    (tmp_path / "t" / "_tmp.jsonl").write_text('{"age": 9}')
    records = Records((Column("age", "int64"), Column("year", "int64")))
    found = whole(open_source("jsonl", "t", records, tmp_path))
    assert found["year"].tolist() == [2024] * 3 + [2025] * 3
    assert found["age"].tolist() == [3, MISSING, MISSING] * 2
    (tmp_path / "t" / "b.jsonl").write_text('{"age": 5}')
    source = open_source("jsonl", "t/b*", Records((Column("age", "int64"),)), tmp_path)
    assert whole(source)["age"].tolist() == [5]


_PLACES = {"columns": {"x": {"at": 1}, "y": {"at": 2}}}
_COMMA = {"delimiter": ";", "decimal": ","}
FOLDER = Records((Column("x", "float64"), Column("y", "float64")))


@pytest.mark.parametrize(
    ("kind", "options", "good", "bad", "said"),
    [
        ("csv", {}, b"x,y\n1,2\n", b"x;y\n1;2\n", "b.csv: column x"),
        ("csv", {}, b"x,y\n1,2\n", "x,y\n1,2\n".encode("utf-16"), "b.csv: column x"),
        ("csv", {}, b"x,y\n1,2\n", b"x,y\n1,2\n", ""),
        ("csv", {}, b"x,y\n1,2\n", b"y,z,x\n1,2,3\n", ""),
        ("csv", _PLACES, b"x,y\n1,2\n", b"y,x\n1,2\n", "t"),
        ("csv", _PLACES, b"x,y\n1,2\n", b"1,y\n1,2\n", "t"),
        ("csv", _PLACES, b"1,2\n1,2\n", b"x,y\n1,2\n", "t"),
        ("csv", {}, b"x,y\n1,2\n", b"7,8\n1,2\n", "column x"),
        ("csv", _COMMA, b"x;y\n1;2\n", b"1,5;2,5\n1;2\n", "column x"),
        ("csv", {"strip": ["EUR"]}, b"x,y\n1,2\n", b"EUR 5,anna\n1,2\n", "column x"),
    ],
)
def test_a_file_of_another_form_in_a_folder_is_named(
    tmp_path: Path, kind: str, options: dict[str, Any], good: bytes, bad: bytes, said: str
) -> None:
    """By its header line, which is public; a first line with a number may be a record, and names none."""
    (tmp_path / "t").mkdir()
    for name, text in (("a.csv", good), ("B.CSV" if said == "" else "b.csv", bad)):
        (tmp_path / "t" / name).write_bytes(text)
    where = {"file": "t", **options}
    if not said:
        assert len(whole(open_source(kind, where, FOLDER, tmp_path))["x"]) == 2
        return
    error = refused(lambda: open_source(kind, where, FOLDER, tmp_path))
    assert (error.code, error.where) == ("OS602", str(tmp_path / "t") if said == "t" else said)
    assert (error.got in COUNTED) == (not said.startswith("b.csv"))


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_stored_type_of_one_file_of_a_folder_is_refused_by_its_form(
    tmp_path: Path, kind: str
) -> None:
    """It was told behind the reserve, where the first file is right."""
    (tmp_path / "t").mkdir()
    for name, cells in (("a", [1.0, 2.0]), ("b", ["1", "2"])):
        table = pa.table({"x": cells, "y": [1.0, 2.0]})
        if kind == "arrow":
            feather.write_feather(table, str(tmp_path / "t" / f"{name}.arrow"))
        else:
            pq.write_table(table, tmp_path / "t" / f"{name}.parquet")
    source = open_source(kind, "t", FOLDER, tmp_path)
    error = refused(lambda: check_form(source))
    assert (error.code, error.where) == ("OS602", f"b.{kind}: column x")


PACKED = {
    "t.csv": (gzip.compress(b"x,y\n1,2\n"), "end its name by .gz"),
    "b.csv": (bz2.compress(b"x,y\n1,2\n"), "unpack it"),
    "x.csv": (lzma.compress(b"x,y\n1,2\n"), "unpack it"),
    "w.csv": (b"PK\x03\x04" + bytes(22) + b"\x13\0\0\0[Content_Types].xml", "a workbook"),
    "u.csv": ("x,y\n1,2\n".encode("utf-16-le"), "encoding: utf-16"),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_file_that_is_packed_or_encoded_unsaid_has_its_fix_named(
    tmp_path: Path, name: str
) -> None:
    """A zip archive was called .npz, and a packed file a header without the column."""
    data, fix = PACKED[name]
    (tmp_path / name).write_bytes(data)
    error = refused(lambda: open_source("csv", name, FOLDER, tmp_path))
    assert fix in error.hint


def test_a_folders_number_is_an_integer_in_parquet_too(tmp_path: Path) -> None:
    """It was a text there, and refused where integers are declared."""
    (tmp_path / "t" / "year=2024").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "t" / "year=2024" / "a.parquet")
    for column in (
        Column("year", "int64"),
        Column("year", "str"),
        Column("year", "category", (), (2024,)),
    ):
        records = Records((Column("x", "float64"), column))
        found = whole(open_source("parquet", "t", records, tmp_path))
        assert (
            found["year"].tolist() == [{"str": "2024", "category": 0}.get(column.dtype, 2024)] * 2
        )


def test_a_declared_header_of_json_lines_refuses_a_misspelt_column(tmp_path: Path) -> None:
    """Before the charge, by the declaration alone: which keys records have is private."""
    (tmp_path / "t.jsonl").write_text('{"hight": 3}\n')
    place = {"file": "t.jsonl", "header": ["height", "x_0", "x_1"]}
    for column in (Column("hight", "int64"), Column("x", "array[f64, 3]")):
        error = refused(lambda c=column: open_source("jsonl", place, Records((c,)), tmp_path))
        assert (error.code, "header" in error.expected) == ("OS602", True)
        assert open_source("jsonl", "t.jsonl", Records((column,)), tmp_path)
    (tmp_path / "t.jsonl").write_text('{"height": 3, "x_0": 1, "x_1": 2}\n')
    records = Records((Column("height", "int64"), Column("x", "array[f64, 2]")))
    found = whole(open_source("jsonl", place, records, tmp_path))
    assert found["x"].tolist() == [[1, 2]]
    renamed = place | {"columns": {"h": "height"}}
    assert whole(open_source("jsonl", renamed, Records((Column("h", "int64"),)), tmp_path))


def test_json_lines_are_read_one_by_one(tmp_path: Path) -> None:
    """What a line becomes depends on that line alone, whatever is on the others."""
    long = '{"x": "' + "y" * (LONGEST_RECORD + 9) + '"}'
    lines = {
        '{"x": 1.5}': 1.5,
        '{"x": "2"}': 2,
        '{"x": true}': 1,
        '{"x": null}': np.nan,
        "{}": np.nan,
        "{": np.nan,
        '{"x": 1e999}': np.inf,
        '{"x": NaN}': np.nan,
        '{"x": {"y": 1}}': np.nan,
        '{"x": [1]}': np.nan,
        "[" * 9000: np.nan,
        '{"x": 1, "x": 3}': 3,
        " 7 ": np.nan,
        long: np.nan,
        '{"x": ' + "9" * 5000 + "}": np.nan,
        '\udcff{"x": 1}': np.nan,
    }
    text = "".join(f"{line}\n\n" for line in lines)
    (tmp_path / "t.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    source = open_source("jsonl", "t.jsonl", Records((Column("x", "float64"),)), tmp_path)
    for rows in (1, 100):
        assert np.array_equal(whole(source, rows)["x"], list(lines.values()), equal_nan=True)
    (tmp_path / "t.jsonl").write_text('[{"x": 1}]')
    error = refused(lambda: open_source("jsonl", "t.jsonl", source.records, tmp_path))
    assert (error.code, error.got) == ("OS601", NO_OBJECT)


@pytest.mark.parametrize(
    ("kind", "other", "write"),
    [
        ("parquet", "arrow", write_arrow),
        ("arrow", "parquet", write_parquet),
        ("npz", "npy", write_npy),
        ("csv", "arrow", write_arrow),
        ("parquet", "sql", write_duckdb),
    ],
)
def test_a_file_of_another_kind_is_named(
    tmp_path: Path, kind: str, other: str, write: Callable[[Path, Any], None]
) -> None:
    write(tmp_path / "t.npy", raw())
    error = refused(lambda: whole(open_source(kind, "t.npy", RECORDS, tmp_path)))
    assert f"write `{other}: t.npy`" in error.hint


def test_a_damaged_arrow_file_is_refused_and_ends_no_process(tmp_path: Path) -> None:
    kinds = pa.array(["a", "bb", None, "\u00e4"])
    table = pa.table({"kind": kinds, "x": [[1.0, 2.0]] * 4, "d": kinds.dictionary_encode()})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as sink:
        sink.write_table(table)
    good = (tmp_path / "t.arrow").read_bytes()
    records = Records((Column("kind", "str"), Column("x", "array[f64, 2]"), Column("d", "str")))
    generator, seen = np.random.default_rng(3), set()
    for at in range(0, len(good), 3):
        bad = bytearray(good)
        bad[at] ^= int(generator.integers(1, 256))
        (tmp_path / "t.arrow").write_bytes(bad)
        try:
            whole(open_source("arrow", "t.arrow", records, tmp_path))
        except SimError as error:
            seen.add(error.code)
    assert seen <= {"OS601", "OS602", "OS103"}  # the last of a length beyond all memory
    assert seen


def test_text_of_an_arrow_file_that_is_no_utf8_is_read_as_that_of_a_csv(tmp_path: Path) -> None:
    odd = pa.array([b"\xff", b"a"]).view(pa.string())
    with pa.ipc.new_file(tmp_path / "t.arrow", pa.schema({"kind": pa.string()})) as sink:
        sink.write_table(pa.table({"kind": odd}))
    (tmp_path / "t.csv").write_bytes(b"kind\n\xff\na\n")
    records = Records((Column("kind", "str"),))
    found = [whole(open_source(k, f"t.{k}", records, tmp_path))["kind"] for k in ("arrow", "csv")]
    assert found[0].tolist() == found[1].tolist() == ["\udcff", "a"]


def test_an_arrow_file_with_one_name_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as sink:
        sink.write_table(table)
    records = Records((Column("x", "int64"),))
    assert refused(lambda: open_source("arrow", "t.arrow", records, tmp_path)).got == "several"


PLANE = Records(tuple(Column(n, "array[f64, 2]") for n in ("when", "day", "place")))
PLANES = {
    "when": {"hour": "time"},
    "day": {"weekday": "time"},
    "place": {"km": ["lat", "lon"], "at": [48, 179.5]},
}


def on_circle(turn: float, period: float) -> list[float]:
    angle, radius = 2 * np.pi * turn, period / (2 * np.pi)
    return [radius * np.cos(angle), radius * np.sin(angle)]


def test_times_are_on_circles_and_places_on_a_plane_through_every_door(tmp_path: Path) -> None:
    times = ["2024-01-01T23:30:00", "2024-01-02T00:30:00", None, "2024-01-07T12:00:00"]
    kept = pa.array(times).cast(pa.timestamp("us"))
    table = pa.table({"time": kept, "lat": [48.0, 49.0, 48.0, None], "lon": [179.5, -179.5, 0, 1]})
    pq.write_table(table, tmp_path / "t.parquet")
    pa_csv.write_csv(table, tmp_path / "t.csv")
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as sink:
        sink.write_table(table)
    lines = (json.dumps(row | {"time": t}) for row, t in zip(table.to_pylist(), times, strict=True))
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    for kind in ("parquet", "csv", "arrow", "jsonl"):
        source = open_source(kind, {"file": f"t.{kind}", "columns": PLANES}, PLANE, tmp_path)
        for rows in (1, 9):
            found = whole(source, rows)
            hours = [on_circle(h / 24, 24) for h in (23.5, 0.5)] + [on_circle(0.5, 24)]
            assert np.allclose(found["when"][[0, 1, 3]], hours, atol=1e-12)
            assert np.allclose(found["day"][[0, 1, 3]], [on_circle(d / 7, 7) for d in (0, 1, 6)])
            assert np.isnan(found["when"][2]).all()
            assert np.isnan(found["day"][2]).all()
            assert np.allclose(found["place"][0], [0, 0])
            assert np.allclose(found["place"][1], [74.4, 111.19], atol=0.1)  # across the date line
            assert np.isnan(found["place"][3, 1])
    apart = np.linalg.norm(found["when"][0] - found["when"][1])
    assert 0.99 < apart < 1.0  # an hour, over midnight


def test_a_place_of_a_record_depends_on_its_own_cells(tmp_path: Path) -> None:
    cells = [
        "7",
        "07:30",
        "2024-02-29T23:59:59+02:00",
        "24",
        "-1",
        "x",
        "",
        "1e99",
        "2024-13-01T00:00",
    ]
    records = Records((Column("when", "array[f64, 2]"),))
    asked = {"file": "t.csv", "columns": {"when": {"hour": "time"}}}
    alone = []
    for cell in cells:
        (tmp_path / "t.csv").write_text(f"time,b\n{cell},1\n")
        alone.append(whole(open_source("csv", asked, records, tmp_path))["when"][0].tobytes())
    (tmp_path / "t.csv").write_text("time,b\n" + "".join(f"{c},1\n" for c in cells * 5))
    found = whole(open_source("csv", asked, records, tmp_path))["when"]
    assert [row.tobytes() for row in found] == alone * 5
    assert np.isnan(found[:9]).all(axis=1).tolist() == [False] * 3 + [True] * 6


@pytest.mark.parametrize(
    "wrong",
    [
        {"hour": 5},
        {"hour": "a", "weekday": "b"},
        {"km": ["a", "b"]},
        {"km": ["a"], "at": [1, 2]},
        {"km": ["a", "b"], "at": [90, 0]},
        {"km": ["a", "b"], "at": [1, True]},
    ],
)
def test_planes_of_another_form_are_refused(tmp_path: Path, wrong: Any) -> None:
    (tmp_path / "t.csv").write_text("time,b\n")
    with pytest.raises(SpecError):
        open_source("csv", {"file": "t.csv", "columns": {"when": wrong}}, PLANE, tmp_path)
    number = Records((Column("when", "float64"),))
    asked = {"file": "t.csv", "columns": {"when": {"hour": "time"}}}
    assert refused(lambda: open_source("csv", asked, number, tmp_path)).code == "OS602"


VOTES = {
    "worker": "who",
    "question": "task",
    "answer": "label",
    "questions": [1, 2],
    "answers": ["cat", "dog"],
}
WORKERS = Records(
    (Column("who", "str", role="privacy_id"), Column("votes", "array[u8, 4]", bounds=(0.0, 1.0)))
)
LONG = [
    ("w", 1, "cat"),
    ("v", 2, "dog"),
    ("w", 2, "cat"),
    ("", 1, "cat"),
    ("w", 1, "cat"),
    ("u", 7, "cat"),
    ("v", 1, "cow"),
    ("w", 2, "dog"),
]


def test_votes_in_long_form_are_a_row_a_worker_through_every_door(tmp_path: Path) -> None:
    table = pa.table(dict(zip(("who", "task", "label"), zip(*LONG, strict=True), strict=True)))
    pq.write_table(table, tmp_path / "t.parquet")
    pa_csv.write_csv(table, tmp_path / "t.csv")
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as sink:
        sink.write_table(table)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as held, held:
        held.execute("create table visits (who, task, label)")
        held.executemany("insert into visits values (?, ?, ?)", LONG)
    for kind in ("parquet", "csv", "arrow", "jsonl", "sqlite"):
        more = {"table": "visits"} if kind == "sqlite" else {}
        named = {"file": f"t.{kind}", "votes": VOTES, **more}
        source = open_source("sql" if more else kind, named, WORKERS, tmp_path)
        check_source(source)
        for rows in (1, 9):
            found = whole(source, rows)
            assert found["who"].tolist() == ["u", "v", "w"]
            assert found["votes"].tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 1, 1]]


@given(
    st.lists(
        st.tuples(st.sampled_from("uvwx "), st.integers(0, 3), st.sampled_from("abc")), max_size=12
    ),
    st.sampled_from("uvwx"),
    st.randoms(use_true_random=False),
)
def test_a_worker_moves_one_row_of_the_votes(
    votes: list[tuple[str, int, str]], who: str, shuffled: Any
) -> None:
    """Lemma 5: without a worker, and in any order, all other rows are the same ones."""
    columns = VoteColumns("who", "task", "label", (1, 2), ("a", "b"))

    def rows(kept: list[tuple[str, int, str]]) -> list[tuple[str, bytes]]:
        lists = list(zip(*kept, strict=True)) or [(), (), ()]
        table = dict(zip(("who", "task", "label"), map(list, lists), strict=True))
        names, found = columns.rows_of(from_arrays(columns.records, table))
        return [(name, row.tobytes()) for name, row in zip(names, found, strict=True)]

    whole_rows = rows(votes)
    mixed = shuffled.sample(votes, len(votes))
    assert rows(mixed) == whole_rows
    assert rows([v for v in votes if v[0] != who]) == [row for row in whole_rows if row[0] != who]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        5,
        VOTES | {"more": 1},
        VOTES | {"worker": 5},
        VOTES | {"questions": []},
        VOTES | {"ids": "f"},
    ],
)
def test_votes_of_another_form_are_refused(tmp_path: Path, wrong: Any) -> None:
    (tmp_path / "t.csv").write_text("who,task,label\n")
    with pytest.raises(SpecError):
        open_source("csv", {"file": "t.csv", "votes": wrong}, WORKERS, tmp_path)
    error = refused(
        lambda: open_source("csv", {"file": "t.csv", "votes": VOTES}, RECORDS, tmp_path)
    )
    assert (error.code, error.got) == ("OS602", "other columns")


NAMES = Records((Column("kind", "str"),))


@pytest.mark.few(13)
@pytest.mark.parametrize("name", ["t.duckdb", "t.sqlite"])
@pytest.mark.parametrize(
    "query",
    [
        "delete from visits",
        "select 1 as kind; drop table visits",
        "select * from none",
        "select * from visits) ; drop table visits; select * from (visits",
        "attach 'FOLDER/other.db' as o",
        "copy visits to 'FOLDER/other.csv'",
        "select kind x from visits",
        "pragma journal_mode = delete",
        "select * from read_csv('FOLDER/secret.csv')",
        "select load_extension('FOLDER/x')",
        "select readfile('FOLDER/secret.csv') as kind",
        "select writefile('FOLDER/other', kind) as kind",
        "select error('SECRET') as kind from visits",
    ],
)
def test_a_query_reads_its_file_and_nothing_else(tmp_path: Path, name: str, query: str) -> None:
    {"t.duckdb": write_duckdb, "t.sqlite": write_sqlite}[name](tmp_path / name, raw())
    before = (tmp_path / name).read_bytes()
    (tmp_path / "secret.csv").write_text(f"kind\n{SECRET}\n")
    asked = {"file": name, "query": query.replace("FOLDER", str(tmp_path))}
    error = refused(lambda: whole(open_source("sql", asked, NAMES, tmp_path)))
    assert error.code in ("OS601", "OS602")
    assert (tmp_path / name).read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["secret.csv", name]


@pytest.mark.parametrize("name", ["t.duckdb", "t.sqlite"])
def test_a_query_that_gives_other_rows_the_second_time_is_refused(
    tmp_path: Path, name: str
) -> None:
    {"t.duckdb": write_duckdb, "t.sqlite": write_sqlite}[name](tmp_path / name, raw())
    asked = {"file": name, "query": "select kind || cast(random() as text) as kind from visits"}
    source = open_source("sql", asked, NAMES, tmp_path)
    whole(source)
    error = refused(lambda: whole(source))
    assert (error.code, error.got) == ("OS601", "other rows the second time")
    ordered = {"file": name, "query": "select kind from visits order by kind, user"}
    source = open_source("sql", ordered, NAMES, tmp_path)
    assert whole(source, 7)["kind"].tolist() == whole(source, 64)["kind"].tolist()


def test_unknown_kinds_sets_and_options_suggest(tmp_path: Path) -> None:
    for action, near in (
        (lambda: open_source("parket", "t", RECORDS, tmp_path), "parquet"),
        (lambda: open_source("builtin", "digit", RECORDS, tmp_path), "digits"),
        (lambda: open_source("csv", {"file": "t", "colums": {}}, RECORDS, tmp_path), "columns"),
    ):
        error = refused(action)
        assert isinstance(error, SpecError)
        assert error.code == "OS303"
        assert near in error.hint
    assert refused(lambda: open_source("csv", {}, RECORDS, tmp_path)).code == "OS305"
    assert refused(lambda: open_source("csv", 7, RECORDS, tmp_path)).code == "OS304"


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    error = refused(lambda: open_source("parquet", "t.parquet", RECORDS, tmp_path))
    assert error.code == "OS606"
    assert "opendp_sim[parquet]" in error.hint


# --- enforce is a function of each record ---------------------------------------------------------

CELLS = st.sampled_from(["0.5", "0", "-0", "7", "-3", "nan", "inf", "", "x", "1e999", "1_0"])


@given(
    st.lists(
        st.tuples(
            CELLS,
            CELLS,
            st.sampled_from(["a", "3", "b", ""]),
            st.sampled_from(["1", "9" * 30, "", "2.0", "x"]),
        ),
        max_size=7,
    )
)
def test_enforce_is_row_local(lines: list[tuple[str, str, str, str]]) -> None:
    path = Path(_FOLDER.name) / "t.csv"

    def kept(some: list[tuple[str, str, str, str]]) -> list[bytes]:
        path.write_text("x_0,x_1,kind,user\n" + "".join(",".join(line) + "\n" for line in some))
        source = open_source("csv", "t.csv", RECORDS, path.parent)
        out = []
        for block in gated_blocks(source, "enforce", 3)():
            RECORDS.check(block)
            columns = [block[name] for name in ("x", "kind", "user")]
            out += [
                b"".join(np.asarray(c[i]).tobytes() for c in columns)
                for i in range(len(block["user"]))
            ]
        return out

    together = kept(lines)
    assert together == [record for line in lines for record in kept([line])]
    assert sorted(kept(lines[::-1])) == sorted(together)


@pytest.fixture(autouse=True, scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    _FOLDER.name = str(tmp_path_factory.mktemp("csv"))


class _Folder:
    name = ""


_FOLDER = _Folder()


def test_enforce_clamps_and_drops_each_kind_of_defect() -> None:
    records = Records(
        (
            Column("f", "array[f32, 1]", bounds=(0.0, 1.0)),
            Column("small", "array[u8, 1]", bounds=(-5.0, 9.5)),
            Column("kind", "category", keys=("a",)),
            Column("who", "str", role="privacy_id"),
        )
    )
    data = {
        "f": np.array([[2.0], [-1.0], [np.nan], [0.5], [0.5], [0.5]]),
        "small": np.array([[300], [-7], [1], [2], [3], [4]]),
        "kind": np.array(["a", "a", "a", "b", "a", "a"]),
        "who": np.array(["u", "v", "w", "w", "", "z"], dtype=object),
    }
    block = next(gated_blocks(from_arrays(records, data), "enforce")())
    assert block["f"].tolist() == [[1.0], [0.0], [0.5]]
    assert block["small"].tolist() == [[9], [0], [4]]
    assert block["who"].tolist() == ["u", "v", "z"]


def test_a_ragged_line_is_a_missing_record(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x_0,x_1,kind,user\n0.1,0.2,a,1\n0.1,0.2,a\n\n0.3,0.4,3,2\n")
    source = open_source("csv", "t.csv", RECORDS, tmp_path)
    assert refused(lambda: check_source(source)).code in ("OS603", "OS604")
    kept = next(gated_blocks(source, "enforce")())
    assert kept["user"].tolist() == [1, 2]


def test_assume_looks_at_structure_only() -> None:
    source = from_arrays(RECORDS, spoiled("x", np.nan))
    check_source(source, "assume")
    block = next(source.blocks())
    assert check_block(block, RECORDS, "assume") is block
    wrong = from_arrays(RECORDS, raw() | {"x": np.zeros((COUNT, 3))})
    assert refused(lambda: check_source(wrong, "assume")).code == "OS602"


@pytest.mark.parametrize(
    ("given_keys", "expected"),
    [
        (np.array(["3", "a", "b", " a"]), [1, 0, -1, 0]),
        (np.array([3, 4]), [1, -1]),
        (np.array([3.0, 3.5, np.nan, np.inf]), [1, -1, -1, -1]),
        (np.array([3, "a", None], dtype=object), [1, 0, -1]),
        (np.array([b"a", b"\xff"]), [0, -1]),
        (np.array([3, 250], dtype=np.uint8), [1, -1]),
        (np.zeros((2, 2)), [-1, -1]),
    ],
)
def test_keys_become_places(given_keys: np.ndarray, expected: list[int]) -> None:
    assert key_indices(given_keys, ("a", 3)).tolist() == expected


# --- the fold ------------------------------------------------------------------------------------


def pipeline() -> tuple[Any, Source]:
    source = builtin_source("digits")
    mechanisms = [
        lookup("select")(features="pixels", label="label"),
        lookup("quantize")(bits=8),
        lookup("race_sketch")(
            repetitions=20,
            buckets=32,
            family={"p_stable_l2": {"width": 20.0}},
            seed=1,
            per_label=True,
        ),
    ]
    return bind_steps(source.records, Symmetric(), mechanisms), source


def test_blocks_and_workers_do_not_change_a_bit() -> None:
    stages, source = pipeline()
    expected = build_sketch(stages, gated_blocks(source, "refuse"))
    for workers in (1, 2, 3):
        for rows in (50, 777, 5000):
            told: list[int] = []
            found = build_sketch(
                stages, gated_blocks(source, "refuse", rows), workers=workers, on_block=told.append
            )
            assert np.array_equal(found, expected)
            assert sum(told) == 1297
    rows = collect_rows(stages[:2], gated_blocks(source, "refuse", 100))
    direct = np.zeros_like(expected)
    stages[2].claim.accumulate(rows, direct)
    assert np.array_equal(direct, expected)


def test_collecting_no_rows_keeps_the_type() -> None:
    stages, _ = pipeline()
    rows = collect_rows(stages[:2], list)
    stages[1].claim.output.check(rows)


@pytest.mark.parametrize("workers", [2, 3])
def test_few_blocks_are_alive(workers: int) -> None:
    # A slow worker must hold the reader back: at most workers + 2 blocks exist at any time.
    stages, _ = pipeline()
    alive: list[weakref.ref[np.ndarray]] = []
    most, lock = 0, threading.Lock()

    def blocks() -> Iterator[dict[str, np.ndarray]]:
        nonlocal most
        for _ in range(40):
            pixels = np.zeros((3, 64), dtype=np.float32)
            with lock:
                alive.append(weakref.ref(pixels))
                most = max(most, sum(ref() is not None for ref in alive))
            yield {"pixels": pixels, "label": np.zeros(3, dtype=np.int64)}
            del pixels

    slow = stages[2].claim
    real = slow.accumulate

    def accumulate(rows: Any, out: Any) -> None:
        time.sleep(0.002)
        real(rows, out)

    object.__setattr__(slow, "accumulate", accumulate)
    build_sketch(stages, blocks, workers=workers)
    assert most <= workers + 2


def test_a_failing_mechanism_ends_the_fold_and_says_nothing() -> None:
    stages, source = pipeline()

    def fails(_rows: Any, _out: Any) -> None:
        raise ValueError(SECRET)

    object.__setattr__(stages[2].claim, "accumulate", fails)
    for workers in (1, 2):
        error = refused(
            lambda: build_sketch(stages, gated_blocks(source, "refuse", 50), workers=workers)  # noqa: B023
        )
        assert error.code == "OS902"
    assert refused(lambda: build_sketch(stages[:2], list)).code == "OS903"
    assert threading.active_count() < 20


def test_a_source_that_breaks_off_ends_the_workers() -> None:
    stages, source = pipeline()

    def blocks() -> Iterator[Any]:
        yield next(source.blocks(50))
        raise DataError(
            "OS601", "file", expected="a file", got="half of one", hint="copy it again."
        )

    before = threading.active_count()
    assert refused(lambda: build_sketch(stages, blocks, workers=2)).code == "OS601"
    assert threading.active_count() == before


def test_npz_and_csv_are_streamed(tmp_path: Path) -> None:
    # 41 MB of rows in each format, in blocks of 1 MB: a few blocks are all that is ever held.
    count = 80_000
    np.savez_compressed(tmp_path / "t.npz", x=np.zeros((count, 64)))
    text = ",".join(f"x_{i}" for i in range(64)) + "\n" + (",".join(["0.5"] * 64) + "\n") * 9000
    (tmp_path / "t.csv").write_text(text)
    records = Records((Column("x", "array[f64, 64]"),))
    for kind, limit in (("npz", 8), ("csv", 16)):
        source = open_source(kind, f"t.{kind}", records, tmp_path)
        tracemalloc.start()
        rows = sum(len(block["x"]) for block in source.blocks(2048))
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        assert rows == (count if kind == "npz" else 9000)
        assert peak < limit, (kind, peak)


def test_a_header_that_stands_twice_is_refused_where_it_is_read(tmp_path):
    """One of the two was used without a word; a frame with two was refused."""
    (tmp_path / "t.csv").write_text("a,b, a\n1,2,3\n")
    open_source("csv", "t.csv", Records((Column("b", "float64"),)), tmp_path)
    with pytest.raises(DataError, match=r"OS602 column a: .*; got several\."):
        open_source("csv", "t.csv", Records((Column("a", "float64"),)), tmp_path)
