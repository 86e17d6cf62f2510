"""Read a text file's cells in its declared dialect.

A dialect is public form, declared and never guessed in a run. Every function looks at one cell, or at
one line and the public header, so ``enforce`` stays 1-stable: ``ingest.md``, "Dialects".
"""

from __future__ import annotations

import codecs
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import IO, Any

from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.domains.cell import real

_ALIKE = {" ": " \u00a0\u2009\u202f", "'": "'\u2019"}
"""A sign between thousands to the signs that stand for it."""
_WORDS, _LONGEST, _SKIPPED = 64, 64, 1000
"""Marks of a dialect, characters of one, and lines before the header."""
_ONE_BYTE = re.compile(r"latin-1|iso8859-\d{1,2}|cp\d{3,4}|koi8-[ru]|mac-roman")
_UTF = ("utf-8", "utf-16", "utf-16-le", "utf-16-be")
_SIGNS = frozenset("0123456789+-")
NONE = "none"
"""Declares that there is no header line, or no quote."""


@dataclass(frozen=True)
class Dialect:
    """How a text file writes cells and lines.

    Attributes:
        decimal: the sign before the fraction of a number.
        thousands: the sign between groups of digits; empty for none. A blank stands for narrow ones too.
        missing: cells that are no value. In a column of numbers also by value: ``-200`` is ``-200.0``.
        strip: texts around a number that are no part of it, such as ``$`` or ``EUR``.
        skip: lines before the header line.
        encoding: UTF-8, UTF-16 or a code page of one byte a character.
        quote: the sign around a cell, or ``none``.
        header: the names of the cells of a line in a file without a header line; ``none`` where columns
            are named by place alone; empty where the file has a header line.
        ragged: whether a line may lack its last cells, which are missing then, and whether empty cells
            beyond the header are no cells.
    """

    decimal: str = "."
    thousands: str = ""
    missing: tuple[str, ...] = ()
    strip: tuple[str, ...] = ()
    skip: int = 0
    encoding: str = "utf-8"
    quote: str = '"'
    header: tuple[str, ...] | str = ()
    ragged: bool = False

    @property
    def writes_numbers(self) -> bool:
        """Whether a number's cell is rewritten before it is read."""
        return bool(self.thousands or self.missing or self.strip or self.decimal != ".")

    @property
    def mark(self) -> str | None:
        """Return the sign around a cell; None for none."""
        return None if self.quote == NONE else self.quote

    def number(self, cell: str) -> str | None:
        """Return a number's cell with a decimal point, None if missing."""
        cell = cell.strip()
        if cell in self._marks:
            return None
        if self.strip:
            cell = self._bare(cell)
        if self.thousands or self.decimal != ".":
            found = self._form.fullmatch(cell)
            if found is None:
                return None
            sign, whole, fraction, power = found.groups("")
            cell = sign + self._between.sub("", whole) + fraction.replace(self.decimal, ".") + power
        if self._values and real(cell) in self._values:
            return None
        return cell

    def text(self, cell: str) -> str | None:
        """Return a text's cell; None for a missing one."""
        return None if cell.strip() in self._marks else cell

    def cells(self, line: list[str], count: int | None) -> list[str] | None:
        """Return a line's cells, None if it does not fit the file.

        ``count`` are the cells of the header, if any.
        """
        if count is None or len(line) == count:
            return line
        if not self.ragged or any(map(str.strip, line[count:])):
            return None
        return line[:count] + [""] * (count - len(line))

    def _bare(self, cell: str) -> str:
        """Return a cell without the texts around its number."""
        sign = cell[:1] if cell[:1] in ("-", "+", "\u2212") else ""
        cell = cell[len(sign) :].strip()
        for text in self._strip:
            cell = cell.removeprefix(text).removesuffix(text).strip()
        return sign + cell

    @cached_property
    def _marks(self) -> frozenset[str]:
        return frozenset(self.missing)

    @cached_property
    def _values(self) -> frozenset[float]:
        return frozenset(v for v in map(real, self.missing) if math.isfinite(v))

    @cached_property
    def _strip(self) -> tuple[str, ...]:
        return tuple(sorted(self.strip, key=len, reverse=True))

    @cached_property
    def _between(self) -> re.Pattern[str]:
        return re.compile(_class(self.thousands)) if self.thousands else re.compile(r"(?!)")

    @cached_property
    def _form(self) -> re.Pattern[str]:
        """Return the pattern of grouped digits, a fraction, a power of ten.

        The last group has three digits, others two or three (12,34,567), so that 3,14 is none.
        """
        groups = r"[0-9]*"
        if self.thousands:
            sign = _class(self.thousands)
            groups = rf"[1-9][0-9]{{0,2}}(?:{sign}[0-9]{{2,3}})*{sign}[0-9]{{3}}|[0-9]*"
        decimal = re.escape(self.decimal)
        return re.compile(rf"([+\-\u2212]?)({groups})({decimal}[0-9]*)?([eE][+-]?[0-9]{{1,4}})?")


