"""Run a program of opendp_sim in a worker process: priced, charged, then released.

The host's side; it needs the standard library only, so that it runs beside any OpenDP.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WORKER = Path(__file__).with_name("worker.py")


class RefusedError(Exception):
    """A worker refused a program, or is gone."""


class Worker:
    """Talk to a worker process, a line a question."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start a worker.

        Args:
            command: the Python of opendp_sim's environment, ``worker.py`` and its options.
        """
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.streams: tuple[Any, Any] = self.process.stdin, self.process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for stream in self.streams:
            with contextlib.suppress(OSError):  # of a worker that is gone
                stream.close()
        self.process.wait()

    def ask(self, **question: Any) -> dict[str, Any]:
        """Return the worker's reply, or raise ``RefusedError``."""
        lines, replies = self.streams
        try:
            print(json.dumps(question), file=lines, flush=True)
            line = replies.readline()
        except OSError:
            line = ""
        if not line:
            raise RefusedError("the worker is gone")
        reply: dict[str, Any] = json.loads(line)
        if "refused" in reply:
            raise RefusedError(reply["refused"])
        return reply


def price(command: Sequence[str], program: Mapping[str, Any]) -> tuple[float, float]:
    """Return (epsilon, delta) of a program; no row is needed."""
    with Worker(command) as worker:
        found = worker.ask(do="price", program=program)
    return found["epsilon"], found["delta"]


def charged_release(
    command: Sequence[str],
    program: Mapping[str, Any],
    charge: Callable[[float, float], None],
    rows: Callable[[], Mapping[str, Sequence[Any]]],
) -> dict[str, Any]:
    """Price a program, charge it, and only then hand over the rows.

    Args:
        command: how a worker is started.
        program: columns, contributions, measure, budget, steps, release and what to ask.
        charge: takes (epsilon, delta) from the host's budget for good, or raises.
        rows: opens the private rows; called after the charge.

    Returns:
        The answers by question.

    Raises:
        RefusedError: the worker refused, before the charge or after it; a charge is never taken back.
    """
    with Worker(command) as worker:
        priced = worker.ask(do="price", program=program)
        charge(priced["epsilon"], priced["delta"])
        reply = worker.ask(do="release", digest=priced["digest"], rows=rows())
    answers: dict[str, Any] = reply["answers"]
    return answers
