"""Draw record values from a weighted grammar of the code's constants.

A production weighs more where the code names a function that reads such texts. Every value is made from
a generator of random numbers, so one seed draws one sequence of values.
"""

from __future__ import annotations

import contextlib
import json
import math
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from opendp_sim.audit.seeds.constants import Mined

_PRODUCTIONS: dict[str, tuple[float, frozenset[str]]] = {
    "word": (4.0, frozenset()),
    "numeral": (
        1.0,
        frozenset({"int", "float", "Decimal", "Fraction", "to_numeric", "isdigit", "isdecimal"})
        | {"isnumeric", "astype", "cast"},
    ),
    "date": (
        0.2,
        frozenset({"fromisoformat", "strptime", "date", "datetime", "to_datetime", "datetime64"})
        | {"weekday", "isocalendar", "isoweekday", "toordinal"},
    ),
    "joined": (
        1.0,
        frozenset({"split", "rsplit", "partition", "rpartition", "splitlines", "reader", "count"})
        | {"DictReader", "findall", "finditer", "Counter", "read_csv"},
    ),
    "document": (0.1, frozenset({"loads", "literal_eval", "safe_load"})),
    "match": (
        0.0,
        frozenset({"compile", "match", "search", "findall", "finditer", "fullmatch", "sub"}),
    ),
    "spelling": (
        0.5,
        frozenset({"lower", "upper", "casefold", "title", "capitalize", "swapcase", "strip", "len"})
        | {"normalize", "encode", "translate", "startswith", "endswith", "replace"},
    ),
}
"""Weight of each production without a sign of it in the code, and names that are a sign of it."""
_SIGN, _ITSELF = 6.0, frozenset().union(*(signs for _, signs in _PRODUCTIONS.values()))
"""What a sign adds to a weight; words that name a function are no records."""
_NUMBERS = (0, 1, -1, 2, 7, 0.5, 10, 100, 1000, 10**6, -(10**6), 1e9, math.nan, math.inf, -math.inf)
_WORDS = ("", " ", "a", "b", "é", "ß", "ﬃ", "😀", "漢", "İ", "²", "a" * 40, "😀" * 12, "ß" * 12)
_DATES = ("2024-02-29", "2024-12-31", "1970-01-01", "0001-01-01", "9999-12-31")
_MARKS = (",", ";", " ", ":", "|", "\t", "\n", "/", "@", "=", "-", "_", ".", "&", "+")
_COUNTS = (2, 2, 2, 3, 3, 4, 5, 8, 40)
"""Fields of a text, likely ones more often."""
_LONGEST, _LONGEST_WORD, _LONGEST_MARK, _MOST_NUMBERS, _DEPTH, _WIDEST = 2000, 40, 3, 60, 2, 12
_LIGATURES = (("ffi", "ﬃ"), ("ss", "ß"), ("k", "\u212a"), ("s", "ſ"))
"""Letters that case folding or compatibility forms make equal to others."""


