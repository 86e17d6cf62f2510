"""One ``.parquet`` file or some row groups of it: opened, checked, and read a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from opendp_sim.core.errors import DataError
from opendp_sim.sources.place import State, need_state, state_of

__all__ = [
    "Part",
    "batches",
    "beyond",
    "opened",
    "parquet_reader",
    "plain_texts",
    "refused",
    "weight_of",
]

_PAGE = 2**20
"""Bytes that the reader of one column asks for at a time."""
_SPARE = 2**25
"""Entries of lists beyond their declared length that a group of rows may hold: Arrow reads no part of a
list, and needs 16 bytes for each."""
_HEAVY = 2**28
"""Bytes of one batch, on average, and of the columns of a group whose records are of over 1 MiB each."""


@dataclass(frozen=True)
class Part:
    """One file or some row groups of it, and what the names of its folders say about all its records."""

    file: Path
    keys: Mapping[str, str]
    groups: list[int] | None = None
    """Which row groups; None for all."""
    pinned: State = ()
    """The state of the file that was listed, or what of it is portable: another one is refused."""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The stored columns of each column: files of one folder may store a vector in different ways."""
    texts: tuple[str, ...] = ()
    """Columns of plain texts, which are read as dictionaries."""

    def columns(self, rows: int) -> dict[str, Any]:
        """Return the columns that the folders' names stand for."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        return {name: pa.repeat(pa.scalar(value), rows) for name, value in self.keys.items()}


def plain_texts(schema: Any, names: set[str]) -> tuple[str, ...]:
    """Return which of the columns are texts by their type, not lists or numbers written in bytes."""
    from pyarrow import types  # noqa: PLC0415 - an extra

    kinds = {field.name: field.type for field in schema if field.name in names}
    return tuple(n for n, k in kinds.items() if types.is_string(k) or types.is_large_string(k))


def weight_of(file: Any, names: set[str]) -> int:
    """Return the bytes that columns take unpacked, as the file says: of a list all its entries."""
    found, schema = 0, file.schema
    columns = [at for at in range(len(schema)) if schema.column(at).path.split(".")[0] in names]
    for group in range(file.metadata.num_row_groups):
        for at in columns:
            about = file.metadata.row_group(group).column(at)
            found += max(int(about.total_uncompressed_size), 8 * int(about.num_values))
    return found


def batches(
    file: Any, part: Part, rows: int, stored: list[str], widths: Mapping[str, int], *, threads: bool
) -> Iterator[Any]:
    """Yield batches that fit into memory by what the footer says; groups with long lists one by one.

    Raises:
        DataError (OS601): a group holds too much that is beyond its declaration, or too heavy records.
    """
    groups = range(file.metadata.num_row_groups) if part.groups is None else part.groups
    told = [(group, *beyond(file, group, widths)) for group in groups]
    for alone, run in groupby(told, lambda one: one[0] if one[1] else -1):
        several = list(run)
        if any(refused(*one) for _, *one in several):
            raise too_heavy(part.file)
        sizes = (max(1, _HEAVY * count // max(heavy, 1)) for *_, heavy, count in several if count)
        yield from file.iter_batches(
            batch_size=min((rows, *sizes)),
            columns=stored,
            row_groups=[alone] if alone >= 0 else [group for group, *_ in several],
            use_threads=threads,
        )


def beyond(file: Any, group: int, widths: Mapping[str, int]) -> tuple[int, int, int]:
    """Return of a group of rows: entries beyond those of lists as declared, bytes, and records."""
    about, spare, heavy = file.metadata.row_group(group), 0, 0
    count = int(about.num_rows)
    for at in range(about.num_columns):
        column = about.column(at)
        name = column.path_in_schema.split(".")[0]
        if name in widths:
            listed = file.schema.column(at).max_repetition_level > 0
            spare += max(0, int(column.num_values) - count * widths[name]) if listed else 0
            heavy += int(column.total_uncompressed_size)
    return spare, heavy, count


def refused(spare: int, heavy: int, count: int) -> bool:
    """Say whether a group of rows holds too much beyond its declaration, or too heavy records."""
    return spare > _SPARE or heavy > max(_HEAVY, count << 20)


def too_heavy(file: Path) -> DataError:
    """Return the refusal of a file with a group of rows that is refused."""
    return DataError(
        "OS601",
        str(file),
        expected=f"at most {_SPARE:,} entries of lists beyond their declared "
        f"lengths, and {_HEAVY:,} bytes or 1 MiB a record, in each group of rows",
        got="more",
        hint="no part of a list or of a text can be read alone: shorten them, or write smaller groups.",
    )


@contextmanager
def opened(arrow: Any, part: Part, texts: Sequence[str] = ()) -> Iterator[tuple[Any, State]]:
    """Open a file that stays the same up to the last batch, the one that was listed if it is pinned.

    Columns of ``texts`` come as dictionaries, as they lie in the file. What was opened is looked at, not
    what the path leads to before or after.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra

    with pa.OSFile(os.fsencode(part.file)) as raw:
        state = state_of(raw.fileno())
        need_state(part.file, state, part.pinned)
        with arrow.ParquetFile(
            raw, pre_buffer=False, buffer_size=_PAGE, read_dictionary=list(texts)
        ) as file:
            yield file, state
        need_state(part.file, state_of(raw.fileno()), state)


def parquet_reader() -> Any:
    """Return pyarrow's reader, or refuse."""
    try:
        import pyarrow.parquet as arrow  # noqa: PLC0415 - an extra
    except ImportError:
        raise DataError(
            "OS606", "parquet", expected="pyarrow", got="no such package",
            hint="pip install 'opendp_sim[parquet]', or convert the file to .npz or .csv.",
        ) from None  # fmt: skip
    return arrow
