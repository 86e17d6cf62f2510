"""Rows that a function takes apart: several words in one text, joined by marks that its code names."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["SPLITS", "joined"]

SPLITS = frozenset({"split", "rsplit", "partition", "rpartition"})
"""Methods that take a text apart; without a mark they do it at blanks."""
_MARKS = frozenset((" ", ",", ";", "|", ":", "-", "/", "\t", "\n", ", ", "_", "&", "="))
_SHORT, _MANY, _WORDS, _KINDS = 12, 9, 12, 2


def joined(words: Collection[str]) -> list[str]:
    """Return one word twice and many times, a number many times, and many words, for each mark.

    Args:
        words: strings of the code, and the names of the methods of ``SPLITS`` that it calls.
    """
    marks = sorted(word for word in words if word in _MARKS)
    if not marks and not SPLITS & set(words):
        return []
    known = _MARKS | SPLITS
    short = sorted(w for w in words if len(w) <= _SHORT and w.strip() and w not in known)
    out: list[str] = []
    for mark in (marks or [" "])[:_KINDS]:
        for one in (*short[:1], "7"):
            out += [mark.join([one] * many) for many in (2, _MANY)]
        out.append(mark.join((short or ["a", "b"])[:_WORDS]))
    return list(dict.fromkeys(out))
