"""Convert a column in any form to this package's one form.

``normal`` is vectorised over a column and decides by the *declared* dtype and by the array's own, never
by what other cells hold, so a source cut into other blocks is the same source.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.domains.category_codes import TEXTS, int64_of, key_indices
from opendp_sim.domains.cell import MISSING, is_int64, listed, object_array, reals, texts, wholes
from opendp_sim.domains.column import Column
from opendp_sim.domains.encoded import ENCODED, days, truths

_TYPED = ("pandas", "polars", "pyarrow")
"""Libraries whose columns have types that numpy does not know."""
_ROOM = 400
"""Characters that one number of a list written as text may take, blanks included."""


def normal(values: Any, column: Column, *, indices: bool = False) -> NDArray[Any]:
    """Return a column in its canonical form.

    Args:
        values: an array (masked: what is masked is missing), or a sequence of one cell a record.
        column: the declaration.
        indices: whether a category's cells are indices into its keys already, and a date's days.

    Returns:
        Dates as days since 1970-01-01 and truth values as 0 and 1, int64 (``MISSING`` where missing).
        Text columns as objects that are plain ``str`` (empty where missing); categories as int64 (-1
        where foreign or missing); reals in the declared dtype (NaN where missing); integers in the
        declared dtype or a wider one (``MISSING`` where missing). An array of a dtype that has no
        meaning for the column is handed on as it is: the gate refuses it in every mode.

    Raises:
        DataError (OS602): an array of numbers, where all keys are texts: none of them could be one.
    """
    array, holes = unmasked(as_array(values))
    if column.keys:
        keyed = not indices and array.ndim == 1 and array.dtype.kind in "biufS" + TEXTS
        if keyed:
            _check_labels(array, column)
        found = key_indices(array, column.keys) if keyed else array
    elif column.dtype in ENCODED and not indices:
        found = days(array) if column.dtype == "date" else truths(array)
    elif column.dtype == "str":
        found = texts(array) if array.ndim == 1 and array.dtype.kind in TEXTS else array
    else:
        found = _numbers(array, column)
    return found if holes is None else _punched(found, holes, column)


def _check_labels(array: NDArray[Any], column: Column) -> None:
    """Refuse numbers, by dtype, where every key is a text."""
    if array.dtype.kind in "biuf" and all(isinstance(key, str) for key in column.keys):
        raise DataError(
            "OS602", f"column {column.name}", expected="labels of the kind of its keys, texts",
            got="a column of numbers",
            hint="write the keys as numbers (keys: [0, 1]), or store the labels as texts.",
        )  # fmt: skip


def as_array(values: Any) -> NDArray[Any]:
    """Return a column as an array, one entry a record.

    A list or another sequence becomes an array of its own objects.

    Raises:
        DataError (OS602): a column of a library with types of its own (``sources.held`` reads those).
    """
    if isinstance(values, np.ndarray):
        return bare(values)
    if is_typed(values):
        raise DataError(
            "OS602", "a column", expected="a numpy array or a list", got=type(values).__name__,
            hint="convert it by its type, or hand the table itself to `sim.apply` or `from_table`.",
        )  # fmt: skip
    unlike = hasattr(values, "__array__") or isinstance(values, memoryview | str | bytes)
    if isinstance(values, list | tuple) or (isinstance(values, Sequence) and not unlike):
        return object_array(values)
    return np.asarray(values)


def is_typed(values: object) -> bool:
    """Return whether nulls change the column's type in numpy, by types alone."""
    if isinstance(values, np.ndarray | list | tuple):
        return False
    if isinstance(getattr(values, "dtype", None), np.dtype):
        return False
    libraries = {kind.__module__.partition(".")[0] for kind in type(values).__mro__}
    arrow = ("__arrow_c_stream__", "__arrow_c_array__")
    return not libraries.isdisjoint(_TYPED) or any(hasattr(type(values), name) for name in arrow)


