"""Dask with two processes and Spark ``local[2]`` on real files: one machine's bits, and silent logs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opendp_sim.core.errors import SimError
from opendp_sim.engines.on_dask import Dask
from opendp_sim.engines.on_spark import _QUIET, Spark

from . import made

pytest.importorskip("pyarrow")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("ignore"),  # of Dask, pandas and the JVM's sockets
]
SECRET = "alice@secret.example"  # noqa: S105 - a value of the made data


@pytest.fixture(scope="module")
def dask() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as own,
        distributed.Client(own) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = pytest.importorskip("pyspark.sql").SparkSession
    events = tmp_path_factory.mktemp("events")
    builder = session.builder.master("local[2]")
    told = _QUIET | {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
    }
    for key, value in told.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    found.events = events
    yield found
    found.stop()


def engine(name: str, request: pytest.FixtureRequest, parts: int) -> Any:
    held = request.getfixturevalue(name)
    return Dask(held, parts) if name == "dask" else Spark(held, parts)


@pytest.mark.parametrize(
    "spec", ["race", "persons", "text_persons", "votes", "words", "listed", "by_row"]
)
@pytest.mark.parametrize("name", ["dask", "spark"])
def test_the_bits_of_one_machine(
    name: str, spec: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made.write(tmp_path, made.table())
    plan = made.plan_for(spec, tmp_path)
    whole = made.one_machine(plan)
    for parts in (1, 3, 17) if spec in ("race", "persons") else (3,):
        assert made.same(whole, engine(name, request, parts).sums(plan)["n"])


def broken(folder: Path) -> dict[str, Any]:
    """Return plans over files that provoke failures: bounds, types, bad bytes; every text is a secret."""
    plans = {}
    for fault in ("bounds", "nan", "type", "bytes"):
        where = folder / fault
        where.mkdir()
        data = made.table(60)
        data["name"][:] = SECRET
        if fault == "bounds":
            data["x"][30] = 98765.0
        if fault == "nan":
            data["x"][30] = np.nan
        if fault == "type":
            data["item"] = data["name"]
        made.write(where, data)
        plans[fault] = made.plan_for(
            "words" if fault in ("type", "bytes") else "race", where, ingest="refuse"
        )
        if fault == "bytes":
            file = where / "files" / "p1.parquet"
            raw, state = bytearray(file.read_bytes()), file.stat()
            raw[10:600] = bytes(590)
            file.write_bytes(raw)
            os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    return plans


@pytest.mark.parametrize("name", ["dask", "spark"])
def test_no_value_is_in_a_log_an_event_or_an_exception(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    held = request.getfixturevalue(name)
    told = []
    for plan in broken(tmp_path).values():
        with pytest.raises(SimError) as caught:
            engine(name, request, 3).sums(plan)
        told.append(f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}")
    if name == "dask":
        told += [repr(held.get_worker_logs()), repr(held.get_scheduler_logs())]
    else:
        told += [
            file.read_text("utf-8", "replace") for file in held.events.rglob("*") if file.is_file()
        ]
        assert any("SparkListener" in text for text in told)
    told += capfd.readouterr()
    assert not [text for text in told if SECRET in text or "98765" in text]
