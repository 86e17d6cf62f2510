"""Check a whole source.

In a pass of its own, or in the first pass that computes something.

Several threads may make that pass, each over parts of the source. What is told of a refusal is the same:
a fault of the file, or of its form, at the lowest position ends the reading there as it ends that of one
thread, which meets nothing behind it; and of records the first by column and code, wherever they are.

Nothing that is computed in that pass is released, and nothing random is drawn, before the check has
ended: so it is the same whether the check came first (``dsl/run/charge.md``, Lemma 7).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opendp_sim.core.arithmetic.countable import TOO_MANY, countable, need_countable, records_in
from opendp_sim.core.errors import DataError
from opendp_sim.domains.records import Records
from opendp_sim.io.blocks import Block, length_of
from opendp_sim.io.gate import Ingest, check_block, gated_blocks
from opendp_sim.io.ordered_threads import in_caller
from opendp_sim.io.protocol import Source


class GatedSource:
    """Hold a source behind the gate.

    Each call opens it afresh; the first reading checks every record. What is refused is not raised
    into the reader: its blocks end, the rest of the source is looked at, and ``finish`` raises. The
    refusal is the same whatever the order and the number of the bad records: the first by column and
    code.

    Args:
        source: the data.
        mode: as for ``gate``. ``assume`` looks at the first block only, in a pass of its own.
        on_block: told the size of each block that is looked at, for a progress bar.
    """

    def __init__(
        self, source: Source, mode: Ingest, on_block: Callable[[int], None] | None = None
    ) -> None:
        self._source, self._mode, self._on_block = source, mode, on_block
        self._done, self._begun = False, False
        self._refused: DataError | None = None
        self._lock = threading.Lock()

    def __call__(self) -> Iterator[Block]:
        """Open the source behind the gate, one reading after the other.

        Raises:
            DataError: as ``finish``, from the second reading on.
        """
        if self._begun or self._mode == "assume":
            self.finish()
        if self._done:
            return gated_blocks(self._source, self._mode)()
        self._begun = True
        return self._looked_at()

    def parts(self, workers: int) -> list[Callable[[], Iterator[Block]]] | None:
        """Return openers of the source's parts in order, for so many threads.

        Each is opened once, for the next reading. None where the source is better read whole: then
        nothing has begun.

        Raises:
            DataError: as ``finish``, from the second reading on.
        """
        cut = getattr(self._source, "cut", None)
        if cut is None or self._mode == "assume" or (self._source.length or TOO_MANY) >= TOO_MANY:
            return None
        sources = cut(workers)
        if sources is None:
            return None
        if self._begun:
            self.finish()
        if self._done:
            return [gated_blocks(source, self._mode) for source in sources]
        self._begun = True
        looks = [_Look() for _ in sources]
        return [_part(self, source, looks, at) for at, source in enumerate(sources)]

    def finish(self) -> None:
        """Check every record left, and raise the refusal.

        Raises:
            DataError (OS601 to OS606): as the source and the gate. (OS608): no record, when refusing.
                (OS610): 2**31 records or more.
        """
        if not self._done:  # a reading that was left in the middle is no check
            self._begun, self._refused = True, None
            for _ in self._looked_at():
                if self._mode == "assume":
                    break
            self._done = True
        if self._refused is not None:
            raise self._refused.with_traceback(None)  # its frames hold a block

    def _looked_at(self) -> Iterator[Block]:
        looks = [_Look()]
        yield from self._look(self._source, looks, 0)

    def _look(self, source: Source, looks: Sequence[_Look], at: int) -> Iterator[Block]:
        """Check one part, passing blocks on until a refusal."""
        look, rank = looks[at], self._source.records
        try:
            for block in countable(source.blocks()):
                look.records, look.empty = look.records + records_in(block), False
                found = self._passed(block)
                if isinstance(found, DataError):
                    look.refused = min(
                        look.refused or found, found, key=lambda error: _rank(error, rank)
                    )
                if self._on_block is not None:
                    in_caller(self._on_block, length_of(block))
                if not isinstance(found, DataError) and not any(one.refused for one in looks):
                    yield found
                del block, found  # the next one is read without them
        except (
            DataError
        ) as error:  # of the file, or of its form: whatever records were refused before
            look.stopped = error.with_traceback(None)
        look.done = True
        with self._lock:
            if not self._done and all(one.done for one in looks):
                self._refused, self._done = self._verdict(looks), True

    def _verdict(self, looks: Sequence[_Look]) -> DataError | None:
        """Return what one thread would have said, who reads part after part."""
        records, first = 0, None
        for look in looks:
            records += look.records
            try:
                need_countable(records)
            except DataError as error:
                return error.with_traceback(None)
            if look.stopped is not None:
                return look.stopped
            both = [found for found in (first, look.refused) if found is not None]
            first = min(both, key=lambda error: _rank(error, self._source.records), default=None)
        if first is None and self._mode == "refuse" and all(look.empty for look in looks):
            return no_record()
        return first

    def _passed(self, block: Block) -> Block | DataError:
        """Return an accepted block, or the gate's refusal of values."""
        try:
            return check_block(block, self._source.records, self._mode)
        except DataError as error:
            if error.code == "OS602":
                raise
            return error.with_traceback(None)


def no_record() -> DataError:
    """Return the refusal of a source without records."""
    return DataError(
        "OS608", "source", expected="at least one record", got="none",
        hint="look at the file; if an empty data set is a possible input, use `ingest: enforce`.",
    )  # fmt: skip


@dataclass
class _Look:
    """What was found in one part of a source."""

    records: int = 0
    empty: bool = True
    done: bool = False
    refused: DataError | None = None
    """What the gate says of records: the first by column and code."""
    stopped: DataError | None = None
    """What ended the reading of the part."""


def _part(
    checked: GatedSource, source: Source, looks: Sequence[_Look], at: int
) -> Callable[[], Iterator[Block]]:
    return lambda: checked._look(source, looks, at)  # noqa: SLF001 - of this module


def _rank(error: DataError, records: Records) -> tuple[int, str]:
    """Return a refusal's rank among all."""
    places = {f"column {column.name}": at for at, column in enumerate(records.columns)}
    return places.get(error.where, -1), error.code
