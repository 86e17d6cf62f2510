"""Check every record once, before the first release (``ingest.md``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.arithmetic.countable import countable
from opendp_sim.core.errors import DataError, InternalError, SimError
from opendp_sim.domains.cell import MISSING, is_int64
from opendp_sim.domains.column import texts_there
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import take
from opendp_sim.io.blocks import Block, length_of
from opendp_sim.io.conform import conform
from opendp_sim.io.protocol import Source

Ingest = Literal["refuse", "enforce", "assume"]
"""``refuse`` data that breaks its declaration, ``enforce`` it, or ``assume`` that it holds."""

_CLEAN = (
    "clean the data, mend the declaration, or use `ingest: enforce` "
    "(clamp to the bounds, drop records with missing values or foreign labels)."
)


def check_block(block: Block, records: Records, mode: Ingest) -> Block:
    """Return the block as it may go on.

    Args:
        block: columns of one block.
        records: the declared type.
        mode: ``refuse`` raises at the first broken promise and changes nothing; ``enforce`` clamps
            to the bounds and drops records with NaN, infinities, missing entries or foreign labels;
            ``assume`` looks at names, widths and dtypes only.

    Raises:
        DataError (OS602): columns, widths or dtypes, in every mode. (OS603, OS604, OS605): values,
            when refusing. The texts are constant: no value, no place, no count.
    """
    failed: InternalError
    try:
        return _gated(block, records, mode)
    except SimError:
        raise
    except Exception:  # noqa: BLE001 - its text could hold a record, or their number
        failed = InternalError(
            "OS902", "records", expected="columns that the gate can look at",
            got="a failure inside the gate",
            hint="the text is withheld; try a table of public records of the same form.",
        )  # fmt: skip
    raise failed


def _gated(block: Block, records: Records, mode: Ingest) -> Block:
    _check_structure(block, records)
    if mode == "assume":
        return block
    if mode == "enforce":
        block = _enforced(block, records)
    else:  # first: what stands for a missing integer breaks any bounds; `enforce` has dropped it
        check_entries(block, records)
    records.check(block)
    return block


def check_entries(block: Block, records: Records) -> None:
    """Refuse cells unreadable as their dtype (OS603) without quoting them."""
    if _missing(block, records).any():
        told = ", ".join(f"{c.name} {c.dtype}" for c in records.columns if _can_miss(c))
        raise DataError(
            "OS603", "records", expected=f"an entry of its column's dtype in every cell: {told}",
            got="a missing entry, or one of another dtype",
            hint=f"names of persons and items need `dtype: str`; else {_CLEAN}",
        )  # fmt: skip


def gated_blocks(
    source: Source, mode: Ingest, rows: int | None = None
) -> Callable[[], Iterator[Block]]:
    """Return what opens the source afresh behind the gate."""
    return lambda: countable(
        map(partial(check_block, records=source.records, mode=mode), source.blocks(rows))
    )


def check_form(source: Source) -> None:
    """Check columns and stored types, which are public, without a record.

    Raises:
        DataError (OS602): a column is missing, or of a type that has no meaning for its declaration.
    """
    form = getattr(source, "form", None)
    if form is not None:
        _check_structure(conform(form(), source.records), source.records)


def _check_structure(block: Block, records: Records) -> None:
    """Check a table's names, widths and dtypes, without records."""
    records.check({name: column[:0] for name, column in block.items()})


def _can_miss(column: Column) -> bool:
    """Return whether a column has missing cells besides NaN and foreign labels."""
    return not column.keys and column.numpy_dtype.kind in "iuO"


def _missing(block: Block, records: Records) -> NDArray[np.bool_]:
    """Say which records lack an integer or the name of their person."""
    missing = np.zeros(length_of(block), dtype=bool)
    for column in records.columns:
        values = block[column.name]
        if column.dtype == "str":
            missing |= ~texts_there(values)
        elif is_int64(values) and not column.keys:  # also where fewer bits are declared
            missing |= _any(values == MISSING)
    return missing


def _enforced(block: Block, records: Records) -> Block:
    bad = _missing(block, records)
    for column in records.columns:
        values = block[column.name]
        if values.dtype.kind == "f":
            bad |= _any(~np.isfinite(values))
        if column.keys:
            bad |= (values < 0) | (values >= len(column.keys))
    kept: Block = take(block, ~bad)
    for column in records.columns:
        if column.bounds or kept[column.name].dtype.kind in "iu":
            kept[column.name] = _clamped(kept[column.name], column)
    return kept


def _any(cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Say for each record whether one of its cells is marked."""
    return np.asarray(cells.reshape(len(cells), math.prod(cells.shape[1:])).any(axis=1))


def _clamped(values: NDArray[Any], column: Column) -> NDArray[Any]:
    low, high = column.bounds or (-math.inf, math.inf)
    if values.dtype.kind == "f":
        return np.asarray(np.clip(values, low, high) + 0.0)  # one zero, whatever the shape
    limits = [np.iinfo(kind) for kind in (values.dtype, column.numpy_dtype)]
    least, most = max(int(kind.min) for kind in limits), min(int(kind.max) for kind in limits)
    if column.bounds:
        least, most = max(math.ceil(low), least), min(math.floor(high), most)
    return np.asarray(np.clip(values, least, most))
