"""Sum a source into a sketch, block by block, with threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable, Stage
from opendp_sim.core.device import Device, DeviceError, device_in_use
from opendp_sim.core.device.device import OnDevice, device_error, warn_of_fault
from opendp_sim.core.errors import InternalError, SimError
from opendp_sim.core.guard import guarded
from opendp_sim.core.memory import freed_blocks_kept
from opendp_sim.core.pipeline import resolve
from opendp_sim.core.system.executor import Workers
from opendp_sim.domains.records import Records
from opendp_sim.domains.rows import Rows, as_rows, length, take
from opendp_sim.io.blocks import narrowed
from opendp_sim.io.ordered_threads import in_caller, join_all, map_in_order, start_some

# --------------------------------------------------------------------------------------------------
# Threads that work through a dataset side by side; what is told of a failure does not depend on them.
#
# Parts of a dataset are begun in their order (``ordered_threads.py``). In a part blocks come in order.

S = TypeVar("S")
T = TypeVar("T")
Opens = Callable[[], Iterable[Any]]
"""Opens a dataset, or a part of it, afresh: an iterable of blocks."""


class Threads:
    """Several threads, each with a state of its own.

    Where the dataset can be cut (``blocks.parts``, told the number of threads, returns what opens parts
    of it, in order), each thread reads, checks and adds up parts of it; else the calling thread reads,
    and at most ``workers + 2`` blocks exist at any time.

    Args:
        blocks: opens the dataset afresh.
        workers: how many threads.
        ready: called before each reading; returns what every block goes through first.
        on_block: told the number of records of each block that is done, in the calling thread.
        guard: wraps what is done with a block, so that nothing of a failure leaves a mechanism.
    """

    def __init__(
        self,
        blocks: Opens,
        workers: int,
        *,
        ready: Callable[[], Callable[[Any], Any]],
        on_block: Callable[[int], None],
        guard: Callable[[Callable[[Any], Any]], Callable[[Any], Any]],
    ) -> None:
        self.size, self._blocks, self._ready = workers, blocks, ready
        self._on_block, self._guard = on_block, guard

    def gather(self, make: Callable[[], S], add: Callable[[S, Any], None]) -> list[S]:
        """Add every block to its thread's state."""
        through = self._ready()

        def adding(state: S) -> Callable[[Any], Any]:
            return self._guard(lambda block: add(state, through(block)))

        cut = getattr(self._blocks, "parts", None)
        parts: Sequence[Opens] | None = None if cut is None else cut(self.size)
        if parts is None:
            states = [make() for _ in range(self.size)]
            _Queue([adding(state) for state in states]).feed(self._told(self._blocks()))
            return states
        held = _WorkerStates(make)

        def work(part: Opens, may_go_on: Callable[[], bool]) -> None:
            state = held.mine()
            done = adding(state)
            for block in part():
                done(block)
                in_caller(self._on_block, length(block))
                del block
                if not may_go_on():
                    return

        map_in_order(work, parts, self.size)
        return held.all or [make()]

    def each(self, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """Return what the function makes of each item, in their order."""
        done = self._guard(function)
        return map_in_order(lambda item, _: done(item), items, self.size)

    def _told(self, blocks: Iterable[Any]) -> Iterator[Any]:
        for block in blocks:
            yield block
            self._on_block(length(block))
            del block


class One:
    """Work in the calling thread alone, as ``Threads`` without any."""

    size = 1

    def __init__(
        self,
        blocks: Opens,
        *,
        ready: Callable[[], Callable[[Any], Any]],
        on_block: Callable[[int], None],
        guard: Callable[[Callable[[Any], Any]], Callable[[Any], Any]],
    ) -> None:
        self._blocks, self._ready, self._on_block, self._guard = blocks, ready, on_block, guard

    def gather(self, make: Callable[[], S], add: Callable[[S, Any], None]) -> list[S]:
        """Add all blocks to one state."""
        through, state = self._ready(), make()
        done = self._guard(lambda block: add(state, through(block)))
        for block in self._blocks():
            done(block)
            self._on_block(length(block))
            del block  # the next one is read without it
        return [state]

    def each(self, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """Go through the items."""
        return [self._guard(function)(item) for item in items]


class _WorkerStates:
    """Hold the states of threads with work."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._own, self.all = make, threading.local(), list[Any]()

    def mine(self) -> Any:
        """Return the calling thread's state."""
        if not hasattr(self._own, "state"):
            self._own.state = self._make()
            self.all.append(self._own.state)
        return self._own.state


# --- one reader -----------------------------------------------------------------------------------


class _Queue:
    """Distribute blocks from the calling thread's narrow queue to threads."""

    def __init__(self, adding: Sequence[Callable[[Any], Any]]) -> None:
        self._work: SimpleQueue[Any] = SimpleQueue()
        self._room = threading.Semaphore(1)  # one block waits; one is read; one a worker is in work
        self._failed: dict[int, BaseException] = {}
        self._first = adding[0]
        self._threads = [
            threading.Thread(target=self._run, args=(add,), name="sketch", daemon=True)
            for add in adding
        ]

    def _run(self, add: Callable[[Any], Any]) -> None:
        while (given := self._work.get()) is not None:
            self._room.release()
            at, block = given
            del given
            try:
                if not self._failed or at < min(self._failed.copy()):
                    add(block)
            except BaseException as error:  # noqa: BLE001 - raised again by the reading thread
                self._failed[at] = error
            del block

    def feed(self, blocks: Iterable[Any]) -> None:
        """Distribute every block, wait for all, and raise the first failure."""
        try:
            for given in enumerate(blocks):
                if given[0] == 1:  # one block alone needs none
                    start_some(self._threads)
                self._room.acquire()
                if self._failed:
                    break
                self._work.put(given)
                del given
        except Exception as error:  # noqa: BLE001 - of the reader, behind all blocks that it gave
            self._failed.setdefault(2**63, error)
        finally:
            for _ in self._threads:
                self._work.put(None)
            if self._threads[0].ident is None:
                self._run(self._first)
            join_all(self._threads)
        if self._failed:
            raise self._failed[min(self._failed)]


# --- the machine ----------------------------------------------------------------------------------


def cores() -> int:
    """Return the cores that this process may use, at most eight."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with suppress(OSError, ValueError, ZeroDivisionError):  # a container's share, in microseconds
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:  # noqa: PTH123
            share, period = file.read().split()
        found = min(found, -(-int(share) // int(period)))
    return max(1, min(8, found))


class _Blas:
    """Limit the process's BLAS to one thread while anybody asks."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._limits: Any = None

    @cached_property
    def _libraries(self) -> Any:
        """The BLAS of numpy, which multiplies records, found once."""
        from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - it looks at what is loaded

        return ThreadpoolController()

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._limits = self._libraries.limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limits.restore_original_limits()

    def forked(self) -> None:
        """Begin anew in a fork, whose parent may have had the lock."""
        self._lock = threading.Lock()


_BLAS = _Blas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_BLAS.forked)


def one_blas_thread() -> AbstractContextManager[None]:
    """Give every worker one BLAS thread, as several spin on each other.

    Several threads may be in it at once: the first sets the limit, the last restores what was before.
    """
    return _BLAS


# --------------------------------------------------------------------------------------------------
# Sums of blocks on a device, with some of their records counted again.
#
# Lemma 3 of ``core/device/device.md``: what is added is the CPU's bits, or nothing of it is used.

_CELLS = 2**24
"""Cells that go through the steps together: 128 MiB of float64. Few large sums cost less than many:
half as many cells took a card 1.2 to 1.4 times as long (`benchmarks/device_speed.py`)."""
_KINDS = frozenset({"f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4"})
"""Numbers that a device holds as they are."""


def end_of_chain(stages: Sequence[Stage]) -> int:
    """Return the first of the last stages that a device runs."""
    first = len(stages)
    while first and isinstance(claim := stages[first - 1].claim, Stable):
        if claim.on_device is None or (first == len(stages) and claim.accumulate is None):
            break
        first -= 1
    return first


@dataclass(repr=False)
class PartOfSum:
    """Hold one worker's sum, and blocks that wait for it."""

    out: NDArray[np.int64]
    here: list[Rows] = field(default_factory=list)
    there: list[OnDevice] = field(default_factory=list)


class DeviceSum:
    """Sum the last steps of a chain on a device.

    Blocks wait on the device until they are many: ``total`` adds the last of them.

    Args:
        device: one that was proved.
        stages: row maps that have ``on_device`` and, last, a sketch that has it.
    """

    def __init__(self, device: Device, stages: Sequence[Stage]) -> None:
        self._device = device
        self._claims: list[Any] = [stage.claim for stage in stages]
        self._maps = resolve(stages, lambda: ())

    def empty(self) -> PartOfSum:
        """Return the sum of no record."""
        return PartOfSum(np.zeros(self._claims[-1].output.size, dtype=np.int64))

    def add(self, part: PartOfSum, block: Any) -> None:
        """Add a block's features, on the CPU without room elsewhere.

        Raises:
            DeviceError (OS904): the device failed, or a record has another feature there.
        """
        rows = as_rows(block)
        if not len(rows) or rows.values.dtype.str[1:] not in _KINDS:
            self._on_cpu(rows, part.out)
            return
        native = rows.values.astype(rows.values.dtype.newbyteorder("="), copy=False)
        if part.there and part.there[0].dtype != native.dtype:
            self._flush(part)
        staged = self._device.staged(native)
        there = self._or_no_room(lambda device: device.put(staged))
        if there is None:
            self._on_cpu(rows, part.out)
            return
        part.here.append(Rows(native, rows.labels))
        part.there.append(there)
        if sum(rows.values.size for rows in part.here) >= _CELLS:
            self._flush(part)

    def total(self, part: PartOfSum) -> NDArray[np.int64]:
        """Return the sum, with all blocks that waited."""
        if part.here:
            self._flush(part)
        return part.out

    def _flush(self, part: PartOfSum) -> None:
        """Add the blocks that wait."""
        here, there, part.here, part.there = part.here, part.there, [], []
        few = _some(here, self._device.random_places(sum(map(len, here))))

        def both(device: Device) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            values = there[0] if len(there) == 1 else device.xp.concatenate(there)
            there.clear()
            found = self._features(device, values, _labels(here))
            return found, self._features(device, device.put(few.values), few.labels)

        made = self._or_no_room(both)
        if made is None:
            for rows in here:
                self._on_cpu(rows, part.out)
            return
        found, again = made
        wanted = self.empty().out
        self._on_cpu(few, wanted)
        if not np.array_equal(again, wanted):
            raise device_error("another sum of some records")
        part.out += found

    def _or_no_room(self, job: Callable[[Device], Any]) -> Any:
        """Return what a device makes, None without room; DeviceError if it failed."""
        try:
            with self._device as device:
                return job(device)
        except MemoryError:
            return None
        except DeviceError:
            raise
        except SimError as error:
            failed = error.code
        except Exception:  # noqa: BLE001 - of the device or of the data: the CPU will tell which
            failed = "a failure"
        raise device_error(failed)

    def _on_cpu(self, rows: Rows, out: NDArray[np.int64]) -> None:
        self._claims[-1].accumulate(self._maps(rows), out)

    def _features(
        self, device: Device, values: OnDevice, labels: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Return the sum of the rows' features, by the device."""
        found = self.empty().out
        for claim in self._claims[:-1]:
            values = claim.on_device(device, values)
        self._claims[-1].on_device(device, values, labels, found)
        return found


def _labels(parts: Sequence[Rows]) -> NDArray[np.int64] | None:
    several = [rows.labels for rows in parts if rows.labels is not None]
    return np.concatenate(several) if several else None


def _some(parts: Sequence[Rows], places: NDArray[np.int64]) -> Rows:
    """Return the records at places of blocks one after another."""
    ends = np.cumsum([len(rows) for rows in parts])
    which = np.searchsorted(ends, places, side="right")
    taken = []
    for at in np.unique(which):
        first = ends[at] - len(parts[at])
        taken.append(take(parts[at], places[which == at] - first))
    values = np.concatenate([rows.values for rows in taken])
    return Rows(values, _labels(taken))


# --------------------------------------------------------------------------------------------------

Blocks = Callable[[], Iterable[Any]]
"""Opens the dataset afresh: an iterable of blocks (``gated_blocks`` makes one of a source)."""
_STATE = 2**24
"""Cells of a sketch above which one worker is the default: every further one holds as many again."""
_FEEDERS = 2
"""Workers that feed a device, by default: while one is on it the other reads. More were slower."""


def build_sketch(
    stages: Sequence[Stage],
    source_blocks: Blocks,
    *,
    workers: int | None = None,
    on_block: Callable[[int], None] | None = None,
) -> NDArray[np.int64]:
    """Add up the features of all blocks.

    Each goes through the row maps.

    Sums of integers do not depend on their order, so any number of workers gives the same bits. Each
    has a state of its own, and a reader where the dataset can be cut; so does what is told of a failure
    (``threads``). Blocks are cut where a row map makes rows wide. With a device in use
    (``core/device``) the last steps that it has run there; where it fails, all blocks are summed
    again on the CPU.

    Args:
        stages: row maps and, last, a sketch.
        source_blocks: opens the dataset afresh; a map that surveys the data opens it once more.
        workers: threads that compute; default one a core, at most eight. Each has a state of its own,
            so that memory grows by one sketch, and by what a reader takes, a worker.
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
    if workers is None and claim.output.size > _STATE:  # type: ignore[attr-defined]
        workers = 1
    device, first = device_in_use(), end_of_chain(stages)
    if device is not None and first < len(stages):
        few = min(cores(), _FEEDERS) if workers is None else workers
        try:
            made, before = DeviceSum(device, stages[first:]), stages[:first]
            parts = _gather(stages, before, source_blocks, few, on_block, made.empty, made.add)
            total = guarded(made.total, stages[-1].mechanism.key)
            return _added([total(part) for part in parts])
        except DeviceError:
            warn_of_fault()
    accumulate, size = claim.accumulate, claim.output.size  # type: ignore[attr-defined]

    def empty() -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    def add(state: NDArray[np.int64], block: Any) -> None:
        accumulate(block, state)

    return _added(_gather(stages, stages, source_blocks, workers, on_block, empty, add))


def _gather(
    stages: Sequence[Stage],
    before: Sequence[Stage],
    source_blocks: Blocks,
    workers: int | None,
    on_block: Callable[[int], None] | None,
    empty: Callable[[], S],
    add: Callable[[S, Any], None],
) -> list[S]:
    """Return workers' states with all blocks added, behind row maps ``before``."""
    with one_blas_thread(), freed_blocks_kept():
        return _workers(stages, source_blocks, workers, on_block, before).gather(empty, add)


def _added(states: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the sum of the workers' states, made in the first."""
    total = states[0]
    for state in states[1:]:
        total += state
    return total


def fold_whole(
    stages: Sequence[Stage],
    source_blocks: Blocks,
    *,
    workers: int | None = None,
    on_block: Callable[[int], None] | None = None,
) -> Any:
    """Return the result of the last, whole-dataset map with a ``fold``.

    The other arguments are those of ``build_sketch``.
    """
    last = stages[-1]
    assert isinstance(last.claim, Stable)  # noqa: S101 - the caller asked
    fold, shared = last.claim.fold, last.claim.shared
    crew = _workers(stages, source_blocks, workers, on_block)
    with freed_blocks_kept():
        if shared is not None:
            return guarded(shared, last.mechanism.key)(crew)
        assert fold is not None  # noqa: S101 - the caller asked
        maps, blocks = stages[:-1], narrowed(source_blocks, stages)
        return guarded(
            lambda _: fold(lambda: map(resolve(maps, blocks), blocks())), last.mechanism.key
        )(None)


def _workers(
    stages: Sequence[Stage],
    source_blocks: Blocks,
    workers: int | None,
    on_block: Callable[[int], None] | None,
    before: Sequence[Stage] | None = None,
) -> Workers:
    """Return so many threads over the dataset behind the row maps ``before``."""
    maps = stages if before is None else before
    key, blocks = stages[-1].mechanism.key, narrowed(source_blocks, stages)
    workers, tell = workers or cores(), on_block or _no_progress

    def ready() -> Callable[[Any], Any]:
        return guarded(lambda _: resolve(maps, blocks), key)(None)

    def guard(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return guarded(function, key)

    if workers > 1:
        return Threads(blocks, workers, ready=ready, on_block=tell, guard=guard)
    return One(blocks, ready=ready, on_block=tell, guard=guard)


def _no_progress(_rows: int) -> None:
    """Show nothing."""


def collect_rows(stages: Sequence[Stage], source_blocks: Blocks) -> Rows:
    """Return all rows behind the row maps, in memory."""
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


def collect_records(
    stages: Sequence[Stage], records: Records, source_blocks: Blocks
) -> dict[str, NDArray[Any]]:
    """Return all records after the row maps as one block.

    ``records`` is the type behind the maps, of which there may be none: for mechanisms on whole
    records.
    """
    key = stages[-1].mechanism.key if stages else "records"
    through = guarded(lambda _: resolve(stages, source_blocks), key)(None)
    parts = [guarded(through, key)(block) for block in source_blocks()] or [records.no_records()]
    return {c.name: _joined([part[c.name] for part in parts]) for c in records.columns}


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Join rows, releasing each part once copied."""
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
