"""Describe a file's place and storage, as a spec does."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from opendp_sim.core.errors import DataError, ParameterError, SimError, SpecError
from opendp_sim.core.system.regular_files import is_odd, regular
from opendp_sim.io.conform import PERIODS, PlaneColumn
from opendp_sim.io.dialect import OPTIONS, Dialect, read_dialect

NO_FILE = "no such file"
"""What is told of a file that is not there."""
NO_HEADER = "a first line with a number in it, which is no header"
NO_OBJECT = "a first line that is no object {...}"
OTHER_HEADERS = "first lines that differ"
"""What is told of a first line that could be a record: such a refusal counts, as what records do does."""
COUNTED = frozenset({NO_HEADER, NO_OBJECT, OTHER_HEADERS})


ENDINGS = {
    "csv": (".csv", ".csv.gz", ".csv.zst"),
    "jsonl": (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".ndjson.gz", ".ndjson.zst"),
    "npy": (".npy",),
    "npz": (".npz",),
    "parquet": (".parquet",),
    "arrow": (".arrow", ".feather", ".ipc"),
}
"""A kind of file to the ends of the names that a folder of them has."""
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"SQLite format 3": "sql", b"\x93NUMPY": "npy"}
"""The first bytes of a file of a kind."""
_ZIP = b"PK\x03\x04"
_UNPACK = "its first bytes are those of a packed file: "
_FOREIGN = {
    b"\x1f\x8b": f"{_UNPACK}end its name by .gz, or unpack it.",
    b"\x28\xb5\x2f\xfd": f"{_UNPACK}end its name by .zst, or unpack it.",
    b"BZh": f"{_UNPACK}unpack it; .gz and .zst are read as they are.",
    b"\xfd7zXZ": f"{_UNPACK}unpack it; .gz and .zst are read as they are.",
    _ZIP: "its first bytes are those of an archive or a workbook: unpack it, or save its sheet as .csv.",
    b"FEA1": "its first bytes are those of Feather version 1: write it again as version 2.",
}
"""The first bytes of files that are not read, and what to do."""
_NO_TEXT = bytes(range(9))
"""Bytes that no text has."""
_OPTIONS = {
    "csv": ("delimiter", *OPTIONS, "votes"),
    "jsonl": ("header", "votes"),
    "arrow": ("votes",),
    "parquet": ("votes",),
    "sql": ("query", "table", "votes"),
}
"""A kind of file to the options that it has beside ``file`` and ``columns``."""


def kind_by_name(path: str | Path) -> str | None:
    """Return the kind of source of a file's ending, or None."""
    name = Path(path).name.lower()
    return next((kind for kind, ends in ENDINGS.items() if name.endswith(ends)), None)


def kind_by_bytes(file: Path) -> str | None:
    """Return the kind of source of a file's magic bytes, or None."""
    head = _head(file)
    if head.startswith(_ZIP) and b".npy" in head[30 : 30 + int.from_bytes(head[26:28], "little")]:
        return "npz"
    found = (kind for magic, kind in _MAGIC.items() if head.startswith(magic))
    return "sql" if head[8:12] == b"DUCK" else next(found, None)


def hint_by_bytes(file: Path, kind: str) -> str | None:
    """Return a hint by an unreadable file's first bytes, or None."""
    own = kind_by_bytes(file)
    if own is not None and f".{own}" not in kind and own not in kind.lower():
        return f"its first bytes are those of another kind of file: write `{own}: {file.name}`."
    head = _head(file)
    told = (hint for magic, hint in _FOREIGN.items() if own is None and head.startswith(magic))
    return next(told, None)


def _head(file: Path) -> bytes:
    """Return a file's first bytes, none if it is text.

    A record may begin like another kind's mark.
    """
    try:
        with regular(file).open("rb") as opened:
            head = opened.read(2**8)
    except (OSError, ValueError):
        return b""
    return head if head.translate(None, _NO_TEXT) != head else b""


