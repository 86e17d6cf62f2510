"""Fold a source into a sketch, block by block, on one thread or on several: the same bits."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable, Stage
from opendp_sim.core.errors import InternalError
from opendp_sim.core.guard import guarded
from opendp_sim.core.pipeline import resolve
from opendp_sim.sources.blocks import narrowed
from opendp_sim.spaces.records import Records
from opendp_sim.spaces.rows import Rows, length

__all__ = ["Blocks", "build_sketch", "collect_rows", "cores"]

Blocks = Callable[[], Iterable[Any]]
"""Opens the dataset afresh: an iterable of blocks (``gated_blocks`` makes one of a source)."""
_STATE = 2**24
"""Cells of a sketch above which one worker is the default: every further one holds as many again."""
Add = Callable[[Any, NDArray[np.int64]], None]


def build_sketch(
    stages: Sequence[Stage],
    source_blocks: Blocks,
    *,
    workers: int | None = None,
    on_block: Callable[[int], None] | None = None,
) -> NDArray[np.int64]:
    """Send every block through the row maps and add up the features of the last stage.

    Sums of integers do not depend on their order, so any number of workers gives the same bits. With
    several, one thread reads and ``workers`` threads each own a block and a state of their own; at
    most ``workers + 2`` blocks exist at any time. Blocks are cut where a row map makes rows wide.

    Args:
        stages: row maps and, last, a sketch.
        source_blocks: opens the dataset afresh; a map that surveys the data opens it once more.
        workers: threads that compute; default one a core, at most eight. Each has a state of its own,
            so that memory grows by one sketch a worker.
        on_block: told the number of records of each block handed on, for a progress bar.

    Returns:
        The flat int64 sketch.

    Raises:
        InternalError (OS902): a mechanism failed; its text is withheld. (OS903): the last stage is no
            sketch.
    """
    claim = stages[-1].claim if stages else None
    if not isinstance(claim, Stable) or claim.accumulate is None:
        raise InternalError(
            "OS903", "sources.fold", expected="a sketch as the last stage", got="another claim",
            hint="report this as a bug: the plan should have refused it.",
        )  # fmt: skip
    accumulate, size = claim.accumulate, claim.output.size  # type: ignore[attr-defined]
    key, source_blocks = stages[-1].mechanism.key, narrowed(source_blocks, stages)
    through = guarded(lambda _: resolve(stages, source_blocks), key)(None)

    def add(block: Any, out: NDArray[np.int64]) -> None:
        guarded(lambda data: accumulate(through(data), out), key)(block)

    if workers is None:
        workers = cores() if size <= _STATE else 1
    if workers == 1:
        total = np.zeros(size, dtype=np.int64)
        with _one_blas_thread():
            for block in _told(source_blocks(), on_block):
                add(block, total)
        return total
    crew = _Crew(add, size, workers)
    with _one_blas_thread():
        crew.feed(_told(source_blocks(), on_block))
    total = crew.states[0]
    for state in crew.states[1:]:
        total += state
    return total


def collect_rows(stages: Sequence[Stage], source_blocks: Blocks) -> Rows:
    """Return all rows behind the row maps, in memory: for mechanisms that need the whole dataset."""
    key = stages[-1].mechanism.key if stages else "records"
    source_blocks = narrowed(source_blocks, stages)
    through = guarded(lambda _: resolve(stages, source_blocks), key)(None)
    parts = [guarded(through, key)(block) for block in source_blocks()]
    claim = stages[-1].claim if stages else None
    if not parts and isinstance(claim, Stable):
        first = stages[0].domain
        if not isinstance(first, Records):
            return _no_rows(claim.output)
        parts = [guarded(through, key)(first.no_records())]
    labels, ids = (
        None
        if getattr(parts[0], name) is None
        else np.concatenate([getattr(part, name) for part in parts])
        for name in ("labels", "ids")
    )
    values = [part.values for part in parts]
    parts.clear()
    return Rows(_joined(values), labels, ids)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Join rows, and let go of each part once it is copied: all of them are never held twice."""
    if len(parts) == 1:
        return parts[0]
    kind = np.result_type(*parts)
    out: NDArray[Any] = np.empty((sum(map(len, parts)), *parts[0].shape[1:]), dtype=kind)
    parts.reverse()
    start = 0
    while parts:
        part = parts.pop()
        out[start : start + len(part)] = part
        start += len(part)
    return out


def _no_rows(domain: Any) -> Rows:
    labels = None if domain.labels is None else np.zeros(0, dtype=np.int64)
    return Rows(
        np.zeros((0, domain.width)), labels, np.zeros(0, dtype=np.int64) if domain.ids else None
    )


def _told(blocks: Iterable[Any], on_block: Callable[[int], None] | None) -> Iterator[Any]:
    for block in blocks:
        yield block
        if on_block is not None:
            on_block(length(block))


class _Crew:
    """Threads that each take blocks from one narrow queue and add them to a state of their own."""

    def __init__(self, add: Add, size: int, workers: int) -> None:
        self.work: SimpleQueue[Any] = SimpleQueue()
        self.room = threading.Semaphore(1)  # one block waits; one is read; one a worker is in work
        self.failed: list[BaseException] = []
        self.states = [np.zeros(size, dtype=np.int64) for _ in range(workers)]
        self.threads = [
            threading.Thread(target=self._run, args=(add, state), name="sketch", daemon=True)
            for state in self.states
        ]

    def _run(self, add: Add, state: NDArray[np.int64]) -> None:
        while (block := self.work.get()) is not None:
            self.room.release()
            try:
                if not self.failed:
                    add(block, state)
            except BaseException as error:  # noqa: BLE001 - raised again by the reading thread
                self.failed.append(error)
            del block

    def feed(self, blocks: Iterable[Any]) -> None:
        """Hand out every block, and return when all are done; raise what a worker raised."""
        for thread in self.threads:
            thread.start()
        try:
            for block in blocks:
                self.room.acquire()
                if self.failed:
                    break
                self.work.put(block)
        finally:
            for _ in self.threads:
                self.work.put(None)
            for thread in self.threads:
                thread.join()
        if self.failed:
            raise self.failed[0]


def cores() -> int:
    """Return how many threads build a sketch by default: the cores of this process, at most eight."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, min(8, len(affinity(0)) if affinity is not None else os.cpu_count() or 1))


def _one_blas_thread() -> AbstractContextManager[Any]:
    """Give every worker one BLAS thread: several would spin on each other."""
    limits: AbstractContextManager[Any] = _libraries(len(sys.modules)).limit(
        limits=1, user_api="blas"
    )
    return limits


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Return what is loaded; it takes milliseconds to find, and is looked for again after an import."""
    del modules
    from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - it looks at what numpy loaded

    return ThreadpoolController()
