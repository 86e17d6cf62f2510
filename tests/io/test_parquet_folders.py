"""A folder, a pattern and a partitioned data set of Parquet files are one source; memory stays flat."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opendp_sim.core.errors import DataError, ParameterError
from opendp_sim.domains.records import Column, Records
from opendp_sim.io import parquet, parquet as parquet_part
from opendp_sim.io.file_spec import FileOptions, reading
from opendp_sim.io.parquet import parquet_source

POINTS = Records((Column("x", "array[f64, 2]", (0, 1)),))
BY_YEAR = Records(
    (Column("x", "array[f64, 2]", (0, 1)), Column("year", "category", keys=("2025", "2026")))
)
ROWS = np.linspace(0, 1, 60).reshape(30, 2)


def write(path: Path, rows: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x_0": rows[:, 0], "x_1": rows[:, 1]}), path)


def whole(source, rows=None):
    blocks = list(source.blocks(rows))
    return {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}


def test_the_name_of_a_folder_is_a_column(tmp_path):
    write(tmp_path / "year=2025" / "a.parquet", ROWS[:20])
    write(tmp_path / "year=2026" / "a.parquet", ROWS[20:])
    found = whole(parquet_source(FileOptions(tmp_path, {}), BY_YEAR))
    assert np.array_equal(found["x"], ROWS)
    assert found["year"].tolist() == [0] * 20 + [1] * 10


def test_a_pattern_without_files_is_refused(tmp_path):
    for file in (tmp_path / "none-*.parquet", tmp_path):
        with pytest.raises(DataError, match="OS601"):
            parquet_source(FileOptions(file, {}), POINTS)


def test_a_file_without_the_column_is_refused(tmp_path):
    write(tmp_path / "a.parquet", ROWS)
    pq.write_table(pa.table({"y": [1.0]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="OS602"):
        parquet_source(FileOptions(tmp_path, {}), POINTS)


def test_what_is_unfinished_hidden_or_about_others_is_left_out(tmp_path):
    for name in ("_temporary/0/a", ".copy/a", "year=2025/.a", "year=2025/_a", "_a", ".a"):
        write(tmp_path / f"{name}.parquet", ROWS[:3])
    with pytest.raises(DataError, match="OS601"):
        parquet_source(FileOptions(tmp_path, {}), POINTS)
    write(tmp_path / "year=2025" / "a.parquet", ROWS[:20])
    write(tmp_path / "_year=2026" / "_a=1" / "a.parquet", ROWS[20:])
    for file, found in ((tmp_path, 30), (tmp_path / "year=2025" / "*.parquet", 20)):
        assert parquet_source(FileOptions(file, {}), POINTS).length == found
    assert (
        parquet_source(FileOptions(tmp_path / "year=2025" / "_*.parquet", {}), POINTS).length == 3
    )
    (tmp_path / "_root").mkdir()
    write(tmp_path / "_root" / "a.parquet", ROWS)  # what is named is read
    assert parquet_source(FileOptions(tmp_path / "_root", {}), POINTS).length == 30


PEAK = """
import resource, sys
from pathlib import Path
from opendp_sim.io.parquet import parquet_source
from opendp_sim.io.file_spec import FileOptions
from opendp_sim.domains.records import Column, Records
source = parquet_source(FileOptions(Path(sys.argv[1]), {}), Records((Column("x", "array[f64, 2]", (0, 1)),)))
first = next(iter(source.blocks(1000)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sum(len(block["x"]) for block in source.blocks(1000)) == 1_500_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path):
    """24 MB of numbers in one row group, read a thousand records at a time, cost at most 16 MiB."""
    rng = np.random.default_rng(1)
    rows = rng.random((1_500_000, 2))
    table = pa.table({"x_0": rows[:, 0], "x_1": rows[:, 1]})
    pq.write_table(table, tmp_path / "big.parquet", row_group_size=1_500_000)
    code = [sys.executable, "-c", PEAK, str(tmp_path / "big.parquet")]
    out = subprocess.run(code, capture_output=True, text=True, check=True)
    assert int(out.stdout) < 16 * 1024


@pytest.mark.parametrize("groups", [None, 2])
def test_lists_and_texts_that_no_memory_holds_are_refused_before_they_are_read(
    tmp_path, monkeypatch, groups
):
    """A file of 627 bytes with one list of 60 million zeros took 978 MiB; what is refused is counted."""
    monkeypatch.setattr(parquet_part, "_SPARE", 100)
    monkeypatch.setattr(parquet_part, "_HEAVY", 1000)
    long = {"x": pa.array([[0.0] * 2] * 3 + [[0.0] * 120]), "who": ["p"] * 4}
    wide = {"x": pa.array([[0.0] * 2] * 2), "who": ["a" * 2**21, "b" * 2**21]}
    fine = {"x": pa.array([[0.0] * 2] * 3 + [[0.0] * 90] + [None]), "who": ["p" * 900] * 5}
    records = Records(
        (Column("x", "array[f64, 2]", (0, 1)), Column("who", "str", role="privacy_id"))
    )
    read = []
    once = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda *a, **k: read.append(k["batch_size"]) or once(*a, **k),
    )
    for name, data in {"long": long, "wide": wide, "fine": fine}.items():
        pq.write_table(pa.table(data), tmp_path / f"{name}.parquet", row_group_size=groups)
        source = parquet_source(
            FileOptions(tmp_path / f"{name}.parquet", {}), records
        )  # the form is fine
        if name == "fine":
            found = np.concatenate([block["x"] for block in source.blocks(1000)])
            assert np.isnan(found).all(axis=1).tolist() == [False] * 3 + [True] * 2
            assert max(read) < 1000  # fewer records at once than were asked for
        else:
            with pytest.raises(DataError, match="OS601"):
                list(source.blocks(1000))
            if groups is None:
                assert read == []


