"""Compare the origins of public and private rows.

Files, objects and stretches of memory are compared. No value is looked at, so a refusal tells
nothing about a record; a copy is not recognised for the same reason (``origin.md``, Lemma).
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from opendp_sim.core.errors import ReleaseError, SimError
from opendp_sim.domains.records import Records
from opendp_sim.io.blocks import Block
from opendp_sim.io.columns import frame_columns, in_arrow, library_of
from opendp_sim.io.file_spec import listed_files, read_place
from opendp_sim.io.protocol import PieceSource, Source

_VALUES = (str, bytes, int, float, complex, np.generic)
_HARD = 2**16
"""Steps that are spent on whether two interleaved arrays share an entry; then they do."""


@dataclass(frozen=True)
class Origin:
    """What tells one origin of rows from another.

    Attributes:
        names: of files, datasets and objects; one in common makes two origins one.
        memory: arrays over the memory that the rows are in; their entries are never read.
        kept: the objects whose addresses are among the names, so that no other takes their place.
    """

    names: frozenset[Hashable] = frozenset()
    memory: tuple[NDArray[Any], ...] = ()
    kept: tuple[Any, ...] = ()

    def __or__(self, other: Origin) -> Origin:
        """Return both together."""
        names = self.names | other.names
        return Origin(names, self.memory + other.memory, self.kept + other.kept)

    def __bool__(self) -> bool:
        """Say whether anything is known."""
        return bool(self.names or self.memory)

    def meets(self, other: Origin) -> bool:
        """Return whether two origins share a file, object or memory."""
        return not self.names.isdisjoint(other.names) or _overlap(self.memory, other.memory)


class Remembered:
    """Remember where rows are, and keep none of them alive.

    Of rows that are gone nothing is known any more: other rows may have their addresses. A list has no
    weak reference, so only its arrays are remembered.
    """

    def __init__(self, *rows: Any) -> None:
        self._frames: list[ReferenceType[Any]] = []
        self._arrays: list[tuple[ReferenceType[NDArray[Any]], dict[str, Any]]] = []
        for each in rows:
            with suppress(TypeError):
                self._frames.append(ref(each))
            for part in each if isinstance(each, list | tuple) else [each]:
                if isinstance(part, np.ndarray):
                    owner = part
                    while isinstance(owner.base, np.ndarray):
                        owner = owner.base
                    where = dict(part.__array_interface__)
                    self._arrays.append((ref(owner), where))

    def origin(self) -> Origin:
        """Return the origin of what is still there."""
        frames = (frame() for frame in self._frames)
        found = _union(origin_of(frame) for frame in frames if frame is not None)
        for owner, where in self._arrays:
            if (kept := owner()) is not None:
                found |= origin_of(np.asarray(_Stretch(where, kept)))
        return found


@dataclass(frozen=True)
class _Stretch:
    """A part of an array, in numpy's own form of an address."""

    __array_interface__: dict[str, Any]
    owner: NDArray[Any]


NOTHING_PRIVATE = Origin()
"""For a door behind which no private dataset is known."""


@dataclass(frozen=True)
class Named:
    """Name a source of a spec, whose files are listed on demand."""

    kind: str
    argument: Any
    folder: Path


def refuse_private(public: Origin, private: Origin, where: str) -> None:
    """Refuse public rows from where private ones come, naming ``where`` (OS704)."""
    if public.meets(private):
        raise ReleaseError(
            "OS704", where, expected="public rows, from another place than the private ones",
            got="the private dataset, or a part of it",
            hint="name rows that are public: exact functions of them are shown, and nothing is "
            "charged for that. A copy of private rows is private too, and no program can tell.",
        )  # fmt: skip


