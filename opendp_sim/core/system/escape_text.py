"""Escape characters of outside text that steer a terminal."""

from __future__ import annotations

import re
import unicodedata

_IGNORABLE = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
)
"""Letters and marks that are drawn as nothing: those with ``Default_Ignorable_Code_Point`` in Unicode's
DerivedCoreProperties.txt (14.0) that ``str.isprintable`` takes."""
_BLANK = "\u2800\U00016fe4\U0001d159"
"""Signs with an empty picture in Unicode's charts: a Braille pattern, a filler, a null notehead."""
_EMPTY = re.compile(f"[{_IGNORABLE}{_BLANK}]")


def escape(text: str, keep: str = "") -> str:
    r"""Return ``text`` with invisible and control characters escaped (``\x1b``).

    These are control, format and direction characters, spaces other than the plain one, what no character
    is assigned to (``str.isprintable``), and letters and signs with an empty picture. A mark that is to
    sit on the character before it is one where the text begins: it would sit on ours. Other letters,
    accents and emoji stay.

    Args:
        text: names, paths, labels, lines of a spec: anything that was not written here.
        keep: characters that stay: a line break, where the text is made of lines of our own.
    """
    if text.isascii() and text.isprintable():
        return text
    first = text[:1]
    start = _escape(first) if unicodedata.category(first or "a")[0] == "M" else ""
    rest = text[1:] if start else text
    return start + "".join(
        char if char in keep or (char.isprintable() and not _EMPTY.match(char)) else _escape(char)
        for char in rest
    )


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def cut(text: str, most: int) -> str:
    """Return a text, or of a longer one its beginning and end."""
    if len(text) <= most:
        return text
    half = (most - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"
