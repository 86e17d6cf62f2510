"""Count work in nominal seconds, the unit of an audit's budgets.

Work is runs of the audited function. What a run costs is metered and not timed: the lines of Python that
it executes, on a few runs of each size of dataset. So load decides no verdict; noise without a seed may.
Polars runs a plan in C, which counts as many lines. Another slow call into C has one: there the last
guard ends the audit, at many times its budget in CPU seconds, and the report says so.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opendp_sim.core.bridge import prepared

_RUN, _LINE, _RECORD, _LOOK = 1e-5, 1e-7, 1e-7, 5e-6
"""Nominal seconds of a run, of a line that it executes, of a record, and of a look at the work done."""
_CALL, _CELL = 1.2e-4, 1.5e-6
"""Nominal seconds of a call of OpenDP's and of a record that it converts."""
_UNCOUNTED = 5e-5
"""Nominal seconds of a run whose lines are not metered yet."""
_COUNTED = frozenset({2, 40})
"""Runs of one size whose lines are metered; the first one may load what later ones do not."""
_MOST_LINES = 1_000_000
_IN_C = {"LazyFrame.collect": 600}
"""Methods that run a plan in C, and how many lines they count as: 15 to 130 us of a small frame."""
_GUARD = 12.0
"""CPU seconds for each nominal second of a budget, after which the budget counts as spent."""
_LOOKS, _OVER = 32, 1e9
"""Looks at the work done for each look at the guard, and nominal seconds that no budget has."""


class _Work:
    """Hold the work done in this process."""

    def __init__(self) -> None:
        self.done, self.scale, self.looks = 0.0, 1.0, 0
        self.guard, self.ended = math.inf, False
        self.inside = False
        self.mode = ""
        """How noise is drawn; runs cost more or less by it."""


_WORK = _Work()


def work_seconds() -> float:
    """Return nominal seconds, metered from any moment; only differences say something."""
    _WORK.done += _LOOK
    _WORK.looks += 1
    if not (_WORK.looks % _LOOKS or _WORK.ended):  # the processor's clock is slow to read
        _WORK.ended = time.process_time() > _WORK.guard
    return _WORK.scale * _WORK.done + _OVER * _WORK.ended


def guarded_out() -> bool:
    """Return whether the last guard has ended the audit that runs."""
    return _WORK.ended


def in_mode(mode: str) -> None:
    """Say how the next runs draw their noise."""
    _WORK.mode = mode


def charge(seconds: float) -> None:
    """Count work that is no run."""
    _WORK.done += seconds


@contextmanager
def clocked(speed: float) -> Iterator[None]:
    """Scale the work inside the context.

    At one half, budgets last for twice the runs.
    """
    before = _WORK.scale
    _WORK.scale = before * speed
    try:
        yield
    finally:
        _WORK.scale = before


@contextmanager
def guard_restored() -> Iterator[None]:
    """Forget the guards of the context at its end."""
    before = _WORK.guard, _WORK.ended
    try:
        yield
    finally:
        _WORK.guard, _WORK.ended = before


def guard(seconds: float) -> None:
    """End all budgets after many times these seconds on the processor."""
    _WORK.guard = min(_WORK.guard, time.process_time() + _GUARD * seconds / min(1.0, _WORK.scale))


def metered(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function with its runs metered as work.

    A metered run inside another one is a part of it.
    """
    met: dict[tuple[str, int], list[float]] = {}

    @functools.wraps(function, updated=())
    def run(data: Any) -> Any:
        if _WORK.inside:
            return function(data)
        bits = _size(data)
        size = met.setdefault((_WORK.mode, bits), [0, 0, 0])
        size[0] += 1
        _WORK.inside = True
        try:
            if size[0] not in _COUNTED:
                return function(data)
            with _counting() as lines:
                try:
                    return function(data)
                finally:
                    size[1], size[2] = size[1] + 1, size[2] + lines[0]
        finally:
            _WORK.inside = False
            _WORK.done += _cost(size[2] / size[1]) if size[1] else _UNCOUNTED
            _WORK.done += _RECORD * (1 << bits >> 1)

    return run


def invoked(measurement: Any) -> Callable[[Any], Any]:
    """Return a measurement's releases, charged as calls.

    What OpenDP converts and frees costs time, and few lines of Python once it is prepared.
    """
    release = prepared(measurement)

    def run(data: Any) -> Any:
        charge(_CALL + _CELL * _length(data))
        return release(data)

    run.raw = measurement  # type: ignore[attr-defined]
    return run


def run_cost(function: Callable[[Any], Any], data: Any) -> float:
    """Return the nominal seconds of one run, whatever it returns or raises."""
    begin = _WORK.done
    with _counting() as lines, contextlib.suppress(Exception):
        function(data)
    _WORK.done += _cost(lines[0])
    return _WORK.done - begin


def _cost(lines: float) -> float:
    return _RUN + _LINE * lines


def _size(data: Any) -> int:
    """Return the bits of a dataset's length, or 0."""
    return _length(getattr(data, "left", data)).bit_length()


def _length(data: Any) -> int:
    try:
        return len(data)
    except Exception:  # noqa: BLE001 - a dataset without a length
        return 0


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Count the lines of Python that the context executes.

    Garbage waits meanwhile: its collection depends on all that the process did before, and would run the
    lines of finalizers and of others' callbacks.
    """
    lines = [0]

    def line(frame: Any, event: str, _: Any) -> Any:
        lines[0] += _IN_C.get(frame.f_code.co_qualname, 1) if event == "call" else 1
        if lines[0] > _MOST_LINES:
            sys.settrace(None)
            return None
        return line

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(line)
    try:
        yield lines
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
