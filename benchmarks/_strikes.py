"""A command with a fault at one of its file calls, in a fork or in a process of its own."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks._run_cases import Case
from tests._forks import Ended, forked

SHIM = Path(__file__).with_name("_file_calls.c")
WRITE, SYNC, NAME, READ = 1, 2, 4, 8
HALF = 1000
FOLDS = 8
"""How many entries a store keeps here when it folds; a fresh process keeps 4,096."""


@dataclass(frozen=True)
class Fault:
    """What happens at a call: a signal (negative), an errno, or half a write; at calls of which kinds."""

    name: str
    how: int
    kinds: int
    lasting: bool = False


FAULTS = (
    Fault("SIGKILL", -signal.SIGKILL, WRITE | SYNC | NAME),
    Fault("SIGTERM", -signal.SIGTERM, WRITE | SYNC | NAME | READ),
    Fault("SIGINT", -signal.SIGINT, WRITE | SYNC | NAME | READ),
    Fault("EIO", errno.EIO, WRITE | SYNC | NAME | READ),
    Fault("EIO from then on", errno.EIO, WRITE | SYNC | NAME | READ, lasting=True),
    Fault("ENOSPC", errno.ENOSPC, WRITE | NAME),
    Fault("ENOSPC from then on", errno.ENOSPC, WRITE | NAME, lasting=True),
    Fault("short write", HALF, WRITE),
    Fault("failing fsync", errno.EIO, SYNC),
    Fault("failing fsync from then on", errno.EIO, SYNC, lasting=True),
)
COUNT = Fault("count", 0, 0)


def struck(case: Case, folder: Path, fault: Fault, at: int) -> Ended:
    """Run a case in a fork, with a fault at its at-th call of the fault's kinds."""
    shim = ctypes.CDLL(None)
    shim.calls.restype = ctypes.c_long
    return forked(
        arguments(case, folder),
        folder,
        case.text,
        count=shim.calls,
        before=lambda: shim.arm(
            str(folder).encode(), ctypes.c_long(at), fault.how, fault.kinds, fault.lasting
        ),
    )


def arguments(case: Case, folder: Path) -> list[str]:
    command, spec, *more = case.arguments
    return [command, str(folder / spec), *more]


def fresh(case: Case, folder: Path, fault: Fault, at: int) -> Ended:
    """The same in a process of its own."""
    code = (
        "import ctypes; from opendp_sim._entry import main; "
        f"ctypes.CDLL(None).arm({str(folder).encode()!r}, ctypes.c_long({at}), {fault.how}, {fault.kinds}, {fault.lasting:d}); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments(case, folder)],
        cwd=folder,
        input=case.text,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def preloaded() -> None:
    """Go on in a process that the shim was loaded into."""
    if "file_calls" in os.environ.get("LD_PRELOAD", ""):
        return
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "file_calls.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(built), str(SHIM), "-ldl"], check=True)
        env = {**os.environ, "LD_PRELOAD": str(built), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.survive_runs", *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, env=env, check=False).returncode)
