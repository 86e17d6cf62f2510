"""Gate and first sum in one pass: verdicts, bits and the ledger are those of a pass for the gate alone."""

from __future__ import annotations

import itertools
import os
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.core.errors import SimError
from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.run import execute, execute as released
from opendp_sim.dsl.run.inputs import Inputs, open_private
from opendp_sim.io import protocol as sources
from opendp_sim.io.checked import GatedSource

SPEC = """
spec: opendp_sim/1
name: passes
data:
  people:
    source: {memory: people}
    ingest: INGEST
    ledger: {file: people.ledger, limit: {rho: 100.0}}
    columns:
      who: {dtype: int64, role: privacy_id}
      x: {dtype: "array[f64, 2]", bounds: [0, 1]}
privacy:
  unit: {add_remove: 1, of: who}
  measure: zcdp
  budget: {rho: 1.0}
flow:
  rows: {from: people, steps: [{bound_contributions: {max_rows: 2}}, {select: {features: x}}, {quantize: {bits: 6}}]}
  one: {from: rows, steps: [{moments_sketch: {}}]}
  two: {from: rows, steps: [{threshold_sketch: {thresholds: 8}}]}
  first: {from: one, release: {noise: gaussian, spend: 50%}}
  second: {from: two, release: {noise: gaussian, spend: 50%}}
outputs:
  a: {from: first, save: a.npz}
  b: {from: second, save: b.npz}
"""
BLOCKS = 3


