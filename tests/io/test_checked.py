"""The check of a source, in a pass of its own or in the first pass that reads: one verdict, no bad block."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.errors import DataError
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.checked import GatedSource
from opendp_sim.io.open import open_source
from opendp_sim.io.protocol import from_arrays
from tests._gate import check_source

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
    checked = GatedSource(Pieces(faults, ends=ends), mode)
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


class Cut(Pieces):
    """The same source in parts; a block may have a fault of its form, and a part end in its own error."""

    length = 10

    def __init__(self, parts: list[list[str | None]]) -> None:
        super().__init__([fault for part in parts for fault in part], ends=False)
        self.all = parts

    def blocks(self, rows: int | None = None) -> Any:
        for at, fault in enumerate(self.faults):
            if fault in ("cut", "form"):
                if fault == "form":
                    yield {"a": np.full(4, 0.5), "b": np.array(["x"] * 4)}
                raise DataError("OS601", f"block {at}", expected="a", got="b", hint="look.")
            part = Pieces([fault], ends=False)
            yield from part.blocks()

    def cut(self, workers: int) -> Any:
        found, before = [], 0
        for faults in self.all:
            one = Cut([faults])
            one.blocks = self._from(faults, before)  # type: ignore[method-assign]
            found.append(one)
            before += len(faults)
        return found

    @staticmethod
    def _from(faults: list[str | None], before: int) -> Any:
        def blocks(rows: int | None = None) -> Any:
            whole = Cut([[None] * before + faults]).blocks()
            yield from itertools.islice(whole, before, None)

        return blocks


FAULTS = st.sampled_from([None, None, None, *BAD, "cut", "form"])


@given(
    parts=st.lists(st.lists(FAULTS, max_size=3), min_size=1, max_size=5),
    mode=st.sampled_from(["refuse", "enforce"]),
    data=st.data(),
)
def test_parts_in_any_order_give_the_verdict_of_one_thread(
    parts: Any, mode: Any, data: Any
) -> None:
    """Whoever is quicker: parts go on by turns that hypothesis draws, block by block."""
    alone = verdict(lambda: check_source(Cut(parts), mode))
    checked = GatedSource(Cut(parts), mode)
    opened = [iter(part()) for part in checked.parts(2) or []]
    waiting, seen = list(range(len(opened))), []
    while waiting:
        at = data.draw(st.sampled_from(waiting))
        block = next(opened[at], None)
        if block is None:
            waiting.remove(at)
        else:
            seen.append(block)
            assert np.isfinite(block["a"]).all()
            assert block["a"].max() <= 1
    assert verdict(checked.finish) == alone
    assert checked._done
    if alone is None:
        again = [block for part in checked.parts(2) or [] for block in part()]
        assert sum(len(b["a"]) for b in again) == sum(len(b["a"]) for b in seen)
    else:
        assert verdict(lambda: checked.parts(2)) == alone


@pytest.mark.parametrize("mode", ["refuse", "enforce"])
def test_too_many_records_are_counted_over_all_parts(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five blocks of four where fewer than 2**31 = 17 are admitted: the fifth, or what stops before it."""
    from opendp_sim.core.arithmetic import countable

    monkeypatch.setattr(countable, "TOO_MANY", 17)
    for parts in (
        [[None] * 3, [None] * 2],
        [[None] * 5],
        [[None] * 3, ["nan"], ["cut"]],
        [[None] * 3, [None], ["form"]],
        [[None, "nan"], [None] * 2, [None, "cut"]],
    ):
        alone = verdict(lambda parts=parts: check_source(Cut(parts), mode))
        checked = GatedSource(Cut(parts), mode)
        for part in reversed(checked.parts(2) or []):
            list(part())
        assert verdict(checked.finish) == alone
        assert alone is not None
        assert ("OS610" in alone) == ("cut" not in parts[-1] or parts[0][-1] is not None)


def test_a_reading_that_is_not_ended_is_no_check() -> None:
    checked = GatedSource(Pieces([None, None, "nan"], ends=False), "refuse")
    first = checked()
    next(first)
    with pytest.raises(DataError, match=r"OS60[345]"):
        checked()  # the other reading waits for the verdict
    assert len(list(first)) == 1  # the bad block is never handed on
    with pytest.raises(DataError):
        checked.finish()


def test_no_record_is_a_refusal_in_the_pass_that_reads() -> None:
    checked = GatedSource(from_arrays(RECORDS, {"a": np.empty(0), "b": np.empty(0, int)}), "refuse")
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


@pytest.mark.parametrize(
    ("dtype", "bounds", "odd"),
    [
        ("array[u8, 2]", (0, 9), [12, 300, -1]),
        ("array[u8, 2]", None, [12, 300, -1]),
        ("array[f64, 2]", (-5, 5), [6, 40_000, -40_000]),
        ("array[f32, 2]", (0, 9), [12, 1e30, -1]),
    ],
)
def test_what_is_told_of_values_does_not_depend_on_where_blocks_end(
    dtype: str, bounds: Any, odd: list[float]
) -> None:
    """One text for a column and a code: the first refused block may hold either kind of fault."""
    records = Records((Column("c", dtype, bounds),))
    kind = "f4" if "f32" in dtype else "i8"
    told = set()
    for order in itertools.permutations(odd):
        values = np.array([[value, 1] for value in order], dtype=kind)
        for rows in (1, 2, 3):
            error = verdict(lambda: check_source(Blocks(values, records, rows)))  # noqa: B023
            told.add(error)
    assert len(told) == 1


class Blocks:
    """One column in blocks of so many records."""

    length = None

    def __init__(self, values: Any, records: Records, rows: int) -> None:
        self.values, self.records, self.rows = values, records, rows

    def blocks(self, rows: int | None = None) -> Any:
        for at in range(0, len(self.values), self.rows):
            yield {"c": self.values[at : at + self.rows]}
