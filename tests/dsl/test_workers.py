"""Any number of workers: the same sums, refusals in the same words, the same entries of the ledger."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.core.errors import SimError
from opendp_sim.core.guard import guarded
from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.run import execute, execute as released
from opendp_sim.io import parquet, parquet as parquet_part
from opendp_sim.io.checked import GatedSource

SPEC = """
spec: opendp_sim/1
name: workers
data:
  people:
    source: {parquet: files}
    ingest: INGEST
    ledger: {file: people.ledger, limit: {rho: 100.0}}
    columns:
      who: {dtype: int64, role: privacy_id}
      item: {dtype: int64, bounds: [0, 9]}
      x: {dtype: float64, bounds: [0, 1]}
privacy:
  unit: {add_remove: 1, of: UNIT}
  measure: zcdp
  budget: {rho: 1.0}
flow:
  rows: {from: people, steps: [BOUND{select: {features: x}}, {quantize: {bits: 6}}]}
  sketch: {from: FIRST, steps: [LAST]}
  second: {from: rows, steps: [{moments_sketch: {}}]}
  a: {from: sketch, release: {noise: gaussian, spend: 50%}}
  b: {from: second, release: {noise: gaussian, spend: 50%}}
outputs:
  one: {from: a, save: a.npz}
  two: {from: b, save: b.npz}
"""
LAST = {
    "thresholds": ("rows", "{threshold_sketch: {thresholds: 8}}"),
    "slices": ("rows", "{slice_sketch: {directions: 20, thresholds: 8, seed: 1}}"),
    "by row": ("rows", "{threshold_sketch: {thresholds: 8}}"),
    "votes": ("people", "{vote_counts: {item: item, items: [0, 1, 2, 3], max_items: 2}}"),
}
FILES, ROWS, GROUP = 4, 24, 4
FAULTS = ("nan", "high", "wide", "missing", "type", "torn", "heavy", "gone")


def write(folder: Path, faults: dict[int, str]) -> None:
    """Write files of six groups; the fault of a file is in its fifth group, or in its form."""
    (folder / "files").mkdir(parents=True, exist_ok=True)
    for at in range(FILES):
        g = np.random.default_rng(at)
        who, item, x = g.integers(0, 9, ROWS), g.integers(0, 6, ROWS), g.random(ROWS)
        fault, path = faults.get(at), folder / "files" / f"{at}.parquet"
        if fault == "nan":
            x[18] = np.nan
        if fault == "high":
            x[18] = 7.0
        if fault == "wide":
            item[18] = 70
        items: Any = pa.array(item, mask=np.arange(ROWS) == 18) if fault == "missing" else item
        table = pa.table({"who": who, "item": items, "x": x})
        if fault == "type":
            table = table.set_column(2, "x", pa.array(["1.0"] * ROWS))
        pq.write_table(table, path, row_group_size=GROUP, compression="none", use_dictionary=False)
        if fault == "torn":
            about = pq.ParquetFile(path).metadata.row_group(4).column(2)
            with path.open("r+b") as file:
                file.seek(about.data_page_offset)
                file.write(b"\xff" * 16)


@cache
def program(ingest: str, last: str, folder: Path) -> Any:
    first, step = LAST[last]
    text = SPEC.replace("INGEST", ingest).replace("FIRST", first).replace("LAST", step)
    by_row = last == "by row"
    text = text.replace("UNIT", "row" if by_row else "who")
    text = text.replace("BOUND", "" if by_row else "{bound_contributions: {max_rows: 2}}, ")
    (folder / f"{ingest}-{last}.yaml").write_text(text)
    return plan_file(folder / f"{ingest}-{last}.yaml")


@pytest.fixture(scope="module")
def home(tmp_path_factory: Any) -> Path:
    return tmp_path_factory.mktemp("workers")


def run(
    plan: Any, home: Path, workers: int, *, monkeypatch: Any
) -> tuple[str, list[str], list[Any]]:
    """Return what a run said, what the ledger holds, and the sums of its releases."""
    for file in [*home.glob("*.ledger*"), *home.glob("*.npz*")]:
        file.unlink()
    sums: list[Any] = []
    said = "done"
    with monkeypatch.context() as patch:
        real = released._release
        patch.setattr(
            released, "_release", lambda p, r, data, t: (sums.append(data), real(p, r, data, t))[1]
        )
        try:
            apply(plan, workers=workers, replace=True)
        except SimError as error:
            said = str(error)
    with Ledger.open(home / "people.ledger") as ledger:
        return said, [entry.kind for entry in ledger.entries], sums


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("ingest", "last", "faults"),
    [
        ("refuse", "thresholds", {}),
        ("refuse", "votes", {0: "heavy", 2: "high", 3: "nan"}),
        ("enforce", "slices", {1: "nan", 2: "wide", 3: "heavy"}),
        ("enforce", "by row", {1: "missing", 2: "torn"}),
        ("assume", "votes", {1: "type", 3: "gone"}),
    ],
)
def test_one_and_several_workers_say_and_add_up_the_same(
    faults: dict[int, str], ingest: str, last: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compare(faults, ingest, last, home, monkeypatch)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    faults=st.dictionaries(st.integers(0, FILES - 1), st.sampled_from(FAULTS), max_size=3),
    ingest=st.sampled_from(["refuse", "enforce", "assume"]),
    last=st.sampled_from(sorted(LAST)),
)
def test_one_and_several_workers_say_charge_and_add_up_the_same(
    faults: dict[int, str], ingest: str, last: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _compare(faults, ingest, last, home, monkeypatch)


def _compare(
    faults: dict[int, str], ingest: str, last: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, faults)
    heavy = {home / "files" / f"{at}.parquet" for at, fault in faults.items() if fault == "heavy"}
    gone = [home / "files" / f"{at}.parquet" for at, fault in faults.items() if fault == "gone"]
    real_units, real_batches = parquet._units, parquet.batches

    def batches(file: Any, part: Any, *args: Any, **named: Any) -> Any:
        if part.file in heavy:
            raise parquet_part.too_heavy(part.file)
        return real_batches(file, part, *args, **named)

    def units(arrow: Any, place: Any, part: Any, widths: Any) -> Any:
        found = real_units(arrow, place, part, widths)
        return [(part, ROWS)] if part.file in heavy else found

    def changed(*args: Any, **named: Any) -> Any:
        inputs = execute_open(*args, **named)
        for path in gone:  # another file stands there now, after it was listed
            os.utime(path, ns=(1, 1))
        return inputs

    execute_open = execute.open_private
    plan, told = program(ingest, last, home), []
    for workers in (1, 2, 5):
        write(home, faults)
        with monkeypatch.context() as patch:
            patch.setattr(parquet, "batches", batches)
            patch.setattr(parquet, "_units", units)
            patch.setattr(execute, "open_private", changed)
            told.append(run(plan, home, workers, monkeypatch=monkeypatch))
    assert told[0][:2] == told[1][:2] == told[2][:2]
    for one, two, three in zip(*(sums for *_, sums in told), strict=True):
        assert np.array_equal(one, two)
        assert np.array_equal(one, three)
    if not faults:
        assert told[0][0] == "done"


@pytest.mark.long
def test_several_workers_read_parts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above shows nothing."""
    write(home, {})
    seen: list[int] = []
    real = parquet._runs
    monkeypatch.setattr(
        parquet, "_runs", lambda units, count: (seen.append(count), real(units, count))[1]
    )
    for last in LAST:
        run(program("refuse", last, home), home, 2, monkeypatch=monkeypatch)
    assert seen == [8] * 2 * len(LAST)  # both releases of each


