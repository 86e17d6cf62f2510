"""Convert callers' tables to arrays, by form alone.

scikit-learn's validation prints arrays, numbers of rows and cells in its messages, and refuses by
value. Here the form (dimensions, columns, dtype) decides alone; cells that cannot be read are missing,
and the gate drops their records (``io/ingest.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from opendp_sim.domains.cell import object_array, text
from opendp_sim.domains.normalise import bare, is_typed, normal
from opendp_sim.domains.records import Column, Records
from opendp_sim.io.columns import frame_columns, stored_as, typed_column
from opendp_sim.io.frames import from_table, told_apart, warn_of_objects
from opendp_sim.io.gate import check_form
from opendp_sim.sklearn._validation.refusals import InputRefused, InputTypeRefused, as_refusals

# --------------------------------------------------------------------------------------------------
# A table whose form was looked at, with the names of its columns: what a search hands to its fits.


@dataclass(frozen=True)
class NamedCells:
    """Cells and the names of their columns.

    A candidate that saw a bare array would know no names, and answer a table in another order.

    Attributes:
        cells: shape (n, d).
        names: as scikit-learn remembers them, shape (d,); None where the columns have none.
    """

    cells: NDArray[Any]
    names: NDArray[np.object_] | None

    @classmethod
    def seen_by(cls, estimator: Any, cells: NDArray[Any]) -> NamedCells:
        """Return cells with an estimator's current column names."""
        return cls(cells, getattr(estimator, "feature_names_in_", None))

    def of(self, rows: Any) -> NamedCells:
        """Return a copy of some rows, since a view keeps all."""
        part = self.cells[rows]
        return NamedCells(part if part.base is None else part.copy(), self.names)

    def tell(self, estimator: Any) -> None:
        """Set an estimator's number and names of columns."""
        estimator.n_features_in_ = self.cells.shape[1]
        if self.names is not None:
            estimator.feature_names_in_ = self.names.copy()
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_


# --------------------------------------------------------------------------------------------------

_NUMBERS = "biufO"
"""Kinds of array that may hold numbers."""


def matrix_of(table: Any) -> NDArray[Any]:
    """Return a table as an array ``(n, d)``, arrays without a copy.

    It is a 2-d array (masked: what is masked is missing), a data frame, or lists of rows.

    Raises:
        InputTypeRefused (OS602): a sparse matrix. InputRefused (OS602): not two dimensions, no column,
            or a dtype that holds no real numbers.
    """
    if hasattr(table, "tocsr") or hasattr(table, "todense"):
        raise InputTypeRefused(
            "OS602", "X", expected="a dense table", got="a sparse matrix",
            hint="zeros of a sparse matrix are records' values too: pass `X.toarray()`.",
        )  # fmt: skip
    array = bare(table) if isinstance(table, np.ndarray) else _framed(table)
    if array.ndim != 2:
        raise InputRefused(
            "OS602",
            "X",
            expected="a 2D array: one row a record, one column a feature",
            got="Expected 2D array, got another number of dimensions",
            hint="Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one "
            "record; of a column of vectors np.stack(column).",
        )
    if array.shape[1] == 0:
        raise InputRefused(
            "OS602", "X", expected="a minimum of 1 feature", got="0 feature(s)",
            hint="name the columns that are features.",
        )  # fmt: skip
    if array.dtype.kind not in _NUMBERS:
        raise InputRefused(
            "OS602", "X", expected="columns of real numbers",
            got="Complex data not supported" if array.dtype.kind == "c" else f"dtype {array.dtype}",
            hint="encode other columns by public rules, before the estimator.",
        )  # fmt: skip
    return array


