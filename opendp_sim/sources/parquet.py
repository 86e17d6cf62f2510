"""``.parquet`` files, through pyarrow (the extra ``parquet``), a batch of records at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.sources.conform import MISSING, missing_column
from opendp_sim.sources.place import Place, reading
from opendp_sim.sources.source import Raw, Table
from opendp_sim.spaces.records import Column, Records

__all__ = ["parquet_source"]


def parquet_source(place: Place, records: Records) -> Table:
    """Return a source over a ``.parquet`` file.

    A vector is a column of lists, or several columns of numbers as in a ``.csv``. Nulls and lists of
    another length are missing: the gate refuses them or drops the record.

    Raises:
        DataError (OS601): not a readable file. (OS602): no such column. (OS606): no pyarrow.
    """
    arrow = _pyarrow()
    with reading(place.file, "readable .parquet"), arrow.ParquetFile(place.file) as file:
        names = {c.name: _stored(c, place, file.schema_arrow.names) for c in records.columns}
        length = int(file.metadata.num_rows)
    wanted = sorted({name for several in names.values() for name in several})

    def pieces(rows: int) -> Iterator[Raw]:
        with reading(place.file, "readable .parquet"), arrow.ParquetFile(place.file) as file:
            for batch in file.iter_batches(batch_size=rows, columns=wanted):
                yield {
                    column.name: _column(column, [batch.column(n) for n in names[column.name]])
                    for column in records.columns
                }

    return Table(records, pieces, length)


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet as arrow  # noqa: PLC0415 - an extra
    except ImportError:
        raise DataError(
            "OS606", "parquet", expected="pyarrow", got="no such package",
            hint="pip install 'opendp_sim[parquet]', or convert the file to .npz or .csv.",
        ) from None  # fmt: skip
    return arrow


def _stored(column: Column, place: Place, known: list[str]) -> list[str]:
    stored = place.stored(column.name)
    names = list(stored) if isinstance(stored, tuple) else [stored]
    if column.is_vector and names[0] not in known:
        names = [f"{stored}_{entry}" for entry in range(column.width)]
    if not all(name in known for name in names) or len(names) not in (1, column.width):
        raise missing_column(column.name)
    return names


def _column(column: Column, parts: list[Any]) -> NDArray[Any]:
    if not column.is_vector:
        return _scalars(parts[0], column)
    if len(parts) == column.width > 1:
        return np.stack([_scalars(part, column) for part in parts], axis=1)
    return _lists(parts[0], column)


def _scalars(array: Any, column: Column) -> NDArray[Any]:
    """Return a flat arrow array; null is NaN, the missing integer, or an empty text.

    The dtype, and so what becomes of a number, may not depend on whether nulls came up in the batch:
    integers go to float64 where floats are declared, else to signed 64 bits.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import compute, types  # noqa: PLC0415 - an extra

    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_boolean(array.type):
        array = array.cast("int64")
    if types.is_integer(array.type) and column.numpy_dtype.kind == "f":
        array = array.cast("float64", safe=False)
    elif types.is_integer(array.type):
        if types.is_uint64(array.type):  # what no int64 holds is missing, as in a text
            fits = compute.less(array, pa.scalar(2**63, pa.uint64()))
            array = compute.if_else(fits, array, pa.scalar(None, pa.uint64()))
        array = array.cast("int64").fill_null(MISSING)
    elif types.is_string(array.type) or types.is_large_string(array.type):
        array = array.fill_null("")
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _lists(array: Any, column: Column) -> NDArray[Any]:
    """Return lists as rows; a null, or a list of another length, is a row of missing entries."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import compute, types  # noqa: PLC0415 - an extra

    kind = array.type
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return _scalars(array, column)
    lengths = compute.list_value_length(array).fill_null(-1).to_numpy(zero_copy_only=False)
    good = lengths == column.width
    values = _scalars(compute.list_flatten(array.filter(pa.array(good))), column)
    if good.all():
        return values.reshape(len(array), column.width)
    whole = values.dtype.kind == "i"
    out = np.full(
        (len(array), column.width), MISSING if whole else np.nan, dtype=np.int64 if whole else None
    )
    out[good] = values.reshape(-1, column.width)
    return out
