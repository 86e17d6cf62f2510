"""A stream is charged once, and no node has two noises, whatever dies when."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import pickle
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opendp_sim as sim
from opendp_sim.accounting.ledger import ledger as ledger_module
from opendp_sim.accounting.session import periods as store_module
from opendp_sim.accounting.session.periods import PeriodStore
from opendp_sim.core.errors import BudgetError, DataError, ParameterError, SimError, SpaceError
from opendp_sim.dsl.run import stream as stream_module
from opendp_sim.dsl.run.charge import Transaction
from opendp_sim.dsl.run.stream import STORE, NodeNoise, Stream

ONE = {"x": np.full(40, 0.5)}
NONE: dict[str, Any] = {"x": np.zeros(0)}


def density(**words: Any) -> Any:
    return sim.density({"x": (0.0, 1.0)}, bandwidth=0.2, **{"epsilon": 1.0, **words})


@contextlib.contextmanager
def begun(folder: Path, periods: int = 4, base: int | None = 2, **words: Any) -> Iterator[Stream]:
    with sim.stream(density(**words), periods, into=folder, base=base) as found:
        yield found


def cells(release: Any) -> list[list[int]]:
    return [array.ravel().tolist() for array in release.arrays.values()]


def charged(path: Path) -> tuple[list[str], str]:
    with sim.Ledger.open(path) as ledger:
        return [entry.kind for entry in ledger.entries], ledger.total().text


# --- what it answers ---------------------------------------------------------------------------------


RECIPES = {
    "density": lambda: sim.density({"x": (0.0, 1.0)}, bandwidth=0.2, epsilon=1e4),
    "distances": lambda: sim.distances({"x": (0.0, 1.0)}, epsilon=1e4),
    "means": lambda: sim.means(
        {"x": (0.0, 1.0)}, label="kind", keys=["a", "b"], epsilon=1e4, measure="pure", delta=None
    ),
    "quantiles": lambda: sim.quantiles({"x": (0.0, 1.0)}, epsilon=1e4),
}


@pytest.mark.parametrize(
    ("recipe", "base"), [("density", 2), ("means", 2), ("distances", 6), ("quantiles", 3)]
)
def test_a_stream_answers_as_one_release_of_its_periods(
    tmp_path: Path, recipe: str, base: int
) -> None:
    """At epsilon 10,000 noise is far below the margin: ten deviations and more."""
    fit, rng = RECIPES[recipe](), np.random.default_rng(1)
    tables = [
        {"x": rng.uniform(0, 1, n), "kind": rng.choice(["a", "b"], n)} for n in (50, 0, 70, 30, 1)
    ]
    with sim.stream(fit, 5, into=tmp_path / "s", base=base) as found:
        grown = [found.add(table) for table in tables]
        middle = found.release(2, 4)
    parts = ((grown[-1], range(5)), (middle, range(1, 4)), (grown[2], range(3)))
    for place, (release, which) in enumerate(parts):
        together = {k: np.concatenate([tables[t][k] for t in which]) for k in ("x", "kind")}
        whole = fit.apply(together, into=tmp_path / str(place))
        assert release.ops == whole.ops
        for name, array in whole.arrays.items():
            apart = np.abs(release.arrays[name] - array).max()
            noises = 3 * found.noise.law.deviation + whole.released.noise.deviation
            heaviest = max((weight for _, weight in found.noise.law.weights), default=1)
            assert apart <= 1 + 12 * heaviest * noises


def test_errors_of_answers_count_the_nodes(tmp_path: Path) -> None:
    with begun(tmp_path, periods=8) as found:
        once = density().apply(ONE, into=tmp_path / "one").density([0.5])["noise_error"][0]
        for t, nodes in enumerate((1, 1, 2, 1, 2, 2, 3, 1), 1):
            error = found.add(NONE).density([0.5])["noise_error"][0]
            assert error == pytest.approx(once * (4 * nodes) ** 0.5, rel=1e-6)
            assert found.deviation(1, t) == pytest.approx(found.deviation(1, 1) * nodes**0.5)
        assert "4 levels, base 2; noise of periods 1 to t is 2.55 times" in repr(found)


SPEC = """
spec: opendp_sim/2
name: grown
data:
  t:
    source: {memory: t}
    ingest: %s
    ledger: {file: %s, limit: {rho: 0.5}}
    columns: {x: {dtype: float64, bounds: [0, 1]}}
