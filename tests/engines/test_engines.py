"""One theorem: equal bits whatever the partitions, the order, the retries; anything else is an error."""

from __future__ import annotations

import json
import random
from collections import UserDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.device import choose, device_in_use
from opendp_sim.core.device.stand_in import StandIn
from opendp_sim.core.errors import DataError, InternalError
from opendp_sim.dsl import apply
from opendp_sim.engines import job, on_dask, on_spark, work
from opendp_sim.engines.check import check
from opendp_sim.engines.engine import Engine, Local, _cause, engine_of
from opendp_sim.engines.job import Job, job_of
from opendp_sim.engines.messages import pack, read_message, unpack
from opendp_sim.engines.on_connect import Connect
from opendp_sim.engines.on_dask import Dask
from opendp_sim.io.fold import DeviceSum
from tests._tiers import some, tiered

from . import made
from .clusters import dask_cluster

pytest.importorskip("pyarrow")


class Adversary(Engine):
    """Runs tasks in a random order, each up to three times, keeps any one result, merges at random."""

    name = "adversary"

    def __init__(self, parts: int, seed: int, harm: Callable[..., Any] | None = None) -> None:
        super().__init__(parts)
        self.draw, self.harm = random.Random(seed), harm  # noqa: S311 - an order of tasks

    def tries(self, function: Callable[..., Any], *each: Any) -> Any:
        return self.draw.choice([function(*each) for _ in range(self.draw.choice((1, 1, 1, 3)))])

    def run(self, job: Job) -> Sequence[bytes]:
        order = list(range(len(job.tasks)))
        self.draw.shuffle(order)
        if job.buckets is None:
            found = [self.tries(work.whole, job.text, job.tasks[at]) for at in order]
        else:
            routed = [self.tries(work.route, job.text, job.tasks[at]) for at in order]
            sent = [[r[i] for r in routed] for i in range(job.buckets)]
            if self.harm is not None and self.harm.__name__ == "shuffled":
                self.harm(sent)
            found = [self.tries(work.bucket, job.text, i, sent[i]) for i in range(job.buckets)]
        if self.harm is not None and self.harm.__name__ != "shuffled":
            self.harm(found)
        while len(found) > 1 and self.draw.random() < 0.7:
            cut = self.draw.randrange(2, len(found) + 1)
            found = [work.merge(job.text, found[:cut]), *found[cut:]]
            self.draw.shuffle(found)
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engines")
    made.write(path, made.table())
    return path


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    tiered(
        made.STEPS,
        {"race", "persons", "words", "slices", "votes", "tree", "by_row_user"}.__contains__,
    ),
)
def test_every_spec_in_any_parts_is_one_machine(name: str, folder: Path) -> None:
    plan = made.plan_for(name, folder)
    whole = made.one_machine(plan)
    for seed, parts in enumerate((1, 11) if name in ("race", "persons", "words") else (5,)):
        assert made.same(whole, Adversary(parts, seed).sums(plan)["n"]), parts
    assert made.same(whole, Local(parts=5, workers=3).sums(plan)["n"])


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("votes", {"user", "item"}),
        ("by_row_user", {"name", "item"}),
        ("listed", {"user", "item"}),
        ("persons", set(made.COLUMNS)),
    ],
)
def test_only_columns_that_are_looked_at_travel(name: str, columns: set[str], folder: Path) -> None:
    """Votes look at two columns; which rows of a person are kept depends on all of them."""
    job = job_of(made.plan_for(name, folder), "n", 3)
    routed = [read_message(message) for message in work.route(job.text, job.tasks[0])]
    assert {frozenset(unpack(one.payload)) for one in routed} == {frozenset(columns)}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["race", "persons", "votes", "words"])
@pytest.mark.parametrize("rows", some([0, 1, 2], 2))
def test_hardly_any_records(name: str, rows: int, tmp_path: Path) -> None:
    made.write(tmp_path, {n: v[:rows] for n, v in made.table(20).items()})
    plan = made.plan_for(name, tmp_path)
    assert made.same(made.one_machine(plan), Adversary(3, rows).sums(plan)["n"])


def test_one_person_only(tmp_path: Path) -> None:
    data = made.table(60)
    data["user"][:] = 5
    made.write(tmp_path, data)
    plan = made.plan_for("persons", tmp_path)
    assert made.same(made.one_machine(plan), Adversary(5, 1).sums(plan)["n"])


