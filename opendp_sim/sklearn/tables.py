"""What callers hand over, as arrays that the house's own door reads: only their form is looked at.

scikit-learn's validation prints arrays, numbers of rows and cells in its messages, and refuses by
value. Here the form (dimensions, columns, dtype) decides alone; cells that cannot be read are missing,
and the gate drops their records (``sources/ingest.md``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from opendp_sim.sklearn.refusals import InputRefused, InputTypeRefused, as_refusals
from opendp_sim.sources.frames import from_table, told_apart
from opendp_sim.sources.gate import check_form
from opendp_sim.spaces.normal import normal
from opendp_sim.spaces.records import Column, Records

__all__ = ["column_of", "dtype_of", "ids_of", "matrix_of", "numbers_of", "seen"]

_NUMBERS = "biufO"
"""Kinds of array that may hold numbers."""


def matrix_of(table: Any) -> NDArray[Any]:
    """Return a table as an array of shape (n, d), without a copy where it is one.

    Args:
        table: a 2-d array (masked: what is masked is missing), a data frame, or lists of rows.

    Raises:
        InputTypeRefused (OS602): a sparse matrix. InputRefused (OS602): not two dimensions, no column,
            or a dtype that holds no real numbers.
    """
    if hasattr(table, "tocsr") or hasattr(table, "todense"):
        raise InputTypeRefused(
            "OS602",
            "X",
            expected="a dense table",
            got="a sparse matrix",
            hint="zeros of a sparse matrix are records' values too: pass `X.toarray()`.",
        )
    array = table if isinstance(table, np.ndarray) else _framed(table)
    if array.ndim != 2:
        raise InputRefused(
            "OS602",
            "X",
            expected="a 2D array: one row a record, one column a feature",
            got="Expected 2D array, got another number of dimensions",
            hint="Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one record.",
        )
    if array.shape[1] == 0:
        raise InputRefused(
            "OS602",
            "X",
            expected="a minimum of 1 feature",
            got="0 feature(s)",
            hint="name the columns that are features.",
        )
    if array.dtype.kind not in _NUMBERS:
        raise InputRefused(
            "OS602",
            "X",
            expected="columns of real numbers",
            got="Complex data not supported" if array.dtype.kind == "c" else f"dtype {array.dtype}",
            hint="encode other columns by public rules, before the estimator.",
        )
    return array


def column_of(values: Any, name: str) -> NDArray[Any]:
    """Return a target or a label as an array of shape (n,).

    Raises:
        InputRefused (OS602): none was given, or not one value a record.
    """
    if values is None:
        raise InputRefused(
            "OS602",
            name,
            expected=f"one `{name}` a record",
            got=f"This estimator requires {name} to be passed, but the target {name} is None",
            hint=f"call fit(X, {name}).",
        )
    array = values if isinstance(values, np.ndarray) else _plain(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputRefused(
            "OS602",
            name,
            expected=f"one `{name}` a record: an array of one dimension",
            got="another number of dimensions",
            hint="fit one estimator for each target.",
        )
    return array


def ids_of(values: Any) -> tuple[NDArray[Any], str]:
    """Return person identifiers and the dtype that declares them: whole numbers, or text."""
    ids = column_of(values, "groups")
    if ids.dtype.kind in "iu":
        return ids, "int64"
    if ids.dtype.kind in "OUST":
        return ids, "str"
    raise InputRefused(
        "OS602",
        "groups",
        expected="identifiers that are whole numbers or text",
        got=f"dtype {ids.dtype}",
        hint="convert them, for example with `.astype(str)`.",
    )


def seen(est: Any, table: Any, *, reset: bool) -> NDArray[Any]:
    """Return a table as an array; remember, or compare, the number and names of its columns.

    Raises:
        InputRefused (OS602, OS607): no table, or other columns than those of the fit.
    """
    table = _ran(table)
    array, refused = matrix_of(table), ""
    named = table if hasattr(table, "columns") else array
    try:
        validate_data(est, named, reset=reset, skip_check_array=True)
    except (ValueError, TypeError) as error:
        refused = str(error)  # scikit-learn's own words about numbers and names of columns
    if refused:
        raise InputRefused(
            "OS602" if reset else "OS607",
            "X",
            expected="the columns of the fit",
            got=refused,
            hint="pass the same columns in the same order.",
        )
    return array


def numbers_of(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return cells as floats, NaN where one cannot be read: cell by cell, as the gate reads them."""
    return normal(array, Column("x", f"array[f64, {array.shape[1]}]"))


def dtype_of(array: NDArray[Any]) -> str:
    """Return the declared dtype of a feature column: ``f32`` for float32, else ``f64``."""
    return "f32" if array.dtype == np.float32 else "f64"


def _ran(table: Any) -> Any:
    """Return the result of a lazy frame's query; any other table as it is."""
    if not callable(getattr(table, "collect", None)):
        return table
    with as_refusals(), told_apart():
        return table.collect()


def _framed(table: Any) -> NDArray[Any]:
    """Return a data frame as an array, once the types of its columns can mean numbers.

    Without that, a column of dates or texts would be missing in every record, and all would be left out.
    """
    table = _ran(table)
    names = getattr(table, "column_names", None) or getattr(table, "columns", None)
    if names is None or isinstance(table, list | tuple):
        return _plain(table)
    known = [str(name) for name in names]
    if len(set(known)) < len(known):  # columns are told by place
        return _plain(table)
    with as_refusals():
        records = Records(tuple(Column(name, "float64") for name in known))
        source = from_table(records, table)
        check_form(source)
        if hasattr(table, "__array__"):
            return _plain(table)
        blocks = [np.stack(list(block.values()), axis=1) for block in source.blocks()]
    return np.concatenate(blocks) if blocks else np.zeros((0, len(known)))


def _plain(table: Any) -> NDArray[Any]:
    """Return lists and frames as an array; what has no form as one is refused without a word of it.

    A list has no dtype: its cells are read one by one, so that none decides about the others.
    """
    try:
        found = (
            np.array(table, dtype=object) if isinstance(table, list | tuple) else np.asarray(table)
        )
    except Exception:  # noqa: BLE001 - numpy quotes cells
        found = None
    if found is None:
        raise InputRefused(
            "OS602",
            "X",
            expected="rows of equal length",
            got="something else",
            hint="pass an array, a data frame, or a list of rows.",
        )
    return found