@cache
def planned(ingest: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "s.yaml"
        spec.write_text(SPEC.replace("INGEST", ingest))
        return plan_file(spec)


def plan(folder: Path, ingest: str = "refuse") -> Any:
    folder.mkdir(exist_ok=True)
    made = planned(ingest)
    return replace(made, program=replace(made.program, written_folder=str(folder)), path=None)


class Stopped(BaseException):
    """The end of the process."""


class Data:
    """Records in blocks; the k-th block is bad, or the k-th of all passes stops the process or fails."""

    length = None

    def __init__(self, records: Any, fault: str = "", at: int = 0) -> None:
        self.records, self.fault, self.at, self.opened = records, fault, at, 0

    def blocks(self, rows: int | None = None) -> Any:
        g = np.random.default_rng(0)
        for number in range(BLOCKS):
            who, x = g.integers(0, 9, 30), g.random((30, 2))
            if self.fault == "bad" and number == self.at:
                x[3] = 7.0
            if self.fault not in ("bad", "") and self.opened == self.at:
                raise {"stop": Stopped, "memory": MemoryError, "broken": ValueError}[self.fault]
            self.opened += 1
            yield {"who": who, "x": x}


def passes(made: Any) -> int:
    """Return how many blocks a run reads in all."""
    data = Data(made.program.data[0].records)
    apply(made, memory={"people": data})
    return data.opened


def ended(made: Any, data: Data) -> tuple[str, list[str]]:
    """Run, and return what it said and what the ledger holds."""
    said = "done"
    try:
        apply(made, memory={"people": data})
    except SimError as error:
        said = str(error)
    except (Stopped, MemoryError, ValueError) as error:
        said = type(error).__name__
    with Ledger.open(Path(made.program.folder) / "people.ledger") as ledger:
        return said, [entry.kind for entry in ledger.entries]


@pytest.fixture
def gate_first(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the gate in a pass of its own, before anything is summed."""

    def use() -> None:
        def whole(*args: Any, **_named: Any) -> Inputs:
            return open_private(*args)

        monkeypatch.setattr(execute, "open_private", whole)

    return use


@pytest.mark.few(1)
@pytest.mark.parametrize("ingest", ["refuse", "enforce", "assume"])
def test_a_pass_less_and_the_same_sums(
    ingest: str, tmp_path: Path, monkeypatch: Any, gate_first: Any
) -> None:
    seen: list[Any] = []
    real = released._release
    monkeypatch.setattr(
        released, "_release", lambda p, r, data, t: (seen.append(data), real(p, r, data, t))[1]
    )
    fused = passes(plan(tmp_path / "one", ingest))
    gate_first()
    apart = passes(plan(tmp_path / "two", ingest))
    assert apart == fused + (0 if ingest == "assume" else BLOCKS)
    assert len(seen) == 8  # two sums of a rehearsal without records, then those of the run; twice
    for one, two in zip(seen[2:4], seen[6:8], strict=True):
        assert one.any()
        assert np.array_equal(one, two)


@pytest.mark.few(1)
@pytest.mark.parametrize("ingest", ["refuse", "enforce"])
def test_a_bad_record_anywhere_is_refused_and_returned_as_it_was(
    ingest: str, tmp_path: Path, gate_first: Any
) -> None:
    found = []
    for turn in ("fused", "apart"):
        if turn == "apart":
            gate_first()
        for at in (0, BLOCKS - 1):
            made = plan(tmp_path / f"{turn}-{at}", ingest)
            found.append(ended(made, Data(made.program.data[0].records, "bad", at)))
    assert found[:2] == found[2:]
    kinds = {tuple(kinds) for _, kinds in found}
    expected = ("reserve", "refusal") if ingest == "refuse" else ("reserve", "charge", "outcome")
    assert kinds == {expected}


@pytest.mark.few(2)
@pytest.mark.parametrize("fault", ["stop", "memory", "broken"])
def test_at_every_block_what_ends_a_run_is_paid_for_or_the_gate_said_it(
    fault: str, tmp_path: Path
) -> None:
    """A run that ends at any block of any pass leaves no output, and its reserve unless the gate refused."""
    blocks = passes(plan(tmp_path / "whole"))
    assert blocks == 4 * BLOCKS  # survey and build, for two sums
    for at in range(blocks) if fault == "stop" else (1, BLOCKS + 1):
        made = plan(tmp_path / f"{fault}-{at}")
        said, kinds = ended(made, Data(made.program.data[0].records, fault, at))
        assert said != "done"
        assert not list(Path(made.program.folder).glob("*.npz"))
        assert kinds in (["reserve"], ["reserve", "refusal"])
        if fault == "stop" or at >= BLOCKS:
            assert kinds == ["reserve"], at


@pytest.mark.parametrize("bad", [None, BLOCKS - 1])
def test_a_mechanism_that_fails_is_judged_after_the_gate(
    bad: int | None, tmp_path: Path, monkeypatch: Any
) -> None:
    """It fails at the first block: the run is refused if a later record is, and else is charged."""

    real = released.build_sketch

    def fails(stages: Any, blocks: Any, **words: Any) -> Any:
        if not isinstance(blocks, GatedSource):  # those of the rehearsal, which are none
            return real(stages, blocks, **words)
        raise ZeroDivisionError("record 17")

    monkeypatch.setattr(released, "build_sketch", fails)
    made = plan(tmp_path)
    data = Data(made.program.data[0].records, "" if bad is None else "bad", bad or 0)
    said, kinds = ended(made, data)
    assert "17" not in said
    if bad is None:
        assert said.startswith("OS902")
        assert kinds == ["reserve"]
    else:
        assert said.startswith("OS6")
        assert kinds == ["reserve", "refusal"]


def test_a_file_that_changes_after_the_gate_is_paid_for(tmp_path: Path, monkeypatch: Any) -> None:
    """The gate has passed it: that a later pass fails may depend on anything, so the reserve stands."""
    text = SPEC.replace("{memory: people}", "{npz: p.npz}").replace("INGEST", "refuse")
    (tmp_path / "s.yaml").write_text(text)
    g = np.random.default_rng(0)
    np.savez(tmp_path / "p.npz", who=g.integers(0, 9, 60), x=g.random((60, 2)))
    made, opened = plan_file(tmp_path / "s.yaml"), itertools.count()
    real = sources.recut

    def changing(*args: Any) -> Any:
        if next(opened) == 1:
            os.utime(tmp_path / "p.npz", ns=(1, 1))
        return real(*args)

    monkeypatch.setattr(sources, "recut", changing)
    said, kinds = ended(made, Data(made.program.data[0].records))
    assert "changed while it was read" in said
    assert kinds == ["reserve"]
