"""Bound the records and the noise of an int64 sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from opendp_sim.core.errors import DataError, ParameterError

TOO_MANY = 2**31
"""So many records, or more, are refused: the lemmas' sums could leave int64."""
LARGEST_FEATURE = 2**32
"""No integer feature of one record is larger, so int64 sums hold the features of 2**31 - 1 records."""

LARGEST_SCALE = 2**63 // 16
"""No noise of an int64 cell has a larger scale."""


def need_countable(records: int) -> None:
    """Refuse 2**31 records or more (OS610), without stating their number."""
    if records >= TOO_MANY:
        raise DataError(
            "OS610", "source", expected="fewer than 2**31 records", got="as many, or more",
            hint="release parts of the data on their own, each with a budget for the same persons.",
        )  # fmt: skip


def need_int64_noise(where: str, scale: float, hint: str) -> None:
    """Refuse noise whose tail may leave int64 (OS102).

    Of a Gaussian or Laplace scale: 2**63 is at least 16 scales away, where a normal variable has
    2 e**-128 of its mass. Beyond, the samplers' words of 64 bits do not hold what they draw.
    """
    if not scale <= LARGEST_SCALE:
        raise ParameterError(
            "OS102", where, expected=f"noise of a scale up to 2**{LARGEST_SCALE.bit_length() - 1}",
            got=f"a scale of {scale:.3g}", hint=hint,
        )  # fmt: skip


def countable(blocks: Iterable[Any]) -> Iterator[Any]:
    """Yield blocks of fewer than 2**31 records in all, or refuse (OS610)."""
    seen = 0
    for block in blocks:
        seen += records_in(block)
        need_countable(seen)
        yield block
        del block  # the next one is read without it


def records_in(data: Any) -> int:
    """Return the number of records of rows, arrays or columns."""
    return len(next(iter(data.values()), ())) if isinstance(data, dict) else len(data)
