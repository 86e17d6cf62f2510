"""What a value holds now, by identity: whether runs have changed it, from one call to the next."""

from __future__ import annotations

import collections
import sys
import types
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["Held", "cells_of", "held_now", "is_users", "own_of"]

_HEAP = 1 << 9
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_KNOWN = ("opendp_sim.audit.", "opendp.", "numpy", "scipy")


def is_users(kind: type) -> bool:
    """Say whether a class is neither of the standard library, nor of ours or of OpenDP."""
    module = str(kind.__module__)
    known = module.startswith(_KNOWN)
    return not known and module.split(".", maxsplit=1)[0] not in sys.stdlib_module_names - {
        "__main__"
    }


def own_of(value: Any) -> list[Any]:
    """Return the attributes that an instance keeps."""
    kept = getattr(value, "__dict__", None)
    out = list(kept.values()) if isinstance(kept, dict) else []
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        out += [getattr(value, n, None) for n in ((slots,) if isinstance(slots, str) else slots)]
    return out


def cells_of(function: types.FunctionType) -> Iterator[Any]:
    """Yield what a function's cells hold."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def held_now(value: Any) -> Iterator[Any]:
    """Yield what a value holds now, by identity; the parts are kept, so that none is given out again."""
    if isinstance(value, (np.ndarray, bytearray, array)):
        yield value.tobytes() if not isinstance(value, bytearray) else bytes(value)
        return
    parts: list[Any] = []
    if isinstance(value, types.FunctionType):
        parts = [value.__defaults__, *cells_of(value), *value.__dict__.values()]
    elif isinstance(value, type):
        parts = list(vars(value).values()) if value.__flags__ & _HEAP and is_users(value) else []
    elif isinstance(value, (dict, types.MappingProxyType)):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, _SEQUENCES):
        parts = list(value)
    if is_users(type(value)) or isinstance(value, types.SimpleNamespace):
        parts += own_of(value)
    yield Held(parts)


class Held:
    """Parts that are compared by identity, and kept."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Held) or len(self.parts) != len(other.parts):
            return False
        return all(a is b for a, b in zip(self.parts, other.parts, strict=True))

    __hash__ = None  # type: ignore[assignment]
