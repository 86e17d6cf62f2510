"""Run on Dask, by tasks merged in a tree without logged data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from operator import getitem
from tempfile import TemporaryDirectory
from typing import Any

from opendp_sim.engines import work
from opendp_sim.engines.engine import Engine, need
from opendp_sim.engines.job import Job, cannot

_FAN_IN = 8
"""Partial results that are added up by one task."""
_RETRIES = 2
IN_MEMORY = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}
"""Settings of a cluster whose workers write nothing that they hold to a disk. By default Dask's do so
from 60 % of their memory on: records in the clear, in files that everybody may read, which stay when a
worker is killed. Nor do they pause, since nothing would wake them: one that needs 95 % is ended, and its
tasks are tried again elsewhere."""
_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": str(2**27),
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": str(2**25),
}
"""In a cluster of its own: nobody looks at its profiles, and tasks are as many as they should be. What a
process does a second of wall time, it does the more often the busier the machine is. And its workers keep
up to 128 MiB of free memory: Dask lets them give back all, so that the kernel made every block's arrays
anew, page by page, which was up to half of their time."""


class Dask(Engine):
    """A cluster of Dask's, through its ``distributed`` client.

    Args:
        client: of a cluster that exists; else two processes of this machine are started, without a
            dashboard, and end with the job.
        parts: tasks, and buckets of persons.
        workers: processes of a cluster of its own.
        address: of a scheduler, such as ``dask://host:8786``, instead of a client.
        may_spill: take a cluster that exists though its workers may write records to their disks.
    """

    name = "dask"

    def __init__(
        self,
        client: Any = None,
        parts: int = 8,
        workers: int = 2,
        address: str = "",
        *,
        may_spill: bool = False,
    ) -> None:
        super().__init__(parts)
        self._client, self._workers, self._address = client, workers, address
        self._may_spill = may_spill

    def ready(self) -> None:
        """Refuse a missing Dask, or a cluster that spills to disks (OS611)."""
        need("distributed", "dask")
        if self._may_spill or (self._client is None and not self._address):
            return
        try:
            with self._connected() as client:
                told = list(client.run(_spills, on_error="return").values())
        except Exception:  # noqa: BLE001 - no scheduler, or none that can be asked
            told = [None]
        if any(one is True for one in told):
            raise cannot(
                "dask", "workers that keep what they hold in memory", "workers that may write it to disk",
                "start them with the settings `opendp_sim.engines.on_dask.IN_MEMORY`; or, where their "
                "disks are as private as their memory, use Dask(client, may_spill=True).",
            )  # fmt: skip
        if any(one is not False and not isinstance(one, OSError) for one in told):
            raise cannot(
                "dask", "workers that answer, with this package", "others, or no scheduler",
                "look at the address, and install the same versions on every machine.",
            )  # fmt: skip

    def run(self, job: Job) -> Sequence[bytes]:
        """Run every task, then the merges, and release all secret futures."""
        with self._connected() as client:
            made: list[Any] = []

            def call(name: str, function: Callable[..., Any], *args: Any) -> Any:
                key = (
                    f"{job.token}-{name}-{len(made)}"  # equal keys would give an older job's result
                )
                future = client.submit(function, *args, key=key, pure=False, retries=_RETRIES)
                made.append(future)
                return future

            text = job.text
            if job.buckets is None:
                level = [call("whole", work.whole, text, task) for task in job.tasks]
            else:
                routed = [call("route", work.route, text, task) for task in job.tasks]
                level = [
                    call(
                        "bucket",
                        work.bucket,
                        text,
                        i,
                        [call("pick", getitem, r, i) for r in routed],
                    )
                    for i in range(job.buckets)
                ]
            while len(level) > 1:
                runs = [level[at : at + _FAN_IN] for at in range(0, len(level), _FAN_IN)]
                level = [call("merge", work.merge, text, run) for run in runs]
            try:
                return [level[0].result()]
            finally:
                for future in made:
                    future.release()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self._client is not None:
            yield self._client
            return
        distributed: Any = import_module("distributed")  # an extra
        if self._address:
            with distributed.Client(self._address.replace("dask://", "tcp://")) as client:
                yield client
            return
        with (
            TemporaryDirectory(prefix="opendp_sim-", ignore_cleanup_errors=True) as own,  # 0700
            import_module("dask").config.set(_QUIET | IN_MEMORY),
            distributed.LocalCluster(
                n_workers=self._workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                silence_logs=50,
                host="127.0.0.1",
                local_directory=own,
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


def _spills(dask_worker: Any) -> bool:
    """Return whether a worker may write its data to disk."""
    return type(dask_worker.data) is not dict
