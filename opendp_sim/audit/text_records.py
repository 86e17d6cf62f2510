"""Texts of the kinds that code takes: fields between its marks, numbers, spellings, JSON, dates."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from opendp_sim.audit.joined_words import PARTS, REPEATS, SPLITS
from opendp_sim.audit.mining import Mined
from opendp_sim.audit.text_fields import apart, behind, fields, mixed, numbered, tables
from opendp_sim.audit.text_kin import Shapes, kin_of, objects_of, users_of
from opendp_sim.audit.text_patterns import PATTERNS, Pattern, low_and_high, matching
from opendp_sim.audit.text_spellings import spelled

__all__ = ["Texts", "marks_of", "ranked", "texts_of"]

_CUTS = SPLITS | {"splitlines", "reader", "DictReader", "partition_on", "tokenize", "finditer"}
_NUMERIC = frozenset(
    {"int", "float", "Decimal", "Fraction", "isdigit", "isdecimal", "isnumeric", "to_numeric"}
    | {"loads", "literal_eval", "astype", "cast"}
)
_FLOATS = frozenset({"float", "to_numeric", "astype", "loads"})
_QUOTED = frozenset({"reader", "DictReader", "read_csv"})
_CASES = frozenset(
    {"casefold", "lower", "upper", "title", "capitalize", "swapcase", "normalize", "IGNORECASE"}
    | {"strip", "lstrip", "rstrip", "translate", "I"}
)
_BYTES = frozenset({"encode", "bytes", "bytearray", "utf-8", "utf8", "len"})
_JSON = frozenset({"loads", "literal_eval", "safe_load"})
_DATES = frozenset(
    {"fromisoformat", "strptime", "date", "datetime", "to_datetime", "datetime64", "parse"}
    | {"weekday", "isoweekday", "isocalendar", "toordinal", "hour"}
)
_LENGTHS = frozenset({"len", "encode"})
_HASHES = frozenset(
    {"crc32", "adler32", "digest", "hexdigest", "md5", "sha1", "sha256", "blake2b", "hash"}
)
_METHODS = _CUTS | PARTS | REPEATS | _NUMERIC | _CASES | _BYTES | _JSON | _DATES | PATTERNS

_NO_DATA = re.compile(
    r"T|T[OAI]|MO|QO|[iuf]\d{1,3}|u?int\d*|float\d*|utf-?8|ascii|ignore|strict|key|size"
)
"""Names of types, codings and parameters, which are seldom records."""

_LONGEST_MARK, _LONGEST_KEY, _KEYS, _MOST_MARKS = 3, 24, 4, 4
_MOST_WIDTHS, _WIDEST = 4, 12
_AMOUNTS = ("0", "1000000", "1", "-1000000")
_NUMBERS = (
    "0",
    "7",
    "-999999",
    "999999",
    "1e9",
    "0.5",
    "nan",
    "inf",
    "-inf",
    " 7 ",
    "1_000",
    "٣",
    "²",
)
_WIDE = ("é", "漢", "😀")
"""Letters of two, three and four bytes."""
_CHANGING = ("ß", "İ", "ﬃ", "ΐ", "ﷺ", "e\u0301")
"""Letters whose case or normal form has another length."""
_PLACES = ({11, 13}, {5, 7}, {8, 10}, {14, 16})
"""Where hour, month, day and minute of an ISO date begin and end."""
_ISO = (
    "1970-01-01",
    "2024-02-29T12:30:00",
    "2024-12-31T23:59:59",
    "2024-02-29",
    "0001-01-01",
    "9999-12-31",
)
_MANY, _LONG, _LONGEST = 40, 1000, 5000
_MOST_LENGTHS, _MOST_TEXTS, _DAYS = 3, 108, 16


@dataclass(frozen=True)
class Texts:
    """What datasets of texts are made of."""

    values: tuple[str, ...]
    """Records to try."""
    kin: tuple[tuple[str, str], ...]
    """Records that belong together and differ in their number: a low and a high one of one user."""
    users: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    """Low and high records of several users, in one order of users."""
    apart: tuple[tuple[str, str], ...]
    """Records of some words of the code, and of the others."""
    keys: tuple[str, ...]
    """Words that the code may count."""
    runs: tuple[tuple[str, ...], ...]
    """Days in a row, where the code reads dates."""
    draw: Callable[[np.random.Generator], str]
    """A fresh record: words and numbers between a mark."""


def ranked(found: Mined) -> list[str]:
    """Return short words of the code, those of its lists and tables first."""
    words = [*sorted(found.listed), *sorted(found.words - found.listed)]
    short = [
        w
        for w in words
        if len(w) <= _LONGEST_KEY
        and any(map(str.isalnum, w))
        and w not in _METHODS
        and not ("\\" in w or "[" in w)  # an expression, which is no record itself
    ]

    def seldom(word: str) -> bool:
        named = word in found.keywords and word not in found.listed
        return named or _NO_DATA.fullmatch(word) is not None

    return sorted(short, key=seldom)


def marks_of(found: Mined) -> list[str]:
    """Return short constants without letters and digits; a blank or a line's end where code splits there.

    A constant of several such letters may be what is stripped, so it comes last.
    """
    marks = sorted(
        (w for w in found.words if 0 < len(w) <= _LONGEST_MARK and not any(map(str.isalnum, w))),
        key=lambda mark: (len(set(mark.strip() or mark)), len(mark), mark),
    )
    clear = sum(len(set(mark.strip() or mark)) == 1 for mark in marks[:1])
    if _uses(found, {"split", "rsplit"}):
        marks.insert(clear, " ")
    if "splitlines" in found.names:
        marks.insert(0, "\n")
    if _uses(found, SPLITS):
        plain = found.words - found.listed - found.keywords
        marks += sorted(w for w in plain if len(w) == 1 and w.isalpha())
    if _uses(found, {"findall", "finditer"}):
        marks.append(" ")
    if not marks and _uses(found, _CUTS):
        marks = [","]
    return list(dict.fromkeys(marks))[:_MOST_MARKS]


def texts_of(found: Mined) -> Texts:
    """Return texts for what the code does with them."""
    marks, keys = marks_of(found), ranked(found)[:_KEYS]
    patterns = _patterns(found)
    shapes = Shapes(
        tuple(marks),
        tuple(keys),
        tuple(ranked(found)),
        tuple(_whole(found)),
        tuple(_widths(found)),
        tuple(word for word in ranked(found) if word in found.listed),
        dates=_dated(found, marks),
        json=_uses(found, _JSON),
        numbers=_uses(found, _NUMERIC),
        floats=_uses(found, _FLOATS),
        matched=tuple(low_and_high(patterns)),
        quoted=_uses(found, _QUOTED),
    )
    kin, many = kin_of(shapes), _uses(found, _CUTS | PATTERNS)
    kinds = (
        fields(marks, keys, _whole(found)),
        tables(marks, keys, _widths(found)),
        matching(patterns, _whole(found), ranked(found)),
        _numbers(found) if _uses(found, _NUMERIC) else [],
        spelled(found, marks, keys, together=many) if _uses(found, _CASES) else [],
        _letters(found),
        [side for pair in kin for side in pair],
        objects_of(shapes) if shapes.json else [],
        list(_ISO) if shapes.dates else [],
        behind(marks, ranked(found)),
        mixed(marks, keys, found.listed, _ISO[1:3] if shapes.dates else (), numbers=shapes.numbers),
        numbered(keys) if _uses(found, _HASHES) else [],
        _lengths(found) if _uses(found, _LENGTHS) else [],
    )
    values = [text for row in zip_longest(*kinds) for text in row if text is not None]
    return Texts(
        tuple(dict.fromkeys(values))[:_MOST_TEXTS],
        tuple(kin),
        tuple(users_of(shapes)),
        tuple(apart(marks, keys, found.listed)),
        tuple(keys),
        tuple(_runs(marks)) if shapes.dates else (),
        _drawer(marks, [*ranked(found)[: 3 * _KEYS], "a", "b", *_AMOUNTS]),
    )


def _uses(found: Mined, names: Collection[str]) -> bool:
    return not found.names.isdisjoint(names) or not found.words.isdisjoint(names)


def _patterns(found: Mined) -> set[Pattern]:
    """Return the regular expressions of the code, and its words where it takes any as one."""
    words = found.words if _uses(found, PATTERNS) else ()
    return found.patterns | {(word, 0) for word in words}


def _whole(found: Mined) -> list[str]:
    """Return moderate whole numbers of the code and those above them, the largest first."""
    whole = sorted({int(c) for c in found.numbers if c == int(c) and 1 < c < 1e9}, reverse=True)
    return [str(n + more) for n in whole[:4] for more in (0, 1)]


def _numbers(found: Mined) -> list[str]:
    return [*_NUMBERS[:6], *_whole(found), *_NUMBERS[6:]]


def _widths(found: Mined) -> list[int]:
    """Return how many numbers a record may have, those that the code names first."""
    named = sorted({int(c) for c in found.numbers if c == int(c) and 1 < c <= _WIDEST})
    return list(dict.fromkeys((3, *named, 2)))[:_MOST_WIDTHS]


def _runs(marks: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield some days in a row, alone and as the second and the first field."""
    days = [f"2024-03-{day:02}" for day in range(1, _DAYS)]
    yield tuple(days)
    yield from (tuple(f"a{mark}{day}" for day in days) for mark in marks[:1])
    yield from (tuple(f"{day}{mark}a" for day in days) for mark in marks[:1])


def _dated(found: Mined, marks: list[str]) -> bool:
    """Say whether the code reads dates: by name, or by the places of an ISO date's hour or month."""
    places = any(pair <= found.numbers for pair in _PLACES)
    return places or "T" in marks or _uses(found, _DATES)


def _letters(found: Mined) -> list[str]:
    """Return long runs of letters of many bytes, or of letters that grow."""
    letters = [
        *(_WIDE if _uses(found, _BYTES) else ()),
        *(_CHANGING if _uses(found, _CASES) else ()),
    ]
    return [letter * _MANY for letter in letters]


def _lengths(found: Mined) -> list[str]:
    whole = sorted(int(c) for c in found.numbers if c == int(c) and 2 <= c <= _LONGEST)
    return ["a" * (n + more) for n in whole[:_MOST_LENGTHS] for more in (0, 1)] + ["a" * _LONG]


def _drawer(marks: list[str], parts: list[str]) -> Callable[[np.random.Generator], str]:
    def draw(rng: np.random.Generator) -> str:
        few = [parts[int(i)] for i in rng.integers(len(parts), size=int(rng.integers(1, 7)))]
        return marks[int(rng.integers(len(marks)))].join(few) if marks else few[0]

    return draw
