"""Clusters for the tests: Dask's two processes, Spark in this process, and a server of Spark Connect."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opendp_sim.engines.on_dask import IN_MEMORY
from opendp_sim.engines.on_spark import _HERE, _QUIET

ROOT = Path(__file__).parents[2]
WAIT = 300  # seconds until a server that does not come is a failure


@contextmanager
def importable() -> Iterator[None]:
    """Let workers import the tests: what kills them is there."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYSPARK_PYTHON")}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [before["PYTHONPATH"]])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def dask_cluster() -> Iterator[Any]:
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    with (
        importable(),
        dask.config.set(IN_MEMORY),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as own,
        distributed.Client(own) as client,
    ):
        yield client


def logged(events: Path) -> dict[str, str]:
    """Return Spark's settings with an event log that can be read."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
    }


@contextmanager
def spark_session(events: Path, master: str, **more: str) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    builder = sql.SparkSession.builder.master(master)
    for key, value in (_QUIET | _HERE | logged(events) | more).items():
        builder = builder.config(key, value)
    with importable():
        try:
            found = builder.getOrCreate()
            assert found.range(3).count() == 3
        except Exception as error:  # noqa: BLE001 - whatever hinders it is the machine's
            pytest.skip(f"Spark does not start on this machine: {type(error).__name__}")
        found.sparkContext.setLogLevel("WARN")
        try:
            yield found
        finally:
            found.stop()


@contextmanager
def connect_server(folder: Path) -> Iterator[SimpleNamespace]:
    """Start a server of Spark Connect in a process of its own, as an administrator would."""
    pyspark = pytest.importorskip("pyspark")
    if shutil.which("java") is None or find_spec("grpc_status") is None:
        pytest.skip("Spark Connect needs Java and grpc")
    home, events, log = Path(pyspark.__file__).parent, folder / "events", folder / "server.log"
    events.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = _QUIET | _HERE | logged(events)
    told |= {"spark.connect.grpc.binding.address": "127.0.0.1"}
    told |= {"spark.connect.grpc.binding.port": str(port)}
    words = [w for key, value in told.items() for w in ("--conf", f"{key}={value}")]
    with importable(), log.open("wb") as out:
        server = subprocess.Popen(
            [home / "sbin" / "start-connect-server.sh", "--master", "local[2]", *words],
            env=os.environ | {"SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1"},
            stdout=out,
            stderr=out,
            cwd=folder,
            start_new_session=True,
        )
    try:
        for _ in range(WAIT):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert server.poll() is None, log.read_text()
                time.sleep(1)
        yield SimpleNamespace(address=f"sc://127.0.0.1:{port}", events=events, log=log)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
