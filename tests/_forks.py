"""Commands in forks of this process: what a fresh process does, without its start.

The parent has imported everything and holds no lock and no open store. A child has its own standard streams,
signal handlers, warnings and exit functions, and runs the console script's ``main``.
"""

from __future__ import annotations

import atexit
import mmap
import os
import resource
import select
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from opendp_sim import _entry
from opendp_sim.core import interrupts

__all__ = ["Ended", "Tally", "forked", "tally", "warm"]

GIGABYTE = 2**30
CPU_SECONDS, PATIENCE = 5, 60.0
"""How much a command may compute; and how long it may take, on a machine that others use."""
FRESH = 300.0
"""MiB of a process that has imported every command: of what a fork finds, no more is its own."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: as ``subprocess`` says it, and what it took."""

    code: int
    """The exit code, or minus the signal."""
    said: str
    complained: str
    cpu: float = 0.0
    peak: float = 0.0
    """MiB."""
    late: bool = False
    """It had to be stopped after ``PATIENCE``."""
    calls: int = 0
    """What ``count`` returned at its end."""

    @property
    def sick(self) -> str:
        """What no command may do, whatever it is given; empty if it did not."""
        if self.late or self.code == -signal.SIGXCPU or self.cpu > CPU_SECONDS:
            return f"hung ({self.cpu:.1f} CPU s)"
        if self.peak > 1024:
            return f"took {self.peak:.0f} MiB"
        if "Traceback" in self.complained or "OS9" in self.complained + self.said:
            return "internal"
        if self.code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE):
            return "crashed"
        return ""


def warm() -> None:
    """Import every command, so that a child imports nothing."""
    from opendp_sim.cli import COMMANDS, loaded

    for name in COMMANDS:
        if name not in ("lsp", "plot"):  # extras
            loaded(name)


def forked(
    arguments: Sequence[str],
    cwd: Path,
    lines: str = "",
    *,
    before: Callable[[], object] = lambda: None,
    count: Callable[[], int] = lambda: 0,
    stop: tuple[int, int] | None = None,
) -> Ended:
    """Run ``opendp-sim`` with these arguments in a fork of this process.

    Args:
        arguments: without the command's own name.
        cwd: the child's folder.
        lines: its standard input.
        before: called in the child, right before the command.
        count: called in the child when the command has ended; its result is ``calls``.
        stop: how many lines it says before it is sent a signal, and which; its input stays open.
    """
    streams = [os.memfd_create(name) for name in ("in", "out", "err")]
    ends: list[int] = []
    shared = mmap.mmap(-1, 8)
    try:
        if stop is not None:
            os.close(streams[0])
            streams[0], end = os.pipe()
            ends.append(end)
        os.write(ends[0] if ends else streams[0], lines.encode(errors="surrogateescape"))
        sys.stdout.flush()
        before_it = _resident()
        child = os.fork()
        if child == 0:
            for end in ends:
                os.close(end)
            _child(
                arguments, cwd, streams, before, lambda: shared.write(count().to_bytes(8, "big"))
            )
        status, used, late = _awaited(child, streams[1], stop)
        said, complained = (_read(stream) for stream in streams[1:])
        cpu, peak = used.ru_utime + used.ru_stime, _peak(used, before_it)
        calls = int.from_bytes(shared[:8], "big")
        return Ended(os.waitstatus_to_exitcode(status), said, complained, cpu, peak, late, calls)
    finally:
        shared.close()
        for stream in (*streams, *ends):
            os.close(stream)


