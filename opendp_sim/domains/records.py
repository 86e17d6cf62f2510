"""Describe a dataset of named, typed columns, as ``data`` declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.core.space import Domain
from opendp_sim.domains.column import Column
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