privacy: {unit: {add_remove: 3, of: row}, measure: zcdp, budget: {rho: 0.5}}
flow:
  rows:
    from: t
    steps:
      - select: {features: [x]}
      - quantize: {bits: 8}
      - race_sketch: {repetitions: 100, buckets: 128, family: {p_stable_l2: {width: 0.2}}, seed: 1}
    release: {noise: gaussian, scale: solve, spend: 100%%}
outputs: {o: {from: rows, save: o.npz}}
"""
"""A program of 12,800 cells, whose unit is up to 3 rows of a person."""


def test_measured_noise_is_as_expected(tmp_path: Path) -> None:
    """Within 15 %, which is 24 deviations of a root mean square of 12,800 cells."""
    with sim.stream(SPEC % ("enforce", tmp_path / "l"), 7, into=tmp_path, base=2) as found:
        assert found.noise.loss(3) == pytest.approx(0.5, rel=1e-9)
        assert found.noise.loss(3) <= 0.5
        for t in range(1, 8):
            noise = np.concatenate([a.ravel() for a in found.add(NONE).arrays.values()])
            assert (noise**2).mean() ** 0.5 == pytest.approx(found.deviation(1, t), rel=0.15)


# --- persons in several periods -------------------------------------------------------------------------


def exact_nodes(folder: Path, tables: list[Any], each: int) -> Iterator[dict[str, Any]]:
    """Yield released nodes, of a stream whose noise a test left out."""
    with sim.stream(people(), 4, into=folder, base=2, person_periods=each) as found:
        for table in tables:
            found.add(table)
        for t in range(1, 5):
            for node in found.tree.ending(t):
                yield dict(sim.load(found.file(node)).arrays)


def people() -> Any:
    return density(unit="who", max_rows=2)


def rows_of(*persons: str) -> dict[str, Any]:
    """Return five rows of each person, of which two are kept."""
    return {"x": np.full(5 * len(persons), 0.5), "who": np.repeat(np.array(persons, str), 5)}


@pytest.mark.parametrize("where", [(0,), (1, 3), (0, 1), (0, 1, 2), (0, 1, 2, 3)])
def test_a_person_moves_all_nodes_by_what_the_noise_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[int, ...]
) -> None:
    """Lemma 1b through tables, two rows of a person kept in each; in all periods it is met."""
    monkeypatch.setattr(NodeNoise, "drawn", lambda _self, exact: exact.copy())
    without = [rows_of("ann", "bob")] * 4
    beside = [rows_of(*("ann", "bob", "eve")[: 2 + (t in where)]) for t in range(4)]
    pairs = zip(
        exact_nodes(tmp_path / "without", without, len(where)),
        exact_nodes(tmp_path / "beside", beside, len(where)),
        strict=True,
    )
    moved = sum(
        float(np.square(np.subtract(other[name], one[name], dtype=np.float64)).sum())
        for one, other in pairs
        for name in one
    )
    with sim.stream(people(), 4, into=tmp_path / "s", base=2, person_periods=len(where)) as found:
        bound = found.noise.sensitivity.bound("l2", 1)
        assert found.noise.loss(1) <= found.noise.of_plan(found._release.typed.sensitivity, 1)
    assert moved**0.5 <= bound
    if len(where) in (1, 4) and where[0] == 0:
        assert moved**0.5 > 0.999 * bound


def test_a_streams_persons_stand_in_its_releases_and_folder(tmp_path: Path) -> None:
    with sim.stream(people(), 4, into=tmp_path, person_periods=3) as found:
        release = found.add(rows_of("ann"))
        assert release.header["privacy"]["stream"]["person_periods"] == 3
        assert release.header["privacy"]["unit"]["of"] == "who"
        assert "of all 4 together, of whoever is in 3 of them at most" in release._repr_html_()
    assert release.claim.endswith(
        "for all rows of one `who` added or removed in 3 of 4 periods at most"
    )
    for other in (2, 4):
        with pytest.raises(BudgetError, match="OS407"):
            sim.stream(people(), 4, into=tmp_path, base=found.tree.base, person_periods=other)
    for each, told in ((1, "in 1 of 4 periods at most"), (4, "in all 4 periods together")):
        with sim.stream(people(), 4, into=tmp_path / str(each), person_periods=each) as found:
            release = found.add(rows_of("ann"))
            assert release.claim.endswith(told)
            assert f"of whoever is in {each} of them at most" in release._repr_html_()
    with begun(tmp_path / "rows") as rows:
        assert "person_periods" not in rows.add(ONE).header["privacy"]["stream"]
    with begun(tmp_path / "rows") as again:  # stated as it is by default: the same stream
        assert again.period == 1
    with sim.stream(density(), 4, into=tmp_path / "rows", base=2, person_periods=1) as same:
        assert same.period == 1
    with pytest.raises(ParameterError, match="OS101"):
        sim.stream(people(), 4, into=tmp_path / "wrong", person_periods=5)


def test_a_ledger_counts_whole_persons(tmp_path: Path) -> None:
    """In fewer periods than all a person's whole stream would cost more than the ledger states."""
    ledger = tmp_path / "l"
    plan = density(unit="who", max_rows=2, ledger=str(ledger))
    for each in (1, 3):
        with pytest.raises(SpaceError, match=r"OS202 stream.*person_periods=4"):
            sim.stream(plan, 4, into=tmp_path / str(each), person_periods=each)
    assert not ledger.exists()
    with sim.stream(plan, 4, into=tmp_path / "all", person_periods=4):
        assert charged(ledger)[0] == ["reserve", "charge"]


