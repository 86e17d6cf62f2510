"""Open a spec's source, ``{kind: argument}``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.domains.records import Records
from opendp_sim.io.builtin import builtin_source
from opendp_sim.io.csv_files import csv_source
from opendp_sim.io.file_spec import FileOptions, listed_files, name_in, read_place
from opendp_sim.io.numpy_files import npy_source, npz_source
from opendp_sim.io.origin import Named
from opendp_sim.io.parquet import parquet_source
from opendp_sim.io.protocol import PieceSource, Raw, Source
from opendp_sim.io.sql import sql_source
from opendp_sim.io.table_files import Open, arrow_source, files_source, jsonl_source, votes_source

_FILES: dict[str, Open] = {
    "arrow": arrow_source,
    "csv": csv_source,
    "jsonl": jsonl_source,
    "npy": npy_source,
    "npz": npz_source,
    "parquet": parquet_source,
    "sql": sql_source,
}
_OF_FOLDERS = ("parquet", "sql")
"""Kinds that open several files themselves, or have none."""
SOURCE_NAMES = ("builtin", *_FILES)
"""Kinds of source that a spec can name."""


def open_source(kind: str, argument: Any, records: Records, folder: Path) -> Source:
    """Return the source that ``{kind: argument}`` names.

    Args:
        kind: one of ``SOURCE_NAMES``.
        argument: the name of a built-in data set; for files a path, or a mapping with ``file`` and
            the options of ``Place``.
        records: the declared type of the columns that are wanted.
        folder: what a relative path starts from (the spec's folder).

    Raises:
        SpecError (OS303, OS304, OS305): an unknown kind, data set or option. DataError (OS601): no
        readable file of this kind. (OS602): a column is missing. (OS606): an extra is missing.
    """
    named = Named(kind, argument, folder)
    if kind == "builtin":
        return replace(builtin_source(argument, records), made_of=named)
    if kind not in _FILES:
        near = get_close_matches(str(kind), SOURCE_NAMES, n=1)
        raise SpecError(
            "OS303", "source", expected=f"one of {', '.join(SOURCE_NAMES)}", got=str(kind),
            hint=f"did you mean {near[0]!r}?" if near else "write source: {npz: data.npz}.",
        )  # fmt: skip
    if isinstance(argument, Mapping) and "votes" in argument:
        rest = {name: value for name, value in argument.items() if name != "votes"}
        read_place(argument, folder, kind)
        opened = partial(open_source, kind, rest, folder=folder)
        return replace(
            votes_source(argument["votes"], f"source.{kind}", opened, records), made_of=named
        )
    place, opener = read_place(argument, folder, kind), _FILES[kind]
    inner = read_columns(place, records)
    alone = kind in _OF_FOLDERS
    found = opener(place, inner) if alone else files_source(place, inner, kind, opener)
    return replace(_with_planes(found, place, records), made_of=named)


def files_of(kind: str, argument: Any, folder: Path) -> list[tuple[str, Path, dict[str, str]]]:
    """Return a folder's or pattern's files with their folders' columns.

    Each by its name in the folder; none where the source is one file, or reads votes.

    Raises:
        SpecError (OS303, OS304, OS305), DataError (OS601): as ``open_source``.
    """
    if kind not in _FILES or (isinstance(argument, Mapping) and "votes" in argument):
        return []
    place = read_place(argument, folder, kind)
    found = listed_files(place, kind)
    if found == [(place.file, {})]:
        return []
    return [(name_in(place, file), file.absolute(), keys) for file, keys in found]


def read_columns(place: FileOptions, records: Records) -> Records:
    """Return the columns read in a file, of times and places too."""
    for name in place.planes:
        column = records.column(name)
        if column is not None and (column.width != 2 or column.numpy_dtype.kind != "f"):
            raise DataError(
                "OS602", f"column {name}", expected="dtype array[f64, 2]", got="another one",
                hint="a time on a circle and a place on a plane are two numbers.",
            )  # fmt: skip
    lists = (
        place.planes[c.name].inner(c.name) if c.name in place.planes else (c,)
        for c in records.columns
    )
    return Records(tuple(column for several in lists for column in several))


def _with_planes(source: PieceSource, place: FileOptions, records: Records) -> PieceSource:
    """Return a source whose times and places are two numbers each."""
    if not any(column.name in place.planes for column in records.columns):
        return source

    def made(raw: Raw) -> Raw:
        return raw and {
            c.name: place.planes[c.name].placed(c.name, raw)
            if c.name in place.planes
            else raw[c.name]
            for c in records.columns
        }

    form = source.form
    return replace(
        source,
        records=records,
        pieces=lambda rows: map(made, source.pieces(rows)),
        form=None if form is None else lambda: made(form()),
        cut=None,
    )