def doubled(found: list[Any]) -> None:
    found.append(found[0])


def lost(found: list[Any]) -> None:
    del found[-1]


def foreign(found: list[Any]) -> None:
    found[0] = replace(read_message(found[0]), job="0" * 16).bytes()


def renamed(found: list[Any]) -> None:
    found[0] = replace(read_message(found[0]), parts=read_message(found[1]).parts).bytes()


def shuffled(sent: list[list[bytes]]) -> None:
    """A bucket gets rows of another one, under its own number."""
    head = read_message(sent[0][0])
    other = next(m for m in sent[1] if len(read_message(m).payload) != len(head.payload))
    sent[0][0] = replace(read_message(other), bucket=0, parts=head.parts).bytes()


@pytest.mark.few(2)
@pytest.mark.parametrize("harm", [doubled, lost, foreign, renamed, shuffled])
@pytest.mark.parametrize("name", some(["persons", "race", "votes"], 2))
def test_results_that_are_not_each_tasks_once_are_found(
    name: str, harm: Callable[..., Any], folder: Path
) -> None:
    if harm is shuffled and name == "race":
        return
    plan = made.plan_for(name, folder)
    for seed in range(2):
        with pytest.raises(InternalError) as caught:
            Adversary(3, seed, harm).sums(plan)
        assert caught.value.code == "OS903"


def test_a_route_that_loses_or_doubles_a_task_is_found(folder: Path) -> None:
    plan = made.plan_for("persons", folder)

    def shuffled(sent: list[list[bytes]]) -> None:
        sent[1].pop()

    with pytest.raises(InternalError, match="OS903"):
        Adversary(4, 0, shuffled).sums(plan)

    def shuffled(sent: list[list[bytes]]) -> None:
        sent[1].append(sent[1][0])

    with pytest.raises(InternalError, match="OS903"):
        Adversary(4, 0, shuffled).sums(plan)


def test_a_twin_that_ignores_persons_is_refuted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were persons not gathered, each part would keep three rows of the same person."""
    plan = made.plan_for("persons", folder)
    whole = made.one_machine(plan)
    monkeypatch.setattr("opendp_sim.engines.job.gathered_by", lambda _typed: None)
    assert not made.same(whole, Adversary(5, 0).sums(plan)["n"])


def test_apply_by_an_engine_releases_and_charges(folder: Path, tmp_path: Path) -> None:
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    plan = made.plan_for("race", folder, ledger=ledger)
    done = apply(plan, into=tmp_path, engine=Local(parts=3))
    assert done.charge is not None
    assert done.charge.kind == "charge"
    assert done.results["o"].arrays


def test_a_refusal_by_a_tasks_gate_is_counted_and_not_charged(tmp_path: Path) -> None:
    data = made.table(60)
    data["x"][41] = 7.0
    data["x"][59] = float("nan")
    made.write(tmp_path, data)
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    plan = made.plan_for("race", tmp_path, ledger=ledger, ingest="refuse")
    codes = set()
    for seed in range(3):
        with pytest.raises(DataError) as caught:
            apply(plan, into=tmp_path, engine=Adversary(4, seed))
        codes.add(caught.value.code)
    assert codes == {"OS605"}  # of the first part in the order of files, whoever was quicker
    assert made.kinds(tmp_path) == ["reserve", "refusal"] * 3


@pytest.mark.parametrize("engine", [None, Local(3, 1)])
def test_a_table_without_records_is_refused_by_every_engine(
    tmp_path: Path, engine: Engine | None
) -> None:
    """A csv with a header alone was released and charged by engines, and refused without one."""
    (tmp_path / "t.csv").write_text("user,name,item,x_0,x_1,x_2\n")
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    source = {"csv": "t.csv"}
    plan = made.plan_for("moments", tmp_path, source=source, ingest="refuse", ledger=ledger)
    with pytest.raises(DataError, match="OS608"):
        apply(plan, into=tmp_path, engine=engine)
    assert made.kinds(tmp_path) == ["reserve", "refusal"]


class Dying(Local):
    name = "dying"

    def __init__(self, *, of_all: bool = False) -> None:
        super().__init__(2, 1)
        self.of_all = of_all

    def run(self, job: Job) -> Sequence[bytes]:
        if self.of_all or not json.loads(job.text)["public"]:
            raise RuntimeError("alice@secret.example was in the worker's hands")
        return super().run(job)


class Wrong(Local):
    """Loses half of the rows of every sum."""

    name = "wrong"

    def run(self, job: Job) -> Sequence[bytes]:
        found = read_message(super().run(job)[0])
        return [replace(found, payload=pack(unpack(found.payload) // 2)).bytes()]


@pytest.mark.parametrize(
    ("engine", "told"), [(Dying(of_all=True), "RuntimeError: alice"), (Wrong(1, 1), "another sum")]
)
def test_an_engine_that_cannot_is_found_by_a_public_task_before_a_charge(
    engine: Engine, told: str, folder: Path, tmp_path: Path
) -> None:
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    plan = made.plan_for("race", folder, ledger=ledger)
    with pytest.raises(DataError, match=f"OS611 {engine.name}.*{told}"):
        apply(plan, into=tmp_path, engine=engine)
    assert not (tmp_path / "l.ledger").exists() or made.kinds(tmp_path) == []


def test_a_card_of_the_workers_is_used_and_gives_the_bits_of_the_cpu(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in is the card of this process: each sketch that has device code runs on it."""
    card = StandIn(2**24)
    monkeypatch.setitem(choose._FOUND, 7, card)
    sums: list[int] = []
    added = DeviceSum._features
    monkeypatch.setattr(
        DeviceSum,
        "_features",
        lambda self, *given: sums.append(len(given[1])) or added(self, *given),
    )
    for name in ("race", "fourier", "lattice", "persons"):
        plan, before = made.plan_for(name, folder), len(sums)
        found = Local(parts=5, workers=2).sums(plan, "cuda:7")["n"]
        assert made.same(made.one_machine(plan), found), name
        assert len(sums) > before, name
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    plan, before = made.plan_for("race", folder, ledger=ledger), len(sums)
    apply(plan, into=tmp_path, engine=Local(parts=3), device="cuda:7")
    assert len(sums) > before
    assert device_in_use() is None


