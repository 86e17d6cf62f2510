"""Dask with two processes, Spark ``local[2]`` and Spark Connect on real files: one machine's bits, silent logs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opendp_sim.core.errors import SimError
from opendp_sim.dsl import apply, plan_file
from opendp_sim.engines.engine import engine_of
from opendp_sim.engines.on_connect import Connect
from opendp_sim.engines.on_dask import Dask, _spills
from opendp_sim.engines.on_spark import Spark
from tests import test_five_systems as five_systems
from tests.accounting.conftest import server  # noqa: F401 - a fixture

from . import clusters, made

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # of Dask, pandas and the JVM's sockets
]
SECRET = "alice@secret.example"  # noqa: S105 - a value of the made data
NUMBER = 98765.4296875
"""In 32 bits as it stands; with a point, as a log of 600,000 characters has any five digits by chance."""


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    with clusters.dask_cluster() as client:
        yield client


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    events = tmp_path_factory.mktemp("events")
    with clusters.spark_session(events, "local[2]") as session:
        session.events = events
        yield session


def engine(name: str, request: pytest.FixtureRequest, parts: int) -> Any:
    held = request.getfixturevalue(name)
    return {"dask": Dask, "spark": Spark, "sc": Connect}[name](held, parts)


@pytest.mark.parametrize("spec", made.STEPS)
@pytest.mark.parametrize("name", ["dask", "spark"])
def test_the_bits_of_one_machine(
    name: str, spec: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Every kind of sum; empty files, equal rows, a person in all parts; 17 parts are more than row groups."""
    made.write(tmp_path, made.table())
    plan = made.plan_for(spec, tmp_path)
    whole = made.one_machine(plan)
    for parts in (1, 3, 17) if spec in ("race", "persons", "words") else (3,):
        assert made.same(whole, engine(name, request, parts).sums(plan)["n"])