def _class(sign: str) -> str:
    return "[" + re.escape(_ALIKE.get(sign, sign)) + "]"


# --- declared in a spec ---------------------------------------------------------------------------

OPTIONS = tuple(f.name for f in fields(Dialect))
"""What a spec may say of a text file, beside ``delimiter``."""


def read_dialect(given: Mapping[Any, Any], delimiter: str, where: str) -> Dialect:
    """Return a source's declared dialect; wrong options are refused (OS304)."""
    told: dict[str, Any] = {name: given[name] for name in OPTIONS if name in given}
    for name in ("missing", "strip"):
        if name in told:
            told[name] = _words(told[name], name, where)
    header = told.get("header", ())
    if header != NONE and "header" in told:
        told["header"] = _words(header, "header", where)
    for name in ("decimal", "thousands", "quote"):
        sign = told.get(name, ".")
        if not isinstance(sign, str) or not (len(sign) == 1 or (name, sign) == ("quote", NONE)):
            raise _wrong(where, f"`{name}` of one character")
    skip = told.get("skip", 0)
    if type(skip) is not int or not 0 <= skip <= _SKIPPED:
        raise _wrong(where, f"`skip` of 0 to {_SKIPPED} lines")
    if type(told.get("ragged", False)) is not bool:
        raise _wrong(where, "`ragged` of true or false")
    told["encoding"] = _encoding(told.get("encoding", "utf-8"), where)
    found = Dialect(**told)
    _check(found, delimiter, where)
    return found


def _check(found: Dialect, delimiter: str, where: str) -> None:
    """Refuse signs that cannot both be meant."""
    numbers = {"decimal": found.decimal, "thousands": found.thousands}
    for name, sign in numbers.items():
        if sign and (sign in _SIGNS or sign in "eE\r\n"):
            raise _wrong(where, f"`{name}` that is no part of a number")
    if found.decimal == found.thousands or delimiter == found.quote or found.quote in "\r\n":
        raise _wrong(where, "`delimiter` and `quote`, `decimal` and `thousands`, that differ")
    if any(_SIGNS & set(text) or text in numbers.values() for text in found.strip):
        raise _wrong(where, "`strip` of texts without digits and signs of a number")


def _words(given: Any, name: str, where: str) -> tuple[str, ...]:
    """Return a list's words, without blanks around."""
    if not isinstance(given, list | tuple) or not 0 < len(given) <= _WORDS:
        raise _wrong(where, f"`{name}` that is a list of 1 to {_WORDS} texts")
    if not all(isinstance(v, str | int | float) and not isinstance(v, bool) for v in given):
        raise _wrong(where, f"`{name}` that is a list of texts; put words such as null in quotes")
    words = tuple(str(v).strip() for v in given)
    if any(len(word) > _LONGEST for word in words) or (name != "missing" and "" in words):
        raise _wrong(where, f"`{name}` of texts of 1 to {_LONGEST} characters")
    return words


