"""Where functions hold generators: closures, defaults, globals, attributes, and what stands in those.

What can be replaced is replaced for the time of an audit; a generator that is seen and cannot be is a
source that no tape sees, and is told as such.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opendp_sim.audit.reachable import names_of

__all__ = ["Holders"]

_DEPTH, _MOST, _LONGEST = 5, 5000, 1000
_LEAVES = (type, types.ModuleType, types.FunctionType, np.ndarray, str, bytes, int, float)


@dataclass
class Holders:
    """A walk over what functions hold; ``instead`` says what a value is to be replaced by."""

    instead: Callable[[Any], Any]
    draws: Callable[[Any], bool]
    """Whether a value draws, so that it may not stay where it is."""
    unseen: bool = False
    """Whether one that draws stayed."""
    _undo: list[Callable[[], None]] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def replace(self, functions: Iterable[types.FunctionType]) -> None:
        """Replace what the functions hold, as deep as it can be written to."""
        for function in functions:
            scope = function.__globals__
            for name in names_of(function.__code__):
                if name in scope:
                    self._slot(scope, name, 0)
            for cell in function.__closure__ or ():
                self._cell(cell)
            self._defaults(function)
            owner = getattr(function, "__self__", None)
            if owner is not None:
                self._inside(owner, 0)

    def restore(self) -> None:
        """Put everything back."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _cell(self, cell: Any) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # not filled yet
            return
        new = self._new(value)
        if new is None:
            self._inside(value, 0)
            return
        self._undo.append(lambda: setattr(cell, "cell_contents", value))
        cell.cell_contents = new

    def _defaults(self, function: Any) -> None:
        function = getattr(function, "__func__", function)
        for value in function.__defaults__ or ():
            self._inside(value, 0)
        for name in function.__kwdefaults__ or ():
            self._slot(function.__kwdefaults__, name, 0)
        new = self._new(function.__defaults__)
        if new is not None:
            before = function.__defaults__
            self._undo.append(lambda: setattr(function, "__defaults__", before))
            function.__defaults__ = new

    def _slot(self, place: Any, key: Any, depth: int) -> None:
        """Replace an entry of a dictionary or a list, or look into it."""
        value = place[key]
        new = self._new(value)
        if new is None:
            self._inside(value, depth)
            return
        self._undo.append(lambda: place.__setitem__(key, value))
        place[key] = new

    def _new(self, value: Any) -> Any:
        """Return what a value is replaced by: itself a source, or a tuple or a partial call of one."""
        if type(value) is tuple and len(value) <= _LONGEST:
            parts = [self._new(part) for part in value]
            if any(part is not None for part in parts):
                return tuple(v if p is None else p for v, p in zip(value, parts, strict=True))
            return None
        if type(value) is functools.partial:
            func = self._new(value.func)
            return None if func is None else functools.partial(func, *value.args, **value.keywords)
        return self.instead(value)

    def _inside(self, value: Any, depth: int) -> None:
        """Replace what stands inside of a value."""
        if isinstance(value, _LEAVES) or value is None or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if self.draws(value):
            self.unseen = True
            return
        if depth >= _DEPTH or len(self._seen) > _MOST:
            return
        if isinstance(value, (dict, list)) and len(value) <= _LONGEST:
            for key in list(value) if isinstance(value, dict) else range(len(value)):
                self._slot(value, key, depth + 1)
        elif not isinstance(value, (dict, list)):
            for part in _parts(value):
                self._inside(part, depth + 1)
            self._attributes(value, depth)

    def _attributes(self, value: Any, depth: int) -> None:
        owner = getattr(value, "__self__", None)
        if owner is not None:
            self._inside(owner, depth + 1)
        kept = getattr(value, "__dict__", None)
        if isinstance(kept, dict) and len(kept) <= _LONGEST:
            for name in list(kept):
                self._slot(kept, name, depth + 1)
        for kind in type(value).__mro__:
            for name in getattr(kind, "__slots__", ()) if kind is not object else ():
                part = getattr(value, name, None) if isinstance(name, str) else None
                if part is not None and name not in ("__dict__", "__weakref__"):
                    self._inside(part, depth + 1)


def _parts(value: Any) -> list[Any]:
    """Return what a value holds that cannot be written to."""
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)[:_LONGEST]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    return []