@pytest.mark.parametrize("name", ["dask", "spark"])
def test_a_release_is_charged_once(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made.write(tmp_path, made.table(60))
    ledger = {"file": str(tmp_path / "l.ledger"), "limit": {"rho": 400.0}}
    plan = made.plan_for("persons", tmp_path, ledger=ledger)
    assert apply(plan, into=tmp_path, engine=engine(name, request, 3)).charge is not None
    assert made.kinds(tmp_path) == ["reserve", "charge", "outcome"]


@pytest.mark.parametrize("source", ["builtin", "parquet", "csv"])
@pytest.mark.parametrize("name", ["dask", "spark"])
def test_the_five_systems_in_one_run(
    name: str, source: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Four are sums, which an engine makes; the fifth is a session, whose store this machine makes."""
    spec = five_systems.spec_of(tmp_path, source)
    plan, own = plan_file(spec), engine(name, request, 3)
    sums = own.sums(plan)
    assert set(sums) == {"tree", "waves", "buckets", "common"}
    assert all(made.same(made.one_machine(plan, one), sums[one]) for one in sums)
    done = apply(plan, into=tmp_path, engine=own)
    five_systems.check_run(done, plan)
    for _ in range(2):
        assert five_systems.asked(spec, tmp_path) == 10
    five_systems.check_ledger(tmp_path / "five-systems.ledger", plan)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("name", ["dask", "spark"])
def test_the_five_systems_with_a_ledger_and_a_store_that_others_share(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    ledger, store = (f"postgresql:one/five-{name}-{of}" for of in ("ledger", "store"))
    spec = five_systems.spec_of(tmp_path, "parquet", ledger=ledger, store=store)
    plan = plan_file(spec)
    five_systems.check_run(apply(plan, into=tmp_path, engine=engine(name, request, 3)), plan)
    for _ in range(2):
        assert five_systems.asked(spec, tmp_path) == 10
    five_systems.check_ledger(ledger, plan)


def broken(folder: Path) -> dict[str, Any]:
    """Return plans over files that provoke failures: bounds, types, bad bytes; every text is a secret."""
    plans = {}
    for fault in ("bounds", "nan", "type", "bytes", "gone"):
        where = folder / fault
        where.mkdir()
        data = made.table(60)
        data["name"][:] = SECRET
        if fault == "bounds":
            data["x"][30] = NUMBER
        if fault == "nan":
            data["x"][30] = np.nan
        if fault == "type":
            data["item"] = data["name"]
        made.write(where, data)
        plans[fault] = made.plan_for(
            "words" if fault in ("type", "bytes") else "race", where, ingest="refuse"
        )
        file = where / "files" / "p1.parquet"
        if fault == "bytes":
            raw, state = bytearray(file.read_bytes()), file.stat()
            raw[10:600] = bytes(590)
            file.write_bytes(raw)
            os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    return plans


class Removing:
    """An engine before whose job a file is removed: tasks are listed, and what they name is gone."""

    def __init__(self, real: Any, file: Path) -> None:
        self.real, self.run = real, real.run
        real.run = self.without
        self.file = file

    def without(self, job: Any) -> Any:
        self.file.unlink()
        return self.run(job)


@pytest.mark.parametrize("name", ["dask", "spark"])
def test_no_value_is_in_a_log_an_event_or_an_exception(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No value of a record; and no count of records or persons, where jobs end well, in what Spark logs."""
    held = request.getfixturevalue(name)
    told = []
    for fault, plan in broken(tmp_path).items():
        one = engine(name, request, 3)
        if fault == "gone":
            Removing(one, tmp_path / fault / "files" / "p1.parquet")
        with pytest.raises(SimError) as caught:
            one.sums(plan)
        assert caught.value.code in ("OS601", "OS602", "OS603", "OS605", "OS902"), fault
        told.append(f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}")
    data = made.table(24071)  # a number that no size, time or identifier is likely to be
    data["user"] = np.arange(24071) % 9377
    made.write(tmp_path, data, files=1, groups=1)
    for spec in ("race", "persons", "votes"):
        engine(name, request, 3).sums(made.plan_for(spec, tmp_path))
    if name == "dask":
        told += [repr(held.get_worker_logs()), repr(held.get_scheduler_logs())]
    else:
        events = [f.read_text("utf-8", "replace") for f in held.events.rglob("*") if f.is_file()]
        assert any("SparkListener" in text for text in events)
        told += events
        told += [held.log.read_text("utf-8", "replace")] if name == "sc" else []  # the server's
    told += capfd.readouterr()
    assert not [text for text in told if SECRET in text or "98765.4" in text]
    assert not [m for text in told for m in re.findall(r"(?<![\d.])(?:24071|9377)(?!\d)", text)]


def test_a_session_of_somebody_else_is_not_ended(request: pytest.FixtureRequest) -> None:
    """Without its own session the engine took the active one, silenced it, and stopped it."""
    session = request.getfixturevalue("spark")
    with pytest.raises(SimError, match="OS611"):
        engine_of("spark").ready()
    assert session.range(3).count() == 3


def test_dask_workers_that_may_spill_are_refused_and_ours_hold_records_in_memory(
    request: pytest.FixtureRequest,
) -> None:
    """Dask's defaults write what workers hold to disk in the clear, from 60 % of their memory on."""
    distributed = pytest.importorskip("distributed")
    Dask(request.getfixturevalue("dask")).ready()
    usual = {"processes": False, "n_workers": 1, "dashboard_address": None}
    spills = {"distributed.worker.memory.target": 0.6, "distributed.worker.memory.spill": 0.7}
    with (
        pytest.importorskip("dask").config.set(spills),
        distributed.LocalCluster(**usual) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        with pytest.raises(SimError, match="OS611"):
            Dask(client).ready()
        Dask(client, may_spill=True).ready()
    with Dask(workers=1)._connected() as own:
        assert own.run(_spills).popitem()[1] is False