@dataclass(frozen=True)
class Prefix:
    """Name the columns of a vector by how their names begin.

    Numbers in names count as numbers, so that ``x_10`` comes behind ``x_9`` in every file.
    """

    text: str
    count: int

    def among(self, known: Sequence[str], column: str) -> tuple[str, ...]:
        """Return the names that begin so, or refuse (OS602)."""
        found = sorted((name for name in known if name.startswith(self.text)), key=_in_numbers)
        if len(found) != self.count:
            raise DataError(
                "OS602", f"column {column}",
                expected=f"{self.count:,} columns whose names begin with `{self.text}`",
                got=f"{len(found):,}", hint="count them in the file's header, or list their names.",
            )  # fmt: skip
        return tuple(found)

    def numbered(self) -> tuple[str, ...]:
        """Return the names with numbers from 0, where no header lists any."""
        return tuple(f"{self.text}{at}" for at in range(self.count))


def _in_numbers(name: str) -> list[tuple[bool, int, str]]:
    return [(not p.isdigit(), int(p) if p.isdigit() else 0, p) for p in re.split(r"([0-9]+)", name)]


@dataclass(frozen=True)
class FileOptions:
    """A file and its options.

    Attributes:
        file: where it is.
        columns: declared column name to the name it has in the file, or to the names of the numbers
            that make a vector, or how those begin. Of a text file a place from 1 may stand for a name.
        delimiter: between the cells of a text file.
        dialect: how a text file writes cells and lines.
        query: what is asked of a database.
        planes: declared columns that are made of times, or of latitude and longitude.
    """

    file: Path
    columns: Mapping[str, str | tuple[str, ...] | Prefix]
    delimiter: str = ","
    dialect: Dialect = field(default_factory=Dialect)
    query: str = ""
    planes: Mapping[str, PlaneColumn] = field(default_factory=dict)

    def stored(self, name: str, known: Sequence[str] | None = None) -> str | tuple[str, ...]:
        """Return the name or names of a declared column (OS602).

        ``known`` are the file's columns; None where no header lists them.
        """
        found = self.columns.get(name, name)
        if isinstance(found, Prefix):
            return found.numbered() if known is None else found.among(known, name)
        return found


class At(str):
    """Hold a cell's place in a line, from 1."""

    __slots__ = ()


def read_place(argument: Any, folder: Path, kind: str) -> FileOptions:
    """Read ``path`` or ``{file: path, columns: {...}, delimiter: ";"}``, relative to ``folder``.

    Raises:
        SpecError (OS303): an unknown option. (OS304): an option of the wrong type, or a file that is
            no path, such as s3://. (OS305): no file.
    """
    where = f"source.{kind}"
    given = argument if isinstance(argument, Mapping) else {"file": argument}
    known = ("file", "columns", *_OPTIONS.get(kind, ()))
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
    planes = {str(k): plane for k, v in columns.items() if (plane := _plane(v, where)) is not None}
    columns = {k: v for k, v in columns.items() if str(k) not in planes}
    for name, plane in planes.items():
        inner = (column.name for column in plane.inner(name))
        columns |= dict(zip(inner, plane.stored, strict=True))
    names = {
        str(k): tuple(name for one in v for name in _run(_name(one, kind, where)))
        if isinstance(v, list | tuple)
        else _prefix(v, where) or _name(v, kind, where)
        for k, v in columns.items()
    }
    dialect = read_dialect(given, delimiter, where)
    query = _query(given, kind, where)
    return FileOptions(folder / file, names, delimiter, dialect, query, planes)


def _query(given: Mapping[Any, Any], kind: str, where: str) -> str:
    """Return the query of a database, or of a whole table."""
    if kind != "sql":
        return ""
    told = [given[name] for name in ("query", "table") if name in given]
    if len(told) != 1 or not isinstance(told[0], str) or not told[0].strip():
        raise SpecError(
            "OS304", where, expected="one `query`, or one `table`", got="something else",
            hint="for example {file: visits.duckdb, query: select age, stay from visits}.",
        )  # fmt: skip
    if "query" in given:
        return str(told[0]).strip().removesuffix(";")
    parts = [part.replace('"', '""') for part in told[0].split(".")]
    named = ".".join(f'"{part}"' for part in parts)
    return f"SELECT * FROM {named}"  # noqa: S608 - quoted, of a database opened to be read only