def test_the_first_failure_of_a_mechanism_is_told_and_paid_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mechanism fails in the first part, and the gate refuses a record of the last: a refusal."""
    plan = program("refuse", "by row", home)
    for faults, kinds in (({}, ["reserve"]), ({3: "high"}, ["reserve", "refusal"])):
        told = []
        for workers in (1, 2, 5):
            write(home, faults)
            with monkeypatch.context() as patch:
                patch.setattr(released, "build_sketch", _failing(released.build_sketch))
                told.append(run(plan, home, workers, monkeypatch=monkeypatch)[:2])
        assert told[0] == told[1] == told[2]
        assert told[0][1] == kinds
        assert "alice" not in told[0][0]


def _failing(real: Any) -> Any:
    def build(stages: Any, blocks: Any, **named: Any) -> Any:
        if not isinstance(blocks, GatedSource):  # those of the rehearsal, which are none
            return real(stages, blocks, **named)

        def fails(_: Any) -> Any:
            raise ValueError("alice@secret.example")

        class Failing:
            def __call__(self) -> Any:
                for block in blocks():
                    yield block
                    guarded(fails, "t")(None)

            def parts(self, workers: int) -> Any:
                found = blocks.parts(workers)
                return None if found is None else [_after_one(part, fails) for part in found]

        return real(stages, Failing(), **named)

    return build


def _after_one(part: Any, fails: Any) -> Any:
    def opened() -> Any:
        for block in part():
            yield block
            guarded(fails, "t")(None)

    return opened