def _encoding(given: Any, where: str) -> str:
    """Return a codec's name, of those that read each character by itself."""
    try:
        name = codecs.lookup(given if isinstance(given, str) else "").name
    except (LookupError, ValueError):
        name = ""
    name = {"utf-8-sig": "utf-8", "iso8859-1": "latin-1"}.get(name, name)
    if name not in _UTF and not _ONE_BYTE.fullmatch(name):
        raise _wrong(where, "`encoding` utf-8, utf-16, latin-1, or a code page such as cp1252")
    return name


def _wrong(where: str, expected: str) -> SpecError:
    return SpecError(
        "OS304", where, expected=expected, got="something else",
        hint='for example {file: sales.csv, delimiter: ";", decimal: ",", missing: [-200]}.',
    )  # fmt: skip


# --- bytes ----------------------------------------------------------------------------------------

_BOM = codecs.BOM_UTF8
_LINE = 2**16
"""Bytes of a line before the header."""
_SEP = re.compile(rb'"?sep=(.)"?\r?\n?', re.DOTALL | re.IGNORECASE)


class _AsUtf8(io.RawIOBase):
    """Convert a file's text to UTF-8, with invalid bytes as they are."""

    def __init__(self, raw: IO[bytes], encoding: str) -> None:
        self._raw = raw
        errors = "replace" if encoding in _UTF else "surrogateescape"
        self._decoder = codecs.getincrementaldecoder(encoding)(errors)
        self._rest, self._ended = b"", False

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def readinto(self, into: Any) -> int:
        """Fill ``into``; return the bytes written."""
        while not self._rest and not self._ended:
            got = self._raw.read(2**16)
            self._ended = not got
            text = self._decoder.decode(got, self._ended)
            self._rest = text.encode("utf-8", "surrogateescape")
        count = min(len(into), len(self._rest))
        into[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def opened(raw: IO[bytes], dialect: Dialect, delimiter: str) -> io.BufferedReader:
    """Return a file's bytes in UTF-8 from its header on (OS602)."""
    if dialect.encoding != "utf-8":
        raw = io.BufferedReader(_AsUtf8(raw, dialect.encoding), 2**18)
    lead = _Lead(raw)
    if lead.starts(_BOM):
        lead.leave(len(_BOM))
    for _ in range(dialect.skip):
        lead.leave(len(lead.line()))
    first = lead.line()
    named = _SEP.fullmatch(first.rstrip(b"\r\n"))
    if named is not None:
        if named[1] != delimiter.encode():
            raise DataError(
                "OS602", "csv", expected=f"the declared delimiter {delimiter!r} in the line sep=",
                got="another one", hint="declare the delimiter that the file's first line names.",
            )  # fmt: skip
        lead.leave(len(first))
    return io.BufferedReader(lead, 2**18)


class _Lead(io.RawIOBase):
    """Look at a file's first lines, and leave them out."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._held = raw, b""

    def starts(self, mark: bytes) -> bool:
        """Return whether the file starts with a mark."""
        self._hold(len(mark))
        return self._held.startswith(mark)

    def line(self) -> bytes:
        r"""Return the next line with its end, at most ``_LINE`` bytes."""
        size = 2**8
        while True:
            whole = not self._hold(size)
            ends = [at for mark in (b"\n", b"\r") if (at := self._held.find(mark)) >= 0]
            if ends and (min(ends) + 1 < len(self._held) or whole):
                end = min(ends)
                return self._held[: end + 1 + (self._held[end : end + 2] == b"\r\n")]
            if whole or size >= _LINE:
                return self._held[:_LINE]
            size *= 2

    def leave(self, count: int) -> None:
        """Leave out the next bytes."""
        self._held = self._held[count:]

    def _hold(self, size: int) -> bool:
        """Hold at least ``size`` bytes; return whether there are so many."""
        while len(self._held) < size:
            got = self._raw.read(size - len(self._held))
            if not got:
                return False
            self._held += got
        return True

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def readinto(self, into: Any) -> int:
        """Fill ``into``; return the bytes written."""
        got = self._held[: len(into)] if self._held else self._raw.read(len(into))
        self._held = self._held[len(got) :]
        into[: len(got)] = got
        return len(got)
