"""Describe a file's place and storage, as a spec does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any

from opendp_sim.core.errors import DataError, ParameterError, SimError, SpecError
from opendp_sim.core.system.regular_files import is_odd
from opendp_sim.io.dialect import OPTIONS, Dialect, read_dialect

NO_FILE = "no such file"
"""What is told of a file that is not there."""


@dataclass(frozen=True)
class FileOptions:
    """A file and its options.

    Attributes:
        file: where it is.
        columns: declared column name to the name it has in the file, or to the names of the numbers
            that make a vector. Of a text file a place from 1 may stand for a name.
        delimiter: between the cells of a text file.
        dialect: how a text file writes cells and lines.
    """

    file: Path
    columns: Mapping[str, str | tuple[str, ...]]
    delimiter: str = ","
    dialect: Dialect = field(default_factory=Dialect)

    def stored(self, name: str) -> str | tuple[str, ...]:
        """Return the name or names in the file of a declared column."""
        return self.columns.get(name, name)


class At(str):
    """Hold a cell's place in a line, from 1.

    Where a header's name could stand.
    """

    __slots__ = ()


def read_place(argument: Any, folder: Path, kind: str) -> FileOptions:
    """Read ``path`` or ``{file: path, columns: {...}, delimiter: ";"}``, relative to ``folder``.

    Raises:
        SpecError (OS303): an unknown option. (OS304): an option of the wrong type, or a file that is
            no path, such as s3://. (OS305): no file.
    """
    where = f"source.{kind}"
    given = argument if isinstance(argument, Mapping) else {"file": argument}
    known = ("file", "columns", "delimiter", *(OPTIONS if kind == "csv" else ()))
    for name in given:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            raise SpecError(
                "OS303", where, expected=f"one of {', '.join(known)}", got=str(name),
                hint=f"did you mean {near[0]!r}?" if near else "write {file: data.csv}.",
            )  # fmt: skip
    if "file" not in given:
        raise SpecError(
            "OS305", where, expected="the path of a file", got="nothing",
            hint="write {file: data/trips.npz}, or just the path.",
        )  # fmt: skip
    file, columns = given["file"], given.get("columns", {})
    delimiter = given.get("delimiter", ",")
    if not isinstance(file, str | Path) or not isinstance(columns, Mapping):
        raise _wrong_type(where, "a path, and a mapping of column names")
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise _wrong_type(where, "a delimiter of one character")
    if "://" in str(file):
        raise SpecError(
            "OS304",
            where,
            expected="a path of this machine",
            got="an address of another store",
            hint="mount the bucket or copy the files, and write their path (without file://); each "
            "worker of an engine needs the same one.",
        )
    names = {
        str(k): tuple(_name(one, kind, where) for one in v)
        if isinstance(v, list | tuple)
        else _name(v, kind, where)
        for k, v in columns.items()
    }
    return FileOptions(folder / file, names, delimiter, read_dialect(given, delimiter, where))


def _name(given: Any, kind: str, where: str) -> str:
    """Return a header's name, or a place.

    ``{at: 3}`` in a text file is a place.
    """
    if not isinstance(given, Mapping):
        return str(given)
    at = given.get("at")
    if kind != "csv" or list(given) != ["at"] or type(at) is not int or at < 1:
        raise _wrong_type(where, "names of columns; of a .csv also places such as {at: 3}, from 1")
    return At(at)


def _wrong_type(where: str, expected: str) -> SpecError:
    return SpecError(
        "OS304", where, expected=expected, got="something else",
        hint='for example {file: points.csv, delimiter: ";", columns: {x: [lon, lat]}}.',
    )  # fmt: skip


@contextmanager
def reading(file: Path, kind: str) -> Iterator[None]:
    """Replace a reader's error by one constant text.

    Its own could quote a record.
    """
    got = "a file that cannot be read as one"
    try:
        if is_odd(file):
            got = "a pipe or a device, which cannot be read twice"
            raise OSError
        yield
    except SimError:
        raise
    except MemoryError:  # not of the gate: what was reserved stands
        ParameterError(
            "OS103",
            str(file),
            expected="records that the memory of this machine holds",
            got="an allocation that failed",
            hint="run it where there is more memory.",
        ).alone()
    except Exception as error:  # noqa: BLE001 - zip, decoding, arrow and csv errors may quote data
        if isinstance(error, FileNotFoundError):
            got = NO_FILE
        DataError(
            "OS601", str(file), expected=f"a {kind} file", got=got,
            hint="check the path (it is relative to the spec), the kind of source, and that the "
            "file is complete.",
        ).alone()  # fmt: skip


FileState = tuple[int, ...]
"""What tells a file from another: size and time of change; device, number, time of change of all that."""
PORTABLE = 2
"""How many of them are the same on every machine that mounts a file."""


def file_state(file: Path | int) -> FileState:
    """Return a file's state, by path or by open descriptor."""
    at = os.stat(file)  # noqa: PTH116 - also of a descriptor
    return at.st_size, at.st_mtime_ns, at.st_dev, at.st_ino, at.st_ctime_ns


def need_state(file: Path, found: FileState, expected: FileState) -> None:
    """Refuse a file in another state (OS601).

    Or with another portable part of it.

    A second pass is about the records of the first one. What is kept of a person stays within the limit
    all the same (``bound_contributions``).
    """
    if found[: len(expected)] != expected:
        raise DataError(
            "OS601", str(file), expected="the file that was listed",
            got="another one: it was changed while it was read", hint="run again.",
        )  # fmt: skip


@contextmanager
def same_file(file: Path, expected: FileState = ()) -> Iterator[tuple[IO[bytes], FileState]]:
    """Open a file's unchanging bytes.

    Of the listed file if its state is given.

    What was opened is looked at, not what the path leads to before or after.
    """
    with file.open("rb") as held:
        state = file_state(held.fileno())
        need_state(file, state, expected)
        with open(held.fileno(), "rb", closefd=False) as raw:
            yield raw, state
        need_state(file, file_state(held.fileno()), state)
