"""Read typed input without losing a signal while waiting.

Python runs a signal's handler between two bytecodes. A signal that comes after the last look for one
and before the system call that waits would be seen when the next line is typed, which may be never:
Ctrl-C did nothing then (in about 1 of 300 sessions that were stopped within a millisecond of an answer).
So the wait is for two things: for input, and for a pipe into which the signal itself writes
(``signal.set_wakeup_fd``).
"""

from __future__ import annotations

import io
import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

_UTF8 = "utf-8-sig"


class TypedInput(io.RawIOBase):
    """Reads a descriptor, and runs signals' handlers while it waits."""

    def __init__(self, source: int, wake: int) -> None:
        """Read ``source``; bytes in ``wake`` end the wait for a moment."""
        self._source, self._wake = source, wake
        self.poll = select.poll()
        for handle in (source, wake):
            self.poll.register(handle, select.POLLIN)

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Read what there is, at least one byte but at the end."""
        while {handle for handle, _ in self.poll.poll()} == {self._wake}:
            os.read(self._wake, 4096)
        return os.readv(self._source, [buffer])


@contextmanager
def typed_text(stream: IO[str]) -> Iterator[IO[str]]:
    """Yield a stream as UTF-8, whatever the terminal's code page is.

    A byte order mark is passed over, and bytes that are no text become lone surrogates. Streams that are
    no files, other threads and systems without ``poll`` are not waited for in this way.
    """
    if not isinstance(stream, io.TextIOWrapper):
        yield stream
        return
    stream.reconfigure(encoding=_UTF8, errors="surrogateescape")
    source = None
    with suppress(OSError):  # no file
        source = stream.fileno()
    main = threading.current_thread() is threading.main_thread()
    if source is None or not main or not hasattr(select, "poll"):
        yield stream
        return
    wake, written = os.pipe()
    os.set_blocking(written, False)
    usual = signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    try:
        raw = io.BufferedReader(TypedInput(source, wake))
        yield io.TextIOWrapper(raw, encoding=_UTF8, errors="surrogateescape")
    finally:
        signal.set_wakeup_fd(usual)
        os.close(wake)
        os.close(written)
