"""Run on a remote server through Spark Connect, as thin client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opendp_sim.engines.engine import need
from opendp_sim.engines.job import cannot
from opendp_sim.engines.on_spark import Spark

_SAID = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""What a client leaves in the environment; later sessions of this process would be taken for remote."""
_PACKAGES = ("pyspark", "pandas", "pyarrow", "grpc", "grpc_status", "zstandard")


class Connect(Spark):
    """A server of Spark Connect.

    Its log, its event log and its shuffle files are as its administrator set them: a client cannot. A
    session that exists is asked whether it encrypts its shuffle files; a server by address is not.

    Args:
        session: one that exists.
        parts: tasks, and buckets of persons.
        address: ``sc://host:15002``, instead of a session; default the environment's ``SPARK_REMOTE``,
            which also keeps a token out of the list of processes.
        may_spill: as for ``Spark``.
    """

    name = "sc"

    def __init__(
        self, session: Any = None, parts: int = 8, address: str = "", *, may_spill: bool = False
    ) -> None:
        address = address or os.environ.get("SPARK_REMOTE", "")
        super().__init__(session, parts, address, may_spill=may_spill)

    def ready(self) -> None:
        """Refuse to run without the client's packages or a server (OS611)."""
        for package in _PACKAGES:
            need(package, "connect")
        self._need_encryption()
        if self._session is None and not self._address.startswith("sc://"):
            raise cannot(
                "sc",
                "the address of a Spark Connect server",
                "none",
                "write sc://host:15002, or set SPARK_REMOTE; a server is started with Spark's "
                "sbin/start-connect-server.sh.",
            )

    @contextmanager
    def _started(self) -> Iterator[Any]:
        if self._session is not None:
            yield self._session
            return
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra

        before = {name: os.environ.get(name) for name in _SAID}
        session = SparkSession.builder.remote(self._address).create()
        try:
            yield session
        finally:
            session.stop()
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
