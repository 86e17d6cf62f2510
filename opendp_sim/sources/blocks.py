"""Blocks: dicts of column name to array, a bounded number of records each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.spaces.records import Records

__all__ = ["Block", "block_rows", "length_of", "recut"]

Block = dict[str, NDArray[Any]]
"""Column name to array; all arrays have one entry (or row) a record."""

_CELLS = 2**20
"""Numbers a block: 8 MiB of float64, small beside the products made of it, large beside overheads."""


def block_rows(records: Records) -> int:
    """Return how many records a block of this type holds unless told otherwise."""
    width = sum(column.width for column in records.columns)
    return max(256, min(65536, _CELLS // max(width, 1)))


def length_of(block: Mapping[str, NDArray[Any]]) -> int:
    """Return the number of records of a block."""
    return len(next(iter(block.values()), ()))


def recut(pieces: Iterable[Block], rows: int) -> Iterator[Block]:
    """Cut pieces of any size into blocks of ``rows`` records; the last may be shorter.

    Holds one piece and less than one block at a time.
    """
    waiting: list[Block] = []
    count = 0
    for piece in pieces:
        start, size = 0, length_of(piece)
        while start < size:
            part = {name: column[start : start + rows - count] for name, column in piece.items()}
            waiting.append(part)
            start += length_of(part)
            count += length_of(part)
            if count == rows:
                yield _joined(waiting)
                waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Block]) -> Block:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
