"""Raw columns, as a file holds them, to the declared types: vectorised and record by record.

What a single cell becomes depends on that cell alone, never on the rest of its block, so that a
source cut into other blocks is the same source. A cell that cannot be read becomes NaN in a real
column, ``MISSING`` in an integer column, -1 in a category and an empty text in a text column: the
gate then refuses it or drops its record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.sources.blocks import Block
from opendp_sim.spaces.records import Column, Records

__all__ = [
    "MISSING", "check_lengths", "conform", "is_int64", "key_indices", "missing_column", "numbers_of",
]  # fmt: skip

MISSING = -(2**63)
"""Stands in an integer column for a cell that cannot be read."""


def conform(raw: Mapping[str, NDArray[Any]], records: Records) -> Block:
    """Return the declared columns of ``raw``, each in its declared dtype where that is safe.

    A column whose dtype cannot be converted without loss of meaning is handed on as it is, for the
    gate to refuse.

    Raises:
        DataError (OS602): a declared column is missing, or columns differ in length.
    """
    block = {}
    for column in records.columns:
        if column.name not in raw:
            raise missing_column(column.name)
        block[column.name] = _column(np.asarray(raw[column.name]), column)
    check_lengths(block)
    return block


def check_lengths(block: Mapping[str, NDArray[Any]]) -> None:
    """Refuse columns of several lengths (OS602)."""
    if len({len(values) for values in block.values()}) > 1:
        raise DataError(
            "OS602", "records", expected="columns of one length", got="several lengths",
            hint="every column needs one entry a record.",
        )  # fmt: skip


def missing_column(name: str, expected: str = "the column") -> DataError:
    """Return the refusal of a source without a declared column."""
    return DataError(
        "OS602", f"column {name}", expected=expected, got="no such column in the source",
        hint="name the source's columns in `columns`, or map them in the source's own options.",
    )  # fmt: skip


def _column(raw: NDArray[Any], column: Column) -> NDArray[Any]:
    if column.keys:
        return key_indices(raw, column.keys)
    if column.dtype == "str":
        return raw.astype(object) if raw.dtype.kind in "UT" else raw
    if column.is_vector and math.prod(raw.shape[1:]) == column.width:
        raw = raw.reshape(len(raw), column.width)  # images, or numbers as vectors of one
    wanted, kind = column.numpy_dtype, raw.dtype.kind
    if kind == "b":
        raw, kind = raw.astype(np.uint8), "u"
    if wanted.kind == "f" and kind in "fiu":
        with np.errstate(over="ignore"):  # too large for float32: an infinity, which the gate sees
            values = raw.astype(wanted, copy=False)
        if is_int64(raw):
            values[raw == MISSING] = np.nan  # a copy: the kinds differ
        return values
    if wanted.kind in "iu" and kind in "iu" and np.can_cast(raw.dtype, wanted):
        return raw.astype(wanted, copy=False)
    return raw  # wider integers stay: narrowing could wrap, and the gate checks the range


def is_int64(values: NDArray[Any]) -> bool:
    """Say whether ``MISSING`` may stand in the array: signed 64 bits, in either byte order."""
    return values.dtype.kind == "i" and values.dtype.itemsize == 8


def key_indices(raw: NDArray[Any], keys: tuple[str | int, ...]) -> NDArray[np.int64]:
    """Return each key's place among the public ``keys``, shape (n,), and -1 for any other.

    Numbers are compared with the keys that are numbers, text with all keys written as text.
    """
    if raw.ndim != 1:
        return np.full(len(raw), -1, dtype=np.int64)
    known: dict[str | int, int]
    if raw.dtype.kind in "biuf":
        known = {key: i for i, key in enumerate(keys) if isinstance(key, int)}
        table = np.array(list(known), dtype=np.int64)
        raw = raw.astype(np.int64) if raw.dtype.kind == "b" else raw
    else:
        known = {str(key): i for i, key in enumerate(keys) if isinstance(key, int)}
        known |= {key: i for i, key in enumerate(keys) if isinstance(key, str)}
        table = np.array(list(known), dtype=str)
        raw = np.char.decode(raw, "utf-8", "replace") if raw.dtype.kind == "S" else raw.astype(str)
    if not len(table):
        return np.full(len(raw), -1, dtype=np.int64)
    order = np.argsort(table)
    place = np.minimum(np.searchsorted(table[order], raw), len(table) - 1)
    found = table[order][place] == raw
    return np.where(found, np.array(list(known.values()))[order][place], -1)


def numbers_of(text: NDArray[np.str_], *, whole: bool) -> NDArray[Any]:
    """Return cells of text as float64, or as int64 when ``whole``; unreadable ones as missing."""
    kind = np.int64 if whole else np.float64
    try:
        return text.astype(kind)
    except (ValueError, OverflowError):
        return np.array([_number(cell, whole=whole) for cell in text], dtype=kind)


def _number(cell: str, *, whole: bool) -> float | int:
    try:
        value = int(cell) if whole else float(cell)
    except ValueError:
        return MISSING if whole else np.nan
    return value if not whole or -(2**63) <= value < 2**63 else MISSING