# --- one charge, and one noise a node --------------------------------------------------------------------


def test_the_whole_stream_is_charged_once(tmp_path: Path) -> None:
    ledger, words = tmp_path / "l", {"ledger": str(tmp_path / "l")}
    with begun(tmp_path / "s", **words) as found:
        assert charged(ledger)[0] == ["reserve", "charge"]
        found.add(ONE)
    with begun(tmp_path / "s", **words) as found:
        found.add(ONE)
        assert found.period == 2
    kinds, total = charged(ledger)
    assert kinds == ["reserve", "charge", "session", "session"]
    assert found.plan.charge is not None
    assert total.startswith(found.plan.charge.text)
    with pytest.raises(BudgetError, match="OS402"), begun(tmp_path / "other", **words):
        pass


def test_a_period_that_is_over_is_not_added_again(tmp_path: Path) -> None:
    with begun(tmp_path) as found:
        first = found.add(ONE, period=1)
        again = found.add({"x": np.zeros(9)}, period=1)
        assert (found.period, cells(again)) == (1, cells(first))
        for wrong in (3, 0, "2", 2.5, 2.0, 1.0, True):
            with pytest.raises(BudgetError, match="OS406"):
                found.add(ONE, period=wrong)
        assert found.add(ONE, period=np.int64(2)).header["privacy"]["stream"]["nodes"] == [[1, 2]]
    with begun(tmp_path) as found:
        assert found.period == 2
        for _ in range(2):
            found.add(NONE)
        with pytest.raises(BudgetError, match="OS406"):
            found.add(ONE)