def label_array(values: Any, name: str) -> NDArray[Any]:
    """Return a target or label as an array (n,), or refuse (OS602)."""
    if values is None:
        raise InputRefused(
            "OS602", name, expected=f"one `{name}` a record",
            got=f"This estimator requires {name} to be passed, but the target {name} is None",
            hint=f"call fit(X, {name}).",
        )  # fmt: skip
    array = _one_column(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputRefused(
            "OS602", name, expected=f"one `{name}` a record: an array of one dimension",
            got="another number of dimensions", hint="fit one estimator for each target.",
        )  # fmt: skip
    return array


def ids_of(values: Any) -> tuple[NDArray[Any], str]:
    """Return person identifiers and their declared dtype.

    Integers, or text. A list, or an array of objects, has no type: each cell stands for the text that
    it is written as.
    """
    ids = label_array(values, "groups")
    if ids.dtype.kind in "iu":
        return ids, "int64"
    if ids.dtype.kind == "O":
        return object_array([text(cell) or None for cell in ids]), "str"
    if ids.dtype.kind in "UST":
        return ids, "str"
    raise InputRefused(
        "OS602", "groups", expected="identifiers that are whole numbers or text",
        got=f"dtype {ids.dtype}", hint="convert them, for example with `.astype(str)`.",
    )  # fmt: skip


def is_text(values: Any) -> bool:
    """Return whether a column's own type is text, without reading cells."""
    frame = None if isinstance(values, np.ndarray | list | tuple) else frame_columns(values)
    if frame is not None and len(frame) == 1:
        return is_text(frame[0])
    kind = getattr(values, "dtype", None) or getattr(values, "type", None)
    return stored_as(kind).startswith(("str", "utf8", "large_string", "<u", ">u"))


def checked_table(est: Any, table: Any, *, reset: bool) -> NDArray[Any]:
    """Return a table as an array, remembering or comparing number and names.

    Raises:
        InputRefused (OS602, OS607): no table, or other columns than those of the fit.
    """
    if reset and isinstance(table, NamedCells):  # from a search that has looked at them
        table.tell(est)
        return table.cells
    table = _ran(table)
    array, refused = matrix_of(table), ""
    named = table if hasattr(table, "columns") else array
    if reset:
        held = table if hasattr(table, "columns") else {"X": table}
        names = dict.fromkeys(map(str, getattr(table, "columns", ["X"])))
        warn_of_objects(held, Records(tuple(Column(name, "float64") for name in names)))
    try:
        validate_data(est, named, reset=reset, skip_check_array=True)
    except (ValueError, TypeError) as error:
        refused = str(error)  # scikit-learn's own words about numbers and names of columns
    if refused:
        raise InputRefused(
            "OS602" if reset else "OS607", "X", expected="the columns of the fit",
            got=refused.removesuffix("."), hint="pass the same columns in the same order.",
        )  # fmt: skip
    return array


def numbers_of(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return cells as floats, one by one, NaN where unreadable."""
    return normal(array, Column("x", f"array[f64, {array.shape[1]}]"))


def dtype_of(array: NDArray[Any]) -> str:
    """Return a feature column's dtype, ``f32`` for float32, else ``f64``."""
    return "f32" if array.dtype == np.float32 else "f64"


def _ran(table: Any) -> Any:
    """Return a lazy frame's result, other tables unchanged."""
    if not callable(getattr(table, "collect", None)):
        return table
    with as_refusals(), told_apart():
        return table.collect()


def _framed(table: Any) -> NDArray[Any]:
    """Return a data frame as an array.

    Its columns' types must be able to mean numbers. Without that, a column of dates or texts would be
    missing in every record, and all would be left out.
    """
    table = _ran(table)
    if isinstance(table, list | tuple):
        return _rows(table)
    names = getattr(table, "column_names", None) or getattr(table, "columns", None)
    if names is None:
        return _plain(table)
    known = [str(name) for name in names]
    if len(set(known)) < len(known):  # columns are told by place
        known = [str(place) for place in range(len(known))]
        table = dict(zip(known, frame_columns(table) or (), strict=True))
    with as_refusals():
        records = Records(tuple(Column(name, "float64") for name in known))
        source = from_table(records, table)
        check_form(source)
        if len(known) == 1 and _is_objects(table):
            raise _no_rows(
                "a column of objects",
                'of a column of vectors np.stack(column), of numbers .astype("Float64").',
            )
        if _is_numpys(table):
            return np.asarray(table)
        blocks = [np.stack(list(block.values()), axis=1) for block in source.blocks()]
    return np.concatenate(blocks) if blocks else np.zeros((0, len(known)))


def _is_numpys(table: Any) -> bool:
    """Return whether all columns have numpy's types."""
    kinds = getattr(table, "dtypes", None) if hasattr(table, "iloc") else None
    return kinds is not None and all(isinstance(kind, np.dtype) for kind in kinds)


def _is_objects(table: Any) -> bool:
    """Return whether a pandas frame has one object column."""
    kinds = getattr(table, "dtypes", None) if hasattr(table, "iloc") else None
    return kinds is not None and all(getattr(kind, "kind", "") == "O" for kind in kinds)


def _rows(table: list[Any] | tuple[Any, ...]) -> NDArray[Any]:
    """Return lists of rows as an array of objects.

    The length of each row is their form. ``numpy.array`` looks into every cell for one dimension more:
    one record would decide for all.
    """
    rows = [row if isinstance(row, list | tuple) else _plain(row) for row in table]
    flat = all(isinstance(row, list | tuple) or row.ndim == 1 for row in rows)
    if not flat:
        return np.empty(len(rows), dtype=object)  # of one dimension, whatever the rows are
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise _no_rows()
    out = np.empty((len(rows), *widths), dtype=object)
    for place, row in enumerate(rows):
        out[place] = object_array(list(row))
    return out


def _one_column(values: Any, name: str) -> NDArray[Any]:
    if isinstance(values, np.ndarray):
        return bare(values)
    if isinstance(values, list | tuple):
        return object_array([_opened(cell) for cell in values])
    frame = frame_columns(values)
    if frame is not None and len(frame) == 1:
        return _one_column(frame[0], name)
    with as_refusals():
        found = typed_column(values, name) if frame is None else None
    return _plain(values) if found is None else found


def _opened(cell: Any) -> Any:
    """Return what a row of one cell holds."""
    if isinstance(cell, np.ndarray) and cell.size == 1:
        return cell.ravel()[0]
    return cell[0] if isinstance(cell, list | tuple) and len(cell) == 1 else cell


def _plain(table: Any) -> NDArray[Any]:
    """Return an object as an array, or refuse it."""
    if is_typed(table):
        raise _no_rows()
    try:
        return np.asarray(table)
    except Exception:  # noqa: BLE001 - numpy quotes cells
        _no_rows().alone()


def _no_rows(
    got: str = "something else", hint: str = "pass an array, a data frame, or a list of rows."
) -> InputRefused:
    return InputRefused("OS602", "X", expected="rows of equal length", got=got, hint=hint)
