"""Lines for the csv module, none of them long: what one record can take of memory is bounded.

A quoted cell may hold line ends, so an opened quote that is never closed would make the rest of a file
one cell; and a line may be as long as its file. The csv module would hold either as a whole, and its own
limit cuts a record in the middle and reads the rest as others. Here the text behind the limit is left out
and what opens and closes quotes is kept, so the csv module finds the same records; the one that
was cut is known, and counts as missing.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Protocol

__all__ = ["LONGEST_RECORD", "ShortLines", "good_lines"]

LONGEST_RECORD = 2**24
"""Characters of a record; a longer one is missing as a whole."""
_START, _BARE, _QUOTED, _CLOSED, _WRONG = range(5)
"""Where the csv module is: at the start of a cell, in one, in a quoted one, behind a quote, lost."""


class _Lines(Protocol):
    """What a text file is asked for."""

    def readline(self, size: int, /) -> str:
        """Return the next line, up to ``size`` characters."""


class ShortLines:
    """An iterator of the lines of a file, cut where a record becomes too long.

    Args:
        file: text, opened with ``newline=""``.
        delimiter: what stands between cells, one character.
        longest: characters of a record.
    """

    def __init__(self, file: _Lines, delimiter: str, longest: int = LONGEST_RECORD) -> None:
        self._file, self._delimiter, self._longest = file, delimiter, longest
        self._marks = re.compile(f'"|{re.escape(delimiter)}|[^"{re.escape(delimiter)}]+')
        self._kinds = {'"': "quote", delimiter: "delimiter"}
        self._told, self._cut = 0, False

    def __iter__(self) -> Iterator[str]:
        """Return itself: the csv module asks for one line after another."""
        return self

    def __next__(self) -> str:
        """Return the next line, or what is left of it.

        The csv module asks for a second line of a record only within quotes.
        """
        line = self._file.readline(self._longest)
        if not line:
            raise StopIteration
        size = len(line)
        self._told += size
        if self._told <= self._longest and (size < self._longest or _ends(line)):
            return line
        within = self._told > size
        return self._rest(line, _QUOTED if within else _START)

    @property
    def within(self) -> bool:
        """Whether a record has begun."""
        return self._told > 0

    def record_was_cut(self) -> bool:
        """Say whether the record that the csv module just gave was too long; a new one begins."""
        cut, self._told, self._cut = self._cut, 0, False
        return cut

    def _rest(self, piece: str, state: int) -> str:
        """Read to the end of a line, and return a short one that leaves the csv module where it would."""
        within, self._cut = state == _QUOTED, True
        while piece:
            state = self._after(piece, state)
            if _ends(piece):
                break
            piece = self._file.readline(self._longest)
        if state == _QUOTED:
            return "" if within else '"'
        return '"\n' if within else "x\n"

    def _after(self, piece: str, state: int) -> int:
        """Return where the csv module would be behind a piece of a line."""
        for found in self._marks.finditer(piece.rstrip("\r\n") if _ends(piece) else piece):
            state = _NEXT[state][self._kinds.get(found[0], "text")]
        return state


def good_lines(lines: Iterator[list[str]], short: ShortLines) -> Iterator[list[str]]:
    """Yield one missing cell for a record whose quotes are wrong, or that is too long to hold."""
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except csv.Error:
            line = [""]
        yield [""] if short.record_was_cut() else line


_NEXT = (
    {"quote": _QUOTED, "delimiter": _START, "text": _BARE},
    {"quote": _BARE, "delimiter": _START, "text": _BARE},
    {"quote": _CLOSED, "delimiter": _QUOTED, "text": _QUOTED},
    {"quote": _QUOTED, "delimiter": _START, "text": _WRONG},
    {"quote": _WRONG, "delimiter": _WRONG, "text": _WRONG},
)
"""The csv module's table, by state and kind of character; a quote that is doubled is two."""


def _ends(line: str) -> bool:
    return line.endswith(("\n", "\r"))
