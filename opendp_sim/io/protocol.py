"""Define sources of records, readable in blocks as often as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

from opendp_sim.domains.records import Records
from opendp_sim.io.blocks import Block, block_rows, piece_rows, recut
from opendp_sim.io.columns import held_columns
from opendp_sim.io.conform import check_lengths, conform

Raw = Mapping[str, Any]
"""Column name to an array, or to a sequence with one cell a record."""


@runtime_checkable
class Source(Protocol):
    """Read records any number of times in the same order."""

    @property
    def records(self) -> Records:
        """The declared type of the records."""

    @property
    def length(self) -> int | None:
        """Return the private number of records, if known without reading."""

    def blocks(self, rows: int | None = None) -> Iterator[Block]:
        """Open the source afresh in blocks of at most ``rows`` records."""


@dataclass(frozen=True)
class PieceSource:
    """Read raw pieces as a source.

    Columns as they are stored, in order.

    Args:
        records: the declared type.
        pieces: opens the data afresh; is told how many records a piece should have, and may yield
            pieces of any size it can afford in memory.
        length: number of records, when known.
        form: returns the columns without their records, where the data has types of its own.
        weight: bytes that all records take as they are stored, unpacked, when headers tell.
        packed: bytes of the file, where it may be compressed.
        cut: returns sources of its parts, in order, for so many readers; None if that gains little.
        made_of: the table or the file that it reads, by which ``origin.py`` knows it again.
    """

    records: Records
    pieces: Callable[[int], Iterable[Raw]]
    length: int | None = None
    form: Callable[[], Raw] | None = None
    weight: int | None = None
    packed: int | None = None
    cut: Callable[[int], Sequence[Source] | None] | None = None
    made_of: Any = None

    def blocks(self, rows: int | None = None) -> Iterator[Block]:
        """Open the source afresh in blocks of ``rows`` records.

        The last one may be shorter. Memory: one raw piece and one block. A piece without records is
        looked at for its form.

        Raises:
            DataError (OS602): columns, widths or dtypes that are not as declared.
        """
        size = rows or block_rows(self.records)
        pieces = self.pieces(rows or piece_rows(self.records))
        return recut(map(partial(formed, records=self.records), pieces), size)


def formed(piece: Raw, records: Records) -> Block:
    """Return a piece in the declared types, its form checked."""
    block = conform(piece, records)
    records.check({name: column[:0] for name, column in block.items()})
    return block


def from_arrays(records: Records, arrays: Raw) -> PieceSource:
    """Return a source over arrays in memory.

    By column name; nothing is copied but a block.

    Args:
        records: the declared type.
        arrays: column name to an array with one entry (or row) a record, or a list of them, or a
            column of pandas, Polars or Arrow; categories hold keys. What is masked in a masked array
            is missing.

    Raises:
        DataError (OS602): a declared column is missing, or columns differ in length.
    """
    held, read = held_columns(arrays, records)
    check_lengths(held)
    count = len(next(iter(held.values()), ()))

    def pieces(rows: int) -> Iterator[Raw]:
        for start in range(0, max(count, 1), rows):  # without records too: their dtypes are checked
            yield read(slice(start, start + rows))

    return PieceSource(records, pieces, count, lambda: read(slice(0, 0)), made_of=arrays)
