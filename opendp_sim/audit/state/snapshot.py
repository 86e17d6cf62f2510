"""Compare a value's content between calls, by identity."""

from __future__ import annotations

import collections
import gc
import sys
import types
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

_HEAP = 1 << 9
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_OURS = "opendp_sim.audit."
_LINK = "_lru_list_elem"
_KNOWN = ("opendp_sim.audit.", "opendp.", "numpy", "scipy")


def is_users(kind: type) -> bool:
    """Return whether a class is the user's, of no known library."""
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


def cell_contents(function: types.FunctionType) -> Iterator[Any]:
    """Yield what a function's cells hold."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def cached(cache: Any) -> list[Any]:
    """Return the results, keys and function of a ``functools.lru_cache``."""
    out: list[Any] = []
    for part in gc.get_referents(cache):
        inner = isinstance(part, dict) and any(type(v).__name__ == _LINK for v in part.values())
        if isinstance(part, dict) and not inner and part is not getattr(cache, "__dict__", None):
            out += part.values()
        elif not (inner or isinstance(part, (dict, type)) or type(part).__name__ == _LINK):
            out.append(part)
    return [part for part in out if not _of_keywords(part)]


def _of_keywords(part: Any) -> bool:
    """Return whether a part belongs to a keyword call's key."""
    return type(part) is object or (type(part) is tuple and any(type(v) is object for v in part))


def held_now(value: Any) -> Iterator[Any]:
    """Yield the contents of a value by identity, kept alive."""
    if isinstance(value, (np.ndarray, bytearray, array)):
        yield value.tobytes() if not isinstance(value, bytearray) else bytes(value)
        return
    parts: list[Any] = []
    if hasattr(value, "cache_info"):
        yield value.cache_info().misses  # another result is kept
    if isinstance(value, types.FunctionType):
        parts = [value.__defaults__, *cell_contents(value), *value.__dict__.values()]
    elif isinstance(value, type):
        parts = list(vars(value).values()) if value.__flags__ & _HEAP else []
    elif isinstance(value, (dict, types.MappingProxyType)):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, _SEQUENCES):
        parts = list(value)
    ours = str(type(value).__module__).startswith(_OURS)
    if not (ours or isinstance(value, (type, types.ModuleType, types.FunctionType))):
        parts += own_of(value)  # a Measurement, a partial call, a Counter have attributes, too
    yield ComparedParts(parts)


class ComparedParts:
    """Parts that are compared by identity, and kept."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComparedParts) or len(self.parts) != len(other.parts):
            return False
        return all(a is b for a, b in zip(self.parts, other.parts, strict=True))

    __hash__ = None  # type: ignore[assignment]
