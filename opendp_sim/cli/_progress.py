"""Show a long command's stage and elapsed time on standard error.

On a terminal it is one line, rewritten until the work ends; elsewhere a line every ten seconds. Only the
stage and the time are shown: how many records were read is a secret, and so is, where data is refused,
after how many of them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from opendp_sim.cli.output.quiet import hushed
from opendp_sim.core.system.escape_text import escape

EVERY = 10.0
"""Seconds between two lines where standard error is no terminal."""
_FIRST, _REDRAW = 0.5, 0.25
"""Seconds before a terminal shows anything, and between two drawings."""
_WIDTH = 60


class _Ticker(threading.Thread):
    """Write stages to the stream of its start, which audits replace meanwhile."""

    def __init__(self, stage: str) -> None:
        super().__init__(daemon=True, name="progress")
        self.stage = stage
        self._stream: Any = sys.stderr
        self._begun, self._ended = time.monotonic(), threading.Event()
        self._drawing = threading.Lock()

    def run(self) -> None:
        """Write at every tick; a stream that takes nothing is left alone."""
        terminal = self._stream.isatty()
        pause, wait = (_FIRST, _REDRAW) if terminal else (EVERY, EVERY)
        while not self._ended.wait(pause):
            line = escape(f"{self.stage}, {time.monotonic() - self._begun:.0f} s")
            with self._drawing, suppress(OSError, ValueError):
                if self._ended.is_set():
                    return
                self._stream.write(f"\r{line:<{_WIDTH}.{_WIDTH}}" if terminal else f"{line}\n")
                self._stream.flush()
            pause = wait

    def enter(self, stage: str) -> None:
        """Begin a stage, which the next tick writes."""
        self.stage = stage

    def stop(self) -> None:
        """End it, and leave a terminal's line empty."""
        self._ended.set()
        with self._drawing, suppress(OSError, ValueError):
            if self._stream.isatty() and time.monotonic() - self._begun >= _FIRST:
                self._stream.write(f"\r{'':<{_WIDTH}}\r")
                self._stream.flush()


@contextmanager
def progress(stage: str) -> Iterator[Callable[[str, int], None]]:
    """Show a stage ("planning"), and yield a function that changes it.

    Its second argument is a number of records, which is not shown.
    """
    if hushed() or sys.stderr is None:
        yield lambda _stage, _rows: None
        return
    ticker = _Ticker(stage)

    ticker.start()
    try:
        yield lambda stage, _rows: ticker.enter(stage)
    finally:
        ticker.stop()
