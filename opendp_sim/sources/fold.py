"""Fold a source into a sketch, block by block, on one thread or on several: the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable, Stage
from opendp_sim.core.crew import Crew
from opendp_sim.core.errors import InternalError
from opendp_sim.core.guard import guarded
from opendp_sim.core.memory import freed_blocks_kept
from opendp_sim.core.pipeline import resolve
from opendp_sim.sources.blocks import narrowed
from opendp_sim.sources.threads import One, Threads, cores, one_blas_thread
from opendp_sim.spaces.records import Records
from opendp_sim.spaces.rows import Rows

__all__ = ["Blocks", "build_sketch", "collect_rows", "cores", "fold_whole"]

Blocks = Callable[[], Iterable[Any]]
"""Opens the dataset afresh: an iterable of blocks (``gated_blocks`` makes one of a source)."""
_STATE = 2**24
"""Cells of a sketch above which one worker is the default: every further one holds as many again."""


def build_sketch(
    stages: Sequence[Stage],
    source_blocks: Blocks,
    *,
    workers: int | None = None,
    on_block: Callable[[int], None] | None = None,
) -> NDArray[np.int64]:
    """Send every block through the row maps and add up the features of the last stage.

    Sums of integers do not depend on their order, so any number of workers gives the same bits. Each
    has a state of its own, and a reader where the dataset can be cut; so does what is told of a failure
    (``threads``). Blocks are cut where a row map makes rows wide.

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
    accumulate, size = claim.accumulate, claim.output.size  # type: ignore[attr-defined]
    if workers is None and size > _STATE:
        workers = 1

    def add(state: NDArray[np.int64], block: Any) -> None:
        accumulate(block, state)

    with one_blas_thread(), freed_blocks_kept():
        crew = _crew(stages, source_blocks, workers, on_block)
        states = crew.gather(lambda: np.zeros(size, dtype=np.int64), add)
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
    """Return what a map of the whole dataset, the last stage, makes of it: on one thread or on several.

    Args:
        stages: row maps and, last, one with a ``fold``.
        source_blocks: opens the dataset afresh, for each pass.
        workers: as for ``build_sketch``.
        on_block: as for ``build_sketch``.
    """
    last = stages[-1]
    assert isinstance(last.claim, Stable)  # noqa: S101 - the caller asked
    fold, shared = last.claim.fold, last.claim.shared
    crew = _crew(stages, source_blocks, workers, on_block)
    with freed_blocks_kept():
        if shared is not None:
            return guarded(shared, last.mechanism.key)(crew)
        assert fold is not None  # noqa: S101 - the caller asked
        maps, blocks = stages[:-1], narrowed(source_blocks, stages)
        return guarded(
            lambda _: fold(lambda: map(resolve(maps, blocks), blocks())), last.mechanism.key
        )(None)


def _crew(
    stages: Sequence[Stage],
    source_blocks: Blocks,
    workers: int | None,
    on_block: Callable[[int], None] | None,
) -> Crew:
    """Return so many threads over the dataset behind the row maps."""
    key, blocks = stages[-1].mechanism.key, narrowed(source_blocks, stages)
    workers, tell = workers or cores(), on_block or _untold

    def ready() -> Callable[[Any], Any]:
        return guarded(lambda _: resolve(stages, blocks), key)(None)  # type: ignore[no-any-return]

    def guard(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return guarded(function, key)

    if workers > 1:
        return Threads(blocks, workers, ready=ready, on_block=tell, guard=guard)
    return One(blocks, ready=ready, on_block=tell, guard=guard)


def _untold(_rows: int) -> None:
    """Show nothing."""


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
