"""Process items by several threads.

Begun in order; the first failure is raised. Where some items fail, the failure of the *first item* is
raised: all items before it were begun before it and run to their end, so it is the one that a single
thread meets first, whichever thread was quicker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Call = Callable[[Callable[..., None], tuple[Any, ...]], None]


class _Here(threading.local):
    """Let a worker call functions in the thread that waits for it."""

    call: Call | None = None


_here = _Here()


def in_caller(function: Callable[..., None], *args: Any) -> None:
    """Call a function in the waiting thread, or here if none waits."""
    if _here.call is None:
        function(*args)
    else:
        _here.call(function, args)


class _Turns:
    """Begin items in order, none behind a failure."""

    def __init__(self, count: int) -> None:
        self._lock, self._next, self._count, self._ended = threading.Lock(), 0, count, False
        self.failed: dict[int, BaseException] = {}

    def take(self) -> int | None:
        """Return the next item's number, or None."""
        with self._lock:
            if self._ended or self.failed or self._next == self._count:
                return None
            self._next += 1
            return self._next - 1

    def fail(self, at: int, error: BaseException) -> None:
        """Keep what an item failed with."""
        with self._lock:
            self.failed[at] = error

    def goes_on(self, at: int) -> bool:
        """Return whether an item's result still matters."""
        with self._lock:
            return not self._ended and (not self.failed or at < min(self.failed))

    def end(self) -> None:
        """Let no item be begun, or gone on with."""
        with self._lock:
            self._ended = True


def map_in_order(
    function: Callable[[Any, Callable[[], bool]], T], items: Sequence[Any], workers: int
) -> list[T]:
    """Return the function's results, in order, or the first item's failure.

    The function is also given what says whether it should go on. What it calls by ``in_caller`` is
    called in this thread, which does nothing else meanwhile.
    """
    turns = _Turns(len(items))
    found: dict[int, T] = {}
    calls: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = SimpleQueue()

    def run() -> None:
        _here.call = lambda call, args: calls.put((call, args))
        try:
            while (at := turns.take()) is not None:
                try:
                    found[at] = function(items[at], partial(turns.goes_on, at))
                except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
                    turns.fail(at, error.with_traceback(None))  # its frames hold a block
        finally:
            calls.put(None)

    threads = [
        threading.Thread(target=run, name="part", daemon=True)
        for _ in range(min(workers, len(items)))
    ]
    try:
        waiting = start_some(threads)
        while waiting:
            call = calls.get()
            if call is None:
                waiting -= 1
            else:
                call[0](*call[1])
    finally:
        turns.end()
        join_all(threads)
    if turns.failed:
        raise turns.failed[min(turns.failed)]
    return [found[at] for at in range(len(items))]


def start_some(threads: Sequence[threading.Thread]) -> int:
    """Start as many threads as possible, returning their number."""
    for at, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError:  # no more threads for this process
            if not at:
                raise
            return at
    return len(threads)


def join_all(threads: Sequence[threading.Thread]) -> None:
    """Wait for the running threads, perhaps not all started."""
    for thread in threads:
        if thread.ident is not None:
            thread.join()
