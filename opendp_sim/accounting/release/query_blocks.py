"""Answer public queries block by block.

In memory are one block and the answers, however long the file is. A file says in its header how many
bytes its records take. A small file that says it holds very many is refused before anything of it is
read: noise and measurements do not shrink a thousandfold, air does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.claims import Post
from opendp_sim.core.errors import DataError
from opendp_sim.io.blocks import Block, length_of
from opendp_sim.io.gate import check_entries
from opendp_sim.io.origin import Origin, public_rows
from opendp_sim.io.protocol import Source

_LARGE, _DENSEST = 2**26, 500
"""Above so many bytes, queries are not packed more densely than this."""
_MOST_QUERIES = 2**28
"""Bytes of queries that are held together, for questions that look at all of them."""
_MOST_ANSWERS = 2**28
"""Bytes of the answers to one question, which are held together."""
_TEXT = 49
"""Bytes of a Python text beside its characters."""


def query_blocks(opened: Callable[[], Source], where: str, *, private: Origin) -> Iterator[Block]:
    """Yield a source's queries in blocks.

    Refuses an empty source, impossible records and empty bytes (OS607), and public rows from where the
    private data is known to come from (OS704, ``io/origin.md``). ``where`` is what a refusal names.
    """
    empty = True
    try:
        source = public_rows(opened(), private, where)
        packed = getattr(source, "packed", None)
        told, seen = getattr(source, "weight", None) or 0, 0
        _check_density(told, packed, where)
        for block in source.blocks():
            seen += sum(map(_bytes, block.values()))
            _check_density(seen, packed, where)
            if not length_of(block):
                continue
            check_entries(block, source.records)
            source.records.check(block)
            empty = False
            yield block
    except DataError as error:
        if error.code in ("OS601", "OS606", "OS607"):
            raise
        raise DataError(
            "OS607", where, expected=f"{error.expected} ({error.where})", got=str(error.got),
            hint="a query has the features of a record: the same columns, widths and dtypes (for "
            "`regress` also the target's, which it ignores: write 0).",
        ) from None  # fmt: skip
    if empty:
        raise DataError(
            "OS607", where, expected="at least one query", got="none",
            hint="put one row a query into the file.",
        )  # fmt: skip


def together(blocks: Iterator[Block], where: str) -> Block:
    """Return all queries as one block, if memory allows (OS607)."""
    parts, held = [], 0
    for block in blocks:
        parts.append(block)
        held += sum(map(_bytes, block.values()))
        _check_size(held, _MOST_QUERIES, "queries", where)
    return _joined(parts)


def one_block(blocks: Iterator[Block], *claims: Post, where: str = "queries") -> Iterator[Block]:
    """Yield one block of all where an answer depends on other queries."""
    if all(claim.by_query for claim in claims):
        return blocks
    return iter([together(blocks, where)])


def answered_in_blocks(
    answer: Callable[[Block], Any], blocks: Iterator[Block], where: str
) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return answers to all queries, and their columns of numbers or texts.

    ``answer`` maps a block to columns by name, or to an array of one row a query.

    Raises:
        DataError (OS607): answers that take too much memory.
    """
    parts: list[Mapping[str, Any]] = []
    asked: list[Block] = []
    held, named = 0, True
    for block in blocks:
        found = answer(block)
        named = isinstance(found, Mapping)
        parts.append(found if named else {"": found})
        asked.append({name: column for name, column in block.items() if column.ndim == 1})
        both = (*map(np.asarray, parts[-1].values()), *asked[-1].values())
        held += sum(map(_bytes, both))
        _check_size(held, _MOST_ANSWERS, "answers", where)
    answers = _joined(parts)
    return (answers if named else answers[""]), _joined(asked)


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join blocks, a column at a time."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _check_size(held: int, most: int, what: str, where: str) -> None:
    if held > most:
        raise DataError(
            "OS607", where, expected=f"{what} of at most {most:,} bytes at once", got="more",
            hint="ask in several parts; answers cost nothing.",
        )  # fmt: skip


def _check_density(size: int, packed: int | None, where: str) -> None:
    if packed is None:
        return
    most = max(_LARGE, _DENSEST * packed)
    if size > most:
        raise DataError(
            "OS607", where, expected=f"queries of at most {most:,} bytes from a file of {packed:,}",
            got=f"{size:,} bytes, or more",
            hint="save them without compression, or in several files; answers cost nothing.",
        )  # fmt: skip


def _bytes(column: NDArray[Any]) -> int:
    if column.dtype.kind != "O":
        return int(column.nbytes)
    return sum(len(cell) + _TEXT for cell in column.tolist() if isinstance(cell, str))
