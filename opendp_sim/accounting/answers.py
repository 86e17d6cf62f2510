"""What a release answered: a small table that numpy, pandas, Polars, Arrow and a notebook read."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError
from opendp_sim.core.shown import shown
from opendp_sim.core.space import Domain
from opendp_sim.spaces.cell import columned, of_one_type

__all__ = ["Answers"]

_SHOWN = 10
"""Rows that a notebook and a terminal show."""
_COLUMNS = 80


class Answers:
    """The answers to public queries, computed from a release alone: no further privacy loss.

    ``answers["density"]`` is the numpy array of that name, of shape (q,) or (q, L) for L classes.
    As a table it is long: one row for each query and class. It is no ``Mapping``, because data
    frame libraries would then take it for a dict of columns of equal length.

    Args:
        columns: arrays by name, as the query mechanism returned them.
        domain: the type of the answers; its ``labels`` name the classes.
        queries: the columns of the queries, which the table carries along.
        question: the query mechanisms that answered, in order.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        domain: Domain | None = None,
        queries: Mapping[str, NDArray[Any]] | None = None,
        question: Sequence[str] = (),
        again: Any = None,
    ) -> None:
        self.columns: dict[str, NDArray[Any]] = {
            name: columned(value) for name, value in columns.items()
        }
        self.domain = domain
        self.labels: tuple[str | int, ...] | None = getattr(domain, "labels", None)
        self.queries = dict(queries or {})
        self.question = tuple(question)
        self._again = again

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return the array called ``name``."""
        try:
            return self.columns[name]
        except KeyError:
            raise DataError(
                "OS602",
                "answers",
                expected=f"one of {', '.join(self.columns)}",
                got=str(name),
                hint="`answers.keys()` lists the columns.",
            ) from None

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.columns)

    def __iter__(self) -> Iterator[str]:
        """Return the names of the columns, one after another."""
        return iter(self.columns)

    def __len__(self) -> int:
        """Return the number of rows of the table."""
        return len(next(iter(self.table().values()), ()))

    def ask(self, question: str, **parameters: Any) -> Answers:
        """Ask these answers a further question, such as ``classify`` after ``density``.

        Raises:
            ParameterError (OS101): an unknown question or parameter. SpaceError (OS201): a question
                that starts from a release.
        """
        if self._again is None:
            raise DataError(
                "OS602",
                "answers",
                expected="answers that came from `release.ask`",
                got="answers without their release",
                hint="ask the release again.",
            )
        found: Answers = self._again(question, parameters)
        return found

    # --- as a table --------------------------------------------------------------------------------

    def table(self) -> dict[str, NDArray[Any]]:
        """Return columns of one length: one row for each query, or for each query and class."""
        rows = max((len(np.atleast_1d(a)) for a in self.columns.values()), default=0)
        classes = self.labels if self.labels is not None and len(self.labels) > 1 else None
        long = classes is not None and any(self._by_class(a) for a in self.columns.values())
        each = len(classes) if long and classes is not None else 1
        out: dict[str, NDArray[Any]] = {}
        carried = {name: a for name, a in self.queries.items() if len(a) == rows}
        out["query"] = np.repeat(np.arange(rows), each)
        for name, array in carried.items():
            out |= _spread(name if name not in self.columns else f"query_{name}", array, each)
        if long:
            out["class"] = np.tile(columned(classes), rows)
        for name, array in self.columns.items():
            if long and self._by_class(array):
                out[name] = array.reshape(-1)
            else:
                out |= _spread(name, self._named(name, np.atleast_1d(array)), each)
        return {name: array for name, array in out.items() if len(array) == rows * each}

    def _by_class(self, array: NDArray[Any]) -> bool:
        return array.ndim == 2 and self.labels is not None and array.shape[1] == len(self.labels)

    def _named(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """Return labels instead of their numbers."""
        if name == "label" and self.labels is not None and array.dtype.kind in "iu":
            return np.asarray(columned(self.labels)[array])
        return array

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
        """Hand the table over as an Arrow stream, which most data frame libraries read."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``."""
        return _needs("pandas", "pandas").DataFrame(self.table())

    def to_polars(self) -> Any:
        """Return a ``polars.DataFrame``; texts and numbers in one column as ``to_arrow`` writes them."""
        table = {name: of_one_type(column) for name, column in self.table().items()}
        return _needs("polars", "polars").DataFrame(
            {k: v.tolist() if v.dtype == object else v for k, v in table.items()}
        )

    def __repr__(self) -> str:
        """Return the size, the columns and what the answers cost."""
        names = shown(", ".join(self.table()))
        return f"Answers({len(self)} rows: {names}; post-processing, no further privacy loss)"

    def __str__(self) -> str:
        """Return the first rows as text, every column that fits into a line of 80."""
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
        return "\n".join(shown(line) for line in (*lines, *more))

    def _repr_html_(self) -> str:
        """Return the first rows for a notebook; every text is escaped."""
        table = self.table()
        head = "".join(f"<th>{html.escape(shown(name))}</th>" for name in table)
        body = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(shown(_cell(a[i])))}</td>" for a in table.values())
            + "</tr>"
            for i in range(min(_SHOWN, len(self)))
        )
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>{len(self)} rows; post-processing, no further privacy loss</p>"
        )


def _spread(name: str, array: NDArray[Any], each: int) -> dict[str, NDArray[Any]]:
    """Return a column of vectors as columns ``name_0``, ``name_1``, ..., each entry repeated."""
    if array.ndim == 1:
        return {name: np.repeat(array, each)}
    flat = array.reshape(len(array), -1)
    if flat.shape[1] == 1:
        return {name: np.repeat(flat[:, 0], each)}
    return {f"{name}_{i}": np.repeat(flat[:, i], each) for i in range(flat.shape[1])}


def _cell(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float | np.floating) else str(value)


def _needs(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise DataError(
            "OS606",
            "answers",
            expected=f"the package {module}",
            got="it is not installed",
            hint=f"pip install {module}" + (" (extra `parquet`)." if package == "parquet" else "."),
        ) from None