_RUN = re.compile(r"(.*?)([0-9]{1,7}) \.\. (.*?)([0-9]{1,7})")
_WIDEST = 2**20
"""Columns of a vector that are named at once."""


def _run(name: str) -> tuple[str, ...]:
    """Return the names from ``g_0 .. g_764``, or the one name."""
    found = None if isinstance(name, At) else _RUN.fullmatch(name)
    if found is None or found[1] != found[3]:
        return (name,)
    first, last = int(found[2]), int(found[4])
    digits = len(found[2]) if found[2].startswith("0") else 0
    return tuple(f"{found[1]}{at:0{digits}d}" for at in range(first, min(last, _WIDEST) + 1))


def _plane(given: Any, where: str) -> PlaneColumn | None:
    """Return ``{hour: time}``, ``{weekday: day}`` or ``{km: [lat, lon], at: [48, 10]}``, or None."""
    if not isinstance(given, Mapping) or not set(given) & {*PERIODS, "km"}:
        return None
    wrong = _wrong_type(where, "{hour: time}, {weekday: day}, or {km: [lat, lon], at: [48, 10]}")
    if "km" not in given:
        ((kind, stored),) = given.items() if len(given) == 1 else (("", None),)
        if not isinstance(stored, str):
            raise wrong
        return PlaneColumn(str(kind), (stored,))
    pairs: list[tuple[Any, ...]] = []
    for name, kinds in (("km", (str,)), ("at", (int, float))):
        pair = given.get(name)
        good = isinstance(pair, list | tuple) and len(pair) == 2
        if not good or not all(
            isinstance(v, kinds) and not isinstance(v, bool) for v in pair or ()
        ):
            raise wrong
        pairs.append(tuple(pair or ()))
    names, (latitude, longitude) = pairs
    if set(given) != {"km", "at"} or not (abs(latitude) < 90 and abs(longitude) <= 180):
        raise wrong
    return PlaneColumn("km", names, (float(latitude), float(longitude)))


def _prefix(given: Any, where: str) -> Prefix | None:
    """Return ``{prefix: gene_, count: 765}``, or None for another form."""
    if not isinstance(given, Mapping) or "prefix" not in given:
        return None
    text, count = given["prefix"], given.get("count")
    if not isinstance(text, str) or not text or type(count) is not int or len(given) > 2:
        raise _wrong_type(where, "{prefix: gene_, count: 765}")
    if not 0 < count <= _WIDEST:
        raise _wrong_type(where, "{prefix: gene_, count: 765}")
    return Prefix(text, count)


def _name(given: Any, kind: str, where: str) -> str:
    """Return a header's name, or a place as in ``{at: 3}``."""
    if not isinstance(given, Mapping):
        return str(given)
    at = given.get("at")
    if kind != "csv" or list(given) != ["at"] or type(at) is not int or at < 1:
        raise _wrong_type(where, "names of columns; of a .csv also places such as {at: 3}, from 1")
    return At(at)


