"""Tasks that kill their process where a mark says so: before the work, or when its result is at hand."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from opendp_sim.engines import work

TASKS = ("whole", "route", "bucket", "merge")


def marks(folder: Path, task: str, times: int, at: str, victim: str) -> None:
    """Say that the next ``times`` tasks of this kind die: the worker's process, or Spark's executor."""
    (folder / "kill").mkdir(exist_ok=True)
    for no in range(times):
        (folder / "kill" / f"{task}-{at}-{no}").write_text(victim)


def _die(text: str, task: str, at: str) -> None:
    for mark in sorted((Path(json.loads(text)["folder"]) / "kill").glob(f"{task}-{at}-*")):
        with suppress(FileNotFoundError):  # another task died of it
            victim = mark.read_text()
            mark.unlink()
            os.kill(os.getpid() if victim == "worker" else _grandparent(), signal.SIGKILL)
            time.sleep(600)


def _grandparent() -> int:
    """Return the executor's number: it started the daemon that this process was forked from."""
    told = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(told.rpartition(")")[2].split()[1])


def _killing(name: str) -> Callable[..., Any]:
    real = getattr(work, name)

    def run(text: str, *args: Any) -> Any:
        _die(text, name, "before")
        found = real(text, *args)
        _die(text, name, "after")
        return found

    return run


whole, route, bucket, merge = (_killing(name) for name in TASKS)


def one_of(text: str, task: str) -> list[bytes]:
    """As Spark's engine calls ``whole``."""
    return [whole(text, task)]
