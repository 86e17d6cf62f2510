"""Texts of several fields, with a mark of the code between them: keys, numbers, words, dates, tables."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from itertools import zip_longest

__all__ = ["apart", "behind", "fields", "mixed", "numbered", "tables"]

_MANY, _REPEATED, _ALIKE, _FIRST = 40, 3, 24, 3


def fields(marks: list[str], keys: list[str], whole: list[str]) -> list[str]:
    """Return a key and a number, several of either, and empty fields, for each mark."""
    out: list[list[str]] = []
    for mark in marks:
        texts = [
            mark.join(parts)
            for parts in (("a", "1000000"), ("a", "0"), ("u1", "7"), ("a", "b", "c"))
        ]
        texts += [f"{key}{mark}{n}" for key in keys for n in ("1", "1000000")]
        texts += [mark.join(parts) for parts in (("1", "2", "3"), ("a", "1", "1000000"))]
        texts += [f"a{mark}{n}" for n in ("-1", *whole)]
        texts += [mark.join([*keys, "a", "b", "c", "d", "e", "f"]), f"{mark}7", f"a{mark}{mark}7"]
        texts += [f"a{mark}1{m}b{mark}1000000" for m in marks if m != mark]
        out.append(texts)
    return [text for row in zip_longest(*out) for text in row if text is not None]


def behind(marks: list[str], words: list[str]) -> list[str]:
    """Return words of the code as the second field: its first ones, and one from the middle."""
    few = [*words[:_FIRST], *words[len(words) // 2 :][:1]]
    return [f"a{mark}{word}" for word in dict.fromkeys(few) for mark in marks]


def mixed(
    marks: list[str],
    keys: list[str],
    listed: Collection[str],
    days: Sequence[str],
    *,
    numbers: bool,
) -> list[str]:
    """Return words beside words, numbers before words, odd digits, and dates with another field."""
    out: list[list[str]] = []
    for mark in marks[:2]:
        texts = [
            mark.join(pair) for pair in itertools.permutations([k for k in keys if k in listed], 2)
        ]
        texts += [f"{n}{mark}{key}" for key in keys for n in ("1000000", "1")]
        texts += [f"a{mark}²"] * numbers
        texts += [mark.join(p) for day in days for p in ((day, "a"), ("a", day))]
        out.append(texts)
    return [text for row in zip_longest(*out) for text in row if text is not None]


def numbered(keys: list[str]) -> list[str]:
    """Return many texts with a word: a sample by a hash of the record holds some of them."""
    return [f"{(keys or ['a'])[0]} {n}" for n in range(_ALIKE)]


def tables(marks: list[str], keys: list[str], widths: Sequence[int]) -> list[str]:
    """Return many unlike words, as many numbers as the code may want fields, and tables of two marks."""
    rows = [m.join([n] * w) for m in marks for w in widths for n in ("1000000", "-1000000")]
    like = keys or ["a"]
    several = [
        outer.join([f"{key}{inner}{n}" for key in like] * _REPEATED)
        for outer, inner in itertools.permutations(marks, 2)
        for n in ("1000000", "7")
    ]
    unlike = [mark.join(f"w{i}" for i in range(_MANY)) for mark in marks]
    return [text for row in zip_longest(unlike, several, rows) for text in row if text is not None]


def apart(marks: list[str], keys: list[str], listed: Collection[str]) -> list[tuple[str, str]]:
    """Return texts of a part of the words, and of the rest: a record that moves some counts alone."""
    keys = keys if len(listed) < 2 else [key for key in keys if key in listed]
    half = (len(keys) + 1) // 2
    sides = [(keys[:half], keys[half:]), (keys[half:], keys[:half]), (keys[:1], keys[1:])]
    return [(m.join(a), m.join(b)) for m in marks[:2] for a, b in sides if a and b]
