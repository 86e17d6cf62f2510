"""Read Arrow arrays.

Files, frames and engines with Arrow give the same records. What an array becomes is decided by its
Arrow type and the declared dtype alone, never by its nulls or its values: a null is a missing cell,
and a type that has no meaning for the column is refused in every batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.domains.cell import MISSING, object_array
from opendp_sim.domains.normalise import normal
from opendp_sim.domains.records import Column
from opendp_sim.io.conform import ANY, missing_column, unquoted

_TILE = 32
"""Columns that are stacked together: a third of the time for 256 columns, more for more."""


def from_arrow(array: Any, column: Column) -> NDArray[Any]:
    """Return a ``pyarrow`` array as an equivalent numpy array.

    ``domains.normalise.normal`` reads both in the same way.

    Args:
        array: a ``pyarrow.Array`` or ``ChunkedArray`` of any type.
        column: the declaration.

    Returns:
        Shape (n,), or (n, width) for a vector: lists of another length are missing. Integers and truth
        values are numbers, decimals are the numbers they write, a dictionary is what it stands for, a
        column of type null is missing throughout, dates and times are such where ``date`` is
        declared. Texts are decoded as a ``.csv`` is: bytes that are no UTF-8 stay as they are. Text
        where numbers are declared, binary, dates, times, structures and lists where no vector is
        declared come back with a dtype that the gate refuses.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra

    if isinstance(
        array, pa.ChunkedArray
    ):  # Arrow mistakes half floats where it unifies dictionaries
        chunks = array.chunks or [pa.nulls(0, array.type)]
        parts = [from_arrow(chunk, column) for chunk in chunks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    if pa.types.is_floating(array.type) and column.dtype not in ("str", "date"):
        return filled(array, math.nan)
    if pa.types.is_dictionary(array.type) and (column.dtype == "str" or column.keys):
        return _words(array, column)
    array = _laid_out(array)
    if column.is_vector and _is_list(array.type):
        return _lists(array, column)
    return _cells(array, column)


def no_rows(schema: Any) -> Any:
    """Return a table of a schema without records (``empty_table`` loads pandas)."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    return pa.Table.from_batches([], schema=schema)


def stored_in(
    column: Column, stored: str | tuple[str, ...], known: Sequence[str]
) -> tuple[str, ...]:
    """Return a table's name, or a vector's names, for a declared column.

    ``stored`` is what the caller says it is called, ``known`` the table's columns; none of them is
    refused (OS602).
    """
    names = stored if isinstance(stored, tuple) else (stored,)
    if column.is_vector and names[0] not in known:
        names = tuple(f"{names[0]}_{entry}" for entry in range(column.width))
    if not all(name in known for name in names) or len(names) not in (1, column.width):
        raise missing_column(column.name)
    return names


def arrow_column(column: Column, parts: Sequence[Any]) -> NDArray[Any]:
    """Return a column from its Arrow or numpy parts (OS602)."""
    with unquoted(column.name):
        if len(parts) == 1:
            return _numpy(parts[0], column)
        entry = entry_of(column)
        found = [_numpy(part, entry) for part in parts]
        if column.numpy_dtype.kind == "f" and all(_plain(one, found[0]) for one in found):
            return _beside(found, column.numpy_dtype)
        return np.stack([normal(one, entry) for one in found], axis=1)


def _plain(values: NDArray[Any], like: NDArray[Any]) -> bool:
    """Return whether a column is floats that are only cast."""
    floats = type(values) is np.ndarray and values.dtype.kind == "f" and values.dtype.itemsize <= 8
    return floats and values.shape == (len(like),)


def _beside(columns: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return columns stacked and cast, with one copy."""
    found = np.empty((len(columns[0]), len(columns)), dtype)
    with np.errstate(over="ignore"):  # too large for float32: an infinity, which the gate sees
        if len(columns) > _TILE:  # a row is no longer in the cache when its next cell comes
            for at in range(0, len(columns), _TILE):
                found[:, at : at + _TILE] = np.array(columns[at : at + _TILE]).T
            return found
        for at, values in enumerate(columns):
            found[:, at] = values
    return found


def _numpy(part: Any, column: Column) -> NDArray[Any]:
    return part if isinstance(part, np.ndarray) else from_arrow(part, column)


def entry_of(column: Column) -> Column:
    """Return the declaration of a vector column's entry as number column."""
    dtype = "float64" if column.numpy_dtype.kind == "f" else "int64"
    return replace(column, dtype=dtype) if column.is_vector else column


def _laid_out(array: Any) -> Any:
    """Return the same cells in a type with Arrow kernels."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import compute, types  # noqa: PLC0415 - an extra

    if isinstance(array, pa.ExtensionArray):
        if array.type.extension_name.startswith("pandas."):  # periods are no numbers of anything
            return array
        array = array.storage
    kind = array.type
    if types.is_run_end_encoded(kind):
        return _laid_out(compute.run_end_decode(array))
    if types.is_dictionary(kind):
        words = _laid_out(array.dictionary)
        whole = pa.DictionaryArray.from_arrays(array.indices.cast("int64"), words)
        return whole.dictionary_decode()
    if types.is_string_view(kind):
        return array.cast("large_string")
    return array


def _words(array: Any, column: Column) -> NDArray[Any]:
    """Return a dictionary's words, each once."""
    indices = filled(array.indices.cast("int64"), -1)
    used, place = np.unique(indices, return_inverse=True)
    words = _laid_out(array.dictionary).take(_indices(used))
    cells = _cells(words, column)
    return cells[place]


def _indices(used: NDArray[np.int64]) -> Any:
    """Return places in a dictionary as Arrow has them; -1 is none."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    return pa.Array.from_buffers(pa.int64(), len(used), [_bits(used >= 0), pa.py_buffer(used)])


def _bits(marks: NDArray[np.bool_]) -> Any:
    """Return truth values as Arrow's buffer."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    return pa.py_buffer(np.packbits(marks, bitorder="little"))


def _is_list(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415 - an extra

    plain = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(plain or types.is_list_view(kind) or types.is_large_list_view(kind))


def _cells(array: Any, column: Column) -> NDArray[Any]:
    """Return a flat array in numpy's form."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    kind = array.type
    if types.is_null(kind):
        return np.full(len(array), None, dtype=object)
    if column.dtype == "date":
        if types.is_date(kind) or types.is_timestamp(kind):
            return array.to_numpy(zero_copy_only=False)
        return _unmeant(len(array), kind)
    number = column.dtype != "str"
    if (not number or column.keys) and (types.is_string(kind) or types.is_large_string(kind)):
        return _texts(array)
    if number and types.is_decimal(kind):
        return np.array([*array.to_pylist(), None], dtype=object)[:-1]
    if number and types.is_floating(kind):
        return filled(array, math.nan)
    if number and (types.is_boolean(kind) or types.is_integer(kind)):
        return _integers(array, real=not column.keys and column.numpy_dtype.kind == "f")
    return _unmeant(len(array), kind)


def _unmeant(shape: int | tuple[int, int], kind: Any) -> NDArray[Any]:
    """Return cells of a refused dtype with the Arrow type's name."""
    return np.zeros(shape, dtype=[(str(kind), "V1")])


def _texts(array: Any) -> NDArray[Any]:
    import pyarrow as pa  # noqa: PLC0415 - an extra

    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        cells = array.cast("large_binary").to_numpy(zero_copy_only=False).tolist()
        return object_array([None if cell is None else cell.decode("utf-8", ANY) for cell in cells])
    return array.to_numpy(zero_copy_only=False)


def _integers(array: Any, *, real: bool) -> NDArray[Any]:
    """Return integers as float64 for declared reals, else int64."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    if types.is_boolean(array.type):
        array = array.cast("int64")
    if real:
        return filled(array.cast("float64", safe=False), math.nan)
    if types.is_uint64(array.type):  # what no int64 holds is missing, as in a text
        return np.minimum(filled(array, 2**63), 2**63).astype(np.int64)
    return filled(array.cast("int64"), MISSING)


def filled(array: Any, missing: float) -> NDArray[Any]:
    """Return an array of numbers as numpy's, ``missing`` where null.

    By DLPack: Arrow's own ``to_numpy`` and ``scalar`` load pandas where it is installed, 34 MiB.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra

    if not array.null_count:
        return np.from_dlpack(array)
    cells = [None, array.buffers()[1]]
    found = np.from_dlpack(pa.Array.from_buffers(array.type, len(array), cells, 0, array.offset))
    holes = np.from_dlpack(array.is_null().cast("uint8")).view(bool)
    return np.where(holes, np.asarray(missing).astype(found.dtype), found)


def _lists(array: Any, column: Column) -> NDArray[Any]:
    """Return lists as rows, missing where null or of another length.

    Views are lists too, in whatever order. Casting them to lists loses the last one (pyarrow 26).
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import compute  # noqa: PLC0415 - an extra

    lengths = filled(compute.list_value_length(array), -1)
    good = lengths == column.width
    marks = pa.Array.from_buffers(pa.bool_(), len(good), [None, _bits(good)])
    flat = compute.list_flatten(array if good.all() else array.filter(marks))
    values = normal(from_arrow(flat, entry_of(column)), entry_of(column))
    if values.dtype.kind not in "fiu":
        return _unmeant((len(array), column.width), array.type)
    if not good.all():
        fill = np.nan if values.dtype.kind == "f" else MISSING
        rows = np.full((len(array), column.width), fill, dtype=values.dtype)
        rows[good] = values.reshape(-1, column.width)
        values = rows
    return values.reshape(len(array), column.width)
