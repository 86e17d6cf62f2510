"""The check of a source, in a pass of its own or in the first pass that reads: one verdict, no bad block."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.errors import DataError
from opendp_sim.sources.checked import Checked, check_source
from opendp_sim.sources.opening import open_source
from opendp_sim.sources.source import from_arrays
from opendp_sim.spaces.records import Column, Records

RECORDS = Records((Column("a", "float64", bounds=(0.0, 1.0)), Column("b", "int64", bounds=(0, 9))))
BAD: dict[str, tuple[str, Any]] = {"nan": ("a", np.nan), "high": ("a", 7.0), "wide": ("b", 70)}


def verdict(action: Any) -> str | None:
    try:
        action()
    except DataError as error:
        return str(error)
    return None


class Pieces:
    """A source of one block a fault; it ends in an error of its own if asked to."""

    records, length = RECORDS, None

    def __init__(self, faults: list[str | None], *, ends: bool) -> None:
        self.faults, self.ends = faults, ends

    def blocks(self, rows: int | None = None) -> Any:
        for fault in self.faults:
            block = {"a": np.full(4, 0.5), "b": np.full(4, 3)}
            if fault is not None:
                column, value = BAD[fault]
                block[column][2] = value
            yield block
        if self.ends:
            raise DataError("OS601", "t", expected="a file", got="one cut short", hint="look.")


@given(
    faults=st.lists(st.sampled_from([None, None, *BAD]), max_size=5),
    ends=st.booleans(),
    mode=st.sampled_from(["refuse", "enforce", "assume"]),
    stop=st.integers(0, 6),
    readings=st.integers(0, 3),
)
def test_every_way_of_reading_gives_the_verdict_of_a_pass_of_its_own(
    faults: Any, ends: bool, mode: Any, stop: int, readings: int
) -> None:
    """Read whole, left in the middle, opened in another reading, or not at all; no refused block is met."""
    alone = verdict(lambda: check_source(Pieces(faults, ends=ends), mode))
    checked = Checked(Pieces(faults, ends=ends), mode)
    seen = []

    def read() -> None:
        for number in range(readings):
            for at, block in enumerate(checked()):
                if mode == "refuse":
                    assert np.isfinite(block["a"]).all()
                    assert block["a"].max() <= 1
                seen.append(len(block["a"]))
                if (at, number) == (stop, 0):
                    break

    told = verdict(read)
    assert verdict(checked.finish) == alone
    assert verdict(checked.finish) == alone
    # A second reading says it as well; under `assume` a later block may, which is no word of the gate.
    assert told in (None, alone) or mode == "assume"
    if alone is None and told is None and readings == 1 and stop >= len(faults):
        assert len(seen) == len(faults)


def test_a_reading_that_is_not_ended_is_no_check() -> None:
    checked = Checked(Pieces([None, None, "nan"], ends=False), "refuse")
    first = checked()
    next(first)
    with pytest.raises(DataError, match=r"OS60[345]"):
        checked()  # the other reading waits for the verdict
    assert len(list(first)) == 1  # the bad block is never handed on
    with pytest.raises(DataError):
        checked.finish()


def test_no_record_is_a_refusal_in_the_pass_that_reads() -> None:
    checked = Checked(from_arrays(RECORDS, {"a": np.empty(0), "b": np.empty(0, int)}), "refuse")
    list(checked())
    assert verdict(checked.finish) == verdict(lambda: check_source(Pieces([], ends=False)))


def write(kind: str, path: Path, high: float) -> None:
    a, b = np.linspace(0, high, 40), np.arange(40) % 10
    if kind == "npz":
        np.savez(path, a=a, b=b)
    if kind == "npy":
        np.save(path, np.stack([a, b], axis=1))
    if kind == "csv":
        np.savetxt(path, np.stack([a, b], axis=1), delimiter=",", header="a,b", comments="")
    if kind == "parquet":
        pq.write_table(pa.table({"a": a, "b": b}), path)


@pytest.mark.parametrize("when", ["between", "within"])
@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet"])
def test_a_file_that_changes_between_two_passes_or_in_one_is_refused(
    kind: str, when: str, tmp_path: Path
) -> None:
    """A survey of persons is about the records it saw: a second pass over others would keep too many."""
    records = Records((Column("a", "float64", (0, 1)), Column("b", "float64", (0, 9))))
    path = tmp_path / f"t.{kind}"
    write(kind, path, 1.0)
    source = open_source(kind, f"t.{kind}", records, tmp_path)
    blocks = source.blocks(8)
    first = [next(blocks)]
    if when == "within":
        os.utime(path, ns=(1, 1))
        with pytest.raises(DataError, match="changed while it was read"):
            list(blocks)
        return
    first += list(blocks)
    assert np.array_equal(np.concatenate([block["a"] for block in first]), np.linspace(0, 1, 40))
    made = tmp_path / f"new.{kind}"
    write(kind, made, 0.9)
    os.utime(made, ns=(1, 1))
    made.replace(path)
    with pytest.raises(DataError, match="changed while it was read"):
        next(source.blocks(8))
