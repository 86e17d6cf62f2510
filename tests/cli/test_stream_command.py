"""``stream``: a period's file in, releases out, charged before, whole whatever dies when."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opendp_sim as sim
from opendp_sim.accounting.session import periods as store_module
from opendp_sim.accounting.session.periods import PeriodStore
from opendp_sim.dsl.run import stream_folder
from opendp_sim.dsl.run.charge import Transaction
from opendp_sim.dsl.run.stream import STORE, Stream
from tests._cli import begun, run
from tests._forks import forked, warm

SPEC = """
spec: opendp_sim/2
name: visits
data:
  records:
    source: {memory: records}
    columns: {x: {dtype: float64, bounds: [0, 1]}}
    ingest: enforce
    ledger: {file: v.ledger, limit: {epsilon: 2.0, delta: 1.0e-5}}
privacy: {unit: {add_remove: 1, of: row}, measure: gdp, budget: {epsilon: 1.0, delta: 1.0e-6}}
flow:
  noisy:
    from: records
    steps:
      - select: {features: [x]}
      - quantize: {bits: 8}
      - fourier_sketch: {frequencies: 8, kernel: {gaussian: {bandwidth: 0.2}}, seed: 0}
    release: {noise: gaussian, spend: 100%}
outputs:
  release: {from: noisy, save: release.npz}
