"""Plain values, as they come in lines of JSON, as checked columns: or one refusal that quotes none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from opendp_sim.core.errors import DataError
from opendp_sim.sources.source import from_arrays
from opendp_sim.spaces.ids import boxed, persons
from opendp_sim.spaces.records import Column, Records

__all__ = ["columns_of", "described", "has_truths", "plain_values", "unfit"]


def columns_of(records: Records, rows: Any) -> dict[str, Any]:
    """Turn rows of plain values into checked columns; text of values never leaves here."""
    whole = f"a list of records, each with {described(records.columns)}"
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise unfit(whole, "a row that is no record" if rows else "no record")
    block: dict[str, Any] = {}
    for column in records.columns:
        if not all(column.name in row for row in rows):
            raise unfit(whole, f"a record without `{column.name}`")
        one = Records((column,))
        with plain_values(described((column,))):
            raw = {column.name: _raw(column, [row[column.name] for row in rows])}
            blocks = list(from_arrays(one, raw).blocks())
            block[column.name] = np.concatenate([part[column.name] for part in blocks])
            one.check({column.name: block[column.name]})
    return block


def described(columns: Sequence[Column]) -> str:
    """Name columns with what belongs in them: public declarations."""
    return ", ".join(
        f"`{c.name}` ({'one of its declared keys' if c.keys else c.dtype})" for c in columns
    )


def _raw(column: Column, values: list[Any]) -> Any:
    """Return a column's plain values as an array; texts and identifiers as they are."""
    if column.dtype == "str":
        return boxed(persons([*values, "-"])[:-1])
    if column.keys and not any(isinstance(value, bool) for value in values):
        return boxed(values)
    found = np.asarray(persons(values) if column.role else values)
    if found.dtype.kind == "b" or (column.is_vector and any(map(has_truths, values))):
        raise ValueError
    return found


def has_truths(values: Any) -> bool:
    """Whether a list holds true or false, which numpy reads as 1 or 0."""
    return isinstance(values, list) and any(isinstance(value, bool) for value in values)


@contextmanager
def plain_values(expected: str) -> Iterator[None]:
    """Turn whatever numpy says of values that fit no column into one refusal."""
    try:
        with np.errstate(all="ignore"):
            yield
    except (DataError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError):
        unfit(expected, "a value of another shape, dtype or range").alone()


def unfit(expected: str, got: str) -> DataError:
    """Return the refusal of values of another form (OS607)."""
    return DataError(
        "OS607",
        "session",
        expected=expected,
        got=got,
        hint="a query has the features of a record, as one list of numbers or by column; an update is "
        "a list of whole records: see `opendp-sim session --help`.",
    )
