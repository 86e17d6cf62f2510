"""What a call leaves behind, written out whole: the same of two calls only where all of it is."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Container, Iterable
from typing import Any

import numpy as np

from opendp_sim.audit.kept_slots import CACHE, members_of, own_dict
from opendp_sim.audit.kept_state import cached, is_users
from opendp_sim.audit.libraries import is_plain
from opendp_sim.audit.public_sources import seeded_state

__all__ = ["Unreadable", "left_behind"]

_MOST = 20_000
_HEAP = 1 << 9
_SCALARS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_SEQUENCES = (list, tuple, collections.deque)
_FIXED = (types.ModuleType, type, types.BuiltinFunctionType, types.MethodWrapperType, np.ufunc)


class Unreadable(Exception):  # noqa: N818 - it never leaves the audit
    """A value of which not all can be read."""


def left_behind(values: Iterable[Any], known: Container[int]) -> list[Any]:
    """Return all that values hold, and what that holds, in order; generators are named only.

    Args:
        values: what places hold.
        known: identities of values that stood there before, of which there is nothing to read.

    Raises:
        Unreadable: not all of it can be read.
    """
    written = _Written(known)
    for value in values:
        written.take(value)
    return written.out


class _Written:
    def __init__(self, known: Container[int]) -> None:
        self.out: list[Any] = []
        self._known = known
        self._met: dict[int, tuple[int, Any]] = {}

    def take(self, value: Any) -> None:
        kind = type(value)
        if len(self.out) > _MOST:
            raise Unreadable("too much")
        if kind in _SCALARS:
            self.out += (kind, repr(value) if kind in (float, complex) else value)
        elif issubclass(kind, np.generic):
            self.out += (kind, value.tobytes())
        elif kind is tuple:
            self._several("tuple", value)
        elif id(value) in self._met:
            self.out += ("again", self._met[id(value)][0])
        else:
            self._met[id(value)] = len(self._met), value
            self._held(value, kind)

    def _several(self, mark: Any, values: Iterable[Any]) -> None:
        parts = list(values)
        self.out += (mark, len(parts))
        for part in parts:
            self.take(part)

    def _held(self, value: Any, kind: type) -> None:
        if kind is np.ndarray and not value.dtype.hasobject:
            self.out += (value.dtype.str, value.shape, value.tobytes())
        elif issubclass(kind, (*_SEQUENCES, set, frozenset, dict, bytearray)):
            self._container(value, kind)
        elif seeded_state(value, ()) is not None:
            self.out.append(kind)
        elif kind is types.FunctionType:
            self._function(value)
        elif kind is types.MethodType:
            self._several("method", (value.__func__, value.__self__))
        elif kind is functools.partial:
            self._several("partial", (value.func, value.args, value.keywords, own_dict(value)))
        elif kind is CACHE:
            self.out += ("cache", sorted(map(self._apart, cached(value))))
        elif issubclass(kind, _FIXED):
            self._fixed(value)
        elif kind is types.SimpleNamespace or (kind.__flags__ & _HEAP and is_users(kind)):
            self._instance(value, kind)
        else:
            self._fixed(value)

    def _apart(self, value: Any) -> str:
        return repr(left_behind([value], self._known))

    def _fixed(self, value: Any) -> None:
        if id(value) not in self._known:
            raise Unreadable(type(value).__name__)
        self.out.append(id(value))

    def _container(self, value: Any, kind: type) -> None:
        if issubclass(kind, dict):
            keys = tuple(dict.__iter__(value))
            self._several(kind, (*keys, *(dict.__getitem__(value, key) for key in keys)))
        elif issubclass(kind, (set, frozenset)):
            base: Any = set if issubclass(kind, set) else frozenset
            self.out += (kind, sorted(map(self._apart, base.__iter__(value))))
        elif kind is bytearray:
            self.out += (kind, bytes(value))
        else:
            base = next(base for base in _SEQUENCES if issubclass(kind, base))
            self._several(kind, base.__iter__(value))
        if kind.__flags__ & _HEAP:
            self._attributes(value, kind)

    def _function(self, value: types.FunctionType) -> None:
        cells = value.__closure__ or ()
        self.out.append(id(value.__code__))
        self._several("cells", [part for cell in cells for part in _filled(cell)])
        self._several("kept", (value.__defaults__, value.__kwdefaults__, own_dict(value)))

    def _instance(self, value: Any, kind: type) -> None:
        if not is_plain(kind):
            raise Unreadable(kind.__name__)
        self.out.append(kind)
        self._attributes(value, kind)

    def _attributes(self, value: Any, kind: type) -> None:
        self.take(own_dict(value))
        for member in members_of(kind):
            try:
                self.take(member.__get__(value))
            except AttributeError:
                self.out.append("free")


def _filled(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []
