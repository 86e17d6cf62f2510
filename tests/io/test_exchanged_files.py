"""A file that is exchanged between two passes under one size and time of change is refused (OS601)."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.core.errors import DataError
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.file_spec import PORTABLE, file_state
from opendp_sim.io.open import open_source

RECORDS = Records((Column("a", "int64", bounds=(0, 9)),))
ROWS = 40


def parquet(file: Path, rows: np.ndarray) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    table = {"a": rows}
    pq.write_table(
        pytest.importorskip("pyarrow").table(table), file, use_dictionary=False, compression="none"
    )


def csv(file: Path, rows: np.ndarray) -> None:
    file.write_text("a\n" + "".join(f"{row}\n" for row in rows))


def packed(file: Path, rows: np.ndarray) -> None:
    file.write_bytes(gzip.compress(("a\n" + "".join(f"{r}\n" for r in rows)).encode(), 0, mtime=0))


WRITERS: dict[str, Callable[[Path, np.ndarray], None]] = {
    "t.parquet": parquet,
    "t.csv": csv,
    "t.csv.gz": packed,
    "t.npz": lambda file, rows: np.savez(file, a=rows),
    "t.npy": lambda file, rows: np.save(file, rows[:, None]),
}


def link(one: Path, other: Path, file: Path) -> None:
    (one.parent / "link").symlink_to(other)
    (one.parent / "link").replace(file)


def move(one: Path, other: Path, file: Path) -> None:
    (one.parent / "copy").write_bytes(other.read_bytes())
    state = one.stat()
    os.utime(one.parent / "copy", ns=(state.st_atime_ns, state.st_mtime_ns))
    (one.parent / "copy").replace(file)


def edit(one: Path, other: Path, file: Path) -> None:
    state = one.stat()
    with file.open("r+b") as held:
        held.write(other.read_bytes())
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("exchange", [link, move, edit])
def test_it_is_refused(
    tmp_path: Path, name: str, exchange: Callable[[Path, Path, Path], None]
) -> None:
    end = name.partition(".")[2]
    one, other, file = tmp_path / f"one.{end}", tmp_path / f"other.{end}", tmp_path / name
    WRITERS[name](one, np.arange(ROWS) % 10)
    WRITERS[name](other, np.full(ROWS, 7))
    state = one.stat()
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    if exchange is link:
        file.symlink_to(one)
    else:
        file.write_bytes(one.read_bytes())
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    source = open_source(end.removesuffix(".gz"), name, RECORDS, tmp_path)
    before = file_state(file)
    assert sum(len(block["a"]) for block in source.blocks()) == ROWS
    time.sleep(0.02)  # a file system's clock
    exchange(one, other, file)
    assert file_state(file)[:PORTABLE] == before[:PORTABLE]
    with pytest.raises(DataError, match="OS601"):
        list(source.blocks())


@pytest.mark.parametrize("name", WRITERS)
def test_a_link_that_is_swapped_back_is_read_from_one_file(tmp_path: Path, name: str) -> None:
    """What was opened is looked at: the path led to the file that was listed before and after."""
    end = name.partition(".")[2]
    one, other, file = tmp_path / f"one.{end}", tmp_path / f"other.{end}", tmp_path / name
    WRITERS[name](one, np.arange(ROWS) % 10)
    WRITERS[name](other, np.full(ROWS, 7))
    state = one.stat()
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    file.symlink_to(one)
    source = open_source(end.removesuffix(".gz"), name, RECORDS, tmp_path)
    blocks = source.blocks(1)
    found = [next(blocks)["a"]]
    link(one, other, file)
    found += [block["a"] for block in blocks]
    assert np.array_equal(np.concatenate(found), np.arange(ROWS) % 10)
