"""Generate texts of common formats, such as JSON and dates."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, zip_longest

import numpy as np

from opendp_sim.audit.seeds.constants import PARTS, REPEATS, SPLITS, Mined
from opendp_sim.audit.seeds.regex import PATTERNS, Pattern, low_and_high, matching

# --------------------------------------------------------------------------------------------------
# Texts of several fields, with a mark of the code between them: keys, numbers, words, dates, tables.

_TEXT_FIELDS_MANY, _REPEATED, _ALIKE, _FIRST = 40, 3, 24, 3


def fields(marks: list[str], keys: list[str], whole: list[str]) -> list[str]:
    """Return fields of keys, numbers or nothing, for each separator."""
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
    """Return texts with words of the code as second field."""
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
    """Return fields of words, numbers, unusual digits and dates."""
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
    """Return many numbered texts with a word, for hashes."""
    return [f"{(keys or ['a'])[0]} {n}" for n in range(_ALIKE)]


def tables(marks: list[str], keys: list[str], widths: Sequence[int]) -> list[str]:
    """Return texts with many fields, and tables of two separators."""
    rows = [m.join([n] * w) for m in marks for w in widths for n in ("1000000", "-1000000")]
    like = keys or ["a"]
    several = [
        outer.join([f"{key}{inner}{n}" for key in like] * _REPEATED)
        for outer, inner in itertools.permutations(marks, 2)
        for n in ("1000000", "7")
    ]
    unlike = [mark.join(f"w{i}" for i in range(_TEXT_FIELDS_MANY)) for mark in marks]
    return [text for row in zip_longest(unlike, several, rows) for text in row if text is not None]


def apart(marks: list[str], keys: list[str], listed: Collection[str]) -> list[tuple[str, str]]:
    """Return texts of some words apart from the rest."""
    keys = keys if len(listed) < 2 else [key for key in keys if key in listed]
    half = (len(keys) + 1) // 2
    sides = [(keys[:half], keys[half:]), (keys[half:], keys[:half]), (keys[:1], keys[1:])]
    return [(m.join(a), m.join(b)) for m in marks[:2] for a, b in sides if a and b]


# --------------------------------------------------------------------------------------------------
# Texts that belong together: low and high records of one key, of several users, JSON and vectors.

(
    _TEXT_KIN_KEYS,
    _MEMBERS,
    _TEXT_KIN_MANY,
    _TEXT_KIN_REPEATED,
    _MOST_KIN,
    _TEXT_KIN_MOST_WIDTHS,
    _MOST_ROWS,
    _KINDS,
) = (4, 12, 40, 3, 24, 2, 4, 3)
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
    """Return low and high records of one key, in alternate formats."""
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
    """Yield rows of two kinds with one key."""
    kinds = [word for word in shapes.named if word not in shapes.listed][:_KINDS]
    for mark in shapes.marks:
        for one, other in pairwise(shapes.keys):
            yield f"{one}{mark}a", f"{other}{mark}a"
            yield f"a{mark}{one}", f"a{mark}{other}"
        for one, other in permutations(kinds, 2):
            value = next(iter(shapes.listed), str(_HUGE))
            yield f"{one}{mark}a{mark}{_HUGE}", f"{other}{mark}a{mark}{value}"


def _turned(shapes: Shapes) -> Iterable[tuple[str, str]]:
    """Yield a low and a higher row of one user."""
    for width in shapes.widths[:_TEXT_KIN_MOST_WIDTHS]:
        for mark in shapes.marks:
            like = mark.join("a" * (width - 1))
            yield f"{like}{mark}{-_HUGE}", f"{like}{mark}{2 * _HUGE}"


def _lacking(shapes: Shapes) -> Iterable[tuple[str, str]]:
    """Yield a row of large numbers, and a row without numbers."""
    for width in shapes.widths[:_TEXT_KIN_MOST_WIDTHS]:
        yield from ((m.join([str(_HUGE)] * width), m.join(["nan"] * width)) for m in shapes.marks)


def _vectors(shapes: Shapes) -> Iterable[tuple[str, str]]:
    """Yield a small and a huge vector."""
    like = _identifiers(dict.fromkeys((*shapes.keys, *shapes.named)))[:_MEMBERS]
    for width in shapes.widths[:_TEXT_KIN_MOST_WIDTHS]:
        if shapes.json:
            yield json.dumps([_SMALL] * width), json.dumps([_HUGE] * width)
            small, huge = (json.dumps(dict.fromkeys(like, [n] * width)) for n in (_SMALL, _HUGE))
            yield small, huge
        elif shapes.numbers:
            yield from ((m.join("1" * width), m.join(["1000000"] * width)) for m in shapes.marks)


def users_of(shapes: Shapes) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return low and high records of several users.

    A number, or a word of the code. A number of the code may be a clamp, and the one below it is the
    largest rest of a division.
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
    out += [_object(like, key, n) for n in (_HUGE, -_HUGE) for key in like[:_TEXT_KIN_KEYS]]
    values: tuple[object, ...] = (
        like * _TEXT_KIN_REPEATED,
        *([n] * width for width in shapes.widths[:_TEXT_KIN_MOST_WIDTHS] for n in (_HUGE, _SMALL)),
        *([_HOUR] if shapes.dates else []),
        "a",
        list(range(_TEXT_KIN_MANY)),
        ["a"] * _TEXT_KIN_MANY,
        None,
        {"a": 1},
    )
    out += [json.dumps(dict.fromkeys(like, value)) for value in values]
    rows = [[n] * w for w in shapes.widths[:_MOST_ROWS] for n in (_HUGE, -_HUGE)]
    out += [json.dumps(row) for row in (*rows, [_SMALL] * _TEXT_KIN_MANY)]
    return [
        *out,
        "[1, 2, 3]",
        "7",
        "{}",
        "null",
        json.dumps(["a"] * _TEXT_KIN_MANY),
        '"a"',
        "NaN",
        "1e400",
    ]


# --------------------------------------------------------------------------------------------------
# The words of the code in other cases, with ends, and written with other letters.

_ENDS = 4
_LIGATURES = (("ffi", "ﬃ"), ("fl", "ﬂ"), ("fi", "ﬁ"), ("ss", "ß"), ("k", "\u212a"), ("s", "ſ"))
"""What letters become when case is folded or compatibility forms are normalised."""
_FULL_WIDTH = 0xFEE0


def spelled(found: Mined, marks: list[str], keys: list[str], *, together: bool) -> list[str]:
    """Return the words of the code in other spellings.

    Other cases, padding, and look-alike letters.

    Args:
        found: what the code names.
        marks: what stands between words.
        keys: the words.
        together: whether a record may hold several of them.
    """
    ends = [c for w in sorted(found.words) if w and not any(map(str.isalnum, w)) for c in w.strip()]
    joined: list[str] = []
    alone: list[list[str]] = []
    for key in keys or ["ss"]:
        texts = _spellings(key, ends[:_ENDS])
        joined += [mark.join(texts) for mark in marks[:2]] if together else []
        alone.append([f" {key.title()} ", *texts[1:]])
    return [*joined, *(t for row in zip_longest(*alone) for t in row if t is not None)]


def _spellings(word: str, ends: list[str]) -> list[str]:
    """Return texts that may normalise to one word."""
    wide = "".join(chr(ord(c) + _FULL_WIDTH) if "!" <= c <= "~" else c for c in word)
    other = [word.replace(plain, joined) for plain, joined in _LIGATURES if plain in word]
    cases = [word, word.upper(), word.title(), word.swapcase(), word[:-1] + word[-1:].upper()]
    return list(dict.fromkeys([*cases, wide, *other[:2], *(word + end for end in ends)]))


# --------------------------------------------------------------------------------------------------

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
    """Return short words of the code, those of lists first."""
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
    """Return the separators of the code.

    Short constants without letters and digits; a blank or a line's end where the code splits there. A
    constant of several such letters may be what is stripped, so it comes last.
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
    """Return the regular expressions of the code."""
    words = found.words if _uses(found, PATTERNS) else ()
    return found.patterns | {(word, 0) for word in words}


