"""Collect the constants of the audited code.

Constants of code, closures, defaults and of the globals that the code names become numbers and words.
"""

from __future__ import annotations

import dis
import functools
import math
import re
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opendp_sim.audit.state.reachable import attribute, cells_and_defaults, names_of

_LONGEST_TEXT, _LONGEST_LIST, _LONGEST_PATTERN, _MOST_BLANKS = 40, 200, 300, 3
_PROSE = re.compile(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}")
"""Of a docstring or a message, which is no regular expression."""
_LITERAL = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])")
_QUOTED = re.compile(r"\"([^\"\n]{1,40})\"|'([^'\n]{1,40})'")
_NARROW = {
    name: (sign, bits)
    for sign, word in (("i", "int"), ("u", "uint"))
    for bits in (8, 16, 32)
    for name in (f"{word}{bits}", f"{sign}{bits // 8}", f"<{sign}{bits // 8}")
}
_ROUGH = {
    "float16": (2049, 65504, 65520),
    "float32": (2**24 + 1,),
    "f2": (2049, 65520),
    "f4": (2**24 + 1,),
}
"""Types of numpy's with few values: the ends of whole numbers, and where floats stop counting."""
MOST_SIZES = 24
LARGEST_SIZE = 20_000
"""Datasets are built up to this mined size."""


@dataclass
class Mined:
    """Numbers and strings that occur in the code."""

    numbers: set[float] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    listed: set[str] = field(default_factory=set)
    """Words of lists and tables that the code keeps, or that OpenDP was given: categories, for one."""
    names: set[str] = field(default_factory=set)
    """Functions, methods and attributes that the code names."""

    keywords: set[str] = field(default_factory=set)
    """Words that the code names arguments and variables by: they are seldom data."""
    patterns: set[tuple[str, int]] = field(default_factory=set)
    """Regular expressions with their flags: compiled ones, and words that are longer than others."""

    @property
    def sizes(self) -> list[int]:
        """Return numbers of records near every moderate whole constant."""
        small = sorted(int(c) for c in self.numbers if c == int(c) and 2 <= c <= LARGEST_SIZE)
        near = [n + k for n in small for k in (-1, 0, 1, 2)]
        if len(near) > 4 * MOST_SIZES:
            near = near[:: len(near) // (4 * MOST_SIZES) + 1]
        return list(dict.fromkeys(near))

    def take_type(self, name: str) -> None:
        """Add the ends of a narrow type, where sums wrap."""
        if name in _NARROW:
            sign, bits = _NARROW[name]
            ends = (2 ** (bits - 1), -(2 ** (bits - 1))) if sign == "i" else (2**bits,)
            self.numbers.update(end + k for end in ends for k in (-1, 0))
        elif name in _ROUGH:
            self.numbers.update(_ROUGH[name])

    def take_text(self, text: str) -> None:
        """Add a word, a longer text or an expression."""
        if len(text) <= _LONGEST_TEXT and text.count(" ") <= _MOST_BLANKS:
            self.words.add(text)
            return
        odd = any(c in text for c in "\\[(")
        if odd and len(text) <= _LONGEST_PATTERN and not _PROSE.search(text):
            self.patterns.add((text, 0))

    def take_plan(self, plan: str) -> None:
        """Add the literals of a query plan."""
        self.numbers.update(map(float, _LITERAL.findall(plan)))
        self.words.update(a or b for a, b in _QUOTED.findall(plan))
        self.listed |= self.words

    def take_list(self, value: Any) -> None:
        """Remember the words of a list or of a table's keys."""
        if isinstance(value, (tuple, list, set, frozenset, dict)) and len(value) <= _LONGEST_LIST:
            self.listed.update(w for w in value if isinstance(w, str) and len(w) <= _LONGEST_TEXT)

    def take(self, value: Any, depth: int = 0) -> None:
        """Add a constant, or those of a small container."""
        if isinstance(value, bool) or value is None or depth > 3:
            return
        if isinstance(value, (int, float, np.integer, np.floating)):
            number: float = value if -(2.0**1000) < value < 2.0**1000 else math.inf  # type: ignore[assignment]
            if math.isfinite(number):
                self.numbers.add(value.item() if isinstance(value, np.generic) else value)
        elif isinstance(value, str):
            self.take_text(value)
        elif isinstance(value, re.Pattern):
            if isinstance(value.pattern, str) and len(value.pattern) <= _LONGEST_PATTERN:
                self.patterns.add((value.pattern, value.flags))
        else:
            for part in _parts(value):
                if isinstance(value, functools.partial):
                    self.take_list(part)
                self.take(part, depth + 1)


def is_query_plan(value: Any) -> bool:
    """Return whether an argument is a query plan of Polars."""
    return hasattr(value, "collect_schema") and hasattr(value, "explain")


def _parts(value: Any) -> Iterable[Any]:
    """Return what a small container holds, or a partial function is given."""
    if isinstance(value, functools.partial):
        return (*value.args, *value.keywords.values())
    if isinstance(value, np.ndarray):
        return () if value.dtype == object or value.size > _LONGEST_LIST else value.ravel().tolist()
    if not isinstance(value, (tuple, list, set, frozenset, dict)) or len(value) > _LONGEST_LIST:
        return ()
    return (*value, *value.values()) if isinstance(value, dict) else value


def mined(functions: list[types.FunctionType], arguments: Iterable[Any] = ()) -> Mined:
    """Return the constants of functions, chains and their arguments."""
    out = Mined()
    for argument in arguments:
        out.take_list(argument)
        out.words |= out.listed
        if isinstance(argument, functools.partial):
            out.take(argument)
        if is_query_plan(argument):
            out.take_plan(argument.explain(optimized=False))
    for function in functions:
        _of_code(function.__code__, out)
        names = names_of(function.__code__)
        out.names.update(names)
        for value in (
            *cells_and_defaults(function),
            *(function.__globals__.get(name) for name in names),
        ):
            out.take_list(value)
        for value in cells_and_defaults(function):
            out.take(value)
        owner = getattr(function, "__self__", None)
        for name in names:
            out.take_type(name)
            if name in function.__globals__:
                out.take(function.__globals__[name])
            elif owner is not None:
                out.take(attribute(owner, name))
    return out


def _keywords(block: types.CodeType) -> Iterator[tuple[str, ...]]:
    """Yield the names of arguments that calls give."""
    before: Any = ()
    for step in dis.get_instructions(block):
        if step.opname == "KW_NAMES":
            yield block.co_consts[step.arg or 0]
        elif step.opname == "CALL_KW":
            yield before
        before = step.argval


def _of_code(block: types.CodeType, out: Mined) -> None:
    out.keywords.update(block.co_varnames, *_keywords(block))
    for value in block.co_consts:
        if isinstance(value, types.CodeType):
            _of_code(value, out)
        elif isinstance(value, str) and (value in _NARROW or value in _ROUGH):
            out.take_type(value)
        elif not (isinstance(value, str) and "<locals>" in value):
            out.take(value)