def test_a_reader_that_gets_no_memory_is_no_refusal_by_the_data():
    """Arrow's own error is a MemoryError: it was told as a file that cannot be read, and its reserve returned."""
    with (
        pytest.raises(ParameterError, match="OS103") as caught,
        reading(Path("x.parquet"), "readable"),
    ):
        raise pa.ArrowMemoryError("malloc of size 1 failed")
    assert caught.value.__context__ is None


def groups(path: Path, rows: np.ndarray, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"x_0": rows[:, 0], "x_1": rows[:, 1]})
    pq.write_table(table, path, row_group_size=size)


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_parts_side_by_side_are_the_whole(tmp_path, workers):
    """In order, none of them empty, with files between that hold no record, and each file opened once."""
    for place, part in enumerate(np.array_split(ROWS, 4)):
        groups(tmp_path / f"year={2025 + place // 2}" / f"{place}.parquet", part, 1 + place)
    groups(tmp_path / "year=2025" / "5.parquet", ROWS[:0], 1)
    source = parquet_source(FileOptions(tmp_path, {}), BY_YEAR)
    expected, parts = whole(source), source.cut(workers)
    found = [whole(part) for part in parts]
    assert 1 < len(found) <= 4 * workers + 1
    for name, column in expected.items():
        assert np.array_equal(np.concatenate([f[name] for f in found]), column)


def test_few_row_groups_are_read_by_one(tmp_path):
    """One group for two threads, or one that holds nearly all: one thread would read for all anyway."""
    groups(tmp_path / "a.parquet", ROWS, 30)
    assert parquet_source(FileOptions(tmp_path / "a.parquet", {}), POINTS).cut(2) is None
    groups(tmp_path / "b.parquet", ROWS[:2], 30)
    assert parquet_source(FileOptions(tmp_path, {}), POINTS).cut(2) is None
    groups(tmp_path / "a.parquet", ROWS, 15)
    assert len(parquet_source(FileOptions(tmp_path / "a.parquet", {}), POINTS).cut(2)) == 2


def test_a_file_that_is_refused_as_a_whole_stays_whole(tmp_path, monkeypatch):
    """Its refusal comes before the reading of its first group, whoever reads which of them."""
    for name in "ab":
        groups(tmp_path / f"{name}.parquet", ROWS, 5)
    for module in (parquet, parquet_part):
        monkeypatch.setattr(module, "unbounded_decode", lambda spare, heavy, count: count == 5)
    source = parquet_source(FileOptions(tmp_path, {}), POINTS)
    assert len(source.cut(2)) == 2
    for part in source.cut(2):
        with pytest.raises(DataError, match="OS601"):
            next(iter(part.blocks()))


def test_runs_for_a_job_name_each_file_once(tmp_path):
    """A run of many groups of one file opens it once, not once a group."""
    for name in "ab":
        groups(tmp_path / f"{name}.parquet", ROWS, 3)
    runs, rows = parquet.parquet_parts(FileOptions(tmp_path, {}), 4)
    assert rows == 60
    assert [len(run) for run in runs] == [1, 1, 1, 1]
    assert [len(part.groups) for run in runs for part in run] == [5, 5, 5, 5]
    assert len(parquet.parquet_parts(FileOptions(tmp_path, {}), 1)[0][0]) == 2


def test_a_missing_column_names_the_folders_columns(tmp_path):
    """A declared `year` under folders called 2025 and 2026, and not `year=2025`."""
    for folder, given in (("2025", "none"), ("month=1", "month")):
        write(tmp_path / folder[:2] / folder / "a.parquet", ROWS)
        with pytest.raises(DataError) as refused:
            parquet_source(FileOptions(tmp_path / folder[:2], {}), BY_YEAR)
        assert refused.value.got.endswith(f"nor in the names of their folders ({given})")
        assert refused.value.hint.startswith("a folder called `year=2026` gives its files")
        assert refused.value.__context__ is None
