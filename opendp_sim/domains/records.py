"""Describe a dataset of named, typed columns, as ``data`` declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core import dp
from opendp_sim.core.bridge import columns_of_frames
from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.core.space import CAST_DOMAINS, Domain, DomainCast
from opendp_sim.domains.cell import MISSING
from opendp_sim.domains.column import Column, texts_there
from opendp_sim.domains.normalise import normal

__all__ = ["Column", "Records"]


@dataclass(frozen=True)
class Records(Domain):
    """Describe datasets, in memory equally long arrays by column name."""

    columns: tuple[Column, ...]

    def column(self, name: str) -> Column | None:
        """Return the column called ``name``, or None."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def privacy_id(self) -> Column | None:
        """The column that names the person, or None."""
        return next((column for column in self.columns if column.role == "privacy_id"), None)

    def no_records(self) -> dict[str, NDArray[Any]]:
        """Return an empty block with every column's dtype and width."""
        return {
            c.name: np.zeros((0, c.width) if c.is_vector else 0, dtype=c.numpy_dtype)
            for c in self.columns
        }

    def normal(self, data: Any) -> Any:
        """Return the declared columns that are present, in canonical form."""
        known = {column.name: column for column in self.columns}
        if not isinstance(data, Mapping):
            return data
        return {
            name: normal(values, known[name], indices=True) if name in known else values
            for name, values in data.items()
        }

    def check(self, data: Any) -> None:
        """Refuse missing columns, wrong widths and dtypes, NaN, foreign labels, broken bounds."""
        if not isinstance(data, Mapping):
            raise DataError(
                "OS602", "records", expected="a mapping of column names to arrays", got="something else",
                hint="give {name: array}, one entry a record in each.",
            )  # fmt: skip
        lengths = {len(values) for values in data.values()}
        for column in self.columns:
            if column.name not in data:
                raise DataError(
                    "OS602", f"column {column.name}", expected="the column", got="no such column",
                    hint="name the columns of the source in the spec's `columns`.",
                )  # fmt: skip
        if len(lengths) > 1:
            raise DataError(
                "OS602", "records", expected="columns of one length", got="several lengths",
                hint="every column needs one entry a record.",
            )  # fmt: skip
        for column in self.columns:
            column.check(data[column.name], next(iter(lengths), 0))


# --------------------------------------------------------------------------------------------------
# Polars frames, as OpenDP's Context holds them, read as records (``casts.md``, Lemma 2).

_WHOLE = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32")
_DTYPES = dict.fromkeys(_WHOLE, "int64") | {
    **dict.fromkeys(("Float32", "Float64"), "float64"),
    "Boolean": "bool",
    "Date": "date",
    "String": "str",
    "Enum": "category",
}
"""Types of ours, by the name of the Polars type whose every value they hold or drop."""


def _frames(domain: dp.Domain) -> DomainCast | None:
    """Read a domain of frames as records of known column types."""
    if not isinstance(domain, dp.LazyFrameDomain):
        return None
    found = (_column(name, kind) for name, kind in columns_of_frames(domain).items())
    return _read_as(Records(tuple(column for column in found if column is not None)))


def _read_as(records: Records) -> DomainCast:
    """Return the function from frames to records."""

    def function(frame: Any) -> dict[str, NDArray[Any]]:
        names = [column.name for column in records.columns]
        table = frame.select(names).drop_nulls().collect()
        cells = {column.name: _cells(table[column.name], column) for column in records.columns}
        there = np.ones(len(table), dtype=bool)
        for column in records.columns:
            there &= _there(cells[column.name], column)
        return {name: values[there] for name, values in cells.items()}

    def only(names: frozenset[str]) -> DomainCast:
        return _read_as(Records(tuple(c for c in records.columns if c.name in names)))

    return DomainCast(records, function, only)


def _column(name: str, kind: Any) -> Column | None:
    dtype = _DTYPES.get(str(kind.base_type()))
    if dtype is None:
        return None
    try:
        return Column(name, dtype, keys=tuple(kind.categories) if dtype == "category" else ())
    except SpecError:  # keys that are none of ours: none, blanks around, or two that read alike
        return None


def _cells(series: Any, column: Column) -> NDArray[Any]:
    """Return a column's cells as our domain has them."""
    if column.dtype in ("category", "date"):
        series = series.to_physical()
    values = (
        np.array(series.to_list(), dtype=object) if column.dtype == "str" else series.to_numpy()
    )
    return values.astype(column.numpy_dtype)


def _there(values: NDArray[Any], column: Column) -> NDArray[np.bool_]:
    """Return which cells hold a value of the column's type."""
    if column.dtype == "str":
        return texts_there(values)
    return np.isfinite(values) if column.dtype == "float64" else values != MISSING


CAST_DOMAINS.append(_frames)