@pytest.mark.parametrize("lost", ["file", "none"])
def test_a_stream_goes_on_with_the_noise_it_has(
    tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(tmp_path) as found:
        before = [cells(found.add(ONE)) for _ in range(3)][-1]
    files = {f.name: f.read_bytes() for f in sorted(tmp_path.glob("*.npz"))}
    assert list(files) == ["0001-0001.npz", "0001-0002.npz", "0002-0002.npz", "0003-0003.npz"]
    if lost == "file":
        (tmp_path / "0001-0002.npz").unlink()
    draws: list[int] = []
    drawn = NodeNoise.drawn
    monkeypatch.setattr(NodeNoise, "drawn", lambda s, c: draws.append(1) or drawn(s, c))  # type: ignore[func-returns-value]
    with begun(tmp_path) as found:
        assert len(draws) == 1, "the rehearsal"
        assert cells(found.release()) == before
        assert {f.name: f.read_bytes() for f in sorted(tmp_path.glob("*.npz"))} == files
        found.add(ONE)
        assert len(draws) == 1 + 3, "nodes 4-4, 3-4 and 1-4"
    both = sim.load(tmp_path / "0001-0002.npz") + sim.load(tmp_path / "0003-0003.npz")
    assert cells(both) == before


@pytest.mark.parametrize(
    "twin", ["sound", "one noise", "no noise of leaves", "noise of one release"]
)
def test_each_node_has_its_own_noise_of_its_own_scale(
    tmp_path: Path, twin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of no records: 7 nodes of 14 cells, whose deviations are far above 10^8.

    A cell of 0 and two equal cells have a chance below 10^-6, and so has a root mean square of 98 cells 40 % off.
    """
    drawn, kept = NodeNoise.drawn, {}

    def broken(noise: NodeNoise, exact: Any) -> Any:
        if twin == "one noise":
            return exact + kept.setdefault("noise", drawn(noise, exact * 0))
        if twin == "no noise of leaves":
            kept["calls"] = kept.get("calls", 0) + 1
            return exact if kept["calls"] == 3 else drawn(noise, exact)
        return drawn(noise, exact) // 2  # the scale of one release, where a node needs twice that

    if twin != "sound":
        monkeypatch.setattr(NodeNoise, "drawn", broken)
    with begun(tmp_path, periods=8) as found:
        for _ in range(4):
            found.add(NONE)
        nodes = [np.concatenate(cells(sim.load(f))) for f in tmp_path.glob("*.npz")]
        pairs = itertools.combinations(nodes, 2)
        noisy = len(nodes) == 7 and all(np.all(one) for one in nodes)
        apart = noisy and all(not np.any(one == other) for one, other in pairs)
        size = np.square(np.array(nodes, float)).mean() ** 0.5 / found.deviation(1, 1)
    assert (apart and 0.6 < size < 1.4) == (twin == "sound")


class Killed(BaseException):
    """Stands for a process that dies."""


def dies(*_: Any, **__: Any) -> Any:
    raise Killed


@pytest.mark.parametrize(
    ("where", "name", "kept"),
    [
        (PeriodStore, "commit", 1),
        (store_module, "_write_sums", 1),
        (store_module, "checkpoint", 2),
        (Stream, "_tell", 2),
        (Stream, "_save", 2),
    ],
)
def test_a_death_keeps_a_period_whole_or_not_at_all(
    tmp_path: Path, where: Any, name: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"ledger": str(tmp_path / "l")}
    with begun(tmp_path / "s", **words) as found:
        first = cells(found.add(ONE))
        with monkeypatch.context() as patch:
            patch.setattr(where, name, dies)
            with pytest.raises(Killed):
                found.add(ONE)
        shown = {f.name for f in (tmp_path / "s").glob("*.npz")}
        assert shown == {"0001-0001.npz"}
        with pytest.raises(BudgetError, match="OS407"):
            found.add(ONE)
    with begun(tmp_path / "s", **words) as found:
        assert found.period == kept
        assert cells(found.release(1, 1)) == first
        stored = cells(found.release(1, 2)) if kept == 2 else None
        after = cells(found.add(ONE, period=2))
        assert stored in (None, after)
        assert (tmp_path / "s/0001-0002.npz").exists()
    assert charged(tmp_path / "l")[0].count("charge") == 1


@pytest.mark.parametrize("name", ["reserve", "settle"])
def test_a_death_around_the_charge_charges_once(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"ledger": str(tmp_path / "l")}
    with monkeypatch.context() as patch:
        patch.setattr(Transaction, name, dies)
        with pytest.raises(Killed), begun(tmp_path / "s", **words):
            pass
    with begun(tmp_path / "s", **words) as found:
        found.add(ONE)
    assert charged(tmp_path / "l")[0] == ["reserve", "charge", "session"]


# --- who may go on with it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("files", ["kept", "removed"])
def test_an_older_copy_is_refused(tmp_path: Path, files: str) -> None:
    words = {"ledger": str(tmp_path / "l")}
    with begun(tmp_path / "s", **words) as found:
        found.add(ONE)
    shutil.copy(tmp_path / "s" / STORE, tmp_path / "older")
    with begun(tmp_path / "s", **words) as found:
        found.add(ONE)
    shutil.copy(tmp_path / "older", tmp_path / "s" / STORE)
    if files == "removed":
        (tmp_path / "s/0001-0002.npz").unlink()
        (tmp_path / "s/0002-0002.npz").unlink()
    with pytest.raises(BudgetError, match="OS407") as caught, begun(tmp_path / "s", **words):
        pass
    assert caught.value.where == "stream"
    assert "--store" not in caught.value.hint


def test_a_copy_beside_an_open_stream_is_refused_as_a_stream(tmp_path: Path) -> None:
    words = {"ledger": str(tmp_path / "l")}
    with begun(tmp_path / "s", **words) as found:
        found.add(ONE)
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    with (
        begun(tmp_path / "s", **words),
        pytest.raises(BudgetError, match="OS407") as caught,
        begun(tmp_path / "copy", **words),
    ):
        pass
    assert caught.value.where == "stream"
    assert "--store" not in caught.value.hint


def test_of_two_copies_that_add_a_period_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a ledger in a database, which no copy keeps locked while it reads its table."""
    words = {"ledger": str(tmp_path / "l")}
    with begun(tmp_path / "s", **words) as found:
        found.add(ONE)
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    real = Stream._tell

    def later(stream: Stream, ledger: sim.Ledger) -> None:
        if stream.period == 2:  # the other copy's period is in the ledger meanwhile
            ledger.opened(stream._store.mark.name, "another")
        real(stream, ledger)

    with begun(tmp_path / "copy", **words) as found:
        monkeypatch.setattr(Stream, "_tell", later)
        with pytest.raises(BudgetError, match="OS407"):
            found.add(ONE)
    assert not (tmp_path / "copy/0002-0002.npz").exists()
    monkeypatch.undo()
    with pytest.raises(BudgetError, match="OS407"), begun(tmp_path / "copy", **words):
        pass


def test_a_stream_whose_store_is_lost_is_not_begun_again_in_its_folder(tmp_path: Path) -> None:
    with begun(tmp_path) as found:
        found.add(ONE)
    (tmp_path / STORE).unlink()
    with pytest.raises(BudgetError, match="OS407"), begun(tmp_path):
        pass


def test_one_process_and_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(tmp_path) as found:
        with pytest.raises(BudgetError, match="OS407"), begun(tmp_path):
            pass
        for take in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(BudgetError, match="OS407"):
                take(found)  # type: ignore[operator]
        other = os.getpid() + 1
        monkeypatch.setattr(os, "getpid", lambda: other)
        with pytest.raises(BudgetError, match="fork"):
            found.add(ONE)
        monkeypatch.undo()
        assert found.period == 0
    with pytest.raises(BudgetError, match="OS407"):
        found.add(ONE)
    assert STORE.endswith("private")
    assert (tmp_path / STORE).stat().st_mode & 0o77 == 0


@pytest.mark.parametrize("other", [{"epsilon": 2.0}, {"periods": 5}, {"base": 3}, {"seed": 4}])
def test_another_stream_is_refused(tmp_path: Path, other: dict[str, Any]) -> None:
    with begun(tmp_path):
        pass
    with pytest.raises(BudgetError, match="OS407"), begun(tmp_path, **other):
        pass


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE level SET cells = zeroblob(length(cells))",
        "UPDATE node SET cells = zeroblob(length(cells))",
        "DELETE FROM node WHERE first = 1 AND last = 2",
        "INSERT INTO node VALUES (3, 4, zeroblob(8))",
        "UPDATE about SET value = '2' WHERE name = 'period'",
        "UPDATE about SET value = '' WHERE name = 'turn'",
        "CREATE TRIGGER t AFTER INSERT ON node BEGIN DELETE FROM level; END",
    ],
)
def test_an_edited_store_is_refused(tmp_path: Path, edit: str) -> None:
    with begun(tmp_path) as found:
        for _ in range(3):
            found.add(ONE)
    with contextlib.closing(sqlite3.connect(tmp_path / STORE)) as db:
        db.execute(edit)
        db.commit()
    with pytest.raises(BudgetError, match="OS407"), begun(tmp_path):
        pass


