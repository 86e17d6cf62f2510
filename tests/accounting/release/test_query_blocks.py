"""Public queries block by block: the same answers, and files of air are refused by their headers."""

from __future__ import annotations

import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import opendp_sim as sim
from opendp_sim.accounting.release import query_blocks
from opendp_sim.accounting.release.query_blocks import query_blocks as asked_blocks
from opendp_sim.core.errors import DataError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.domains.records import Column, Records
from opendp_sim.dsl.run.answer import ask, reference
from opendp_sim.io import blocks as cut
from opendp_sim.io.blocks import length_of
from opendp_sim.io.open import open_source
from opendp_sim.io.origin import NOTHING_PRIVATE

BOX = Records((Column("x", "array[f64, 3]"),))
TEXT = Records((Column("t", "str"),))
ROWS = 3_000_000

blocks_of = partial(asked_blocks, private=NOTHING_PRIVATE)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    table = {"x": np.linspace(0, 1, 200), "y": np.linspace(1, 0, 200)}
    fit = sim.density({"x": (0, 1), "y": (0, 1)}, bandwidth=0.2, epsilon=1e3)
    return fit.apply(table, into=folder)


@pytest.mark.parametrize("question", ["density", "outliers"])
def test_blocks_of_queries_get_the_answers_of_all_at_once(release, monkeypatch, tmp_path, question):
    queries = {name: np.random.default_rng(4).random(700) for name in "xy"}
    more = {"threshold": 0.05} if question == "outliers" else {}
    whole = release.ask(question, queries, **more)
    monkeypatch.setattr(cut, "_CELLS", 2)  # blocks of 256
    seen = []
    kept = query_blocks.answered_in_blocks
    monkeypatch.setattr(
        "opendp_sim.accounting.release.query.answered_in_blocks",
        lambda answer, blocks, where: kept(
            lambda b: (seen.append(length_of(b)), answer(b))[1], blocks, where
        ),
    )
    parts = release.ask(question, queries, **more)
    assert seen == [256, 256, 188]
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-12)
    np.savez(tmp_path / "q.npz", **queries)
    step = f"{question}: {{threshold: 0.05}}" if more else question
    found, _, beside = ask(release, reference(str(tmp_path / "q.npz")), [step])
    assert np.array_equal(beside["x"], queries["x"])
    for name in whole:
        np.testing.assert_allclose(found[name], whole[name], rtol=1e-12)


def test_a_question_about_all_queries_sees_them_together(release, monkeypatch):
    queries = {name: np.random.default_rng(4).random(700) for name in "xy"}
    whole = release.ask("sample", queries, size=50, seed=3)
    monkeypatch.setattr(cut, "_CELLS", 2)
    assert np.array_equal(
        release.ask("sample", queries, size=50, seed=3)["candidate"], whole["candidate"]
    )
    monkeypatch.setattr(query_blocks, "_MOST_QUERIES", 700)
    with pytest.raises(DataError, match="OS607"):
        release.ask("sample", queries, size=50, seed=3)


def test_which_questions_look_at_other_queries(release):
    """Whoever adds a question decides; a wrong ``by_query`` changes answers of long files only."""
    known = {"sample": {"size": 3, "seed": 1}, "density": {"public": "queries"}}
    known |= {"outliers": {"public": "queries", "threshold": 0.1}}
    for key, given in known.items():
        bound = REGISTRY[key](**given).bind(release.released, release.stages[0].metric)
        assert not bound.by_query, key


def zeros_of(width: int, rows: int) -> pa.Array:
    flat = pa.array(np.zeros(width * rows))
    return pa.FixedSizeListArray.from_arrays(flat, width)


