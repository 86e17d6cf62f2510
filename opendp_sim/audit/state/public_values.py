"""Recognise public values, constants that modules write out."""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import math
import random  # noqa: TID251 - states are compared, nothing is drawn
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from opendp_sim.core.system.syntax_trees import tried_again

# --------------------------------------------------------------------------------------------------
# Generators whose state whoever knows the code knows: a few steps from that of a seed of the code.

_STEPS = 1 << 12
"""Draws that a generator may have made before it is handed over."""
_WHOLE = (1 << 128) - 1
_SOURCES: tuple[type, ...] = (
    *(random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator),
    *(random.SystemRandom, np.random.SeedSequence),
)
_BITS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")

State = tuple[Callable[[], Any], Callable[[Any], None]]


def state_of(value: Any) -> State | None:
    """Return access to a generator's state, or None."""
    kind = type(value)
    if kind is random.Random:
        return value.getstate, value.setstate
    if kind is np.random.RandomState:
        return value.get_state, value.set_state
    if kind is np.random.Generator:
        value, kind = value.bit_generator, type(value.bit_generator)
    if issubclass(kind, np.random.BitGenerator):
        return lambda: value.state, lambda state: setattr(value, "state", state)
    return None


def seeded_state(value: Any, seeds: Iterable[Any]) -> State | tuple[()] | None:
    """Return access to a generator's state by its seed.

    ``()`` if the seed is not public, None for other values. ``None`` is for what is no generator.
    """
    kind = type(value)
    if not issubclass(kind, _SOURCES):
        return None
    seeds = list(seeds)
    public = False
    if kind is random.Random:
        public = any(_of_random(value, seed) for seed in seeds)
    elif kind is np.random.RandomState:
        whole = [s for s in seeds if isinstance(s, int) and 0 <= s < 1 << 32]
        public = any(_of_legacy(value, seed) for seed in whole)
    elif kind is np.random.Generator:
        return seeded_state(value.bit_generator, seeds)
    elif kind.__name__ in _BITS and kind is getattr(np.random, kind.__name__):
        public = any(_of_bits(value, seed) for seed in seeds if isinstance(seed, int))
    found = state_of(value)
    return found if public and found is not None else ()


def _of_random(value: random.Random, seed: Any) -> bool:
    """Return whether a generator is within 624 words of its seed."""
    now, made = value.getstate(), random.Random(seed)  # noqa: S311
    if now == made.getstate():
        return True
    made.getrandbits(32)
    return now[1][:-1] == made.getstate()[1][:-1] and now[2] is None


def _of_legacy(value: np.random.RandomState, seed: int) -> bool:
    now: Any = value.get_state()
    made = np.random.RandomState(seed)
    fresh: Any = made.get_state()
    if np.array_equal(now[1], fresh[1]):
        return bool(now[2:] == fresh[2:])
    made.bytes(4)
    moved: Any = made.get_state()
    return np.array_equal(now[1], moved[1]) and not now[3]


def _of_bits(value: np.random.BitGenerator, seed: int) -> bool:
    made: Any = type(value)(seed)
    now: Any = value.state
    fresh = made.state
    if repr(now) == repr(fresh):
        return True
    if "pos" in now["state"]:
        made.random_raw()
        return np.array_equal(now["state"]["key"], made.state["state"]["key"])
    if "inc" not in now["state"] or now["state"]["inc"] != fresh["state"]["inc"]:
        return False
    return _in_steps(now, made)


def _in_steps(now: Any, made: Any) -> bool:
    """Return whether PCG reaches a state in a few steps."""
    words = set[int]()
    for _ in range(_STEPS):
        if made.state["state"] == now["state"]:
            return not now["has_uint32"] or now["uinteger"] in words
        words.add(int(made.random_raw()) >> 32)
    return False


# --------------------------------------------------------------------------------------------------

_TRIVIAL = (0, 1, -1, "", b"", math.inf, -math.inf)
_LEAVES = (type(None), bool, type(Ellipsis), type(NotImplemented), re.Pattern, dt.timezone)
_DISPLAYS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
_LONGEST = 1000
"""Entries of a display that are compared."""
_NUMBERS = (int, float, str, bytes, complex)
_SMALL = 100
"""Seeds that are tried besides those that the code names."""
_LARGEST = 200_000
"""Letters of a module that are read."""


