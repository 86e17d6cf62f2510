"""Run a command in a child process, and forward its code.

An audit runs somebody's code, which can end the process: the exit status alone is no result.
``os._exit(0)`` while a module is imported, or while it is audited, would look like "not refuted". So
the command line is in two processes: one runs it and tells its exit code over a pipe when it has
ended; the other waits, and takes nothing else for a result. A module that means to deceive could write
to the pipe as well, or replace the audit: an audit trusts that its subject does not attack it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

__all__ = ["watched"]

_WORD = "ended with "
_EVERY = 10.0
"""Seconds between two lines of progress: the watcher has no thread, as it is forked."""
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM, 129, 141)
"""What a command ends with that was stopped by a signal: nobody takes it for a result."""
_NO_RESULT = 2
"""The exit code of an audit that had none: as for a subject that cannot be audited."""


def watched(run: Callable[[], object], signals: tuple[signal.Signals, ...]) -> None:
    """Run a command in a child process, and exit with its code.

    The code comes over a pipe. Call it before anything starts a thread: the process is forked. A
    system without forks runs the command as it is.

    Args:
        run: ends with ``SystemExit``, or returns.
        signals: what is passed on to the process that runs it.
    """
    if not hasattr(os, "fork"):
        run()
        return
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _tell(run, writer)
        return
    os.close(writer)
    _pass_on(child, signals)
    begun = time.monotonic()
    while not select.select([reader], [], [], _EVERY)[0]:
        if "--quiet" not in sys.argv:
            with suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"auditing, {time.monotonic() - begun:.0f} s\n")
                sys.stderr.flush()
    with os.fdopen(reader) as told:
        text = told.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(_result(text, code if code >= 0 else 128 - code))


def _tell(run: Callable[[], object], writer: int) -> None:
    code: object = 0
    try:
        run()
    except SystemExit as end:
        code = end.code
        raise
    except BaseException:
        code = 70
        raise
    finally:
        code = code if isinstance(code, int) else int(code is not None)
        with suppress(OSError):
            os.write(writer, f"{_WORD}{code}\n".encode())


def _pass_on(child: int, signals: tuple[signal.Signals, ...]) -> None:

    def send(signum: int, frame: FrameType | None) -> None:
        del frame
        with suppress(ProcessLookupError):
            os.kill(child, signum)

    for signum in signals:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, signal.SIG_IGN if signum == signal.SIGINT else send)


def _result(text: str, code: int) -> int:
    """Return the exit code from the pipe, or report its absence."""
    lines = [line for line in text.splitlines() if line.startswith(_WORD)]
    if lines and (told := lines[-1].removeprefix(_WORD)).isdigit():
        return int(told)
    if code in _STOPPED:
        return code
    sys.stderr.write(
        "error[OS501]: `audit` expects code that lets the audit end\n"
        f"   = got a process that ended with exit code {code} before its verdict\n"
        "   = help: nothing was found out; look for `os._exit`, `sys.exit` or a crash in the module.\n"
    )
    sys.stderr.flush()
    return _NO_RESULT
