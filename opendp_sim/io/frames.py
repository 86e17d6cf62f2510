"""Read tables in memory, of whatever library.

The records are those of a file. pandas, Polars (eager and lazy), pyarrow (tables, datasets, readers),
DuckDB, numpy (structured, masked), dicts, and anything else with ``__arrow_c_stream__``. What a column
becomes is decided by its own type and the declared one. A query that has not run (a lazy frame, a
DuckDB relation) runs once, and all passes read its result, since two runs of a query need not give the
same rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.errors import DataError, SimError
from opendp_sim.domains.normalise import bare
from opendp_sim.domains.records import Records
from opendp_sim.io.arrow import arrow_column, no_rows, stored_in
from opendp_sim.io.columns import from_polars, library_of, pyarrow, slices
from opendp_sim.io.numpy_files import stack_columns
from opendp_sim.io.protocol import PieceSource, Raw, from_arrays

_READ_ONCE: WeakSet[Any] = WeakSet()
"""Streams that were read: they would be empty tables now."""
_HELD = ("builtins", "numpy", "pandas", "polars", "pyarrow")
"""Libraries whose columns are in memory."""
_PARTIAL = ("Reader", "Stream")
"""How the types of streams that can be read once are called."""


def from_table(records: Records, table: Any) -> PieceSource:
    """Return a source over a table in memory.

    Args:
        records: the declared type. A vector column ``x`` is one column of lists or arrays, or the
            columns ``x_0``, ``x_1``, ...
        table: a data frame, an Arrow table, dataset or reader, a DuckDB relation, a dict of columns, a
            structured array, an array with the declared columns side by side, or a function that opens a
            stream of the same records each time it is called (of which nothing is held).

    Raises:
        DataError (OS601): no table, or one that cannot be read. (OS602): a column is missing, named
            twice, or of a type that nothing is known about. (OS606): no pyarrow.
    """
    found = _table_of(records, table)
    read = found.made_of  # what a query or a stream gave may be another's table
    apart = read is not None and read is not table
    return replace(found, made_of={"given": table, "read": read} if apart else table)


def _table_of(records: Records, table: Any) -> PieceSource:
    if isinstance(table, Mapping):
        return from_arrays(records, table)
    if isinstance(table, np.ndarray):
        return from_arrays(records, _of_array(bare(table), records))
    library = library_of(table)
    if library == "narwhals":
        return _table_of(records, table.to_native())
    if library == "pandas":
        return _of_pandas(table, records)
    if callable(table) and not hasattr(table, "__arrow_c_stream__"):
        return PieceSource(records, lambda rows: _pieces(_opened(table, records), records, rows))
    if library == "pyarrow" and hasattr(table, "scanner"):
        return _of_dataset(table, records)
    held = _arrow_table(table, library, records)
    return PieceSource(
        records,
        lambda rows: _pieces(held.to_batches(), records, rows),
        held.num_rows,
        lambda: _piece(held.slice(0, 0), records),
        made_of=held,
    )


def waits(table: Any) -> bool:
    """Return whether opening a table computes or reads a stream.

    Then its failure can be private. Types are asked, of the libraries that are known: an object may
    call its columns what it likes.
    """
    kind, library = type(table), type(table).__module__.partition(".")[0]
    if isinstance(table, Mapping):
        return kind is not dict or any(map(_computes, table.values()))
    if isinstance(table, np.ndarray):
        return False
    held = {"pandas": "iloc", "pyarrow": "num_rows", "polars": "get_columns"}.get(library)
    if held is not None and (hasattr(kind, held) or hasattr(kind, "scanner")):
        return False
    return callable(table) or any(hasattr(kind, n) for n in ("collect", "__arrow_c_stream__"))


def _computes(column: Any) -> bool:
    """Return whether reading a column may compute."""
    library = type(column).__module__.partition(".")[0]
    return not isinstance(column, np.ndarray) and library not in _HELD


def warn_of_objects(table: Any, records: Records) -> None:
    """Warn of numbers that a table stores as objects, by types alone.

    Such a column has no type that could be refused, and a null in it may refuse nothing: each cell is
    read by itself, and what is no number is dropped (``io/ingest.md``, "Cells without a type").
    """
    kinds = _stored_dtypes(table)
    told = []
    for column in records.columns:
        parts = [column.name, *(f"{column.name}_{at}" for at in range(column.width))]
        whole = parts[1:] if column.is_vector else parts[:1]
        number = column.is_vector or column.dtype in ("int64", "float64")
        if number and any(kinds.get(name) == np.dtype(object) for name in whole):
            told.append(column.name)
    if told:
        warnings.warn(
            f"stored as objects: {', '.join(told)}. Cells are read one by one, and a record with one "
            'that is no number is dropped: .astype("Float64") of pandas tells whether there is any',
            RuntimeWarning,
            stacklevel=3,
        )


def _stored_dtypes(table: Any) -> dict[str, Any]:
    """Return the dtypes of pandas' and numpy's columns, by name."""
    if isinstance(table, Mapping):
        return {str(name): getattr(cells, "dtype", None) for name, cells in table.items()}
    if isinstance(table, np.ndarray):
        return {name: table.dtype[name] for name in table.dtype.names or ()}
    if library_of(table) == "pandas" and hasattr(table, "dtypes") and hasattr(table, "columns"):
        return dict(zip(map(str, table.columns), table.dtypes, strict=True))
    return {}


def raw_columns(table: Any, records: Records) -> dict[str, NDArray[Any]]:
    """Return a table's declared columns, each as one array."""
    pieces = list(from_table(records, table).pieces(2**16))
    if not pieces:
        return {}
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


