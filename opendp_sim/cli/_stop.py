"""End a stopped command with one line of charges and files.

The same for a command that cannot print. The exit code is 128 plus the signal's number; 141 where the
reader of standard output is gone; 74 (``EX_IOERR``) where standard output takes no more, a full disk
for example. What was done stands in each case: neither code may look like a run that was refused,
which somebody would repeat and pay again. Standard error may be lost without any consequence. Light on
imports: it is in force while everything else is imported.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

from opendp_sim.core.interrupts import send_again
from opendp_sim.core.system.escape_text import escape

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
if hasattr(signal, "SIGHUP"):  # the terminal was closed
    _WORDS[signal.SIGHUP] = "hung up"
CLOSED, FULL = 128 + 13, 74
"""Exit codes where nobody reads standard output, and where it takes no more."""
_LOST = {CLOSED: "standard output was closed", FULL: "standard output takes no more"}


class Interrupted(BaseException):
    """Report a signal's end; libraries answer ``KeyboardInterrupt`` themselves."""


class _Process:
    """What this process was asked, and what it did that stays done."""

    seen: int = 0
    """The signal that came, or 0."""
    lost: int = 0
    """The exit code where standard output cannot be written, or 0."""
    inside = False
    """A command runs: what it calls is a part of it."""
    starting = False
    leaving = False
    """The last line is being written, or the command has ended: a signal comes too late."""
    charged: str = ""
    written: str = ""


def note_charge(text: str) -> None:
    """Remember final charges for the last line of a stopped command."""
    _Process.charged = text


def note_written(*files: object) -> None:
    """Record complete files for the last line."""
    _Process.written = ", ".join(map(str, files))


def deed() -> str:
    """Return the charges and files of the command, or nothing."""
    written = f"wrote {_Process.written}" if _Process.written else ""
    return "; ".join(text for text in (_Process.charged, written) if text)


def unread(error: OSError) -> Interrupted:
    """Return the exception for a failed write to standard output."""
    _Process.lost = _code_of(error)
    return Interrupted()


def _code_of(error: OSError) -> int:
    """Return the exit code for a failed write."""
    return CLOSED if isinstance(error, BrokenPipeError) else FULL


