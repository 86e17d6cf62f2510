"""What audited code prints: it is called thousands of times, and some lines of it are enough."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

__all__ = ["Capped", "capped"]

_MOST = 20
"""Lines that are passed on."""


class Capped(io.TextIOBase):
    """A standard output that passes some lines on, and leaves the rest out."""

    def __init__(self, stream: Any, most: int = _MOST) -> None:
        super().__init__()
        self._stream, self._left = stream, most

    def write(self, text: str) -> int:
        """Pass the text on while there are lines left; say once that there are none."""
        if self._left > 0:
            lines = text.split("\n")
            kept = lines[: self._left]
            self._left -= len(lines) - 1
            rest = ["(audit: what else the code prints is left out)", ""] if self._left <= 0 else []
            self._stream.write("\n".join([*kept, *rest]))
        return len(text)

    def flush(self) -> None:
        """Flush what was passed on."""
        self._stream.flush()

    def writable(self) -> bool:
        """It takes whatever is printed."""
        return True


@contextmanager
def capped() -> Iterator[None]:
    """Leave out all but some lines of what is printed; a stream that counts lines gets them all."""
    if isinstance(getattr(sys.stdout, "lines", None), int) or isinstance(sys.stdout, Capped):
        yield
        return
    with redirect_stdout(Capped(sys.stdout)):
        yield