def test_a_worker_without_the_card_is_refused_before_a_charge_or_uses_its_cpu(
    folder: Path, tmp_path: Path
) -> None:
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    plan = made.plan_for("race", folder, ledger=ledger)
    with pytest.raises(DataError, match=r"OS611 local.*OS104"):
        apply(plan, into=tmp_path, engine=Local(1, 1), device="cuda:99")
    with pytest.raises(DataError, match=r"OS611 local.*OS101"):
        apply(plan, into=tmp_path, engine=Local(1, 1), device="tpu")
    assert not (tmp_path / "l.ledger").exists() or made.kinds(tmp_path) == []
    found = Local(parts=2, workers=1).sums(plan, "cuda:99")["n"]  # one that joins during the job
    assert made.same(made.one_machine(plan), found)


@pytest.mark.gpu
def test_workers_of_dask_share_a_card(folder: Path) -> None:
    with dask_cluster() as client:
        assert all(one.equal for one in check(Dask(client), folder.parent, 3000, "cuda"))
        for name in ("race", "fourier", "persons"):
            plan = made.plan_for(name, folder)
            assert made.same(made.one_machine(plan), Dask(client).sums(plan, "cuda")["n"])


def test_the_cause_is_the_line_of_the_exception_in_the_worker() -> None:
    text = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
        "ModuleNotFoundError: No module named 'pandas'\n\nDriver stacktrace:\n\tat org.apache"
    )
    assert (
        _cause(RuntimeError(text)) == "RuntimeError: ModuleNotFoundError: No module named 'pandas'"
    )
    assert _cause(RuntimeError()) == "RuntimeError"
    assert _cause(OSError("no route")) == "OSError: no route"


def test_an_engine_that_dies_leaves_the_reserve(folder: Path, tmp_path: Path) -> None:
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    plan = made.plan_for("race", folder, ledger=ledger)
    with pytest.raises(InternalError) as caught:
        apply(plan, into=tmp_path, engine=Dying())
    told = repr(caught.value) + repr(caught.value.__cause__) + repr(caught.value.__context__)
    assert "secret" not in told
    assert made.kinds(tmp_path) == ["reserve"]