def public_rows(source: Source, private: Origin, where: str) -> Source:
    """Return a source compared with the private one, also as read (OS704).

    A query, a stream or a function of a caller has no memory before it runs: each piece that it gives
    is compared when it comes. Files are known by their names, and are not. ``where`` is what a refusal
    names.
    """
    if not private:
        return source
    refuse_private(origin_of(source), private, where)

    def compared(pieces: Iterable[Any]) -> Iterator[Any]:
        for piece in pieces:
            refuse_private(origin_of(piece), private, where)
            yield piece

    if not isinstance(source, PieceSource):
        return _Read(source, compared)
    if isinstance(source.made_of, Named):
        return source
    return replace(source, pieces=lambda rows: compared(source.pieces(rows)), cut=None)


@dataclass(frozen=True)
class _Read:
    """A source of somebody else's, whose blocks are compared."""

    source: Source
    compared: Callable[[Iterable[Block]], Iterator[Block]]

    @property
    def records(self) -> Records:
        """The declared type of the records."""
        return self.source.records

    @property
    def length(self) -> int | None:
        """The number of records if known."""
        return self.source.length

    def blocks(self, rows: int | None = None) -> Iterator[Block]:
        """Open the source afresh in blocks of ``rows`` records."""
        return self.compared(self.source.blocks(rows))


def origin_of(rows: Any) -> Origin:
    """Return the origin of rows, a source or table, reading no value."""
    if isinstance(rows, Origin):
        return rows
    if rows is None or isinstance(rows, _VALUES) or (isinstance(rows, tuple) and not rows):
        return Origin()  # objects that Python shares between all who write them
    if isinstance(rows, Named):
        return _of_named(rows)
    if isinstance(rows, np.ndarray):
        return _of_array(rows)
    own = Origin(frozenset([("object", id(rows))]), (), (rows,))
    with suppress(Exception):  # a library's own fault is told where the rows are read
        made = getattr(rows, "made_of", None)
        return own | (_of_table(rows) if made is None else origin_of(made))
    return own


def _of_table(rows: Any) -> Origin:
    library = library_of(rows).lstrip("_")
    if isinstance(rows, Mapping):
        archive = getattr(getattr(rows, "zip", None), "filename", None)  # of `np.load`
        if archive is not None:
            return _of_files([archive])
        return _union(map(origin_of, rows.values()))
    if isinstance(rows, list | tuple):
        return _union(map(origin_of, _parts(rows)))
    if library == "narwhals":
        return origin_of(rows.to_native())
    if library == "pandas":
        columns = frame_columns(rows) or [rows]
        return _union(_of_pandas(getattr(column, "array", column)) for column in columns)
    if library == "polars" and hasattr(rows, "explain"):
        return _of_lazy(rows)
    if library == "polars":
        return _union(_of_series(s) for s in (frame_columns(rows) or [rows]))
    if library == "pyarrow":
        return _of_arrow(rows)
    if library == "duckdb":
        return _of_relation(rows.sql_query())
    return _of_function(rows)


def _of_function(rows: Any) -> Origin:
    """Return whose method a caller's function is, or what it was given."""
    if isinstance(rows, partial):
        return _union(map(origin_of, (rows.func, *rows.args, *rows.keywords.values())))
    # a bound method is another object each time
    owner, function = getattr(rows, "__self__", None), getattr(rows, "__func__", None)
    return Origin() if owner is None else Origin(frozenset([("method", id(owner), id(function))]))


def _union(origins: Iterable[Origin]) -> Origin:
    names: set[Hashable] = set()
    memory: list[NDArray[Any]] = []
    kept: list[Any] = []
    for one in origins:
        names |= one.names
        memory += one.memory
        kept += one.kept
    return Origin(frozenset(names), tuple(memory), tuple(kept))


def _parts(rows: list[Any] | tuple[Any, ...]) -> Iterator[Any]:
    """Yield the rows of a list that are arrays or containers."""
    for row in rows:
        if isinstance(row, np.ndarray | list | dict):
            yield row
        elif isinstance(row, tuple):  # itself it may be a constant that others write, too
            yield from _parts(row)


