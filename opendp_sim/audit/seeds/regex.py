"""Generate texts that match the regular expressions of the code.

Small and large ones, of every alternative. Python's own parser of expressions says what they are made
of. What is put together here is matched once more before it is tried, for what an expression asks of
its surroundings is left out; not where an expression has so many free parts that to match it could
take for ever.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

Pattern = tuple[str, int]
"""A regular expression and its flags."""
PATTERNS = frozenset(
    {"findall", "finditer", "search", "match", "fullmatch", "compile", "sub", "subn"}
)
"""Functions that take a regular expression."""
_MANY, _LONG, _LONGEST, _DIGITS, _STYLES, _ENDS = 40, 200, 2000, 8, 6, 6
_MOST_FREE, _LONGEST_WORD = 5, 12
_NESTED = re.compile(r"(?:[+*|]|,\d*\})[^()]*\)+[+*{]")
"""A repeated part with a repeated part, or alternatives, in it: matching may take exponential time."""
_TRIED = "aA_-. ,:/@+#'\"=b"
_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdigit,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda c: c.isalnum() or c == "_",
}


@dataclass
class _Style:
    """How freedom is used where an expression leaves some."""

    digit: str = "0"
    digits: int = 1
    """The least number of digits, where the expression lets a number be longer."""
    branch: int = 0
    optional: bool = False
    numbers: tuple[str, ...] = ()
    """What the numbers of a text are, in their order, where they are of a length that is allowed."""
    words: tuple[str, ...] = ()
    """Words of the code, which stand where the letters of one and their number are allowed."""
    met: int = 0
    groups: dict[int, str] = field(default_factory=dict)

    def text(self, tree: Iterable[Any]) -> str:
        """Return a text for a sequence of parts."""
        out = "".join(self._part(str(op), value) for op, value in tree)
        if len(out) > _LONGEST:
            raise ValueError
        return out

    def _part(self, op: str, value: Any) -> str:
        if op == "LITERAL":
            return chr(value)
        if op in ("NOT_LITERAL", "ANY", "IN"):
            items = value if op == "IN" else [("NEGATE", None)]
            items = [*items, ("LITERAL", value)] if op == "NOT_LITERAL" else items
            return self._letter([(str(kind), of) for kind, of in items])
        if op == "BRANCH":
            return self.text(value[1][self.branch % len(value[1])])
        if op == "SUBPATTERN":
            out = self.text(value[-1])
            if value[0] is not None:
                self.groups[value[0]] = out
            return out
        if op == "GROUPREF":
            return self.groups.get(value, "")
        if op == "ATOMIC_GROUP":
            return self.text(value)
        return self._repeated(*value) if op.endswith("_REPEAT") else ""

    def _letter(self, items: list[tuple[str, Any]]) -> str:
        named = [chr(of if kind == "LITERAL" else of[0]) for kind, of in items if _is_named(kind)]
        return next((c for c in (*_TRIED, self.digit, *named) if _within(items, c)), "é")

    def _repeated(self, least: int, most: int, part: Any) -> str:
        if least > _LONG:
            raise ValueError
        once = self.text(part)
        fits = [word for word in self.words if _is_made_of(part, word, least, most)]
        if fits:
            return fits[self.branch % len(fits)]
        count = max(least, int(self.optional and least == 0))
        if once == self.digit and most > 0:
            self.met += 1
            named = self.numbers[self.met - 1] if self.met <= len(self.numbers) else ""
            if least <= len(named) <= most and named:
                return named
        if once == self.digit and count:
            count = max(count, min(int(most), self.digits))
        return once * count


def _is_named(kind: str) -> bool:
    return kind in ("LITERAL", "RANGE")


def _within(items: list[tuple[str, Any]], letter: str) -> bool:
    """Say whether a class of letters has this one."""
    found = any(
        (kind == "LITERAL" and ord(letter) == of)
        or (kind == "RANGE" and of[0] <= ord(letter) <= of[1])
        or (kind == "CATEGORY" and _of_category(str(of), letter))
        for kind, of in items
    )
    return found != any(kind == "NEGATE" for kind, _ in items)


def _of_category(name: str, letter: str) -> bool:
    turned = "_NOT_" in name
    test = _CATEGORIES.get(name.replace("_NOT_", "_"))
    return test is not None and test(letter) != turned


def _is_made_of(part: Any, word: str, least: int, most: int) -> bool:
    """Return whether a word consists of one repeated character class."""
    if [str(op) for op, _ in part] != ["IN"] or not least <= len(word) <= most:
        return False
    if len(word) > _LONGEST_WORD:
        return False  # to match a long one may take as long as it is
    items = [(str(kind), of) for kind, of in part[0][1]]
    return all(_within(items, letter) for letter in word)


def _free(tree: Iterable[Any]) -> int:
    """Return the number of variable repetitions of a pattern."""
    count = 0
    for op, value in tree:
        if str(op).endswith("_REPEAT"):
            times = value[1] if value[1] <= _LONG else max(1, value[0])
            count += int(value[1] > value[0]) + int(times) * _free(value[2])
        elif str(op) == "BRANCH":
            count += sum(_free(branch) for branch in value[1])
        elif str(op) in ("SUBPATTERN", "ATOMIC_GROUP"):
            count += _free(value[-1] if str(op) == "SUBPATTERN" else value)
    return count


_LOW, _HIGH = _Style("0", 1), _Style("9", _DIGITS)


def _texts(pattern: Pattern, styles: Iterable[_Style]) -> Iterator[str | None]:
    """Yield a text in each style, or None without a match."""
    written, flags = pattern
    plain = not any(c in written for c in "\\[](){}.*+?|^$")
    if plain or _NESTED.search(written):
        return
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")  # of a word of the code that was not meant to be a pattern
        tree = import_module("re._parser").parse(written, flags)
        trusted = _free(tree) > _MOST_FREE  # to match it may take exponential time
        for style in styles:
            made = replace(style, groups={}).text(tree)
            yield made if trusted or re.search(written, made, flags) else None


def matching(
    patterns: Collection[Pattern], numbers: Sequence[str] = (), words: Sequence[str] = ()
) -> list[str]:
    """Return texts that match the regular expressions.

    Once and many times.

    Args:
        patterns: what may be one.
        numbers: whole numbers of the code: with 0 before them they are the two ends of a range.
        words: words of the code, which stand where letters do.
    """
    styles = [_HIGH, _LOW, replace(_HIGH, optional=True), _Style("1", 3)]
    styles += [replace(_LOW, numbers=("0", n)) for n in numbers[:_ENDS]]
    styles += [replace(style, branch=n) for n in range(1, _STYLES) for style in (_HIGH, _LOW)]
    few = tuple(words[:_ENDS])
    styles += [
        replace(style, branch=n, words=few) for n in range(len(few)) for style in (_HIGH, _LOW)
    ]
    out: list[list[str]] = []
    for pattern in sorted(patterns):
        found = list(dict.fromkeys(filter(None, _texts(pattern, styles))))
        out.append([*found[:1], *(join.join(found[:1] * _MANY) for join in (" ", "")), *found[1:]])
    longest = max(map(len, out), default=0)
    turns = [found[n] for n in range(longest) for found in out if n < len(found)]
    return [text for text in dict.fromkeys(turns) if text]


def low_and_high(patterns: Collection[Pattern]) -> list[tuple[str, str]]:
    """Return two texts for each expression, of small and large numbers."""
    pairs = [tuple(_texts(pattern, (_LOW, _HIGH))) for pattern in sorted(patterns)]
    return [(p[0], p[1]) for p in pairs if len(p) == 2 and p[0] and p[1] and p[0] != p[1]]
