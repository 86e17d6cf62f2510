"""Texts that belong together: low and high records of one key, of several users, JSON and vectors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, permutations, zip_longest

__all__ = ["Shapes", "kin_of", "objects_of", "users_of"]

_KEYS, _MEMBERS, _MANY, _REPEATED, _MOST_KIN, _MOST_WIDTHS, _MOST_ROWS, _KINDS = (
    4,
    12,
    40,
    3,
    24,
    2,
    4,
    3,
)
_USERS = "abcdefgh"
_SMALL, _HUGE = 1, 1000000
_HOUR = "2024-02-29T12:30:00"


@dataclass(frozen=True)
class Shapes:
    """What records of the code look like."""

    marks: tuple[str, ...] = ()
    """Texts between fields."""
    keys: tuple[str, ...] = ()
    """Words of the code that may be keys or categories."""
    named: tuple[str, ...] = ()
    """More such words, of which any may be a key of a JSON object."""
    whole: tuple[str, ...] = ()
    """Whole numbers of the code and those above them, the largest first."""
    widths: tuple[int, ...] = ()
    """How many numbers a record may have."""
    listed: tuple[str, ...] = ()
    """Words of lists and tables, which are values of a field."""
    dates: bool = False
    json: bool = False
    numbers: bool = False
    """Whether the code reads dates, JSON, or numbers."""
    floats: bool = False
    """Whether a number may be none: the text of a NaN is read as one."""
    quoted: bool = False
    """Whether fields may stand in quotes: one that stays open takes in the lines that follow."""
    matched: tuple[tuple[str, str], ...] = ()
    """Texts of regular expressions, with small numbers and with large ones."""

    @property
    def members(self) -> list[str]:
        """Keys of JSON objects."""
        return _identifiers(self.keys)


def _identifiers(words: Iterable[str]) -> list[str]:
    return [word for word in words if word.isidentifier()] or ["a"]


def kin_of(shapes: Shapes) -> list[tuple[str, str]]:
    """Return a low and a high record of one key, in what shapes the code may read, the kinds by turns."""
    top, keys, like = shapes.whole[:1] or ("7",), shapes.keys[:1], shapes.members
    fields: list[tuple[str, str]] = []
    for mark in shapes.marks:
        fields += [(f"a{mark}{low}", f"a{mark}1000000") for low in ("0", "-1000000")]
        fields += [(f"0{mark}a", f"1000000{mark}a")]
        fields += [(f"a{mark}0", f"a{mark}{n}") for n in top]
        fields += [(f"{key}{mark}0", f"{key}{mark}{n}") for key in keys for n in top]
    objects = [(_object(like, key, 0), _object(like, key, _HUGE)) for key in like]
    plain = [("0", "1000000"), *(("0", n) for n in top), ("-1", "1")]
    kinds = (
        list(shapes.matched),
        fields,
        list(_joins(shapes)),
        list(_turned(shapes)) if shapes.numbers else [],
        list(_lacking(shapes)) if shapes.floats else [],
        list(_vectors(shapes)),
        objects if shapes.json else [],
        plain if shapes.numbers and not shapes.marks else [],
        [("1970-01-01", "9999-12-31")] if shapes.dates else [],
        [("a,1", '"a')] if shapes.quoted else [],
    )
    turns = [pair for row in zip_longest(*kinds) for pair in row if pair is not None]
    return turns[:_MOST_KIN]


def _joins(shapes: Shapes) -> Iterable[tuple[str, str]]:
    """Yield rows of two kinds with one key: one of them may count as many of the other as there are."""
    kinds = [word for word in shapes.named if word not in shapes.listed][:_KINDS]
    for mark in shapes.marks:
        for one, other in pairwise(shapes.keys):
            yield f"{one}{mark}a", f"{other}{mark}a"
            yield f"a{mark}{one}", f"a{mark}{other}"
        for one, other in permutations(kinds, 2):
            value = next(iter(shapes.listed), str(_HUGE))
            yield f"{one}{mark}a{mark}{_HUGE}", f"{other}{mark}a{mark}{value}"


def _turned(shapes: Shapes) -> Iterable[tuple[str, str]]:
    """Yield a low row and a higher one of one user: a sum goes from one end of its range to the other."""
    for width in shapes.widths[:_MOST_WIDTHS]:
        for mark in shapes.marks:
            like = mark.join("a" * (width - 1))
            yield f"{like}{mark}{-_HUGE}", f"{like}{mark}{2 * _HUGE}"


def _lacking(shapes: Shapes) -> Iterable[tuple[str, str]]:
    """Yield a row of large numbers, and one whose numbers are none: it may void all the others."""
    for width in shapes.widths[:_MOST_WIDTHS]:
        yield from ((m.join([str(_HUGE)] * width), m.join(["nan"] * width)) for m in shapes.marks)


def _vectors(shapes: Shapes) -> Iterable[tuple[str, str]]:
    """Yield a small and a huge vector: what is scaled by the largest record shrinks all the others."""
    like = _identifiers(dict.fromkeys((*shapes.keys, *shapes.named)))[:_MEMBERS]
    for width in shapes.widths[:_MOST_WIDTHS]:
        if shapes.json:
            yield json.dumps([_SMALL] * width), json.dumps([_HUGE] * width)
            small, huge = (json.dumps(dict.fromkeys(like, [n] * width)) for n in (_SMALL, _HUGE))
            yield small, huge
        elif shapes.numbers:
            yield from ((m.join("1" * width), m.join(["1000000"] * width)) for m in shapes.marks)


def users_of(shapes: Shapes) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return a low and a high record of each of several users: a number, or a word of the code.

    A number of the code may be a clamp, and the one below it is the largest rest of a division.
    """
    named = [str(int(n) - 1) for n in shapes.whole[:3]]
    sides = [("0", "1000000"), *(("0", n) for n in dict.fromkeys(("7", *named)))]
    sides += [("b", key) for key in shapes.keys[:2]]
    return [
        (tuple(f"{u}{m}{low}" for u in _USERS), tuple(f"{u}{m}{high}" for u in _USERS))
        for m in shapes.marks
        for low, high in sides
    ]


def _object(keys: list[str], changed: str, value: object) -> str:
    return json.dumps({key: value if key == changed else 1 for key in keys})


def objects_of(shapes: Shapes) -> list[str]:
    """Return JSON texts with the words of the code as keys."""
    like = _identifiers(dict.fromkeys((*shapes.keys, *shapes.named)))[:_MEMBERS]
    out = [json.dumps(dict.fromkeys(like, n)) for n in (_HUGE, -_HUGE)]
    out += [_object(like, key, n) for n in (_HUGE, -_HUGE) for key in like[:_KEYS]]
    values: tuple[object, ...] = (
        like * _REPEATED,
        *([n] * width for width in shapes.widths[:_MOST_WIDTHS] for n in (_HUGE, _SMALL)),
        *([_HOUR] if shapes.dates else []),
        "a",
        list(range(_MANY)),
        ["a"] * _MANY,
        None,
        {"a": 1},
    )
    out += [json.dumps(dict.fromkeys(like, value)) for value in values]
    rows = [[n] * w for w in shapes.widths[:_MOST_ROWS] for n in (_HUGE, -_HUGE)]
    out += [json.dumps(row) for row in (*rows, [_SMALL] * _MANY)]
    return [*out, "[1, 2, 3]", "7", "{}", "null", json.dumps(["a"] * _MANY), '"a"', "NaN", "1e400"]