def test_a_file_that_is_exchanged_meanwhile_is_refused(tmp_path: Path) -> None:
    made.write(tmp_path, made.table(60))
    plan = made.plan_for("race", tmp_path)

    class Slow(Adversary):
        def run(self, job: Job) -> Sequence[bytes]:
            made.write(tmp_path, made.table(61, seed=1))
            return super().run(job)

    with pytest.raises(DataError, match="OS601"):
        Slow(3, 0).sums(plan)


def test_a_cluster_of_our_own_profiles_nothing_steals_no_tasks_and_writes_no_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What workers hold are records: they stay in memory, and what else Dask writes is in a private folder."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    settings = on_dask._QUIET | on_dask.IN_MEMORY
    known = {name: dask.config.get(name, None) for name in settings}
    started: list[dict[str, Any]] = []
    folders: list[Path] = []

    def starts(*, local_directory: str, **_: Any) -> Any:
        started.append({name: dask.config.get(name) for name in known})
        folders.append(Path(local_directory))
        assert folders[0].stat().st_mode & 0o777 == 0o700
        return nullcontext()

    monkeypatch.setattr(distributed, "LocalCluster", starts)
    monkeypatch.setattr(distributed, "Client", lambda _: nullcontext())
    with Dask()._connected():
        pass
    assert started == [settings]
    assert set(on_dask.IN_MEMORY.values()) == {False}
    assert not folders[0].exists()
    assert {
        name: dask.config.get(name, None) for name in known
    } == known  # a program's own settings stay


@pytest.mark.few(1)
@pytest.mark.parametrize("spec", ["moments", "persons", "votes"])
def test_files_that_store_a_vector_in_different_ways_are_one_source(
    tmp_path: Path, spec: str
) -> None:
    """One machine took the last file's names for all, and an engine answered, or not, by how it cut."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made.write(tmp_path, made.table(120))
    plan = made.plan_for(spec, tmp_path)
    plain = made.one_machine(plan)
    file = tmp_path / "files" / "p1.parquet"
    table = pq.read_table(file)
    names = ["x_0", "x_1", "x_2"]
    rows = np.column_stack([table[name].to_numpy() for name in names])
    mixed = table.drop(names).append_column("x", pa.array(rows.tolist(), pa.list_(pa.float32())))
    pq.write_table(mixed, file, row_group_size=20)
    assert made.same(made.one_machine(plan), plain)
    for parts in (1, 2, 3, 6):
        assert made.same(Local(parts, 2).sums(plan)["n"], plain)


class Asked:
    """A client whose workers answer as they are told, or not at all."""

    def __init__(self, *answers: object) -> None:
        self.answers = answers

    def run(self, function: Any, **_: Any) -> dict[int, Any]:
        if not self.answers:
            raise OSError
        return {
            at: function(one) if isinstance(one, SimpleNamespace) else one
            for at, one in enumerate(self.answers)
        }


def test_a_cluster_that_may_write_records_to_disk_is_refused_before_a_reserve() -> None:
    pytest.importorskip("distributed")
    plain, spilling = SimpleNamespace(data={}), SimpleNamespace(data=UserDict())
    Dask(Asked(plain, plain)).ready()
    Dask(Asked(plain, OSError())).ready()  # a worker that is just being replaced
    Dask(Asked(spilling), may_spill=True).ready()
    for asked, told in (
        (Asked(plain, spilling), "to disk"),
        (Asked(plain, ImportError()), "with this package"),
        (Asked(), "no scheduler"),
    ):
        with pytest.raises(DataError, match="OS611") as caught:
            Dask(asked).ready()
        assert told in str(caught.value)


def test_a_session_of_our_own_encrypts_in_a_private_folder_and_others_must_encrypt() -> None:
    """Spark's shuffle files hold records, and lie in a folder that everybody may read by default."""
    own = on_spark._settings("")
    assert own["spark.io.encryption.enabled"] == "true"
    assert Path(own["spark.local.dir"]).stat().st_mode & 0o777 == 0o700
    assert on_spark._settings("") == own  # Spark remembers the first folder until the process ends
    there = on_spark._settings("spark://host:7077")
    assert there["spark.io.encryption.enabled"] == "true"
    assert "spark.local.dir" not in there
    for kind in (on_spark.Spark, Connect):
        for conf in ({}, {"spark.io.encryption.enabled": "false"}):
            session = SimpleNamespace(conf=conf)
            kind(session, may_spill=True)._need_encryption()
            with pytest.raises(DataError, match="OS611"):
                kind(session)._need_encryption()
        kind(SimpleNamespace(conf=own))._need_encryption()


