"""Fold long printed lines at blanks, but no quotes or code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

_LABEL = re.compile(r" *(?:= help: |[-*] |[^ ]+(?: [^ ]+)? {2,})?")
"""What a line starts with that its continuation stands under: blanks, and a word set apart."""
_STAYS = re.compile(r" *\d* \||\s*>>>|[^\n]*\t")
"""A line of a file with its number, of Python, or of a table for programs."""
_FULL = 70
"""A line of so many letters was wrapped where it was written, if the next stands under its text."""


def folded(text: str, wide: int) -> str:
    """Return the text with lines of at most ``wide``, as words allow.

    Example:
        >>> print(folded("note      a sentence that is too long", 24))
        note      a sentence
                  that is too
                  long
    """
    return "\n".join(line for part in _parts(text.split("\n")) for line in _fold(part, wide))


def _parts(lines: list[str]) -> Iterator[list[str]]:
    code = fenced = False
    part: list[str] = []
    for line in lines:
        fenced ^= line.lstrip().startswith("```")
        if line[:1].strip():
            code = line.strip() == "Example"
        still = code or fenced or _STAYS.match(line) is not None
        if part and not still and _continues(line, part):
            part.append(line)
            continue
        if part:
            yield part
        part = [] if still else [line]
        if still:
            yield [line, ""]  # two lines are a paragraph: an empty one says that it stays
    if part:
        yield part


def _continues(line: str, part: list[str]) -> bool:
    own = len(line) - len(line.lstrip())
    listed = re.match(r" *(?:= |[-*] |[^ ]+(?: [^ ]+)? {2,})", line)
    return bool(line.strip()) and not listed and len(part[-1]) >= _FULL and own == _under(part[0])


def _under(line: str) -> int:
    found = _LABEL.match(line)
    return len(found.group()) if found else 0


def _fold(part: list[str], wide: int) -> Iterable[str]:
    if part[-1] == "" and len(part) > 1:
        return part[:1]
    if max(map(len, part)) <= wide:
        return part
    label = part[0][: _under(part[0])]
    return textwrap.wrap(
        " ".join([part[0][len(label) :], *(line.strip() for line in part[1:])]),
        wide,
        initial_indent=label,
        subsequent_indent=" " * (len(label) if len(label) < wide // 2 else 0),
        break_long_words=False,
        break_on_hyphens=False,
    )
