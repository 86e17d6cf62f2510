"""Start the console script, and handle signals during its imports.

``opendp_sim.cli`` imports Typer first, which takes a moment; its own handlers
(``opendp_sim/cli/_stop.py``) replace these ones.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from opendp_sim._watched import watched

__all__ = ["SIGNALS", "main"]

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""What ends a command: Ctrl-C, a polite kill, and a terminal that is closed."""


def _end(signum: int, frame: FrameType | None) -> None:
    """Exit without unwinding the imports."""
    del frame
    word = {signal.SIGINT: b"interrupted", signal.SIGTERM: b"terminated"}.get(
        signal.Signals(signum), b"hung up"
    )
    os.write(2, word + b"; nothing was charged\n")
    os._exit(128 + signum)


def _open_streams() -> None:
    """Open the standard descriptors that are closed, on the null device."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def main() -> None:
    """Run the command line."""
    _open_streams()
    for signum in SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _end)
    if next((word for word in sys.argv[1:] if not word.startswith("-")), "") == "audit":
        watched(_command, SIGNALS)
    else:
        _command()


def _command() -> None:
    from opendp_sim.cli import main as command  # noqa: PLC0415 - after the handlers
    from opendp_sim.cli._stop import to_the_end  # noqa: PLC0415

    to_the_end(command)
