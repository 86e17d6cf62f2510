"""Rows that a function takes apart: several words in one text, joined by marks that its code names."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["PARTS", "REPEATS", "SPLITS", "counted", "joined", "repeated"]

SPLITS = frozenset({"split", "rsplit", "partition", "rpartition"})
"""Methods that take a text apart; without a mark they do it at blanks."""
_MARKS = frozenset((" ", ",", ";", "|", ":", "-", "/", "\t", "\n", ", ", "_", "&", "="))
PARTS = frozenset(
    {"endswith", "startswith", "removesuffix", "removeprefix", "strip", "rstrip", "lstrip"}
)
"""Methods that look at the ends of a text."""
REPEATS = frozenset({"count", "findall", "finditer", "Counter", "replace", "sub", "index", "find"})
"""What counts or looks for words in a text."""
_UNIT, _SOME, _LETTERS = 3, 6, "abcdefgh"
_SHORT, _MANY, _WORDS, _KINDS, _LETTER, _LETTER_KINDS = 12, 9, 12, 2, 2, 4


def counted(words: Collection[str], numbers: Collection[float]) -> list[str]:
    """Return numbers with a short word before or behind them, such as ``12k`` or ``#7``.

    Args:
        words: strings of the code, and the names of the methods of ``PARTS`` that it calls.
        numbers: numbers of the code.
    """
    if not PARTS & set(words):
        return []
    short = sorted({w.strip() for w in words if 0 < len(w.strip()) <= _UNIT} - SPLITS)
    digits = dict.fromkeys(("7", *(f"{n:g}" for n in sorted(numbers)[:_SOME] if n == int(n))))
    return [text for unit in short[:_SOME] for n in digits for text in (n + unit, unit + n)]


def repeated(words: Collection[str]) -> list[str]:
    """Return short words of the code many times after each other, where it counts them in a text.

    Args:
        words: strings of the code, and the names of the methods of ``REPEATS`` that it calls.
    """
    short = _short(words)[:_SOME] if REPEATS & set(words) else []
    return [word * many for word in short for many in (2, _MANY)]


def _short(words: Collection[str]) -> list[str]:
    known = _MARKS | SPLITS | PARTS | REPEATS
    return sorted(w for w in words if len(w) <= _SHORT and w.strip() and w not in known)


def joined(words: Collection[str]) -> list[str]:
    """Return one word twice and many times, a number many times, and many words, for each mark.

    Of a text that is taken apart any short word of the code may be the mark.

    Args:
        words: strings of the code, and the names of the methods of ``SPLITS`` that it calls.
    """
    named = sorted(word for word in words if word in _MARKS)
    letters = [w for w in _short(words) if len(w) <= _LETTER] if SPLITS & set(words) else []
    if not named and not SPLITS & set(words):
        return []
    out: list[str] = []
    for mark in [*(named or [" "])[:_KINDS], *letters[:_LETTER_KINDS]]:
        short = [w for w in _short(words) if w != mark]
        for one in (*short[: 1 if mark in _MARKS else _KINDS], "7"):
            out += [mark.join([one] * many) for many in (2, _MANY)]
        many = list(dict.fromkeys([*short, *_LETTERS]))  # as many as any bound on words of a text
        out += [mark.join((short or ["a", "b"])[:_WORDS]), mark.join(many[:_WORDS])]
    return list(dict.fromkeys(out))