def listed_files(place: FileOptions, kind: str) -> list[tuple[Path, dict[str, str]]]:
    """Return the files of a path, folder or pattern.

    In the order of their paths, with their folders' values; none is opened. A folder called
    ``year=2026`` gives its files a column ``year``. Names that begin with ``.`` or ``_`` are left out,
    as by other readers: of what is being written, or is about other files (but ``_year=2026`` is read).

    Raises:
        DataError (OS601): a folder or a pattern without a file.
    """
    root, endings = place.file, ENDINGS.get(kind, ())
    if root.is_dir() and endings:
        found = (p for p in root.rglob("*") if p.name.lower().endswith(endings) and p.is_file())
        files = sorted(p for p in found if not any(map(_left_out, p.relative_to(root).parts)))
    elif any(sign in root.name for sign in "*?[") and not root.exists() and endings:
        root = root.parent
        asked = _left_out(place.file.name)  # a pattern such as `_day-*.parquet` names them
        found = (path for path in root.glob(place.file.name) if path.is_file())
        files = sorted(path for path in found if asked or not _left_out(path.name))
    else:
        return [(root, {})]
    if not files:
        raise DataError(
            "OS601", str(place.file), expected=f"at least one {endings[0]} file", got="none",
            hint="check the folder or the pattern; it is relative to the spec.",
        )  # fmt: skip
    return [(path, _keys(path.relative_to(root).parts[:-1])) for path in files]


def left_out_files(place: FileOptions, kind: str) -> list[str]:
    """Return the names of a folder's files of other kinds."""
    if not place.file.is_dir():
        return []
    read = {file for file, _ in listed_files(place, kind)}
    found = sorted(path for path in place.file.rglob("*") if path.is_file() and path not in read)
    return [name_in(place, path) for path in found]


def name_in(place: FileOptions, file: Path) -> str:
    """Return a listed file's path within its folder, which is public."""
    folder = place.file if place.file in file.parents else place.file.parent
    return str(file.relative_to(folder)) if folder in file.parents else file.name


def _left_out(name: str) -> bool:
    """Return whether a file's name marks it as none."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _keys(folders: tuple[str, ...]) -> dict[str, str]:
    named = (folder.partition("=") for folder in folders)
    return {unquote(name): unquote(value) for name, sign, value in named if sign}


def _wrong_type(where: str, expected: str) -> SpecError:
    return SpecError(
        "OS304", where, expected=expected, got="something else",
        hint='for example {file: points.csv, delimiter: ";", columns: {x: [lon, lat]}}.',
    )  # fmt: skip


@contextmanager
def reading(file: Path, kind: str, hint: str = "") -> Iterator[None]:
    """Replace a reader's error, which could quote records, by constant text.

    Without a hint, what the file's first bytes suggest is stated.
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
            "OS601",
            str(file),
            expected=f"a {kind} file",
            got=got,
            hint=hint or kind_hint(file, kind),
        ).alone()


def kind_hint(file: Path, kind: str) -> str:
    """Return a hint for a file that is unreadable as declared."""
    return hint_by_bytes(file, kind) or (
        "check the path (it is relative to the spec), the kind of source, and that the file is "
        "complete."
    )


@contextmanager
def naming(file: Path, place: FileOptions) -> Iterator[None]:
    """Name a folder's file in a refusal of its form.

    A refusal that counts, since a record could have caused it, names the folder alone: which of the
    files it is would be more about that record than its constant text.
    """
    try:
        yield
    except DataError as error:
        counts = error.got in COUNTED
        where = str(place.file) if str(file) in error.where else error.where
        told = error.where if str(file) in error.where else f"{name_in(place, file)}: {where}"
        error.restated(where=where if counts else told).alone()


FileState = tuple[int, ...]
"""What tells a file from another: size and time of change; device, number, time of change of all that."""
PORTABLE = 2
"""How many of them are the same on every machine that mounts a file."""


def file_state(file: Path | int) -> FileState:
    """Return a file's state, by path or by open descriptor."""
    at = os.stat(file)  # noqa: PTH116 - also of a descriptor
    return at.st_size, at.st_mtime_ns, at.st_dev, at.st_ino, at.st_ctime_ns


def need_state(file: Path, found: FileState, expected: FileState) -> None:
    """Refuse a file in another state, or with another pinned part (OS601).

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
    """Open a file's unchanging bytes, of the listed file if pinned.

    What was opened is looked at, not what the path leads to before or after.
    """
    with file.open("rb") as held:
        state = file_state(held.fileno())
        need_state(file, state, expected)
        with open(held.fileno(), "rb", closefd=False) as raw:
            yield raw, state
        need_state(file, file_state(held.fileno()), state)
