"""Whoever stops a command gets one line, which says what was charged, and 128 plus the signal's number.

Light on imports: it is in force while everything else is imported.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

from opendp_sim.core.interrupts import send_again
from opendp_sim.core.system.escape_text import shown

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
if hasattr(signal, "SIGHUP"):  # the terminal was closed
    _WORDS[signal.SIGHUP] = "hung up"
_SIGPIPE = 13
"""As on every POSIX system; others have the number by convention only."""


class Interrupted(BaseException):
    """A signal asked the command to end. No ``KeyboardInterrupt``: libraries answer those themselves."""


class _Process:
    """What this process was asked, and what it did that stays done."""

    seen: int = 0
    """The signal that came, or 0."""
    inside = False
    """A command runs: what it calls is a part of it."""
    starting = False
    leaving = False
    """The last line is being written, or the command has ended: a signal comes too late."""
    charged: str = ""


def note_charge(text: str) -> None:
    """Remember what is charged for good; the last line says it if the command is stopped."""
    _Process.charged = text


def unread() -> Interrupted:
    """Return what ends a command whose standard output nobody reads any more, as a shell expects (141).

    It ends in silence, but for a charge that was made: that one is named.
    """
    _Process.seen = _SIGPIPE
    return Interrupted()


def _is_closed(end: SystemExit) -> bool:
    """Say whether nobody reads standard output: Click or Rich met that, or what is left to write does."""
    if isinstance(end.__context__, BrokenPipeError):  # they end the process themselves, with 1
        return True
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return True
    except (OSError, ValueError, AttributeError):
        pass  # full, closed or none
    return False


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
    """Say whether ``_lost`` is running: a signal that it sent may come while it looks at the next."""
    while frame is not None and frame.f_code is not _lost.__code__:
        frame = frame.f_back
    return frame is not None


def _lost(usual: Callable[[Any], Any], found: Any) -> None:
    """Send a signal again whose exception was dropped, by a destructor or a callback of some library."""
    if found.exc_type is not None and issubclass(found.exc_type, Interrupted | KeyboardInterrupt):
        send_again([_Process.seen or signal.SIGINT])
    else:
        usual(found)


def _end() -> None:
    """Say the last line and leave, past whatever is still running."""
    _Process.leaving = True
    for signum in _WORDS:
        signal.signal(signum, signal.SIG_IGN)
    closed = _Process.seen == _SIGPIPE
    word = "standard output was closed" if closed else _WORDS[signal.Signals(_Process.seen)]
    charged = _Process.charged or "nothing was charged"
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(Exception):
        if _Process.charged or not closed:
            sys.stderr.write(f"{word}; {shown(charged)}\n")
        sys.stderr.flush()
    with suppress(BaseException):
        atexit._run_exitfuncs()  # noqa: SLF001 - what `os._exit` leaves out
    os._exit(128 + _Process.seen)


def begun() -> None:
    """Say that everything is imported and a command runs: from now on it has to tidy up."""
    _Process.starting = False


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end the process cleanly while the block runs."""
    usual = sys.unraisablehook
    if _Process.inside:
        yield
        return
    _Process.inside = _Process.starting = True
    _Process.charged = ""  # what an earlier command of this process charged is not this one's
    try:
        with suppress(ValueError):  # not the main thread: whoever owns it handles signals
            for signum in _WORDS:
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    signal.signal(signum, _stop)
            sys.unraisablehook = partial(_lost, usual)
        yield
    except (Interrupted, KeyboardInterrupt):
        _Process.seen = _Process.seen or signal.SIGINT
    except SystemExit as end:
        if _is_closed(end):
            _Process.seen = _SIGPIPE
        raise
    finally:
        _Process.starting = _Process.inside = False
        sys.unraisablehook = usual
        if _Process.seen:  # also when somebody dropped the exception and the command went on
            _Process.leaving = True
            _end()


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
    except (Interrupted, KeyboardInterrupt):  # in the moment between ``stoppable`` and the loop
        _Process.leaving = True
        _Process.seen = _Process.seen or signal.SIGINT
        _end()