# --- numpy ----------------------------------------------------------------------------------------


def _of_array(array: NDArray[Any], records: Records) -> Raw:
    names = array.dtype.names
    if names is None:
        if array.ndim < 1:
            raise _no_table("a single number")
        return stack_columns(array, "array", records)
    return {name: array[name] for name in names}


# --- pandas ---------------------------------------------------------------------------------------


def _of_pandas(frame: Any, records: Records) -> PieceSource:
    """Read slices of the declared columns."""
    if not hasattr(frame, "columns"):
        raise _no_table("a Series")
    known = [str(name) for name in frame.columns]
    parts = {c.name: stored_in(c, c.name, known) for c in records.columns}
    cut: dict[str, Callable[[slice], Any]] = {
        name: slices(_once(name, known, frame), name)
        for name in {name for names in parts.values() for name in names}
    }

    def read(part: slice) -> Raw:
        with told_apart():
            return {
                c.name: arrow_column(c, [cut[n](part) for n in parts[c.name]])
                for c in records.columns
            }

    def pieces(rows: int) -> Iterator[Raw]:
        for start in range(0, len(frame), rows):
            yield read(slice(start, start + rows))

    return PieceSource(records, pieces, len(frame), lambda: read(slice(0, 0)))


def _once(name: str, known: list[str], frame: Any) -> Any:
    if known.count(name) > 1:
        raise _bad_column(name, "a column of this name", "several", "rename them.")
    return frame.iloc[:, known.index(name)]


# --- everything that speaks Arrow -----------------------------------------------------------------


def _arrow_table(table: Any, library: str, records: Records) -> Any:
    if library == "polars" and hasattr(table, "collect"):
        with told_apart():
            names = table.collect_schema().names()
            table = table.select(_wanted(records, names)).collect()
    if library == "polars":
        return _of_polars(table, records)
    if not hasattr(table, "__arrow_c_stream__"):
        raise _no_table(f"a {type(table).__name__}")
    arrow = pyarrow()
    if type(table).__name__.endswith(_PARTIAL):
        if table in _READ_ONCE:
            raise _no_table("a stream that was read before")
        _READ_ONCE.add(table)
    with told_apart():
        stream = arrow.RecordBatchReader.from_stream(table)
        names = _wanted(records, stream.schema.names)
        parts = [batch.select(names) for batch in stream]
        kinds = [stream.schema.field(name) for name in names]
        return arrow.Table.from_batches(parts, arrow.schema(kinds))


def _of_polars(frame: Any, records: Records) -> Any:
    """Convert columns one by one, naming an unsupported type."""
    if not hasattr(frame, "get_columns"):
        raise _no_table(f"a {type(frame).__name__}")
    names = _wanted(records, frame.columns)
    return pyarrow().table({name: from_polars(frame.get_column(name), name) for name in names})


def _of_dataset(dataset: Any, records: Records) -> PieceSource:
    names = _wanted(records, dataset.schema.names)

    def batches() -> Iterator[Any]:
        with told_apart():
            scanner = dataset.scanner(columns=names, use_threads=False, batch_readahead=1)
            yield from scanner.to_batches()

    return PieceSource(
        records,
        lambda rows: _pieces(batches(), records, rows),
        form=lambda: _piece(no_rows(dataset.schema), records),
    )


def _opened(function: Callable[[], Any], records: Records) -> Iterator[Any]:
    """Yield a caller's opened table, without exceptions that quote records."""
    with told_apart():
        stream = function()
    if library_of(stream) == "polars":
        yield from _arrow_table(stream, "polars", records).to_batches()
    else:
        yield from _batches(stream)


def _batches(stream: Any) -> Iterator[Any]:
    """Yield a stream's batches, closing it at the end."""
    if not hasattr(stream, "__arrow_c_stream__"):
        raise _no_table(f"a function that returned a {type(stream).__name__}")
    with told_apart():
        reader = pyarrow().RecordBatchReader.from_stream(stream)
        try:
            yield from reader
        finally:
            reader.close()


def _pieces(batches: Iterable[Any], records: Records, rows: int) -> Iterator[Raw]:
    with told_apart():
        for batch in batches:
            for start in range(0, batch.num_rows, rows):
                yield _piece(batch.slice(start, rows), records)


def _piece(batch: Any, records: Records) -> Raw:
    known = batch.schema.names
    with told_apart():
        return {
            c.name: arrow_column(c, [batch.column(name) for name in stored_in(c, c.name, known)])
            for c in records.columns
        }


def _wanted(records: Records, known: list[str]) -> list[str]:
    """Return the declared columns' names, each present once."""
    found = sorted({name for c in records.columns for name in stored_in(c, c.name, known)})
    for name in found:
        if known.count(name) > 1:
            raise _bad_column(name, "a column of this name", "several", "rename them.")
    return found


# --- refusals -------------------------------------------------------------------------------------


@contextmanager
def told_apart() -> Iterator[None]:
    """Replace a library's error, which could quote a record."""
    try:
        yield
    except (SimError, GeneratorExit, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # noqa: BLE001 - a panic in Rust is no Exception
        _no_table("a table that its library cannot hand over").alone()


def _bad_column(name: str, expected: str, got: str, hint: str) -> DataError:
    return DataError("OS602", f"column {name}", expected=expected, got=got, hint=hint)


def _no_table(got: str) -> DataError:
    return DataError(
        "OS601", "table", expected="a data frame, an Arrow table, a dict of columns, or an array",
        got=got, hint="anything with __arrow_c_stream__ will do; a file's name goes into the plan, "
        "source='trips.csv'; of a reader hand over `reader.read_all()`, or a function that opens one "
        "each time.",
    )  # fmt: skip