class Public:
    """Constants that the modules of functions write out."""

    def __init__(self, functions: Iterable[types.FunctionType]) -> None:
        self._known: set[tuple[type, Any]] = {(type(v), v) for v in _TRIVIAL}
        self._known |= {(float, float(v)) for v in (0, 1, -1)}
        self._known |= {(float, v) for v in (math.pi, math.e, math.tau)}
        self._displays: set[tuple[Any, ...]] = set()
        self._read: set[str] = set()
        names = dict.fromkeys(str(f.__globals__.get("__name__")) for f in functions)
        for function in functions:
            self._code(function.__code__)
        for name in names:
            self.take_module(sys.modules.get(name))

    @property
    def seeds(self) -> list[Any]:
        """Return possible public seeds of a generator, small ones first."""
        named = [v for kind, v in self._known if kind in (int, str) and v not in ("", 0, 1, -1)]
        whole = [v for v in named if isinstance(v, str) or (v >= _SMALL and v < 1 << 128)]
        return [*range(_SMALL), *sorted(whole, key=str)]

    def knows(self, value: Any) -> bool:
        """Return whether a value is None, a bool or a constant."""
        kind = type(value)
        if kind in _LEAVES:
            return True
        if issubclass(kind, np.generic):
            value = value.item()
        if type(value) not in _NUMBERS:
            return False
        return value != value or (type(value), value) in self._known  # noqa: PLR0124 - NaN

    def writes(self, values: Iterable[Any]) -> bool:
        """Return whether the code writes out just these values, in order."""
        return tuple(values) in self._displays

    def _take(self, value: Any) -> None:
        if isinstance(value, (tuple, frozenset)):
            self._displays.add(tuple(flat(value)))
            for part in value:
                self._take(part)
        elif type(value) in _NUMBERS:
            self._known.add((type(value), value))
            if type(value) in (int, float):
                self._known.add((type(value), -value))
                if type(value) is int and abs(value) < 1 << 53:
                    self._known |= {(float, float(value)), (float, -float(value))}

    def _code(self, code: types.CodeType) -> None:
        for name in (*code.co_names, *code.co_varnames, code.co_name):
            self._take(name)
        for part in code.co_consts:
            if isinstance(part, types.CodeType):
                self._code(part)
            else:
                self._take(part)

    def take_module(self, module: types.ModuleType | None) -> None:
        """Take the constants of a module's text, where it has one."""
        name = getattr(module, "__name__", "")  # a module may have put something else in its place
        if not isinstance(module, types.ModuleType) or name in self._read:
            return
        self._read.add(name)
        try:
            text = inspect.getsource(module)
            tree = tried_again(lambda: ast.parse(text if len(text) < _LARGEST else ""))
        except (OSError, TypeError, SyntaxError, ValueError):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                self._take(node.value)
            if isinstance(node, _DISPLAYS):
                self._display(node)
            for field in ("id", "arg", "attr", "name"):
                self._take(getattr(node, field, None))

    def _display(self, node: ast.expr) -> None:
        try:
            written = ast.literal_eval(node)
        except (ValueError, TypeError, RecursionError):
            return
        if isinstance(written, dict):
            self._displays |= {tuple(flat(written.keys())), tuple(flat(written.values()))}
        else:
            self._displays.add(tuple(flat(written)))


def flat(values: Iterable[Any]) -> list[Any]:
    """Return the entries of nested lists and tuples in order."""
    out: list[Any] = []
    todo = list(values)[::-1]
    while todo and len(out) < _LONGEST:
        value = todo.pop()
        if type(value) in (list, tuple):
            todo += reversed(value)
        else:
            out.append(value.item() if issubclass(type(value), np.generic) else value)
    return [value for value in out if _is_entry(value)]


def _is_entry(value: Any) -> bool:
    return value is None or type(value) in (bool, *_NUMBERS)
