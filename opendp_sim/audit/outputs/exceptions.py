"""Represent exceptions as outputs.

Their whole text without the places of tracebacks. OpenDP puts the traceback of a user's function into
the text of its own error, causes included. What stands between the places of that traceback is what
the function's exceptions said, in one line or many.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

_LONGEST = 400
_TRACEBACK = "Traceback (most recent call last):"
_BETWEEN = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_BEFORE = re.compile(r'\s*(\w+\(")?Continued stack trace from Exception in user-defined function:')
_AFTER = '")'
_PLACE = re.compile(r'  (File "|\[Previous line|  )')
_GROUP = re.compile(r"^ *(\| |\+ (?=Exception Group)|\+-[+-]*)")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{7,}")
_DEEPEST = 4


@dataclass(frozen=True)
class Raised:
    """An exception as an output symbol."""

    text: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Return class and text of an exception, its causes and notes."""
        return cls(shortened("; ".join(_error_lines(error, _DEEPEST)), _LONGEST))


def shortened(text: str, most: int) -> str:
    """Return a text shortened with a checksum, so that texts differ."""
    if len(text) <= most:
        return text
    rest = text[most:].encode("utf-8", "surrogatepass")
    return f"{text[:most]}... ({len(rest)} more, {zlib.crc32(rest):08x})"


def _error_lines(error: BaseException, depth: int) -> Iterator[str]:
    """Yield what an exception says, its notes, and what its causes say."""
    native = type(error).__name__ == "OpenDPException"
    try:
        message = getattr(error, "message", None) if native else None
        native = isinstance(message, str)
        said, *causes = reversed(_messages(str(message if native else error)))
    except Exception as another:  # noqa: BLE001 - a text that its class does not write
        said, causes = f"<{type(another).__name__}>", []
    yield f"{type(error).__name__}: {_named(error, native=native)}{said}"
    with suppress(Exception):  # notes that are no list, or that write no text
        yield from [_plain(str(note)) for note in getattr(error, "__notes__", ())]
    yield from (f"caused by {cause}" for cause in reversed(causes))
    for part in getattr(error, "exceptions", ()) if isinstance(error, BaseExceptionGroup) else ():
        yield from (f"with {told}" for told in _error_lines(part, depth - 1) if depth)
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if cause is not None and depth:
        yield from (f"caused by {told}" for told in _error_lines(cause, depth - 1))


def _named(error: BaseException, *, native: bool) -> str:
    variant = getattr(error, "variant", "FFI") if native else "FFI"
    return "" if variant == "FFI" else f"{variant}: "


def _messages(text: str) -> list[str]:
    """Return the messages in a traceback's text, without places."""
    if _TRACEBACK not in text:
        return [_plain(text)]
    found: list[list[str]] = [[]]
    inside, group = False, "Exception Group" in text
    for line in text.split("\n"):
        bare = _GROUP.sub("", line) if group else line
        if bare.endswith(_TRACEBACK):
            found.append([])
            inside = True
        elif not (inside and _PLACE.match(bare)):
            inside = False
            found[-1].append(bare)
    if found[-1][-1:] == [_AFTER]:
        found[-1].pop()
    parts = [
        "\n".join(line for line in lines if line not in _BETWEEN and not _BEFORE.match(line))
        for lines in found
    ]
    return [_plain(part) for part in parts if part.strip()] or [""]


def _plain(text: str) -> str:
    """Return a text in one line."""
    return without_addresses(text.strip("\n")).replace("\n", "\\n")


def without_addresses(text: str) -> str:
    """Return a text without addresses in memory, which differ by run."""
    return _ADDRESS.sub("at 0x", text)
