"""Read a column in memory by its library's type.

``numpy.asarray`` does not do: of a Polars series, an Arrow array or a nullable column of pandas it
makes int64 without a null and float64 with one, so that one record would decide what all others become.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.domains.normalise import as_array, is_typed
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.arrow import arrow_column, from_arrow
from opendp_sim.io.conform import missing_column, no_arrow_type, unquoted

Cut = Callable[[slice], Any]
"""What gives a slice of a column, as numpy's array or Arrow's."""
_IN_ARROW = frozenset(
    {
        *("Null", "Boolean", "String", "Utf8", "Categorical", "Enum", "Binary", "Date", "Time"),
        *("Datetime", "Duration", "Decimal", "Float16", "Float32", "Float64"),
        *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    }
)
"""Types of Polars whose export to Arrow is what they hold, in each of its versions."""


@dataclass(frozen=True)
class UnreadColumn:
    """Hold one declared column, of one part or one a vector's entry."""

    cuts: tuple[Cut, ...]
    length: int

    def __len__(self) -> int:
        """How many cells there are."""
        return self.length


def held_columns(
    columns: Mapping[str, Any], records: Records
) -> tuple[dict[str, UnreadColumn], Callable[[slice], dict[str, NDArray[Any]]]]:
    """Return a dict's declared columns, and a reader of slices (OS602)."""
    found = {}
    for column in records.columns:
        with unquoted(column.name):
            if column.name not in columns:
                raise missing_column(column.name)
            found[column.name] = stored_column(columns[column.name], column)

    def read(part: slice) -> dict[str, NDArray[Any]]:
        return {
            c.name: arrow_column(c, [cut(part) for cut in found[c.name].cuts])
            for c in records.columns
        }

    return found, read


def stored_column(values: Any, column: Column) -> UnreadColumn:
    """Return a column as stored, numpy's and Arrow's data uncopied.

    It is an array or a sequence, a series or an array of pandas, Polars or Arrow, or for a vector a
    frame of them with one number for each entry.
    """
    if (
        hasattr(values, "compute") and library_of(values) == "dask"
    ):  # its result is pandas' or numpy's
        values = values.compute()
    if library_of(values) == "narwhals":
        values = values.to_native()
    frame = frame_columns(values) if column.is_vector else None
    if frame is not None:
        parts = [stored_column(part, column) for part in frame]
        if len(parts) == column.width:
            return UnreadColumn(tuple(cut for part in parts for cut in part.cuts), len(values))
        raise missing_column(column.name, f"{column.width} numbers a record")
    if not is_typed(values):
        array = as_array(values)
        if not array.ndim:
            raise missing_column(column.name, "one cell a record")
        return UnreadColumn((array.__getitem__,), len(array))
    if library_of(values) == "pandas":
        series = values if hasattr(values, "iloc") else import_module("pandas").Series(values)
        return UnreadColumn((slices(series, column.name),), len(series))
    cells = _arrow(values, column.name)
    return UnreadColumn((cells.__getitem__,), len(cells))


def typed_column(values: Any, name: str) -> NDArray[Any] | None:
    """Return a column of a library with own types, else None.

    Its dtype follows from that type alone.
    """
    if not is_typed(values):
        return None
    with unquoted(name):
        whole = stored_column(values, Column(name, "str")).cuts[0](slice(None))
        return whole if isinstance(whole, np.ndarray) else from_arrow(whole, _alike(whole, name))


def slices(series: Any, name: str) -> Cut:
    """Return a slicer of a pandas column by dtype or cell."""
    words = getattr(getattr(series, "cat", None), "categories", series)
    objects = words.dtype == object or getattr(words.dtype, "storage", "") == "python"
    if objects:
        return lambda part: series.iloc[part].to_numpy(dtype=object)
    if isinstance(series.dtype, np.dtype):
        return lambda part: series.iloc[part].to_numpy()
    if hasattr(series, "sparse"):
        return lambda part: np.asarray(series.iloc[part])
    arrow = pyarrow()

    def converted(part: slice) -> Any:
        with unquoted(name):
            return arrow.array(series.iloc[part], from_pandas=True)

    return converted


def pyarrow() -> Any:
    """Return the package, or say that it is needed (OS606)."""
    try:
        return import_module("pyarrow")
    except ImportError:
        raise DataError(
            "OS606", "table", expected="pyarrow, which reads data frames", got="no such package",
            hint="pip install 'opendp_sim[parquet]', or pass a dict of numpy arrays.",
        ) from None  # fmt: skip


def library_of(values: object) -> str:
    """Return the library of a type, or of its nearest known base."""
    homes = [kind.__module__.partition(".")[0] for kind in type(values).__mro__]
    known = ("dask", "narwhals", "pandas", "polars", "pyarrow")
    return next((home for home in homes if home in known), homes[0])


def from_polars(series: Any, name: str) -> Any:
    """Return a Polars column as an Arrow array, or refuse (OS602).

    The type decides before anything is exported: an export of objects ends the process in some versions
    (1.36) and gives addresses in others (2.1), and a structure with a null may come out too short
    (1.36).
    """
    if not in_arrow(getattr(series, "dtype", None)):
        raise no_arrow_type(name)
    with unquoted(name):
        cells = pyarrow().chunked_array(series)
        cells.validate()
        return cells


def in_arrow(kind: Any) -> bool:
    """Return whether Arrow has a type of Polars; structures are left out."""
    word = kind.base_type().__name__ if hasattr(kind, "base_type") else ""
    return (
        in_arrow(getattr(kind, "inner", None)) if word in ("List", "Array") else word in _IN_ARROW
    )


def _arrow(values: Any, name: str) -> Any:
    if library_of(values) == "polars":
        return from_polars(values, name)
    arrow = pyarrow()
    if isinstance(values, arrow.Array | arrow.ChunkedArray):
        return values
    if hasattr(values, "__arrow_c_stream__"):
        return arrow.chunked_array(values)
    return arrow.array(values)


def frame_columns(values: Any) -> list[Any] | None:
    """Return the columns of a frame; None for anything else."""
    if hasattr(values, "iloc") and hasattr(values, "columns"):
        return [values.iloc[:, place] for place in range(len(values.columns))]
    if hasattr(values, "get_columns"):
        return list(values.get_columns())
    return list(values.columns) if hasattr(values, "column_names") else None


def _alike(cells: Any, name: str) -> Column:
    """Return a declaration that means what an Arrow type means by itself."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    kind = cells.type
    while types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_boolean(kind):
        return Column(name, "int64")
    texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    return Column(name, "str" if texts else "float64")


def stored_as(kind: Any) -> str:
    """Return a column's type in lower case.

    Of categories and dictionaries, that of their values. Categories that are objects name texts:
    numbers in their place would have a type.
    """
    named = getattr(getattr(kind, "categories", None), "dtype", None)
    word = "" if kind is None else str(kind).lower()
    if word == "category" and named is not None:
        return "str" if str(named) == "object" else stored_as(named)
    if word.startswith(("categorical", "enum")):  # Polars knows them of texts alone
        return "str"
    return word.removeprefix("dictionary<values=")