def _resident() -> float:
    """Return what this process holds, in MiB."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def _peak(used: resource.struct_rusage, found: float) -> float:
    """Return what a fork held at most, in MiB, as if it had found ``FRESH`` or less: a worker may hold much."""
    return used.ru_maxrss / 1024 - max(0.0, found - FRESH)


def _read(stream: int) -> str:
    return os.pread(stream, os.fstat(stream).st_size, 0).decode(errors="replace")


def _awaited(
    child: int, out: int, stop: tuple[int, int] | None
) -> tuple[int, resource.struct_rusage, bool]:
    """Wait for a child, send it its signal, end it when it takes too long."""
    handle, until, late = os.pidfd_open(child), time.monotonic() + PATIENCE, False
    try:
        ready = select.poll()
        ready.register(handle, select.POLLIN)
        while stop is not None and not ready.poll(2) and time.monotonic() < until:
            if _read(out).count("\n") >= stop[0]:
                signal.pidfd_send_signal(handle, stop[1])
                stop = None
        if not ready.poll(max(0.0, until - time.monotonic()) * 1000):
            late = True
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    finally:
        os.close(handle)
    return status, used, late


def _child(
    arguments: Sequence[str],
    cwd: Path,
    streams: list[int],
    before: Callable[[], object],
    told: Callable[[], object],
) -> NoReturn:
    code = 70
    try:
        _as_new(cwd, streams)
        sys.argv[:] = ["opendp-sim", *arguments]
        before()
        code = _code_of(_entry.main)
        told()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                code = 120  # as the interpreter ends
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001 - nothing may run the parent's code in a child
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _as_new(cwd: Path, streams: list[int]) -> None:
    """Make a fork what a new process is: signals, streams, warnings, what is done at its end, limits."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    atexit._clear()
    atexit.register(interrupts._ending)
    with suppress(OSError):  # a pipe has no place
        os.lseek(streams[0], 0, os.SEEK_SET)
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    warnings.resetwarnings()
    for usual in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", usual)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS + 1, CPU_SECONDS + 2))
    held = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + GIGABYTE, held + GIGABYTE))
    os.chdir(cwd)


def _code_of(command: Callable[[], object]) -> int:
    """Return what the interpreter would exit with."""
    try:
        command()
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return int(left.code or 0)
        print(left.code, file=sys.stderr)
        return 1
    except BaseException:  # noqa: BLE001 - the interpreter's last resort
        traceback.print_exc()
        return 1
    return 0


# --- many small cases in one fork ---------------------------------------------------------------------


@dataclass
class Tally:
    """What became of many cases."""

    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0
    cpu: float = 0.0
    peak: float = 0.0
    """MiB."""

    @property
    def total(self) -> int:
        """How many cases ran."""
        return self.ends.total()

    def add(self, other: Tally) -> None:
        """Count another one's cases too."""
        self.ends += other.ends
        self.faults += other.faults
        self.slowest, self.peak = max(self.slowest, other.slowest), max(self.peak, other.peak)
        self.cpu += other.cpu


def tally(work: Callable[[int], str], numbers: Sequence[int], *, size: int = 250) -> Tally:
    """Do ``work(number)`` for each number in forks of this process, ``size`` numbers in each.

    Args:
        work: returns how a case ended, in a word; what it raises is a fault, and so are a crash of its
            process, over 5 CPU seconds, and over 1 GiB.
        numbers: what to do.
        size: after a crash a new fork goes on with the next number.
    """
    out, left = Tally(), list(numbers)
    while left:
        found = _resident()
        lines, code, used = _one_fork(work, left[:size])
        for line in lines:
            number, cpu, end = line.split(" ", 2)
            out.ends[end.split(":", 1)[0]] += 1
            out.slowest = max(out.slowest, float(cpu))
            if end.startswith("FAULT"):
                out.faults.append(f"{number} {end}")
        done = len(lines)
        if code != 0:
            out.faults.append(f"{left[done]} FAULT: its process ended with {code}")
            out.ends["FAULT"] += 1
            done += 1
        out.cpu += used.ru_utime + used.ru_stime
        out.peak = max(out.peak, _peak(used, found))
        left = left[done:]
    if out.peak > 1024:
        out.faults.append(f"FAULT: {out.peak:.0f} MiB")
    return out


def _one_fork(
    work: Callable[[int], str], numbers: Sequence[int]
) -> tuple[list[str], int, resource.struct_rusage]:
    written = os.memfd_create("results")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            atexit._clear()
            for number in numbers:
                signal.setitimer(
                    signal.ITIMER_PROF, CPU_SECONDS
                )  # its default action ends the process
                start = time.process_time()
                try:
                    end = work(number)
                except BaseException as error:  # noqa: BLE001 - what is looked for
                    end = f"FAULT: {type(error).__name__} {error}".replace("\n", " ")
                took = time.process_time() - start
                os.write(written, f"{number} {took} {end}\n".encode(errors="replace"))
            code = 0
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    lines = _read(written).splitlines()
    os.close(written)
    return lines, os.waitstatus_to_exitcode(status), used
