"""Show released columns as a small table for numpy, frames and notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.core.system.escape_text import escape
from opendp_sim.domains.cell import columned, of_one_type

_SHOWN = 10
"""Rows that a notebook and a terminal show."""
_COLUMNS = 80
_FREE = "post-processing, no further privacy loss"


class Table:
    """Hold released columns by name.

    Computed from a release alone, so reading it loses no privacy. It is no ``Mapping``, because data
    frame libraries would then take it for a dict of columns.

    Args:
        columns: arrays or lists by name.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns: dict[str, NDArray[Any]] = {
            name: columned(value) for name, value in columns.items()
        }

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the array called ``name``."""
        try:
            return self.columns[name]
        except KeyError:
            raise DataError(
                "OS602", type(self).__name__.lower(), expected=f"one of {', '.join(self.columns)}",
                got=str(name), hint="`keys()` lists the columns.",
            ) from None  # fmt: skip

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.columns)

    def __iter__(self) -> Iterator[str]:
        """Return the names of the columns, one after another."""
        return iter(self.columns)

    def __len__(self) -> int:
        """Return the number of rows of the table."""
        return len(next(iter(self.table().values()), ()))

    def table(self) -> dict[str, NDArray[Any]]:
        """Return columns of one length by name."""
        return dict(self.columns)

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table``; needs the extra ``parquet``.

        Labels or items of which some are texts and some numbers are each written as JSON.
        """
        arrow = _needs("pyarrow", "parquet")
        return arrow.table(
            {
                k: arrow.array(v if v.dtype.kind == "M" else of_one_type(v).tolist())
                for k, v in self.table().items()
            }
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table as an Arrow stream."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``."""
        return _needs("pandas", "pandas").DataFrame(self.table())

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``; texts and numbers in one column as ``to_arrow``."""
        table = {name: of_one_type(column) for name, column in self.table().items()}
        return _needs("polars", "polars").DataFrame(
            {k: v.tolist() if v.dtype == object else v for k, v in table.items()}
        )

    def __repr__(self) -> str:
        """Return the size, the columns and what reading costs."""
        names = escape(", ".join(self.table()))
        return f"{type(self).__name__}({len(self)} rows: {names}; {_FREE})"

    def __str__(self) -> str:
        """Return the first rows as text, in lines of 80."""
        table = self.table()
        cells = [
            [name, *(_cell(value) for value in column[:_SHOWN].tolist())]
            for name, column in table.items()
        ]
        wide = [max(map(len, column)) for column in cells]
        fits = max(1, sum(sum(wide[: n + 1]) + 2 * n <= _COLUMNS for n in range(len(wide))))
        lines = [
            "  ".join(text.rjust(size) for text, size in zip(row, wide, strict=False))
            for row in zip(*cells[:fits], strict=True)
        ]
        more = [f"... {len(self) - _SHOWN} more rows"] if len(self) > _SHOWN else []
        hidden = ", ".join(list(table)[fits:])
        more += [f"... and {hidden}: `to_pandas()` has all"] if hidden else []
        return "\n".join(escape(line) for line in (*lines, *more))

    def _repr_html_(self) -> str:
        """Return the first rows for a notebook; every text is escaped."""
        table = self.table()
        head = "".join(f"<th>{html.escape(escape(name))}</th>" for name in table)
        body = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(escape(_cell(a[i])))}</td>" for a in table.values())
            + "</tr>"
            for i in range(min(_SHOWN, len(self)))
        )
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>{len(self)} rows; {_FREE}</p>"
        )


def _cell(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float | np.floating) else str(value)


def _needs(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise DataError(
            "OS606", module, expected=f"the package {module}", got="it is not installed",
            hint=f"pip install {module}" + (" (extra `parquet`)." if package == "parquet" else "."),
        ) from None  # fmt: skip
