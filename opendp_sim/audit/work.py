"""Measure CPU seconds, the unit of an audit's budgets.

Of this process. How much is found in so many seconds depends on the processor. So a test that
something is found lets the clock go more slowly (``clocked``), and a run of all tests with a clock
that goes twice as fast shows what a processor of half the speed would find.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_SPEED = [1.0]


def cpu_seconds() -> float:
    """Return CPU seconds, counted from any moment; only differences say something."""
    return _SPEED[0] * time.process_time()


@contextmanager
def clocked(speed: float) -> Iterator[None]:
    """Scale the clock's speed inside, so that budgets last otherwise."""
    before = _SPEED[0]
    _SPEED[0] = before * speed
    try:
        yield
    finally:
        _SPEED[0] = before
