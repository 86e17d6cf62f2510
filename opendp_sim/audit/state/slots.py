"""Read and write the places of values.

Past the hooks of a user's class.

Attributes, entries and cells are taken by Python's own means: no ``__getattr__``, no property and no
``__setattr__`` of a user's is run, so that looking changes nothing and fails nowhere.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

KEPT_BY_CLASSES = frozenset(
    {"__doc__", "__module__", "__qualname__", "__dict__", "__weakref__", "__slots__", "__hash__"}
    | {"__annotations__", "__dataclass_fields__", "__dataclass_params__", "__match_args__"}
    | {"__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__", "__firstlineno__"}
    | {"__static_attributes__", "__subclasshook__", "__class_getitem__"}
)
"""What Python itself writes into a class."""
CACHE: type = type(functools.lru_cache(len))
"""The type of functions with a cache."""
_VARS = vars(type)["__dict__"]
_MRO = vars(type)["__mro__"]
Values = tuple[Any, ...]


def mro_of(kind: type) -> tuple[type, ...]:
    """Return a class and its bases, whatever its metaclass says."""
    bases: tuple[type, ...] = _MRO.__get__(kind)
    return bases


def vars_of(kind: type) -> Any:
    """Return what a class keeps, whatever its metaclass says."""
    return _VARS.__get__(kind)


def _dict_of(kind: type) -> Any:
    """Return the descriptor of an instance's ``__dict__``, or nothing."""
    found = (vars_of(base).get("__dict__") for base in mro_of(kind))
    return next((one for one in found if type(one) is types.GetSetDescriptorType), None)


def own_dict(value: Any) -> dict[str, Any] | None:
    """Return an instance's true ``__dict__``, if it has one."""
    found = _dict_of(type(value))
    kept = None if found is None else found.__get__(value)
    return kept if isinstance(kept, dict) else None


def members_of(kind: type) -> Iterator[Any]:
    """Yield the descriptors of a class's ``__slots__``."""
    for base in mro_of(kind):
        for member in vars_of(base).values():
            if type(member) is types.MemberDescriptorType:
                yield member


def _same(now: Values, before: Values) -> bool:
    same = (
        a is b or (type(a) is type(b) and type(a) in (str, bytes, tuple) and a == b)
        for a, b in zip(now, before, strict=False)
    )
    return len(now) == len(before) and all(same)


class Slot:
    """Describe a place with access and its original values."""

    def __init__(
        self,
        read: Callable[[], Values],
        write: Callable[[Values], None],
        items: Callable[[Values], dict[Any, Any]] = lambda values: dict(enumerate(values)),
        same: Callable[[Values, Values], bool] = _same,
    ) -> None:
        self.read, self.items, self._write, self._same = read, items, write, same
        self.before = read()

    def tried(self) -> Slot:
        """Write the present values, so that a read-only place raises."""
        self._write(self.before)
        return self

    def changed(self) -> bool:
        """Say whether something else stands there now."""
        return not self._same(self.read(), self.before)

    def differs(self, values: Values) -> bool:
        """Say whether values that stood there later have to be compared."""
        return not self._same(values, self.before)

    def put(self, values: Values) -> None:
        """Put values there, if others are."""
        if not self._same(self.read(), values):
            self._write(values)


def entry_slot(scope: dict[str, Any], name: str) -> Slot:
    """Return a name of a namespace, which may be free."""

    def write(values: Values) -> None:
        if values:
            scope[name] = values[0]
        else:
            scope.pop(name, None)

    return Slot(lambda: (scope[name],) if name in scope else (), write).tried()


def cell_slot(cell: types.CellType) -> Slot:
    """Return a cell, which may be empty."""

    def read() -> Values:
        try:
            return (cell.cell_contents,)
        except ValueError:
            return ()

    def write(values: Values) -> None:
        if values:
            cell.cell_contents = values[0]
        elif read():
            del cell.cell_contents

    return Slot(read, write).tried()


def _member_slot(value: Any, member: Any) -> Slot:
    def read() -> Values:
        try:
            return (member.__get__(value),)
        except AttributeError:
            return ()

    def write(values: Values) -> None:
        if values:
            member.__set__(value, values[0])
        elif read():
            member.__delete__(value)

    return Slot(read, write).tried()


def namespace_slot(value: Any) -> list[Slot]:
    """Return the slots of an instance, and which ``__dict__`` it has."""
    out = [_member_slot(value, member) for member in members_of(type(value))]
    found = _dict_of(type(value))
    if found is not None:
        out.append(Slot(lambda: (found.__get__(value),), lambda v: found.__set__(value, v[0])))
    return out


def defaults_slot(function: types.FunctionType) -> Slot:
    """Return which defaults a function has."""
    names = "__defaults__", "__kwdefaults__"

    def write(values: Values) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(function, name, value)

    return Slot(lambda: tuple(getattr(function, name) for name in names), write)


def pairs(values: Values) -> dict[Any, Any]:
    """Return keys with values, from two halves of a sequence."""
    half = len(values) // 2
    return dict(zip(values[:half], values[half:], strict=True))


def class_slot(kind: type) -> Slot:
    """Return what a class keeps by name."""

    def read() -> Values:
        kept = {n: v for n, v in vars_of(kind).items() if n not in KEPT_BY_CLASSES}
        return (*kept, *kept.values())

    def write(values: Values) -> None:
        now, before = pairs(read()), pairs(values)
        for name in now.keys() - before.keys():
            type.__delattr__(kind, name)
        for name, value in before.items():
            if name not in now or now[name] is not value:
                type.__setattr__(kind, name, value)

    def same(now: Values, before: Values) -> bool:
        first, second = pairs(now), pairs(before)
        return first.keys() == second.keys() and all(first[n] is second[n] for n in first)

    return Slot(read, write, pairs, same)
