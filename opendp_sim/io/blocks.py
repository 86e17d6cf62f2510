"""Bound the records of a block, a dict of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Stable, Stage
from opendp_sim.core.device import device_in_use
from opendp_sim.domains.records import Records
from opendp_sim.domains.rows import length, take

Block = dict[str, NDArray[Any]]
"""Column name to array; all arrays have one entry (or row) a record."""

_CELLS = 2**18
"""Numbers a block: 2 MiB of float64, which a core's cache holds from one step to the next."""
_PIECE = 2**19
"""Numbers read at a time: each column of a table costs the same, however few of its cells are read."""
_JOINED = 2**20
"""Numbers to which blocks are joined before a device, and before a large sketch: each block costs it a
pass over its own cells, so it gets four times as many numbers."""
_WIDE = 2**22
"""Numbers that a block may become behind a row map that makes records wider: 32 MiB of float64."""
_FEWEST = 256
"""Records a block: fewer would cost more in overheads than they save."""


def block_rows(records: Records) -> int:
    """Return the default number of records of a block."""
    return _rows_of(_CELLS, records)


def piece_rows(records: Records) -> int:
    """Return the default number of records to read at a time."""
    return _rows_of(_PIECE, records)


def _rows_of(cells: int, records: Records) -> int:
    width = sum(column.width for column in records.columns)
    return max(_FEWEST, min(65536, cells // max(width, 1)))


def widest(stages: Sequence[Stage]) -> tuple[int, Stage | None]:
    """Return the widest record of a chain, in numbers, and its stage."""
    found: tuple[int, Stage | None] = 0, None
    for stage in stages:
        width = getattr(stage.claim.output, "width", 0) if isinstance(stage.claim, Stable) else 0
        if width > found[0]:
            found = width, stage
    return found


def rows_at_once(stages: Sequence[Stage]) -> int:
    """Return the records to process together, fewer if maps widen them."""
    return max(_FEWEST, _WIDE // max(widest(stages)[0], 1))


def rows_to_join(stages: Sequence[Stage], *, device: bool = False) -> int:
    """Return the fewest records worth a pass through a sketch."""
    claim = stages[-1].claim if stages else None
    if not isinstance(claim, Stable) or claim.accumulate is None:
        return 0
    size: int = claim.output.size  # type: ignore[attr-defined]
    cells = _JOINED if device else min(_JOINED, 4 * size)
    return cells // max(widest(stages)[0], 1) if cells > _CELLS else 0


def narrowed(blocks: Callable[[], Iterable[Any]], stages: Sequence[Stage]) -> Narrowed:
    """Return an opener of blocks that fit the stages, in order.

    The widest stage can process them, and a large sketch is not gone through for a few records.
    Whatever made the blocks knew the width of records, and not what becomes of them.
    """
    most = rows_at_once(stages)
    least = rows_to_join(stages, device=device_in_use() is not None)
    return Narrowed(blocks, most, min(most, least))


@dataclass(frozen=True)
class Narrowed:
    """Open blocks of ``least`` to ``most`` records, in parts where possible."""

    blocks: Callable[[], Iterable[Any]]
    most: int
    least: int = 0

    def __call__(self) -> Iterator[Any]:
        """Open the blocks afresh."""
        for block in joined(self.blocks(), self.least):
            count = length(block)
            if count <= self.most:
                yield block
            else:
                yield from (
                    take(block, slice(a, a + self.most)) for a in range(0, count, self.most)
                )
            del block  # what follows is read without it

    def parts(self, workers: int) -> list[Narrowed] | None:
        """Return what opens parts of the records (``threads.Threads``)."""
        cut = getattr(self.blocks, "parts", None)
        found = None if cut is None else cut(workers)
        return None if found is None else [Narrowed(p, self.most, self.least) for p in found]


def length_of(block: Mapping[str, NDArray[Any]]) -> int:
    """Return the number of records of a block."""
    return len(next(iter(block.values()), ()))


def recut(pieces: Iterable[Block], rows: int) -> Iterator[Block]:
    """Cut pieces into blocks of ``rows`` records, the last perhaps shorter.

    Holds one piece and less than one block at a time, and nothing of either while the next is read.
    """
    waiting: list[Block] = []
    count = 0
    for piece in pieces:
        start, size = 0, length_of(piece)
        while start < size:
            end = min(size, start + rows - count)
            waiting.append({name: column[start:end] for name, column in piece.items()})
            start, count = end, count + end - start
            if count == rows:
                yield _joined(waiting)
                count = 0
        del piece
    if waiting:
        yield _joined(waiting)


def joined(blocks: Iterable[Any], least: int) -> Iterator[Any]:
    """Join blocks of columns to at least so many records."""
    waiting: list[Block] = []
    for block in blocks:
        if not isinstance(block, dict) or (not waiting and length_of(block) >= least):
            yield block
        else:
            waiting.append(block)
            if sum(map(length_of, waiting)) >= least:
                yield _joined(waiting)
        del block
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Block]) -> Block:
    """Join blocks, and empty their list."""
    found = parts.pop(0)
    if parts:
        found = {name: np.concatenate([v, *(p[name] for p in parts)]) for name, v in found.items()}
        parts.clear()
    return found
