"""What the audited code says about itself: the constants of its functions.

Constants of code, closures, defaults and of the globals that the code names become numbers and words.
"""

from __future__ import annotations

import math
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opendp_sim.audit.joined_words import PARTS, REPEATS, SPLITS
from opendp_sim.audit.reachable import attribute, held, names_of

__all__ = ["Mined", "mined"]

_LONGEST_TEXT, _LONGEST_LIST = 40, 200
MOST_SIZES = 24
LARGEST_SIZE = 20_000
"""Datasets are built up to this mined size."""


@dataclass
class Mined:
    """Numbers and strings that occur in the code."""

    numbers: set[float] = field(default_factory=set)
    words: set[str] = field(default_factory=set)

    @property
    def sizes(self) -> list[int]:
        """Numbers of records to try: next to every whole constant of moderate size."""
        small = sorted(int(c) for c in self.numbers if c == int(c) and 2 <= c <= LARGEST_SIZE)
        near = [n + k for n in small for k in (-1, 0, 1, 2)]
        if len(near) > 4 * MOST_SIZES:
            near = near[:: len(near) // (4 * MOST_SIZES) + 1]
        return list(dict.fromkeys(near))

    def take(self, value: Any, depth: int = 0) -> None:  # noqa: C901 - one kind a branch
        """Add a constant, or those of a small container."""
        if isinstance(value, bool) or value is None or depth > 3:
            return
        if isinstance(value, (int, float, np.integer, np.floating)):
            number: float = value if -(2.0**1000) < value < 2.0**1000 else math.inf  # type: ignore[assignment]
            if math.isfinite(number):
                self.numbers.add(value.item() if isinstance(value, np.generic) else value)
        elif isinstance(value, str):
            if len(value) <= _LONGEST_TEXT:
                self.words.add(value)
        elif isinstance(value, (tuple, list, set, frozenset)) and len(value) <= _LONGEST_LIST:
            for part in value:
                self.take(part, depth + 1)
        elif isinstance(value, dict) and len(value) <= _LONGEST_LIST:
            for key, part in value.items():
                self.take(key, depth + 1)
                self.take(part, depth + 1)
        elif (
            isinstance(value, np.ndarray) and value.size <= _LONGEST_LIST and value.dtype != object
        ):
            self.take(value.ravel().tolist(), depth + 1)


def mined(functions: list[types.FunctionType]) -> Mined:
    """Return the constants of functions."""
    out = Mined()

    def code(block: types.CodeType) -> None:
        for value in block.co_consts:
            if isinstance(value, types.CodeType):
                code(value)
            elif not (isinstance(value, str) and (value.count(" ") > 3 or "<locals>" in value)):
                out.take(value)

    for function in functions:
        code(function.__code__)
        out.words.update((SPLITS | PARTS | REPEATS) & set(names_of(function.__code__)))
        for value in held(function):
            out.take(value)
        owner = getattr(function, "__self__", None)
        for name in names_of(function.__code__):
            if name in function.__globals__:
                out.take(function.__globals__[name])
            elif owner is not None:
                out.take(attribute(owner, name))
    return out