def air(folder: Path, kind: str) -> tuple[Path, Records]:
    file = folder / f"air.{kind.split(maxsplit=1)[0]}"
    if kind == "npz":
        np.savez_compressed(file, x=np.zeros((ROWS, 3)))
    elif kind == "parquet of vectors":
        pq.write_table(pa.table({"x": zeros_of(3, ROWS)}), file, compression="zstd")
    elif kind == "parquet of one long list":
        offsets = pa.array([0, 3 * ROWS], pa.int64())
        lists = pa.LargeListArray.from_arrays(offsets, pa.array(np.zeros(3 * ROWS)))
        pq.write_table(pa.table({"x": lists}), file, compression="zstd")
    elif kind == "parquet of columns":
        column = pa.array(np.zeros(ROWS))
        pq.write_table(pa.table({f"x_{i}": column for i in range(3)}), file)
    return file, BOX


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "kind", ["npz", "parquet of vectors", "parquet of one long list", "parquet of columns"]
)
def test_a_small_file_of_many_queries_is_refused_by_its_header(tmp_path, kind):
    file, records = air(tmp_path, kind)
    assert file.stat().st_size < 2**17
    before = pa.total_allocated_bytes()
    most = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="OS607") as refused:
            next(blocks_of(lambda: open_source(file.suffix[1:], file.name, records, tmp_path), "q"))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert f"{24 * ROWS:,} bytes" in str(refused.value.got)
    assert "without compression" in refused.value.hint
    assert pa.default_memory_pool().max_memory() <= most + before + 2**22


def test_the_same_queries_in_a_file_of_their_size_are_read(tmp_path, monkeypatch):
    """What is honest is read to its end, a block at a time."""
    monkeypatch.setattr(query_blocks, "_LARGE", 2**16)
    values = np.random.default_rng(1).random((20_000, 3))
    np.savez_compressed(tmp_path / "q.npz", x=values)
    found = blocks_of(lambda: open_source("npz", "q.npz", BOX, tmp_path), "q")
    assert sum(map(length_of, found)) == 20_000


def test_a_gzipped_table_is_counted_as_it_is_read(tmp_path, monkeypatch):
    import gzip

    monkeypatch.setattr(query_blocks, "_LARGE", 2**20)
    with gzip.open(tmp_path / "q.csv.gz", "wt") as stream:
        stream.write("x_0,x_1,x_2\n" + "0,0,0\n" * 200_000)
    read = []
    found = blocks_of(lambda: open_source("csv", "q.csv.gz", BOX, tmp_path), "q")
    with pytest.raises(DataError, match="OS607"):
        read.extend(map(length_of, found))
    assert sum(read) < 100_000


def test_a_long_text_that_a_parquet_file_repeats_is_held_once(tmp_path, monkeypatch):
    word, rows = "w" * 60_000, 4_000
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1] * (rows // 2)), pa.array([word, "b"]))
    for name, column in (("dictionary", words), ("plain", words.cast("string"))):
        pq.write_table(pa.table({"t": column}), tmp_path / f"{name}.parquet", compression="zstd")
        tracemalloc.start()
        source = open_source("parquet", f"{name}.parquet", TEXT, tmp_path)
        block = next(iter(source.blocks()))
        assert block["t"].tolist() == [word, "b"] * (rows // 2)
        assert tracemalloc.get_traced_memory()[1] < 2**22  # as texts of their own: 120 MB
        tracemalloc.stop()
        with pytest.raises(DataError, match="OS607"):
            next(blocks_of(lambda: source, "q"))  # noqa: B023 - called at once
    monkeypatch.setattr(query_blocks, "_LARGE", 2**28)
    assert length_of(next(blocks_of(lambda: source, "q"))) == rows


@pytest.mark.parametrize("name", ["dictionary", "plain"])
def test_texts_of_a_dictionary_are_those_of_a_plain_column(tmp_path, name):
    cells = ["b", None, "a", "", "b", " c ", "ü", None] * 40
    column = pa.array(cells) if name == "plain" else pa.array(cells).dictionary_encode()
    pq.write_table(pa.table({"t": column}), tmp_path / "t.parquet", use_dictionary=name != "plain")
    source = open_source("parquet", "t.parquet", TEXT, tmp_path)
    (block,) = source.blocks()
    from opendp_sim.io.protocol import from_arrays

    (want,) = from_arrays(TEXT, {"t": cells}).blocks()
    assert block["t"].tolist() == want["t"].tolist()