# --- files ----------------------------------------------------------------------------------------


def _of_named(source: Named) -> Origin:
    if source.kind in ("builtin", "memory"):
        return Origin(frozenset([(source.kind, str(source.argument))]))
    try:
        place = read_place(source.argument, source.folder, source.kind)
    except SimError:  # told where it is opened
        return Origin()
    files = [place.file]
    with suppress(SimError, OSError, ValueError):  # none there, or no path: so is this
        files += [file for file, _ in listed_files(place, source.kind)]
    return _of_files(files) | (_of_relation(place.query) if place.query else Origin())


def _of_files(files: Iterable[Any]) -> Origin:
    return Origin(frozenset(name for file in files for name in file_names(file)))


def file_names(file: Any) -> Iterator[Hashable]:
    """Yield one file's resolved path and identity under any name."""
    path = Path(os.fsdecode(os.fspath(file)))
    try:
        yield "file", str(path.resolve())
    except (OSError, ValueError, RuntimeError):  # no path at all, or links in a ring
        yield "file", str(path)
    with suppress(OSError, ValueError):
        found = path.stat()
        yield "inode", found.st_dev, found.st_ino


_QUOTED = re.compile(r"['\"\[]([^'\"\[\]]+)(?=['\"\]])")


def _of_query(text: str) -> Origin:
    """Return the files that a query names in quotes or brackets."""
    return _of_places(word.split(",")[0].strip() for word in _QUOTED.findall(text))


def _of_places(places: Iterable[Any]) -> Origin:
    """Return the files of libraries' addresses and patterns, unopened."""
    found: list[str] = []
    for place in places:
        path = os.fsdecode(place).removeprefix("file://")
        found += glob.glob(path, recursive=True) if glob.has_magic(path) else [path]  # noqa: PTH207 - as they do
    return _of_files(path for path in found if os.path.isfile(path))  # noqa: PTH113 - no error for an odd one


def _of_lazy(frame: Any) -> Origin:
    """Return a lazy Polars frame's tables in memory and files."""
    from polars import DataFrame  # noqa: PLC0415 - of whoever handed its frame over

    found = _of_query(frame.explain())
    with suppress(Exception):  # its door for engines, which an older version lacks
        for node in _nodes(frame._ldf.visit()):  # noqa: SLF001
            found |= _of_places(getattr(node, "paths", ()))
            if hasattr(node, "df"):
                found |= origin_of(DataFrame._from_pydf(node.df))  # noqa: SLF001
            options = getattr(
                node, "options", None
            )  # of another's scan: its function and what that reads
            found |= _union(map(origin_of, options if isinstance(options, tuple) else ()))
    return found


def _nodes(tree: Any) -> Iterator[Any]:
    """Yield the steps of a lazy frame, without running any."""
    yield tree.view_current_node()
    here = tree.get_node()
    for below in tree.get_inputs():
        tree.set_node(below)
        yield from _nodes(tree)
    tree.set_node(here)


def _of_relation(query: str) -> Origin:
    tables: set[str] = set()
    with suppress(Exception):  # no DuckDB; or its own text of a file's options it cannot read
        from duckdb import get_table_names  # noqa: PLC0415 - of whoever handed its relation over

        tables = get_table_names(query)
    return Origin(frozenset(("duckdb", name) for name in tables)) | _of_query(query)


# --- memory ---------------------------------------------------------------------------------------


def _of_array(array: NDArray[Any]) -> Origin:
    base: Any = array
    files = []
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and isinstance(base.filename, str | os.PathLike):
            files.append(base.filename)
        base = base.base
    plain = np.asarray(array)
    by_column = plain.ndim == 2 and not plain.flags.c_contiguous and plain.shape[1] <= len(plain)
    parts = list(plain.T) if by_column else [plain]
    return Origin(memory=tuple(part for part in parts if part.size)) | _of_files(files)