def bare(array: NDArray[Any]) -> NDArray[Any]:
    """Return a plain array without methods of a subclass.

    A subclass such as ``numpy.matrix`` has other shapes, and may run any code on the cells. A
    masked array stays masked.
    """
    if not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array)
    if type(array) is np.ma.MaskedArray and type(np.ma.getdata(array)) is np.ndarray:
        return array
    return np.ma.array(np.asarray(np.ma.getdata(array)), mask=np.ma.getmaskarray(array))


def unmasked(array: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return an array's data and its mask, if it has one."""
    if not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array), None
    return np.asarray(np.ma.getdata(array)), np.asarray(np.ma.getmaskarray(array))


def _numbers(raw: NDArray[Any], column: Column) -> NDArray[Any]:
    wanted = column.numpy_dtype
    if column.is_vector:
        if raw.ndim == 1 and raw.dtype.kind == "O":
            raw = _vectors(raw.tolist(), column.width, real=wanted.kind == "f")
        elif math.prod(raw.shape[1:]) == column.width:
            raw = raw.reshape(len(raw), column.width)  # images, or numbers as vectors of one
    if raw.dtype.kind == "O":
        raw = reals(raw) if wanted.kind == "f" else wholes(raw)
    kind = raw.dtype.kind
    if kind == "b":
        raw, kind = raw.astype(np.uint8), "u"
    if wanted.kind == "f" and kind in "fiu":
        with np.errstate(over="ignore"):  # too large for float32: an infinity, which the gate sees
            values = raw.astype(wanted, copy=False)
        if is_int64(raw):
            values[raw == MISSING] = np.nan  # a copy: the kinds differ
        return values
    if wanted.kind in "iu" and kind == "u" and raw.dtype.itemsize == 8:
        return int64_of(raw)
    if wanted.kind in "iu" and kind in "iu" and np.can_cast(raw.dtype, wanted):
        return raw.astype(wanted, copy=False)
    return raw  # wider integers stay: narrowing could wrap, and the gate checks the range


def _vectors(cells: list[Any], width: int, *, real: bool) -> NDArray[Any]:
    """Read one list of ``width`` numbers a record."""
    read = reals if real else wholes
    out: NDArray[Any] = np.full((len(cells), width), np.nan)
    if not real:
        out = np.full((len(cells), width), MISSING, dtype=np.int64)
    for row, cell in enumerate(cells):
        entries = _entries(cell, width)
        if entries is not None:
            out[row] = read(entries)
    return out


def _entries(cell: Any, width: int) -> Sequence[Any] | None:
    """Return the ``width`` entries of a vector cell, or None."""
    if isinstance(cell, str):
        cell = _parsed(cell, width)
    if isinstance(cell, np.ndarray):
        array, holes = unmasked(cell)
        cell = listed(array)
        if holes is not None:
            hidden = holes.ravel().tolist()
            cell = [None if gone else one for one, gone in zip(cell, hidden, strict=True)]
    if not isinstance(cell, list | tuple):
        cell = [cell]
    return cell if len(cell) == width else None


def _parsed(cell: str, width: int) -> Any:
    """Return the numbers in JSON text, or None."""
    if len(cell) > _ROOM * (width + 1):
        return None
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return found if _is_number(found) else None
    return [entry if _is_number(entry) else None for entry in found]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _punched(found: NDArray[Any], holes: NDArray[np.bool_], column: Column) -> NDArray[Any]:
    """Return a column with missing entries where the mask has holes."""
    holes = holes.reshape(found.shape) if holes.size == found.size else holes
    if column.keys:
        return np.where(holes, -1, found) if found.dtype.kind in "iu" else found
    kind = column.numpy_dtype.kind
    if kind == "f" and found.dtype.kind == "f":
        return np.where(holes, np.array(np.nan, dtype=found.dtype), found)
    if kind in "iu" and found.dtype.kind in "iu":
        return np.where(holes, MISSING, found.astype(np.int64))
    if kind == "O" and found.dtype.kind == "O":
        return np.where(holes, "", found)
    return found
