"""Run on Spark by its DataFrame API alone, classic or Connect.

Rows are tasks, and bytes that Spark cannot read: values of records are in no column of Spark's. The
shuffle goes by a bucket's number, which is a value: a round-robin shuffle over an order that changes on
a retry loses and doubles rows.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

from opendp_sim.engines import job as job_module, work
from opendp_sim.engines.engine import Engine, need
from opendp_sim.engines.job import Job, cannot

_RESULT = "part long, payload binary"
_PACKAGES = ("pyspark", "pandas", "pyarrow")
"""Spark's ``mapInArrow`` refuses to run where there is no pandas."""
Batches = Iterator[Any]


class Spark(Engine):
    """A session of Spark's.

    Args:
        session: one that exists; else one is started, without a web page, event log or texts in its
            log, and ends with the job.
        parts: tasks, and buckets of persons.
        address: of a cluster's master, such as ``spark://host:7077``, for a session of its own; default
            two threads of this machine.
        may_spill: take a session that exists though its shuffle files hold records in the clear.
    """

    name = "spark"

    def __init__(
        self, session: Any = None, parts: int = 8, address: str = "", *, may_spill: bool = False
    ) -> None:
        super().__init__(parts)
        self._session, self._address, self._may_spill = session, address, may_spill

    def ready(self) -> None:
        """Refuse a missing, foreign (would be ended) or unencrypted Spark (OS611)."""
        for package in _PACKAGES:
            need(package, "spark")
        self._need_encryption()
        if self._session is None and "pyspark.sql" in sys.modules:
            from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

            if SparkSession.getActiveSession() is not None:
                raise cannot(
                    "spark",
                    "no session in this process, or the one to use",
                    "an active session",
                    "hand it over: `apply(plan, engine=Spark(session))`.",
                )

    def _need_encryption(self) -> None:
        if self._session is None or self._may_spill:
            return
        if self._session.conf.get(_ENCRYPTION, "false").lower() != "true":
            raise cannot(
                "spark", "a session that encrypts its shuffle files", "one that does not",
                f"start it with {_ENCRYPTION}=true; or, where its disks are as private as its "
                "memory, use Spark(session, may_spill=True).",
            )  # fmt: skip

    def run(self, job: Job) -> Sequence[bytes]:
        """Run every task; partial results are collected as bytes."""
        with self._started() as session:
            count = len(job.tasks)
            frame = session.range(0, count, 1, max(1, count))  # one task a partition, no shuffle
            if job.buckets is None:
                frame = frame.mapInArrow(_tasks(job, _one_of), _RESULT)
            else:
                frame = frame.mapInArrow(_tasks(job, work.route), _RESULT)
                frame = frame.repartition(job.buckets, "part")
                frame = frame.mapInArrow(_buckets(job.text), _RESULT)
            return [bytes(row["payload"]) for row in frame.collect()]

    @contextmanager
    def _started(self) -> Iterator[Any]:
        if self._session is not None:
            yield self._session
            return
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(self._address or "local[2]").appName("opendp_sim")
        for key, value in _settings(self._address).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()


_ENCRYPTION = "spark.io.encryption.enabled"
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    _ENCRYPTION: "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.worker.reuse": "true",
}
_HERE = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.shuffle.compress": "false",  # no network to spare, and integers are narrow already
}


def _settings(address: str) -> dict[str, str]:
    """Return the settings of a session of our own."""
    return _QUIET if address else _QUIET | _HERE | {"spark.local.dir": _folder().name}


@cache
def _folder() -> TemporaryDirectory[str]:
    """Return this process's private folder (0700)."""
    return TemporaryDirectory(prefix="opendp_sim-", ignore_cleanup_errors=True)


def _one_of(text: str, task: str) -> list[bytes]:
    return [work.whole(text, task)]


def _tasks(job: Job, function: Callable[[str, str], list[bytes]]) -> Callable[[Batches], Batches]:
    text, tasks = job.text, job.tasks

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                for part, payload in enumerate(function(text, tasks[row["id"]])):
                    yield _row(part, payload)
        _settle()

    return run


def _buckets(text: str) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        held: dict[int, list[bytes]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                held.setdefault(row["part"], []).append(row["payload"])
        for number, messages in held.items():
            yield _row(number, work.bucket(text, number, messages))
        _settle()

    return run


_settled: list[tuple[int, int]] = []
"""How many modules and plans this worker had when its objects were last put aside."""


def _settle() -> None:
    """Freeze a worker's modules and plans for the collector.

    Spark has Python look through all objects after a task: as long as a sum over 60,000 rows.
    """
    held = (len(sys.modules), job_module.plans_made())
    if held not in _settled:
        _settled[:] = [held]
        gc.collect()
        gc.freeze()


def _row(part: int, payload: bytes) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - an extra

    arrays = [pa.array([part], pa.int64()), pa.array([payload], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, ["part", "payload"])
