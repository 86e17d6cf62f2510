"""Bound the records of an int64 sum to fewer than 2**31."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from opendp_sim.core.errors import DataError

TOO_MANY = 2**31
"""So many records, or more, are refused: the lemmas' sums could leave int64."""
LARGEST_FEATURE = 2**32
"""No integer feature of one record is larger, so int64 sums hold the features of 2**31 - 1 records."""


def need_countable(records: int) -> None:
    """Refuse 2**31 records or more (OS610), without stating their number."""
    if records >= TOO_MANY:
        raise DataError(
            "OS610", "source", expected="fewer than 2**31 records", got="as many, or more",
            hint="release parts of the data on their own, each with a budget for the same persons.",
        )  # fmt: skip


def countable(blocks: Iterable[Any]) -> Iterator[Any]:
    """Yield blocks of fewer than 2**31 records in all, or refuse (OS610)."""
    seen = 0
    for block in blocks:
        seen += records_in(block)
        need_countable(seen)
        yield block


def records_in(data: Any) -> int:
    """Return the number of records of rows, arrays or columns."""
    return len(next(iter(data.values()), ())) if isinstance(data, dict) else len(data)
