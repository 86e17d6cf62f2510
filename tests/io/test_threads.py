"""Threads side by side: what is told of a failure, who is called back, and what is left of them."""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from opendp_sim.core.errors import DataError
from opendp_sim.core.guard import guarded
from opendp_sim.io.fold import One, Threads, one_blas_thread

Blocks = list[list[np.ndarray]]


class Parts:
    """A dataset in parts; some of them fail at their end, some are slow."""

    def __init__(
        self, parts: Blocks, fails: Any = (), slow: Any = (), *, whole: bool = False
    ) -> None:
        self.all, self.fails, self.slow, self.whole = parts, fails, slow, whole
        self.begun: list[int] = []
        self.ended: list[int] = []

    def opened(self, at: int) -> Iterator[np.ndarray]:
        self.begun.append(at)
        for block in self.all[at]:
            if at in self.slow:
                time.sleep(0.002)
            yield block
        self.ended.append(at)
        if at in self.fails:
            raise DataError("OS601", f"part {at}", expected="a", got="b", hint="c")

    def __call__(self) -> Iterator[np.ndarray]:
        for at in range(len(self.all)):
            yield from self.opened(at)

    def parts(self, workers: int) -> Any:
        if self.whole:
            return None
        return [lambda at=at: self.opened(at) for at in range(len(self.all))]


def crew(blocks: Any, workers: int, on_block: Any = lambda _: None) -> Any:
    more = {
        "ready": lambda: lambda block: block,
        "on_block": on_block,
        "guard": lambda function: guarded(function, "t"),
    }
    return One(blocks, **more) if workers == 1 else Threads(blocks, workers, **more)


def add(state: np.ndarray, block: np.ndarray) -> None:
    state += block.sum()


def made(count: int, blocks: int = 3) -> Blocks:
    return [[np.full(4, 10**at + b) for b in range(blocks)] for at in range(count)]


def total(one: Any) -> int:
    return int(sum(one.gather(lambda: np.zeros(1, dtype=np.int64), add))[0])


@given(
    count=st.integers(0, 6),
    fails=st.sets(st.integers(0, 5), max_size=3),
    slow=st.sets(st.integers(0, 5), max_size=3),
    workers=st.integers(1, 4),
    whole=st.booleans(),
)
def test_one_threads_sum_or_its_failure(
    count: int, fails: set[int], slow: set[int], workers: int, whole: bool
) -> None:
    """The first part to fail is told, whichever is quicker; no part before it is left in the middle."""
    parts = Parts(made(count), fails, slow, whole=whole)
    bad = min((at for at in fails if at < count), default=None)
    if bad is None:
        assert total(crew(parts, workers)) == sum(b.sum() for part in made(count) for b in part)
        return
    with pytest.raises(DataError, match=f"part {bad}"):
        total(crew(parts, workers))
    assert set(range(bad + 1)) <= set(parts.ended)
    assert sorted(parts.begun) == list(range(len(parts.begun)))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_mechanism_that_fails_before_the_reader_does_is_told(workers: int, whole: bool) -> None:
    """As on one thread: block 1 of part 0 fails in the mechanism, and the reader at the end of part 0."""
    parts = Parts(made(3), fails=(0,), slow=(), whole=whole)

    def fails(_state: Any, block: np.ndarray) -> None:
        time.sleep(0.01)
        if block[0] == 2:
            raise ValueError("alice@secret.example")

    with pytest.raises(Exception, match="OS902") as caught:
        crew(parts, workers).gather(list, fails)
    assert "alice" not in str(caught.value)


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_told_of_blocks_is_told_in_the_calling_thread(whole: bool) -> None:
    seen: list[tuple[int, int]] = []
    parts = Parts(made(5), whole=whole)
    total(crew(parts, 3, lambda rows: seen.append((rows, threading.get_ident()))))
    assert seen == [(4, threading.get_ident())] * 15


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_a_callback_that_raises_ends_all_threads(kind: Any, whole: bool) -> None:
    before, parts = threading.active_count(), Parts(made(8, 50), slow=range(8), whole=whole)

    def raises(_rows: int) -> None:
        raise kind

    with pytest.raises(kind):
        total(crew(parts, 2, raises))
    assert threading.active_count() == before
    assert len(parts.ended) < 8


def test_an_interrupt_ends_all_threads() -> None:
    """Python raises it in the main thread, which waits."""
    before, parts = threading.active_count(), Parts(made(40, 50), slow=range(40))
    timer = threading.Timer(0.05, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        total(crew(parts, 2))
    timer.join()
    assert threading.active_count() == before
    assert len(parts.ended) < 40


def test_items_keep_their_order_and_the_first_failure_is_told() -> None:
    def slow_first(item: int) -> int:
        time.sleep(0.01 if item == 0 else 0)
        if item in (3, 4):
            raise DataError("OS601", f"item {item}", expected="a", got="b", hint="c")
        return item * item

    assert crew(Parts([]), 3).each(slow_first, [0, 1, 2]) == [0, 1, 4]
    for workers in (1, 2, 5):
        with pytest.raises(DataError, match="item 3"):
            crew(Parts([]), workers).each(slow_first, [0, 1, 3, 4])


def test_a_thread_without_work_makes_no_state() -> None:
    held = crew(Parts(made(1)), 4).gather(lambda: np.zeros(1, dtype=np.int64), add)
    assert len(held) == 1


# --- threads that cannot all be started -----------------------------------------------------------


def left() -> list[str]:
    time.sleep(0.05)
    return [one.name for one in threading.enumerate() if one.name in ("sketch", "part")]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_what_threads_the_system_allows_do_the_work(
    allowed: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on processes: those that were started go on; without any it is an error. None is left."""
    real, begun = threading.Thread.start, list[int]()

    def start(self: threading.Thread) -> None:
        if len(begun) >= allowed:
            raise RuntimeError("can't start new thread")
        begun.append(1)
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    one = crew(Parts(made(6), whole=whole), 4)
    if allowed:
        assert total(one) == total(crew(Parts(made(6)), 1))
    else:
        with pytest.raises(RuntimeError, match="new thread"):
            total(one)
    assert not left()


@pytest.mark.parametrize("whole", [True, False])
def test_an_interrupt_while_threads_are_started_leaves_none(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun = threading.Thread.start, list[int]()

    def start(self: threading.Thread) -> None:
        real(self)
        begun.append(1)
        if len(begun) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        total(crew(Parts(made(6), whole=whole), 4))
    assert not left()


def test_one_blas_thread_ends_with_the_last_who_asked() -> None:
    """Begun a, begun b, ended a, ended b: nested limits of two threads kept one thread for good."""
    from threadpoolctl import threadpool_info, threadpool_limits

    def now() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with threadpool_limits(limits=2, user_api="blas"):
        before = now()
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert now() <= {1}
        first.__exit__(None, None, None)
        assert now() <= {1}
        second.__exit__(None, None, None)
        assert now() == before