def test_what_an_engine_cannot_run_is_told_before_a_reserve(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    for name in ("ray", "dask://", "local://host", "ray://host"):
        with pytest.raises(DataError, match="OS611"):
            engine_of(name)
    with pytest.raises(DataError, match="OS611"):
        engine_of("sc").ready()
    plan = made.plan_for("race", folder, source={"memory": "r"})
    with pytest.raises(DataError, match="OS611"):
        Local().check(plan)


def test_a_job_of_too_many_records_is_refused_before_a_task(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2**31, from the footers: partial sums of fewer stay within int64 (``engines.md``, Lemma 1)."""
    listed = job.parquet_parts
    monkeypatch.setattr(job, "parquet_parts", lambda *given: (listed(*given)[0], 2**31))
    with pytest.raises(DataError, match="OS610"):
        Dask().sums(made.plan_for("race", folder))  # no cluster is started
    monkeypatch.setattr(job, "parquet_parts", lambda *given: (listed(*given)[0], 2**31 - 1))
    assert job_of(made.plan_for("race", folder), "n", 3).tasks


def test_a_frame_of_an_engine_is_no_table_in_memory(tmp_path: Path) -> None:
    """Dask's and Spark's frames are lazy queries: refused before a reserve, by whatever runs the plan."""
    lazy = type("DataFrame", (), {"__module__": "dask.dataframe", "npartitions": 2})()
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    plan = made.plan_for("race", tmp_path, source={"memory": "r"}, ledger=ledger)
    for engine in (None, Local(parts=3)):
        with pytest.raises(DataError, match="OS601") as caught:
            apply(plan, into=tmp_path, memory={"r": lazy}, engine=engine)
        assert caught.value.hint
        assert made.kinds(tmp_path) == []


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames_in_memory_are_refused_before_a_charge(kind: str, tmp_path: Path) -> None:
    """Dask and Spark would copy records into their messages and logs: an engine reads files."""
    columns = {n: v for n, v in made.table(9).items() if n != "x"} | {"x": [[0.0] * 3] * 9}
    frames = {"pandas": "DataFrame", "polars": "DataFrame", "arrow": "table"}
    library = pytest.importorskip({"arrow": "pyarrow"}.get(kind, kind))
    frame = getattr(library, frames[kind])({n: list(v) for n, v in columns.items()})
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    plan = made.plan_for("race", tmp_path, source={"memory": "r"}, ledger=ledger)
    with pytest.raises(DataError, match="OS611") as caught:
        apply(plan, into=tmp_path, memory={"r": frame}, engine=Local(parts=3))
    assert "Parquet" in caught.value.hint
    assert made.kinds(tmp_path) == []
    apply(plan, into=tmp_path, memory={"r": frame})
    assert made.kinds(tmp_path)[:2] == ["reserve", "charge"]


def test_other_versions_or_matrices_on_a_worker_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = made.plan_for("race", folder)
    from opendp_sim.engines import job

    one = job.job_of(plan, "n", 2)
    monkeypatch.setattr(job, "library_versions", lambda: {"numpy": "another"})
    job._typed.cache_clear()
    found = read_message(work.whole(one.text, one.tasks[0]))
    job._typed.cache_clear()
    assert (found.code, found.payload) == (611, b"")


@pytest.mark.parametrize("name", ["lattice", "tree"])
def test_integers_that_were_rounded_otherwise_on_a_worker_are_refused(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One multiplier more and one less: the matrices are the same, and so is the sum of them."""
    plan = made.plan_for(name, folder)
    from opendp_sim.engines import job
    from opendp_sim.transformations.sketches.distances.distance_tree import TreeReader
    from opendp_sim.transformations.sketches.kernels._impl.lattice import LatticeReader

    one = job.job_of(plan, "n", 2)
    reader = LatticeReader if name == "lattice" else TreeReader
    held = reader.__dict__["multipliers"]
    own = getattr(held, "fget", None) or held.func

    def moved(self: object) -> Any:
        found = own(self).copy()
        found[:2] += np.array([1, -1])
        return found

    monkeypatch.setattr(reader, "multipliers", property(moved))
    job._typed.cache_clear()
    found = read_message(work.whole(one.text, one.tasks[0]))
    job._typed.cache_clear()
    assert (found.code, found.payload) == (611, b"")


@given(
    st.lists(st.sampled_from([-(2**63), -(2**31) - 1, -129, -128, 0, 127, 128, 2**31, 2**63 - 1])),
    st.lists(st.floats(width=32)),
)
def test_what_is_packed_comes_back_with_its_type(whole: list[int], real: list[float]) -> None:
    """Integers travel narrow; a type that came back narrow would wrap in the next sum."""
    given_ = {
        "w": np.array(whole, dtype=np.int64),
        "m": np.array([whole, whole], dtype=np.int64),
        "f": np.array(real),
        "n": np.array(real, dtype=np.float32),
        "b": np.array(whole, dtype=np.int64) > 0,
        "i": np.zeros(3, dtype=np.int32),
        "t": np.array(["é", "\ud800"], dtype=object),
    }
    found = unpack(pack(given_))
    assert list(found) == list(given_)
    for name, array in given_.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes() or name == "t"
    assert found["t"].tolist() == given_["t"].tolist()
    vector = unpack(pack(given_["w"]))
    assert (vector.dtype, vector.tolist()) == (np.dtype(np.int64), whole)


SECRET = "alice@secret.example"  # noqa: S105 - a value of the made data


def test_no_value_leaves_a_task_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every failure that can be provoked: foreign types, a mechanism that quotes a record, bad bytes."""
    data = made.table(40)
    data["name"][:] = SECRET
    made.write(tmp_path, data)
    from opendp_sim.engines.job import job_of

    def quoting(*_: Any, **__: Any) -> Any:
        raise ValueError(SECRET)

    for name in ("race", "words", "text_persons"):
        job = job_of(made.plan_for(name, tmp_path), "n", 2)
        with monkeypatch.context() as patch:
            for place in ("build_sketch", "fold_whole", "unpack", "pack"):
                patch.setattr(work, place, quoting)
            if job.buckets is None:
                told = [work.whole(job.text, task) for task in job.tasks]
            else:
                told = [m for task in job.tasks for m in work.route(job.text, task)]
                told.append(work.bucket(job.text, 0, [b"{}\n" + SECRET.encode()]))
            told.append(work.merge(job.text, [SECRET.encode()]))
        assert all(SECRET.encode() not in message for message in told)
        assert all(read_message(message).code for message in told)
        assert SECRET not in job.text + "".join(job.tasks)
    file = next((tmp_path / "files").glob("p1*"))
    job = job_of(made.plan_for("words", tmp_path), "n", 2)
    raw = bytearray(file.read_bytes())
    state = file.stat()
    raw[10:400] = bytes(390)
    file.write_bytes(raw)
    import os

    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    told = [m for task in job.tasks for m in work.route(job.text, task)]
    assert any(read_message(message).code for message in told)
    assert SECRET not in "".join(capfd.readouterr())
    assert all(SECRET.encode() not in m for m in told if read_message(m).code)


def test_the_check_is_on_public_data_and_tells_failures_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [(one.equal, one.told) for one in check(Local(3, 2), tmp_path, 300)] == [
        (True, None)
    ] * 4

    def failing(*_: Any) -> Any:
        raise ValueError("no such mount")

    monkeypatch.setattr(work, "source_of_task", failing)
    told = [one.told for one in check(Adversary(3, 0), tmp_path, 300)]
    assert all(text is not None and "no such mount" in text for text in told)


def test_the_command_checks_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    import opendp_sim.cli.engine as command

    monkeypatch.setattr(command, "check", lambda one, _folder, **_given: made.checked(one))
    run = CliRunner().invoke(command.engine_app, ["check", "local"])
    assert (run.exit_code, run.stdout.count("equal bits")) == (0, 1)
    run = CliRunner().invoke(command.engine_app, ["check", "ray"])
    assert run.exit_code == 4