def _of_pandas(cells: Any) -> Origin:
    arrow = getattr(cells, "_pa_array", None)
    if arrow is not None:
        return _of_arrow(arrow)
    for name in ("codes", "asi8", "_data", "sp_values", "_ndarray"):
        found = getattr(cells, name, None)
        if isinstance(found, np.ndarray):
            return _of_array(found)
    return _of_array(cells) if isinstance(cells, np.ndarray) else Origin()


def _of_series(series: Any) -> Origin:
    """Return the origin of a Polars column, of any type."""
    if hasattr(series.dtype, "fields"):
        return _union(map(_of_series, series.struct.unnest().get_columns()))
    if not in_arrow(series.dtype):
        return Origin()
    from polars import CompatLevel  # noqa: PLC0415 - of whoever handed its frame over

    return _of_arrow(series.to_arrow(compat_level=CompatLevel.newest()))


def _of_arrow(rows: Any) -> Origin:
    if hasattr(rows, "files"):  # a dataset
        base = getattr(getattr(rows, "filesystem", None), "base_path", "")
        return _of_files(os.path.join(base, file) for file in rows.files)  # noqa: PTH118 - texts
    if hasattr(rows, "children"):
        return _union(map(_of_arrow, rows.children))
    if hasattr(rows, "get_fragments"):  # a dataset in memory hands its batches on as they are
        return _union(map(_of_arrow, rows.to_batches()))
    if hasattr(rows, "chunks"):
        return _union(map(_of_arrow, rows.chunks))
    if hasattr(rows, "columns"):
        return _union(map(_of_arrow, rows.columns))
    if hasattr(rows, "buffers"):
        return Origin(memory=tuple(_stretches(rows)))
    return Origin()


_OFFSETS = {"large_string": 64, "large_binary": 64, "string_view": 128, "binary_view": 128}


def _stretches(cells: Any) -> Iterator[NDArray[Any]]:
    """Yield the memory of an Arrow array's own entries."""
    from pyarrow import types  # noqa: PLC0415 - its array was handed over

    kind = cells.type
    if hasattr(cells, "storage"):
        yield from _stretches(cells.storage)
    elif types.is_dictionary(kind):  # what categories are called may be shared: it is public
        yield from _stretches(cells.indices)
    elif types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _stretches(cells.field(at))
    elif types.is_fixed_size_list(kind):
        size = kind.list_size
        yield from _stretches(cells.values.slice(cells.offset * size, len(cells) * size))
    elif types.is_run_end_encoded(kind):
        yield from _stretches(cells.values)
    else:
        try:
            bits = kind.bit_width
        except ValueError:  # of texts and lists, where each begins
            bits = _OFFSETS.get(str(kind), 64 if types.is_large_list(kind) else 32)
        buffer = cells.buffers()[1] if len(cells.buffers()) > 1 else None
        if buffer is not None and buffer.size:
            first, last = -(-cells.offset * bits // 8), (cells.offset + len(cells)) * bits // 8
            part = np.frombuffer(buffer, dtype=np.uint8)[first:last]
            if part.size:
                yield part


def _overlap(ours: Iterable[NDArray[Any]], theirs: Iterable[NDArray[Any]]) -> bool:
    """Return whether arrays of two sides share memory."""
    found = [(*byte_bounds(part), 0, part) for part in ours]
    found += [(*byte_bounds(part), 1, part) for part in theirs]
    live: tuple[list[Any], list[Any]] = ([], [])
    for low, high, side, part in sorted(found, key=lambda one: one[0]):
        others = [one for one in live[1 - side] if one[0] > low]
        live[1 - side][:] = others
        if any(_share(part, other) for _, other in others):
            return True
        live[side].append((high, part))
    return False


def _share(one: NDArray[Any], other: NDArray[Any]) -> bool:
    try:
        return bool(np.shares_memory(one, other, max_work=_HARD))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
