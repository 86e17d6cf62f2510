"""Sources: every format gives the same records, in any blocks; bad input gets its own coded error."""

from __future__ import annotations

import builtins
import gzip
import json
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.errors import DataError, SimError, SpecError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.blocks import recut
from opendp_sim.io.builtin import builtin_source
from opendp_sim.io.conform import MISSING, key_indices
from opendp_sim.io.csv_files import csv_source
from opendp_sim.io.file_spec import FileOptions, reading
from opendp_sim.io.fold import build_sketch, collect_rows
from opendp_sim.io.gate import check_block, gated_blocks
from opendp_sim.io.open import SOURCE_NAMES, open_source
from opendp_sim.io.protocol import PieceSource, Source, from_arrays
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


FORMATS: list[tuple[str, Any, Callable[[Path, Any], None]]] = [
    ("npz", "t.npz", write_npz),
    ("npy", "t.npy", write_npy),
    ("csv", "t.csv", write_csv),
    ("csv", "t.csv.gz", write_csv),
    ("csv", {"file": "j.csv", "delimiter": ";"}, write_json_csv),
    ("parquet", "t.parquet", write_parquet),
]


def whole(source: Source, rows: int | None = None) -> dict[str, np.ndarray]:
    blocks = list(source.blocks(rows))
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


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


def test_plain_npy_is_cut_into_the_declared_columns(tmp_path: Path) -> None:
    table = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "t.npy", table)
    records = Records((Column("x", "array[f64, 2]"), Column("y", "float64")))
    found = whole(open_source("npy", "t.npy", records, tmp_path))
    assert np.array_equal(found["x"], table[:, :2])
    assert np.array_equal(found["y"], table[:, 2])


def test_builtin_digits_are_scikit_learns() -> None:
    train, test = builtin_source("digits"), builtin_source("digits_test")
    check_source(train)
    check_source(test)
    assert (train.length, test.length) == (1297, 500)
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    order = np.random.Generator(np.random.Philox(key=1998)).permutation(1797)
    pixels = np.concatenate([whole(train)["pixels"], whole(test)["pixels"]])
    labels = np.concatenate([whole(train)["label"], whole(test)["label"]])
    assert np.array_equal(pixels, digits.data[order])
    assert np.array_equal(labels, digits.target[order])


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 7))
def test_recut_keeps_every_record_once(sizes: list[int], rows: int) -> None:
    ends = np.cumsum([0, *sizes])
    pieces = [{"i": np.arange(a, b)} for a, b in pairwise(ends)]
    blocks = list(recut(pieces, rows))
    assert [int(i) for block in blocks for i in block["i"]] == list(range(ends[-1]))
    assert all(len(block["i"]) == rows for block in blocks[:-1])


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


def test_an_empty_source_has_its_own_code() -> None:
    source = from_arrays(RECORDS, {name: column[:0] for name, column in raw().items()})
    assert refused(lambda: check_source(source)).code == "OS608"
    check_source(source, "enforce")


@pytest.mark.parametrize("kind", sorted(set(SOURCE_NAMES) - {"builtin"}))
def test_missing_and_broken_files(tmp_path: Path, kind: str) -> None:
    assert refused(lambda: open_source(kind, "none", RECORDS, tmp_path)).code == "OS601"
    (tmp_path / "broken").write_bytes(b"\x93NUMPY\x01\x00\xff\xfe" + SECRET.encode() * 9)
    error = refused(lambda: check_source(open_source(kind, "broken", RECORDS, tmp_path)))
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


@pytest.mark.parametrize("name", ["t.npz", "t.npy", "t.parquet"])
def test_truncated_files(tmp_path: Path, name: str) -> None:
    kind = name.split(".")[1]
    {k: w for k, _, w in FORMATS}[kind](tmp_path / name, raw())
    content = (tmp_path / name).read_bytes()
    for part in (0.1, 0.5, 0.99):
        (tmp_path / name).write_bytes(content[: int(len(content) * part)])
        error = refused(lambda: check_source(open_source(kind, name, RECORDS, tmp_path)))
        assert error.code == "OS601"


def test_pickles_and_fortran_order_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **(raw() | {"kind": np.array([SECRET] * COUNT, dtype=object)}))
    assert refused(lambda: open_source("npz", "t.npz", RECORDS, tmp_path)).code == "OS601"
    np.savez(tmp_path / "t.npz", **(raw() | {"x": np.asfortranarray(raw()["x"])}))
    error = refused(lambda: open_source("npz", "t.npz", RECORDS, tmp_path))
    assert "ascontiguousarray" in error.hint


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


def test_parquet_nulls_are_missing(tmp_path: Path) -> None:
    table = pa.table(
        {
            "x": [[0.1, 0.2], None, [0.3], [0.4, None], [0.5, 0.6], [0.7, 0.8]],
            "user": [1, 2, 3, 4, None, 6],
            "kind": ["a", "a", "a", "a", "a", "3"],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    source = open_source("parquet", "t.parquet", RECORDS, tmp_path)
    assert refused(lambda: check_source(source)).code == "OS603"
    for rows in (1, 2, 6):
        kept = [int(u) for b in gated_blocks(source, "enforce", rows)() for u in b["user"]]
        assert kept == [1, 6]


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
        (np.array(["3", "a", "b", " a"]), [1, 0, -1, -1]),
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


def test_a_vector_of_a_text_file_is_said_to_have_headers(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("emb:0,emb:1\n1,2\n")
    records = Records((Column("emb", "array[f32, 2]"),))
    with pytest.raises(DataError, match="OS602") as caught:
        csv_source(FileOptions(file, {}), records)
    assert "`emb_0` to `emb_1`" in caught.value.expected
    for header, place in (("emb_0,emb_1", {}), ("a,b", {"emb": ("a", "b")})):
        file.write_text(f"{header}\n1,2\n")
        (block,) = csv_source(FileOptions(file, place), records).blocks()
        assert block["emb"].tolist() == [[1.0, 2.0]]