"""
NEW = ("stream", "new", "s.yaml", "--periods", "4", "--base", "2", "--into", "g")
ADD = ("stream", "add", "g", "m.csv")
VALUE = "0.123456789"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SPEC)
    (tmp_path / "m.csv").write_text(f"x\n{VALUE}\n0.5\n")
    begun("s.yaml")
    return tmp_path


def ledger(place: Path) -> list[str]:
    with sim.Ledger.open(place / "v.ledger") as found:
        return [entry.kind for entry in found.entries]


def test_periods_go_in_as_files_and_releases_come_out(place: Path) -> None:
    first = run(*NEW)
    assert first.exit_code == 0
    assert "charged   entry 1 of v.ledger charges mu" in first.output
    assert ledger(place) == ["reserve", "charge"]
    for period in (1, 2, 3):
        told = run(*ADD, "--period", period, "--json")
        assert told.exit_code == 0, told.output
        found = json.loads(told.output)
        assert found["added"] is True
        assert all(Path(file).exists() for file in found["files"])
    assert ledger(place).count("charge") == 1
    assert "no outcome" not in run("ledger", "show", "v.ledger").output  # it goes on
    told = json.loads(run("stream", "status", "g", "--json").output)
    assert (told["period"], told["periods"], told["base"]) == (3, 4, 2)
    assert told["files"] == ["0001-0001.npz", "0001-0002.npz", "0002-0002.npz", "0003-0003.npz"]
    assert run("stream", "release", "g", "-o", "out.npz", "--first", 2).exit_code == 0
    with sim.stream(sim.plan("s.yaml"), 4, into="g", base=2) as same:
        wanted = same.release(2, 3)
    for name, array in sim.load("out.npz").arrays.items():
        assert np.array_equal(array, wanted.arrays[name])
    answered = run("answer", "out.npz", "--queries", "m.csv", "--post", "density")
    assert answered.exit_code == 0


def test_a_period_that_is_over_is_not_read_again(place: Path) -> None:
    run(*NEW)
    assert run(*ADD).exit_code == 0
    (place / "m.csv").unlink()
    again = run(*ADD, "--period", "1")
    assert again.exit_code == 0
    assert "over before: the file was not opened" in again.output
    assert run(*ADD).exit_code == 4
    assert run(*ADD, "--period", "3").exit_code in (3, 4)
    assert json.loads(run("stream", "status", "g", "--json").output)["period"] == 1


PERSONS = {
    "    ledger: {file: v.ledger, limit: {epsilon: 2.0, delta: 1.0e-5}}\n": "",
    "columns: {x:": "columns: {who: {dtype: str, role: privacy_id}, x:",
    "of: row": "of: who",
    "      - select": "      - bound_contributions: {max_rows: 2}\n      - select",
}


@pytest.mark.parametrize(
    ("each", "words"),
    [
        ("1", "in 1 period at most, which nothing checks\n"),
        ("2", "in 2 periods at most, which nothing checks\n"),
        ("4", "in 4 periods at most\n"),
    ],
)
def test_persons_are_in_a_stated_number_of_periods(place: Path, each: str, words: str) -> None:
    spec = SPEC
    for old, new in PERSONS.items():
        spec = spec.replace(old, new)
    (place / "s.yaml").write_text(spec)
    (place / "m.csv").write_text(f"who,x\nann,{VALUE}\nben,0.5\n")
    refused = run(*NEW)
    assert refused.exit_code == 1
    assert "OS202" in refused.output
    assert run(*NEW, "--person-periods", each).exit_code == 0
    assert run(*ADD).exit_code == 0
    assert f"persons   {words}" in run("stream", "status", "g").output
    assert json.loads(run("stream", "status", "g", "--json").output)["person_periods"] == int(each)


def test_persons_in_some_periods_charge_no_ledger(place: Path) -> None:
    spec = SPEC
    for old, new in list(PERSONS.items())[1:]:
        spec = spec.replace(old, new)
    (place / "p.yaml").write_text(spec.replace("v.ledger", "p.ledger"))
    begun("p.yaml")
    new = ("stream", "new", "p.yaml", *NEW[3:])
    refused = run(*new, "--person-periods", "3")
    assert refused.exit_code == 1
    assert "OS202" in refused.output
    assert not (place / "g").exists()
    assert run(*new, "--person-periods", "4").exit_code == 0


DEATHS: dict[str, tuple[Any, str, int, int]] = {
    "before the commit": (PeriodStore, "commit", 1, 1),
    "within it": (store_module, "_write_sums", 1, 1),
    "before its checkpoint": (store_module, "checkpoint", 1, 2),
    "before the ledger at the opening": (Stream, "_tell", 1, 1),
    "before the ledger": (Stream, "_tell", 2, 2),
    "before the file": (Stream, "_save", 1, 2),
}
"""Where, at which call of it, and how many periods are kept then."""


def killed(where: Any, name: str, at: int) -> None:
    """Kill this process without a word at a function's call of this number."""
    own, calls = getattr(where, name), itertools.count(1)

    def call(*given: Any, **named: Any) -> Any:
        if next(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return own(*given, **named)

    setattr(where, name, call)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.few(2)
@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_period_is_there_whole_or_not_at_all(place: Path, death: str) -> None:
    warm()
    where, name, at, kept = DEATHS[death]
    assert forked(NEW, place).code == forked(ADD, place).code == 0
    ended = forked((*ADD, "--period", "2"), place, before=lambda: killed(where, name, at))
    assert ended.code == -signal.SIGKILL
    assert ended.said == ""
    again = forked((*ADD, "--period", "2", "--json"), place)
    assert again.code == 0, again
    assert json.loads(again.said)["added"] is (kept == 1)
    assert sorted(file.name for file in (place / "g").glob("*.npz")) == [
        "0001-0001.npz",
        "0001-0002.npz",
        "0002-0002.npz",
    ]
    assert ledger(place).count("charge") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("name", ["reserve", "settle", "write_json"])
def test_a_killed_beginning_is_charged_once(place: Path, name: str) -> None:
    warm()
    where = stream_folder if name == "write_json" else Transaction
    assert forked(NEW, place, before=lambda: killed(where, name, 1)).code == -signal.SIGKILL
    assert forked(ADD, place).code == 1  # no stream that its folder names
    assert forked(NEW, place).code == forked(ADD, place).code == 0
    assert ledger(place).count("charge") == 1


def test_refusals_name_no_value_and_charge_nothing(place: Path) -> None:
    assert run("stream", "add", "g", "m.csv").exit_code == 1
    run(*NEW)
    before = ledger(place)
    (place / "bad.csv").write_text(f"y\n{VALUE}\n")
    (place / "m.txt").write_text("x\n")
    for words, code in (
        (("stream", "add", "g", "bad.csv"), 4),
        (("stream", "add", "g", "none.csv"), 4),
        (("stream", "add", "g", "m.txt"), 1),
        (("stream", "release", "g", "-o", "out.npz"), 1),
        (("stream", "release", "g", "-o", f"g/{STORE}", "--force"), 4),
        ((*NEW[:4], "5", *NEW[5:]), 3),
        (("stream", "new", "s.yaml", "--periods", "0", "--into", "h"), 2),
    ):
        told = run(*words)
        assert told.exit_code == code, (words, told.output)
        assert VALUE not in told.output + told.stderr
    assert ledger(place) == before
    assert not (place / "out.npz").exists()


@pytest.mark.parametrize(
    "target", ["g/0002-0003.npz", "g/0001-0001.npz", "g/stream.json", "s.yaml"]
)
def test_a_release_replaces_nothing_of_its_stream(place: Path, target: str) -> None:
    """Under a later node's name it locked the stream; with --force it took the place of the spec."""
    run(*NEW)
    run(*ADD)
    told = run("stream", "release", "g", "-o", target, "--force")
    assert told.exit_code == 4
    assert "OS609" in told.stderr
    assert run(*ADD, "--period", "2").exit_code == 0


def test_a_folder_without_its_store_begins_no_second_budget(place: Path) -> None:
    run(*NEW)
    (place / "g" / STORE).unlink()
    assert run(*ADD).exit_code == 3
    assert ledger(place).count("charge") == 1


@pytest.mark.parametrize(
    "edit", [{"periods": 5}, {"base": 3}, {"spec": "nowhere.yaml"}, {"periods": "4"}, {"more": 1}]
)
def test_an_edited_folder_is_refused(place: Path, edit: dict[str, Any]) -> None:
    run(*NEW)
    file = place / "g/stream.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | edit))
    told = run(*ADD)
    assert told.exit_code in (1, 3)
    assert ledger(place).count("charge") == 1
    assert not list((place / "g").glob("*.npz"))


def test_an_older_copy_is_refused_in_a_streams_words(place: Path) -> None:
    run(*NEW)
    run(*ADD)
    shutil.copy(place / "g" / STORE, place / "older")
    run(*ADD)
    shutil.copy(place / "older", place / "g" / STORE)
    for file in (place / "g").glob("*-0002.npz"):
        file.unlink()
    told = run(*ADD)
    assert told.exit_code == 3
    assert "an older copy" in told.stderr
    assert "--store" not in told.stderr