class _Stream:
    """A standard stream whose failed writes are noted."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        """Return anything else as the stream has it."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or note why not."""
        self._noted(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        """Flush, or note why not."""
        self._noted(self._stream.flush)

    def _noted(self, work: Callable[..., object], *given: str) -> None:
        """Remember that standard output takes no more, whoever catches the exception."""
        try:
            work(*given)
        except OSError as error:
            _Process.lost = _code_of(error)
            raise


class _Forgiving(_Stream):
    """Write to standard error, ignoring failures."""

    def _noted(self, work: Callable[..., object], *given: str) -> None:
        """Drop what is not taken."""
        with suppress(OSError):
            work(*given)


@contextmanager
def _printable() -> Iterator[None]:
    r"""Escape characters that a stream's encoding lacks (``\u044f``)."""
    usual = sys.stdout, sys.stderr
    errors = {s: s.errors for s in usual if isinstance(s, io.TextIOWrapper)}
    for stream in errors:
        with suppress(OSError):  # it flushes
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = None if usual[0] is None else _Stream(usual[0])
    sys.stderr = None if usual[1] is None else _Forgiving(usual[1])
    try:
        yield
    finally:
        with suppress(OSError, ValueError, AttributeError):
            _Stream(usual[0]).flush()
        sys.stdout, sys.stderr = usual
        for stream, before in errors.items():
            with suppress(OSError, ValueError):
                stream.reconfigure(errors=before)


def _stop(signum: int, frame: FrameType | None) -> None:
    if _Process.leaving:
        return
    _Process.seen = signum
    if _is_sending(frame):  # what a hook raises is printed, and dropped
        send_again([signum])
        return
    if _Process.starting:  # nothing was opened or charged: there is nothing to tidy up
        _end()
    raise Interrupted


def _is_sending(frame: FrameType | None) -> bool:
    """Return whether ``_lost`` is running."""
    while frame is not None and frame.f_code is not _lost.__code__:
        frame = frame.f_back
    return frame is not None


def _lost(usual: Callable[[Any], Any], found: Any) -> None:
    """Send again a signal whose exception was dropped."""
    if found.exc_type is not None and issubclass(found.exc_type, Interrupted | KeyboardInterrupt):
        send_again([_Process.seen or signal.SIGINT])
    else:
        usual(found)


def _end() -> None:
    """Say the last line and leave, past whatever is still running."""
    _Process.leaving = True
    for signum in _WORDS:
        signal.signal(signum, signal.SIG_IGN)
    with suppress(Exception):
        sys.stdout.flush()
    _say_last(_WORDS[signal.Signals(_Process.seen)])
    with suppress(BaseException):
        atexit._run_exitfuncs()  # noqa: SLF001 - what `os._exit` leaves out
    os._exit(128 + _Process.seen)


def _say_last(word: str) -> None:
    """Write the last line, which says what was done."""
    with suppress(Exception):
        sys.stderr.write(f"{word}; {escape(deed() or 'nothing was charged')}\n")
        sys.stderr.flush()


def begun() -> None:
    """Mark the command as imported and running, so that it tidies up."""
    _Process.starting = False
    _Process.charged = _Process.written = ""  # what an earlier command did is not this one's


@contextmanager
def stoppable() -> Iterator[None]:
    """End cleanly on SIGINT, SIGTERM and SIGHUP while the block runs."""
    usual = sys.unraisablehook
    if _Process.inside:
        yield
        return
    _Process.inside = _Process.starting = True
    _Process.charged = _Process.written = ""  # what an earlier command did is not this one's
    try:
        with suppress(ValueError):  # not the main thread: whoever owns it handles signals
            for signum in _WORDS:
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    signal.signal(signum, _stop)
            sys.unraisablehook = partial(_lost, usual)
        yield
    except (Interrupted, KeyboardInterrupt):
        _Process.seen = _Process.seen or signal.SIGINT
    finally:
        _Process.starting = _Process.inside = False
        sys.unraisablehook = usual
        if _Process.seen:  # also when somebody dropped the exception and the command went on
            _Process.leaving = True
            _end()


@contextmanager
def reported() -> Iterator[None]:
    """End a command with one line on stderr when standard output fails.

    Raises:
        SystemExit: 141 or 74; or the code of a refusal, which stands.
    """
    _Process.lost = 0
    try:
        with _printable():
            yield
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Click ends the process itself, with 1
            _Process.lost = CLOSED
        elif end.code:
            _Process.lost = 0
        if not _Process.lost:
            raise
    except (Interrupted, OSError):
        if not _Process.lost:
            raise
    if _Process.lost and not _Process.seen:
        if deed() or _Process.lost != CLOSED:
            _say_last(_LOST[_Process.lost])
        raise SystemExit(_Process.lost)


def _drop_unwritten() -> None:
    """Discard text that the standard streams do not accept."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # none, or closed by the caller
            try:
                stream.flush()
            except OSError:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
                stream.flush()


def to_the_end(command: Callable[[], Any]) -> None:
    """Run a command as the whole of this process.

    Once it has ended, its exit code stands: signals are ignored while the interpreter is taken apart,
    where Python would fall back to the default action, or raise where nobody catches.
    """
    try:
        try:
            command()
        finally:
            for signum in _WORDS:
                signal.signal(signum, signal.SIG_IGN)
            _drop_unwritten()
    except (Interrupted, KeyboardInterrupt):  # in the moment between ``stoppable`` and the loop
        _Process.leaving = True
        _Process.seen = _Process.seen or signal.SIGINT
        _end()