def _whole(found: Mined) -> list[str]:
    """Return moderate whole numbers of the code and their successors, decreasing."""
    whole = sorted({int(c) for c in found.numbers if c == int(c) and 1 < c < 1e9}, reverse=True)
    return [str(n + more) for n in whole[:4] for more in (0, 1)]


def _numbers(found: Mined) -> list[str]:
    return [*_NUMBERS[:6], *_whole(found), *_NUMBERS[6:]]


def _widths(found: Mined) -> list[int]:
    """Return possible numbers of fields, those of the code first."""
    named = sorted({int(c) for c in found.numbers if c == int(c) and 1 < c <= _WIDEST})
    return list(dict.fromkeys((3, *named, 2)))[:_MOST_WIDTHS]


def _runs(marks: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield consecutive days, alone and as the second or first field."""
    days = [f"2024-03-{day:02}" for day in range(1, _DAYS)]
    yield tuple(days)
    yield from (tuple(f"a{mark}{day}" for day in days) for mark in marks[:1])
    yield from (tuple(f"{day}{mark}a" for day in days) for mark in marks[:1])


def _dated(found: Mined, marks: list[str]) -> bool:
    """Return whether the code reads dates."""
    places = any(pair <= found.numbers for pair in _PLACES)
    return places or "T" in marks or _uses(found, _DATES)


def _letters(found: Mined) -> list[str]:
    """Return long runs of multi-byte or case-expanding letters."""
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
