"""A worker that is killed in mid-task: one machine's bits, or a coded end whose reserve stands; never two charges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opendp_sim.core.errors import InternalError
from opendp_sim.dsl import apply
from opendp_sim.engines import on_spark, work
from opendp_sim.engines.on_dask import Dask
from opendp_sim.engines.on_spark import Spark

from . import clusters, killers, made

pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("ignore")]
TASKS = {"race": ("whole", "merge"), "persons": ("route", "bucket")}
KILLS = [(s, t, at) for s, tasks in TASKS.items() for t in tasks for at in ("before", "after")]
EXECUTORS = {"spark.executor.memory": "512m", "spark.executorEnv.PYTHONPATH": str(clusters.ROOT)}
SPARK_KILLS = [
    ("race", "whole", "after"),
    ("persons", "route", "before"),
    ("persons", "bucket", "after"),
]


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give engines tasks that may die; the driver's own last merge stays as it is."""
    for name in killers.TASKS[:3]:
        monkeypatch.setattr(work, name, getattr(killers, name))
    monkeypatch.setattr(on_spark, "work", killers)
    monkeypatch.setattr(on_spark, "_one_of", killers.one_of)


def plan_in(folder: Path, spec: str) -> Any:
    made.write(folder, made.table())
    ledger = {"file": str(folder / "l.ledger"), "limit": {"rho": 400.0}}
    return made.plan_for(spec, folder, ledger=ledger)


def check(engine: Any, folder: Path, plan: Any, whole: Any, *, survives: bool) -> None:
    """Sum, then apply: the same bits and one charge; or OS902, and the reserve stands alone."""
    if survives:
        assert made.same(whole, engine.sums(plan)["n"])
        assert not list((folder / "kill").iterdir())  # somebody died
        apply(plan, into=folder, engine=engine)
        assert made.kinds(folder) == ["reserve", "charge", "outcome"]
        return
    with pytest.raises(InternalError) as caught:
        apply(plan, into=folder, engine=engine)
    assert caught.value.code == "OS902"
    assert made.kinds(folder) == ["reserve"]


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    with clusters.dask_cluster() as client:
        yield client


@pytest.mark.usefixtures("deadly")
@pytest.mark.parametrize(("spec", "task", "at"), KILLS)
def test_dask_survives_a_killed_worker(
    spec: str, task: str, at: str, dask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_in(tmp_path, spec)
    whole = made.one_machine(plan)
    if task == "merge":
        monkeypatch.setattr("opendp_sim.engines.on_dask.work", killers)
    killers.marks(tmp_path, task, 1, at, "worker")
    check(Dask(dask, 3), tmp_path, plan, whole, survives=True)


@pytest.mark.usefixtures("deadly")
@pytest.mark.parametrize("spec", ["race", "persons"])
def test_dask_gives_up_with_a_code(spec: str, dask: Any, tmp_path: Path) -> None:
    """Each task dies as often as it is tried: the scheduler gives up, and the reserve stands."""
    plan = plan_in(tmp_path, spec)
    killers.marks(tmp_path, "whole" if spec == "race" else "route", 40, "after", "worker")
    check(Dask(dask, 3), tmp_path, plan, None, survives=False)
    for mark in (tmp_path / "kill").iterdir():
        mark.unlink()
    assert made.same(made.one_machine(plan), Dask(dask, 3).sums(plan)["n"])  # the cluster goes on


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two executors, each in a process of its own."""
    pyspark = pytest.importorskip("pyspark")
    before = os.environ.get("SPARK_HOME")
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    events = tmp_path_factory.mktemp("events")
    with clusters.spark_session(events, "local-cluster[2,1,512]", **EXECUTORS) as session:
        yield session
    os.environ.pop("SPARK_HOME")
    if before is not None:
        os.environ["SPARK_HOME"] = before


@pytest.mark.usefixtures("deadly")
@pytest.mark.parametrize("victim", ["worker", "executor"])
@pytest.mark.parametrize(("spec", "task", "at"), SPARK_KILLS)
def test_spark_survives_a_killed_worker_or_executor(
    spec: str, task: str, at: str, victim: str, spark: Any, tmp_path: Path
) -> None:
    plan = plan_in(tmp_path, spec)
    killers.marks(tmp_path, task, 1, at, victim)
    check(Spark(spark, 3), tmp_path, plan, made.one_machine(plan), survives=True)


@pytest.mark.usefixtures("deadly")
def test_spark_gives_up_with_a_code(spark: Any, tmp_path: Path) -> None:
    plan = plan_in(tmp_path, "persons")
    killers.marks(tmp_path, "bucket", 40, "before", "worker")
    check(Spark(spark, 3), tmp_path, plan, None, survives=False)
