"""Texts that match the regular expressions of the code."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Collection

__all__ = ["PATTERNS", "matching"]

PATTERNS = frozenset(
    {"findall", "finditer", "search", "match", "fullmatch", "compile", "sub", "subn"}
)
"""Functions that take a regular expression."""
_MANY = 40
_NESTED = re.compile(r"[+*}|][^()]*\)+[+*{]")
"""A repeated part with a repeated part, or alternatives, in it: matching may take exponential time."""
_READ_AS = (
    (r"\[\^[^\]]+\]", "a"),
    (r"\[(\\?.)[^\]]*\]", r"\1"),
    (r"\\[bBAZ]|\(\?(?:[aimsux]+\)|[:=!]|P<\w+>)|(?<!\\)[()^$]", ""),
    (r"\\w|\\S|(?<!\\)\.", "a"),
    (r"\\d", "7"),
    (r"\\s", " "),
    (r"\|.*", ""),
)
"""Parts of regular expressions, and a text for each; what does not match after all is not tried."""


def _read(pattern: str) -> str:
    """Return a text that a regular expression may match: each part as its shortest."""
    one = pattern
    for written, read in _READ_AS:
        one = re.sub(written, read, one)
    one = re.sub(r"(\\?.)\{(\d)[^}]*\}", lambda found: found[1] * int(found[2]), one)
    return re.sub(r"\\(\W)", r"\1", re.sub(r"(?<!\\)[+*?]", "", one))


def matching(words: Collection[str]) -> list[str]:
    """Return texts that match those words that are regular expressions, once and many times."""
    out: list[str] = []
    for pattern in sorted(words):
        one = _read(pattern)
        if not one or one == pattern or _NESTED.search(pattern):
            continue
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter(
                "ignore"
            )  # of a word of the code that was not meant to be a pattern
            if re.search(pattern, one):
                out += [one, " ".join([one] * _MANY), one * _MANY]
    return out