# --- what is refused ---------------------------------------------------------------------------------------


def test_a_refused_table_adds_nothing_and_is_counted(tmp_path: Path) -> None:
    with sim.stream(SPEC % ("refuse", tmp_path / "l"), 3, into=tmp_path / "s") as found:
        for table in ({"x": [7.0]}, {"y": [0.5]}, "table", {"x": [0.5, np.nan]}, NONE):
            with pytest.raises(DataError):
                found.add(table)
        assert found.period == 0
        found.add(ONE)
        assert found.period == 1
    kinds = charged(tmp_path / "l")[0]
    assert kinds == ["reserve", "charge", *["refusal"] * 3, "session"]


def test_periods_that_are_not_over_have_no_release(tmp_path: Path) -> None:
    with begun(tmp_path) as found:
        for first, last in ((1, 1), (1, None), (2, 1)):
            with pytest.raises(SimError):
                found.release(first, last)
        found.add(ONE)
        with pytest.raises(DataError, match="OS602"):
            found.release(1, 2)
        with pytest.raises(ParameterError, match="OS101"):
            found.release(1, 5)


@pytest.mark.parametrize(
    ("fit", "code"),
    [
        (lambda: density(unit="who", max_rows=2), "OS202"),
        (
            lambda: sim.labels(
                "answer", question="task", questions=[1, 2], keys=["cat", "dog"], unit="who"
            ),
            "OS201",
        ),
        (lambda: density(source="people.csv"), "OS201"),
    ],
)
def test_plans_that_make_no_stream_are_refused(tmp_path: Path, fit: Any, code: str) -> None:
    with pytest.raises(SpaceError, match=code):
        sim.stream(fit(), 4, into=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_folder_that_cannot_be_is_refused_without_a_charge(tmp_path: Path) -> None:
    words = {"ledger": str(tmp_path / "l")}
    (tmp_path / "file").write_text("x")
    with pytest.raises(BudgetError, match="OS407"), begun(tmp_path / "file", **words):
        pass
    with pytest.raises(ParameterError, match="OS101"):
        sim.stream(density(**words), 4, into=None)  # type: ignore[arg-type]
    assert not (tmp_path / "l").exists()


def test_a_full_disk_keeps_the_period_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    with begun(tmp_path) as found, monkeypatch.context() as patch:
        patch.setattr(store_module, "_write_sums", full)
        with pytest.raises(BudgetError, match="cannot be written"):
            found.add(ONE)
    with begun(tmp_path) as found:
        assert found.period == 0
        found.add(ONE)


def test_trouble_before_the_charge_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"ledger": str(tmp_path / "l")}
    monkeypatch.setattr(stream_module, "build_sketch", dies)
    with pytest.raises(Killed), begun(tmp_path / "s", **words):
        pass
    assert not (tmp_path / "l").exists()


