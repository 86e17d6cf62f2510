"""A throw-away PostgreSQL server on the loopback address, and a network before it that can be cut."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


class Server:
    """A cluster of the machine's PostgreSQL on the loopback address."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.data = FOUND[-1].parent, folder / "pg"
        self.data.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.user: dict[str, Any] = {}
        if os.getuid() == 0:  # the server refuses to run as root
            shutil.chown(self.data, "postgres", "postgres")
            folder.chmod(0o755)
            self.user = {"user": "postgres", "group": "postgres"}
        self.call("initdb", "-D", self.data, "-A", "trust", "-U", "postgres", "--no-sync")
        self.service = folder / "service.conf"
        self.service.write_text(
            f"[one]\nhost=127.0.0.1\nport={self.port}\nuser=postgres\ndbname=postgres\n"
        )
        self.start()

    def call(self, name: str, *words: Any) -> None:
        subprocess.run(
            [self.bin / name, *words], check=True, capture_output=True, cwd="/", **self.user
        )

    def start(self) -> None:
        told = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.data}"
        )
        words = ("-D", self.data, "-o", told, "-l", self.data / "log", "-w", "start")
        for wait in (*[0.2] * 50, None):
            try:
                return self.call("pg_ctl", *words)
            except subprocess.CalledProcessError:  # what a killed server left is still going
                if wait is None:
                    raise
                time.sleep(wait)
        return None

    def kill(self) -> None:
        os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                return
            time.sleep(0.02)

    def through(self, port: int) -> None:
        """Name a service `cut` whose connections go by another port."""
        self.service.write_text(
            self.service.read_text().split("[cut]")[0]
            + f"[cut]\nhost=127.0.0.1\nport={port}\nuser=postgres\n"
            "dbname=postgres\nsslmode=disable\ngssencmode=disable\n"
        )

    def sql(self, text: str) -> Any:
        import psycopg

        with psycopg.connect(service="one", autocommit=True) as db:
            return db.execute(text)


class Cut:
    """A proxy before the server; the n-th COMMIT through it is cut off, before the server hears or after."""

    def __init__(self, port: int, at: int, when: str) -> None:
        self.port, self.left, self.when, self.cuts = port, at, when, 0
        self.door = socket.create_server(("127.0.0.1", 0))
        self.done = Event()
        self.thread = Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        self.door.settimeout(0.05)
        while not self.done.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = self.door.accept()
                with client, socket.create_connection(("127.0.0.1", self.port)) as server:
                    self.carry(client, server)

    def carry(self, client: socket.socket, server: socket.socket) -> None:
        while not self.done.is_set():
            for source in select.select([client, server], [], [], 0.05)[0]:
                data = source.recv(65536)
                if not data:
                    return
                if source is client and b"COMMIT" in data:
                    self.left -= 1
                    if self.left == 0:
                        self.cuts += 1
                        if self.when == "after":
                            server.sendall(data)
                            server.recv(65536)  # the answer, which nobody hears
                        return
                (server if source is client else client).sendall(data)

    def close(self) -> None:
        self.done.set()
        self.thread.join()
        self.door.close()


@contextmanager
def running() -> Iterator[Server]:
    """Start a server, and name it in libpq's service file."""
    memory = os.environ.get("PYTEST_DEBUG_TEMPROOT")  # see tests/conftest.py: no wait for the disk
    folder = Path(tempfile.mkdtemp(prefix="ledger-", dir=memory))  # pytest's is for one user only
    found = Server(folder)
    before = os.environ.get("PGSERVICEFILE")
    os.environ["PGSERVICEFILE"] = str(found.service)
    try:
        yield found
    finally:
        found.call("pg_ctl", "-D", found.data, "-m", "immediate", "stop")
        shutil.rmtree(folder)
        os.environ.pop("PGSERVICEFILE")
        if before is not None:
            os.environ["PGSERVICEFILE"] = before
