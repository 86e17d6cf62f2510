"""Delay signals until native code returns.

Nothing is raised into OpenDP. Python runs a signal's handler between two bytecodes of the main thread.
While OpenDP calls back into Python those bytecodes stand between native frames, and an exception
cannot cross them: ctypes drops it, hands back rubbish, and memory is freed twice. So around a native
call every handler written in Python is replaced by one that remembers the signal, and the real one
runs when the call has returned.

Our own callbacks listen meanwhile (``shielded``): there the real handler runs at once, what it raises
is caught, the callback fails, and the exception goes on from outside the native call. So an interrupt
does not wait for a long sketch. See ``interrupts.md``.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it in enumerations: ten times as slow
import _thread
import atexit
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from types import FrameType
from typing import Any, TypeVar

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGBREAK")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_RETRY = 0.005
"""Seconds until a signal that arrived while memory was freed is sent again."""

_kept: dict[int, Callable[[int, FrameType | None], Any]] = {}
"""The real handlers; only the main thread reads and writes them."""


class _State(threading.local):
    """Track this thread's depth of native calls and its innermost frame."""

    depth = 0
    listening = False
    raised: BaseException | None = None
    """What a handler raised inside a callback: it goes on when the outermost call has returned."""

    def __init__(self) -> None:
        self.waiting: list[int] = []


_here = _State()


class Stopped(Exception):  # noqa: N818 - never seen: the exception that stopped it goes on instead
    """A callback was ended by a signal's handler."""


def _remember(signum: int, frame: FrameType | None) -> None:
    """The handler while native code runs."""
    if _here.depth and not _here.listening:
        if signum not in _here.waiting:
            _here.waiting.append(signum)
    else:
        _handle(signum, frame)


def _handle(signum: int, frame: FrameType | None) -> None:
    """Run the real handler."""
    listening, _here.listening = _here.listening, False
    try:
        _kept[signum](signum, frame)
    except BaseException as error:
        if _here.depth:
            _here.raised = error
        raise
    _here.listening = listening


@atexit.register
def _ending() -> None:
    """While the interpreter ends, Ctrl-C ends the process at once, outside Python.

    Modules and OpenDP's objects are taken apart then, in any order: a handler that raised there would
    stand between native frames, and nobody is left to catch what it raised. Handlers that somebody
    wrote are left alone.
    """
    usual = (signal.default_int_handler, _remember)
    with suppress(ValueError):  # another interpreter's thread: no handler runs here
        if _signal.getsignal(signal.SIGINT) in usual:
            _signal.signal(signal.SIGINT, _signal.SIG_DFL)


def _enter() -> bool:
    """Begin a native call; return what ``_leave`` needs to know.

    Python runs handlers after calls only, so there is none between a change of ``depth`` and the ``try``
    or the end that belongs to it: a handler that raises while they are replaced leaves all as it was. A
    depth that stayed above zero would switch the protection off for good.
    """
    listening, _here.listening = _here.listening, False
    _here.depth += 1
    if _here.depth > 1:
        return listening
    try:
        if threading.get_ident() == threading.main_thread().ident:
            _replace()
    except BaseException:
        _here.depth = 0
        _restore(list(_kept))
        raise
    return listening


def _replace() -> None:
    for signum in _SIGNALS:
        handler = _signal.getsignal(signum)
        if callable(handler) and handler is not _remember:
            _kept[signum] = handler
            try:
                _signal.signal(signum, _remember)
            except ValueError:  # another interpreter: no handler runs here
                return


def _restore(signals: list[int]) -> None:
    """Restore each real handler, whatever the others raise."""
    try:
        if signals and _signal.getsignal(signals[0]) is _remember:
            _signal.signal(signals[0], _kept[signals[0]])
    finally:
        if len(signals) > 1:
            _restore(signals[1:])