# --- what a period costs ------------------------------------------------------------------------------------


def test_a_period_reads_the_ledgers_new_entries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each period opens the ledger anew, and checked every entry again: 45 ms of CPU for 15 at 1,000 entries."""
    read: list[int] = []
    real = ledger_module.read_entry

    def counted(seq: int, *rest: Any) -> Any:
        read.append(seq)
        return real(seq, *rest)

    with begun(tmp_path / "s", periods=8, ledger=str(tmp_path / "l")) as found:
        with sim.Ledger.open(tmp_path / "l") as others:
            for turn in range(20):
                others.opened("another", str(turn))
        monkeypatch.setattr(ledger_module, "read_entry", counted)
        found.add(ONE)
        assert read == list(range(3, 24))  # the others' 20, and its own
        read.clear()
        found.add(ONE)
        assert read == [24]


@pytest.mark.parametrize("edit", ["cut", "another"])
def test_a_period_does_not_follow_another_history(tmp_path: Path, edit: str) -> None:
    path = tmp_path / "l"
    with begun(tmp_path / "s", periods=8, ledger=str(path)) as found:
        found.add(ONE)
        if edit == "another":
            path.rename(tmp_path / "away")
            with sim.Ledger.open(tmp_path / "away") as own:
                terms = own.terms
            sim.Ledger.open(path, terms, forget=True).close()
        else:
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("DELETE FROM entries WHERE seq = 3")
                (last,) = db.execute("SELECT hash FROM entries WHERE seq = 2").fetchone()
                told = json.dumps({"count": 2, "hash": last}, sort_keys=True, separators=(",", ":"))
                db.execute("UPDATE meta SET value = ? WHERE key = 'head'", (told,))
        with pytest.raises(BudgetError, match="OS403"):
            found.add(ONE)
        assert found.period == 1


def test_an_edited_entry_is_found_when_the_stream_is_opened(tmp_path: Path) -> None:
    words = {"ledger": str(tmp_path / "l")}
    with begun(tmp_path / "s", **words) as found:
        found.add(ONE)
        with closing(sqlite3.connect(tmp_path / "l")) as db, db:
            db.execute("UPDATE entries SET body = replace(body, '0', '1') WHERE seq = 1")
        found.add(ONE)  # what it decides by was read before the edit
    with pytest.raises(BudgetError, match="OS403"), begun(tmp_path / "s", **words):
        pass
