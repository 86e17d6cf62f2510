"""The check of a whole source, in a pass of its own or in the first pass that computes something.

Nothing that is computed in that pass is released, and nothing random is drawn, before the check has
ended: so it is the same whether the check came first (``dsl/charging.md``, Lemma 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opendp_sim.core.countable import countable
from opendp_sim.core.errors import DataError
from opendp_sim.sources.blocks import Block, length_of
from opendp_sim.sources.gate import Ingest, gate, gated_blocks
from opendp_sim.sources.source import Source
from opendp_sim.spaces.records import Records

__all__ = ["Checked", "check_source"]


class Checked:
    """A source behind the gate, opened afresh by each call; the first reading looks at every record.

    What is refused is not raised into the reader: its blocks end, the rest of the source is looked at,
    and ``finish`` raises. The refusal is the same whatever the order and the number of the bad records:
    the first by column and code.

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

    def __call__(self) -> Iterator[Block]:
        """Open the source behind the gate; the second reading waits for the end of the first.

        Raises:
            DataError: as ``finish``, from the second reading on.
        """
        if self._begun or self._mode == "assume":
            self.finish()
        if self._done:
            return gated_blocks(self._source, self._mode)()
        self._begun = True
        return self._looked_at()

    def finish(self) -> None:
        """Look at every record that no reading looked at, and raise what is refused.

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
        empty, first = True, None
        try:
            for block in countable(self._source.blocks()):
                empty = False
                found = self._passed(block)
                if isinstance(found, DataError):
                    rank = self._source.records
                    first = min(first or found, found, key=lambda error: _rank(error, rank))
                if self._on_block is not None:
                    self._on_block(length_of(block))
                if first is None and not isinstance(found, DataError):
                    yield found
        except (
            DataError
        ) as error:  # of the file, or of its form: whatever records were refused before
            first = error.with_traceback(None)
        if empty and first is None and self._mode == "refuse":
            first = DataError(
                "OS608", "source", expected="at least one record", got="none",
                hint="look at the file; if an empty data set is a possible input, use `ingest: enforce`.",
            )  # fmt: skip
        self._refused, self._done = first, True

    def _passed(self, block: Block) -> Block | DataError:
        """Return what goes on of a block, or what the gate says of its values; of its form it raises."""
        try:
            return gate(block, self._source.records, self._mode)
        except DataError as error:
            if error.code == "OS602":
                raise
            return error.with_traceback(None)


def check_source(
    source: Source, mode: Ingest = "refuse", on_block: Callable[[int], None] | None = None
) -> None:
    """Send the whole source through the gate: ``Checked``, in a pass of its own."""
    Checked(source, mode, on_block).finish()


def _rank(error: DataError, records: Records) -> tuple[int, str]:
    """Return where a refusal stands among all: by column as declared, then by code."""
    places = {f"column {column.name}": at for at, column in enumerate(records.columns)}
    return places.get(error.where, -1), error.code
