"""One door for text that somebody else wrote: whatever could steer a terminal is shown, not obeyed."""

from __future__ import annotations

import re

__all__ = ["cut", "shown"]

_STEERS = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 and C1: escape sequences, backspace, line breaks
    "\xad\u061c\u180e\u200b-\u200f"  # invisible
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # turns text round, breaks lines
    "\ud800-\udfff\U000e0000-\U000e0fff]"  # no characters at all; tags
)


def shown(text: str, keep: str = "") -> str:
    r"""Return ``text`` with control, invisible and direction characters written as escapes (``\x1b``).

    Args:
        text: names, paths, labels, lines of a spec: anything that was not written here.
        keep: characters that stay: a line break, where the text is made of lines of our own.
    """

    def escaped(found: re.Match[str]) -> str:
        char = found[0]
        return char if char in keep else char.encode("unicode_escape", "surrogatepass").decode()

    return _STEERS.sub(escaped, text)


def cut(text: str, most: int) -> str:
    """Return a text, or of a longer one its beginning and end."""
    if len(text) <= most:
        return text
    half = (most - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"