class Grammar:
    """Draw numbers, texts and tuples of them."""

    def __init__(self, found: Mined) -> None:
        words = sorted(w for w in found.words | found.listed if len(w) <= _LONGEST_WORD)
        plain = [w for w in words if any(map(str.isalnum, w)) and "\\" not in w]
        self.words = [w for w in plain if w not in _ITSELF]
        named = [w for w in self.words if w in found.listed]
        self.listed = named or [w for w in self.words if w not in found.keywords] or self.words
        self.marks = [w for w in words if 0 < len(w) <= _LONGEST_MARK and w not in plain]
        self.numbers = sorted(found.numbers, key=lambda c: (abs(c), c))[:_MOST_NUMBERS]
        self.whole = [int(c) for c in self.numbers if c == int(c)]
        odd = ((w, 0) for w in words if "\\" in w or "[" in w)
        self.patterns = sorted({*found.patterns, *odd})
        names = found.names | found.words
        weights = {k: low + _SIGN * bool(signs & names) for k, (low, signs) in _PRODUCTIONS.items()}
        weights["match"] *= bool(self.patterns)
        self._read = self.date if names & _PRODUCTIONS["date"][1] else self.word
        self._makers = [getattr(self, kind) for kind in weights]
        self._up_to = np.cumsum(list(weights.values())) / sum(weights.values())

    def like(self, example: Any, rng: np.random.Generator) -> Any:
        """Return a value of the type of an example."""
        if isinstance(example, bool):
            return bool(rng.integers(2))
        if isinstance(example, str):
            return self.text(rng)
        if isinstance(example, int):
            return int(self.number(rng, whole=True))
        if isinstance(example, float):
            return float(self.number(rng))
        if isinstance(example, (tuple, list)):
            few = 1 + int(rng.integers(len(example) or 1))
            spots = rng.choice(len(example), few, replace=False) if example else ()
            parts = (self.like(p, rng) if i in spots else p for i, p in enumerate(example))
            return type(example)(parts)
        return example

    def varied(self, value: Any, rng: np.random.Generator) -> Any:
        """Return a similar value, such as with one field changed."""
        if isinstance(value, str):
            return self._varied_text(value, rng)[:_LONGEST]
        if isinstance(value, bool):
            return not value
        if isinstance(value, (int, float)):
            near = (value * 2, value + 1, value - 1, -value, value // 2)
            return type(value)(_pick(rng, near)) if math.isfinite(value) else value
        return self.like(value, rng)

    def _varied_text(self, text: str, rng: np.random.Generator) -> str:
        cuts = [mark for mark in dict.fromkeys((*self.marks, *_MARKS[:4])) if mark in text]
        if not cuts or rng.random() < 0.3:
            more = self.field(rng)
            return _word(
                rng, (text * 2, text + self.mark(rng) + text, text[:-1], text + more, more + text)
            )
        mark = _word(rng, cuts)
        parts = text.split(mark)
        place, move = int(rng.integers(len(parts))), int(rng.integers(4))
        if move == 0:
            parts += [parts[place]]
        elif move == 1:
            parts += parts
        else:
            parts[place] = self.field(rng) if move == 2 else self.numeral(rng)
        return mark.join(parts)

    # --- numbers -------------------------------------------------------------------

    def number(self, rng: np.random.Generator, *, whole: bool = False) -> float:
        """Return a number of the code, a usual or a near one."""
        own = self.whole if whole else self.numbers
        value: float = _pick(rng, own if own and rng.random() < 0.6 else _NUMBERS)
        move = int(rng.integers(8))
        if move == 3 and own:
            value = value * _pick(rng, own)
        elif move == 5 and not whole:
            value = math.nextafter(value, math.inf if rng.random() < 0.5 else -math.inf)
        elif move < 5:
            value = (value + 1, value - 1, -value, value, 10 * value)[move]
        return value if not whole or math.isfinite(value) else 0

    # --- texts ---------------------------------------------------------------------

    def text(self, rng: np.random.Generator, depth: int = 0) -> str:
        """Return a text of any production."""
        made: str = self._makers[int(np.searchsorted(self._up_to, rng.random()))](rng, depth)
        return made[:_LONGEST]

    def word(self, rng: np.random.Generator, _depth: int = 0) -> str:
        """Return a word, mostly of the code's lists, or an odd one."""
        k = rng.random()
        pool = self.listed if k < 0.5 else self.words if k < 0.85 else ()
        return _word(rng, pool or _WORDS)

    def mark(self, rng: np.random.Generator) -> str:
        """Return a separator, mostly of the code."""
        return _word(rng, self.marks if self.marks and rng.random() < 0.9 else _MARKS)

    def field(self, rng: np.random.Generator, depth: int = _DEPTH) -> str:
        """Return a part of a text, mostly a word or a number."""
        if rng.random() < 0.2:
            return self.text(rng, depth + 1)
        kinds = (self.word, self.word, self.numeral, self.numeral, self._read)
        return str(_pick(rng, kinds)(rng, depth))

    def numeral(self, rng: np.random.Generator, _depth: int = 0) -> str:
        """Return a number as a text."""
        return str(self.number(rng, whole=rng.random() < 0.6))

    def date(self, rng: np.random.Generator, _depth: int = 0) -> str:
        """Return an ISO date of the code's numbers, perhaps with a time."""
        if rng.random() < 0.5:
            day = _pick(rng, _DATES)
        else:
            years = [n + k for n in self.whole if 1000 <= n <= 9998 for k in (0, 1)]
            months = [n for n in self.whole if 1 <= n <= 12]
            days = [n for n in self.whole if 1 <= n <= 31]
            year = _pick(rng, years or (1970, 2023, 2024, 2500))
            month, of_month = _pick(rng, months or (1, 2, 12)), _pick(rng, days or (1, 28, 31))
            day = f"{year:04d}-{month:02d}-{of_month:02d}"
        return day if rng.random() < 0.75 else f"{day}T{rng.integers(24):02d}:30:00"

    def joined(self, rng: np.random.Generator, depth: int = 0) -> str:
        """Return fields with one mark between them, equal or different ones."""
        if depth > _DEPTH:
            return self.word(rng)
        mark, count, first = self.mark(rng), int(_pick(rng, _COUNTS)), self.field(rng, depth)
        k = rng.random()
        if k < 0.4:
            return mark.join([first] * count if k < 0.3 else [f"{first}{n}" for n in range(count)])
        return mark.join([first, *(self.field(rng, depth) for _ in range(min(count, 8) - 1))])

    def document(self, rng: np.random.Generator, depth: int = 0) -> str:
        """Return JSON, mostly an object with words of the code as keys."""
        keys = [word for word in self.words if word.isidentifier()] or ["a"]
        made = {key: self._member(rng, depth) for key in keys if rng.random() < 0.8}
        return json.dumps(made if rng.random() < 0.8 else self._member(rng, depth))

    def _member(self, rng: np.random.Generator, depth: int) -> Any:
        kind = int(rng.integers(7))
        if kind <= 2:
            return self.number(rng, whole=rng.random() < 0.5)
        if kind == 3:
            return self.field(rng, depth)
        if kind == 4 and depth < 2:
            counts = (0, 2, 40, *(n for n in self.whole if 1 < n <= _WIDEST))
            return [self._member(rng, depth + 1)] * int(_pick(rng, counts))
        if kind == 5 and depth < 2:
            return {self.word(rng): self._member(rng, depth + 1)}
        return _pick(rng, (None, True, False, 1, 50.0, "1"))

    def match(self, rng: np.random.Generator, _depth: int = 0) -> str:
        """Return a text for a regular expression, once or repeated."""
        written, flags = _pick(rng, self.patterns)
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")  # of a word that was not meant to be a pattern
            one = self._matching(import_module("re._parser").parse(written, flags), rng)
            if rng.random() < 0.6:
                return one
            return _word(rng, ("", self.mark(rng))).join([one] * int(_pick(rng, (2, 3, 40))))
        return self.word(rng)

    def _matching(self, tree: Iterable[Any], rng: np.random.Generator) -> str:
        """Return a text for a sequence of parts, without what surrounds it."""
        out = []
        for operation, value in tree:
            name = str(operation)
            if name == "LITERAL":
                out.append(chr(value))
            elif name == "IN":
                out.append(_letter(value, rng))
            elif name in ("ANY", "NOT_LITERAL"):
                out.append("x" if name == "ANY" or value != ord("x") else "y")
            elif name.endswith("_REPEAT"):
                least, most, part = value
                count = int(_pick(rng, (least, min(int(most), least + 1), min(int(most), 9))))
                alike = self._matching(part, rng)
                mixed = (self._matching(part, rng) for _ in range(count))
                out.append(alike * count if rng.random() < 0.5 else "".join(mixed))
            elif name == "SUBPATTERN":
                out.append(self._matching(value[-1], rng))
            elif name == "BRANCH":
                out.append(self._matching(_pick(rng, value[1]), rng))
        return "".join(out)

    def spelling(self, rng: np.random.Generator, depth: int = 0) -> str:
        """Return a field in another case, padded, cut, numbered or long."""
        one = self.field(rng, depth) if depth <= _DEPTH else self.word(rng)
        letters = one
        for plain, other in _LIGATURES:
            letters = letters.replace(plain, other)
        size = _pick(rng, [n for n in self.whole if 1 < n <= _LONGEST] or (40,))
        cases = one.upper(), one.lower(), one.title(), one.swapcase()
        kinds = (
            *(*cases, letters),
            *(f" {one} ", one + _pick(rng, _WORDS), one[:-1], one * 3, f"{one} {rng.integers(99)}"),
            self.mark(rng).join((*cases[:3], *(one[:k] + one[k:].upper() for k in (1, -1)))),
            (one or "a")[:1] * (size + int(rng.integers(2))),
        )
        return _word(rng, kinds)


def _letter(items: Sequence[Any], rng: np.random.Generator) -> str:
    """Return a letter of a class."""
    kind, value = _pick(rng, items)
    if str(kind) == "LITERAL":
        return chr(value)
    if str(kind) == "RANGE":
        return chr(int(_pick(rng, (*value, rng.integers(value[0], value[1] + 1)))))
    letters = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_SPACE": " ", "NEGATE": "é"}
    return _word(rng, letters.get(str(value), letters.get(str(kind), "a")))


def _pick(rng: np.random.Generator, items: Sequence[Any]) -> Any:
    return items[int(rng.integers(len(items)))]


def _word(rng: np.random.Generator, items: Sequence[str]) -> str:
    return items[int(rng.integers(len(items)))]
