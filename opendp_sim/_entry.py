"""The console script's first lines: who stops the command while it is imported gets the usual answer.

``opendp_sim.cli`` imports Typer first, which takes a moment; its own handlers
(``opendp_sim/cli/_stop.py``) replace these ones.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["main"]


def _end(signum: int, frame: FrameType | None) -> None:
    """Nothing was opened yet: say so, and leave past whatever is being imported."""
    del frame
    word = b"interrupted" if signum == signal.SIGINT else b"terminated"
    os.write(2, word + b"; nothing was charged\n")
    os._exit(128 + signum)


def main() -> None:
    """Run the command line."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, _end)
    from opendp_sim.cli import main as command  # noqa: PLC0415 - after the handlers
    from opendp_sim.cli._stop import to_the_end  # noqa: PLC0415

    to_the_end(command)