def _leave(listening: bool, *, deliver: bool = True) -> None:
    """End a native call and deliver delayed signals."""
    if _here.depth > 1:
        _here.depth -= 1
        _here.listening = listening
        if listening and deliver:
            _deliver()
        return
    try:
        if threading.get_ident() == threading.main_thread().ident:
            _restore(list(_kept))
        _here.depth = 0
    except BaseException:  # a handler that is back raised; what is held does not wait for it
        _here.depth = 0
        _send_waiting()
        raise
    if deliver:
        _deliver()
    elif _here.waiting:
        _send_waiting()


def _send_waiting() -> None:
    signals, _here.waiting = _here.waiting, []
    send_again(signals)


def _deliver() -> None:
    if _here.raised is not None:
        error, _here.raised = _here.raised, None
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None)  # its frames hold data
    signals, _here.waiting = _here.waiting, []
    try:
        while signals:
            _handle(signals.pop(0), sys._getframe())  # noqa: SLF001 - as Python hands it
    finally:
        if signals:
            send_again(signals)


_destructors: set[Any] = set()
"""Functions that Python calls as destructors: it drops what they raise."""


def catch_dropped() -> None:
    """Catch interrupts in a destructor's first and last bytecodes.

    Python would drop them. There its handler is not replaced yet, or is back already. Python hands
    what it drops to ``sys.unraisablehook``, which is the only place where it can be had again.
    """
    usual, ours = sys.unraisablehook, _destructors

    def hook(found: Any) -> None:
        error = found.exc_value
        if found.object not in ours or isinstance(error, Exception) or error is None:
            usual(found)
        elif isinstance(error, KeyboardInterrupt):
            send_again([signal.SIGINT])
        else:
            _here.raised = error.with_traceback(None)

    sys.unraisablehook = hook


def send_again(signals: list[int]) -> None:
    """Send signals to the main thread, from another one, a moment later.

    For a signal that arrived where what its handler raises is dropped: in a destructor.
    """
    main = threading.main_thread().ident or 0

    def send() -> None:
        time.sleep(_RETRY)
        for signum in signals:
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(main, signum)
            else:
                _thread.interrupt_main(signal.Signals(signum))

    with suppress(RuntimeError):  # the interpreter is ending
        _thread.start_new_thread(send, ())


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Delay signals so that a block runs whole or not at all.

    Signals whose handler is written in Python wait until the block ends; the others (a SIGTERM that
    nobody handles, SIGKILL) end the process at once, as they always do. Any thread may use it; handlers
    run in the main thread only, so in others there is nothing to hold.
    """
    listening = _enter()
    try:
        yield
    finally:
        _leave(listening)


def signal_waits() -> bool:
    """Return whether a signal is pending until ``signals_blocked`` ends."""
    return bool(_here.waiting)


F = TypeVar("F", bound=Callable[..., Any])


def holding(function: F, *, deliver: bool = True) -> F:
    """Return ``function``, with signals held while it runs.

    A destructor takes ``deliver=False``: Python drops what a destructor raises, so a signal that arrived
    there is sent again a moment later (``catch_dropped`` is for the bytecodes around it).
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        listening = _enter()
        try:
            return function(*args, **kwargs)
        finally:
            _leave(listening, deliver=deliver)

    if deliver:
        return run  # type: ignore[return-value]
    ending = sys.is_finalizing

    @wraps(function)
    def free(*args: Any, **kwargs: Any) -> Any:
        # This module may be gone already, and with the process goes what was not freed.
        return None if ending() else run(*args, **kwargs)

    _destructors.add(free)
    return free  # type: ignore[return-value]


def shielded(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an interruptible callback that raises only ``Exception``.

    Nothing else may enter native code. Called by our own Python, with no native call below, it is the
    function.
    """

    def run(data: Any) -> Any:
        if not _here.depth:
            return function(data)
        try:
            try:
                _here.listening = True
                return function(data)
            finally:
                _here.listening = False
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again by the outermost call
            _here.raised = error
        del data
        raise Stopped

    return run
