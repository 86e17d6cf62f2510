"""Follow the state of functions, and decide whether it is public.

What is not followed may hold a secret beside what is put back, so it makes the whole unknown.
"""

from __future__ import annotations

import builtins
import collections
import functools
import logging
import pickle
import random  # noqa: TID251 - generators are told apart, nothing is drawn
import sys
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from opendp_sim.audit.state.library_calls import harmless, is_library, is_plain, reads_of
from opendp_sim.audit.state.public_values import Public, flat, seeded_state, state_of
from opendp_sim.audit.state.reachable import functions_of, names_of
from opendp_sim.audit.state.slots import (
    CACHE,
    KEPT_BY_CLASSES,
    Slot,
    Values,
    cell_slot,
    class_slot,
    defaults_slot,
    entry_slot,
    members_of,
    mro_of,
    namespace_slot,
    own_dict,
    pairs,
    vars_of,
)
from opendp_sim.audit.state.snapshot import is_users

# --------------------------------------------------------------------------------------------------
# What containers, arrays, generators and caches hold: how it is read, and put back.


class CacheSlot(Slot):
    """Hold a cache that was empty at construction and may fill."""

    def __init__(self, cache: Any) -> None:
        super().__init__(lambda: (cache,), lambda _: None, lambda _: {}, lambda *_: True)
        self.before, self._clear = (), cache.cache_clear

    def differs(self, values: Values) -> bool:  # noqa: ARG002 - as of other places
        """Say that what it keeps has to be compared, always."""
        return True

    def put(self, values: Values) -> None:
        """Empty it, if it is to be as it was."""
        if not values:
            self._clear()


def container_slot(value: Any) -> Slot | None:
    """Return the slot of a mutable container's entries, or None."""
    kind = type(value)
    if issubclass(kind, dict):
        return _mapping_slot(value)
    base: Any
    if issubclass(kind, set):
        return Slot(
            lambda: tuple(set.__iter__(value)),
            lambda v: (set.clear(value), set.update(value, v))[0],
            lambda v: dict(zip(v, v, strict=True)),
        )
    if issubclass(kind, collections.deque):
        base = collections.deque
        return Slot(
            lambda: tuple(base.__iter__(value)),
            lambda v: (base.clear(value), base.extend(value, v))[0],
        )
    if issubclass(kind, list):
        return Slot(
            lambda: tuple(list.__iter__(value)),
            lambda v: list.__setitem__(value, slice(None), list(v)),
        )
    if kind is bytearray:
        return Slot(lambda: (bytes(value),), lambda v: value.__setitem__(slice(None), v[0]))
    return None


def _mapping_slot(value: Any) -> Slot:
    base: Any = collections.OrderedDict
    base = base if issubclass(type(value), base) else dict

    def read() -> Values:
        keys = tuple(base.__iter__(value))
        return (*keys, *(dict.__getitem__(value, key) for key in keys))

    def write(values: Values) -> None:
        base.clear(value)
        for key, part in pairs(values).items():
            base.__setitem__(value, key, part)

    return Slot(read, write, pairs)


def array_slot(value: Any) -> Slot:
    """Return the numbers of an array.

    Raises:
        ValueError: it cannot be written.
    """
    if not value.flags.writeable:
        raise ValueError("an array that cannot be written")

    def write(values: Values) -> None:
        shape, dtype, told = values
        if (value.shape, value.dtype.str) != (shape, dtype):
            raise ValueError("an array of another shape")
        if value.size:
            np.copyto(value, np.frombuffer(told, dtype=value.dtype).reshape(shape))

    return Slot(lambda: (value.shape, value.dtype.str, value.tobytes()), write, lambda _: {})


def source_slot(read: Callable[[], Any], write: Callable[[Any], None]) -> Slot:
    """Return the state of a generator."""
    return Slot(
        lambda: (read(),),
        lambda values: write(values[0]),
        lambda _: {},
        lambda now, before: pickle.dumps(now) == pickle.dumps(before),
    ).tried()


def extra_slot(source: Any) -> Slot:
    """Return the slot of a generator's attributes.

    Beside its state; empty at construction.

    Raises:
        ValueError: something does.
    """

    def read() -> Values:
        kept = own_dict(source) or {}
        return tuple(name for name in kept if name != "gauss_next")

    def write(values: Values) -> None:
        for name in set(read()) - set(values):
            (own_dict(source) or {}).pop(name)

    if read():
        raise ValueError("a generator with attributes")
    return Slot(read, write, lambda _: {})


# --------------------------------------------------------------------------------------------------
# Where functions keep values: cells, defaults, globals that they name, attributes of modules.

_PLACES_HEAP, HANDFUL = 1 << 9, 4
BOUND = types.BuiltinFunctionType, types.MethodWrapperType


class Places:
    """Hold the places of values.

    ``Followed`` reads their kinds.
    """

    def __init__(self, functions: Iterable[types.FunctionType]) -> None:
        functions = list(functions)
        self.unknown = ""
        self.slots: list[Slot] = []
        self.seeded: list[Slot] = []
        self.loose: list[Callable[[], Any]] = []
        """States of generators that go on."""
        self.seen: dict[int, Any] = {}
        self._public = Public(functions)
        self._places: set[tuple[int, str]] = set()
        self._kinds: set[Any] = set()
        self._names: dict[str, None] = {}
        self._stored: dict[str, None] = {}
        self._modules: dict[int, types.ModuleType] = {}
        self._mixed = 0
        try:
            self._each(functions)
            self._attributes_of_modules()
        except Exception as error:  # noqa: BLE001 - whatever a user's class does when it is read
            self.unknown = self.unknown or f"it cannot be read ({type(error).__name__})"

    def _leave(self, why: str) -> None:
        self.unknown = self.unknown or why

    def _each(self, values: Iterable[Any]) -> None:
        for value in values:
            if self.unknown:
                return
            self._value(value)

    def _value(self, value: Any) -> None:
        """Follow a value."""
        raise NotImplementedError

    def _function(self, value: types.FunctionType) -> None:
        scope, code = value.__globals__, value.__code__
        self._each(vars(value).values())
        cells = value.__closure__ or ()
        for cell in cells:
            self._cell(cell)
        if harmless(scope.get("__name__")):
            return
        self._again(code, [part for cell in cells for part in cell_slot(cell).before])
        self._value(vars(value))
        self.slots.append(defaults_slot(value))
        self._each((value.__defaults__, value.__kwdefaults__))
        reads = reads_of(code)
        if reads.beyond:
            self._leave(f"code that uses `{reads.beyond}`")
        self._stored.update(dict.fromkeys(reads.stored))
        names = names_of(code)
        self._names.update(dict.fromkeys(names))
        for name in dict.fromkeys((*names, *reads.stored)):
            if name in scope or name in reads.stored:
                self._entry(scope, name)
            else:
                self._value(vars(builtins).get(name))
        for level, name in reads.imported:
            if level or not (name in sys.modules or harmless(name)):
                self._leave("a module that is not imported yet")
            self._value(sys.modules.get(name))
            self._value(sys.modules.get(name.split(".", maxsplit=1)[0]))

    def _entry(self, scope: dict[str, Any], name: str) -> None:
        if (id(scope), name) in self._places or self.unknown:
            return
        self._places.add((id(scope), name))
        self.slots.append(entry_slot(scope, name))
        self._each(self.slots[-1].before)

    def _cell(self, cell: types.CellType) -> None:
        if id(cell) not in self.seen:
            self.seen[id(cell)] = cell
            self.slots.append(cell_slot(cell))
            self._each(self.slots[-1].before)

    def _attributes_of_modules(self) -> None:
        """Follow the module attributes that functions name, transitively."""
        done = -1
        while done != len(self._places) and not self.unknown:
            done = len(self._places)
            for module in list(self._modules.values()):
                for name in list(self._names):
                    self._of_module(module, name)

    def _of_module(self, module: types.ModuleType, name: str) -> None:
        kept = vars(module)
        if (id(kept), name) in self._places or self.unknown:
            return
        if not harmless(module.__name__):
            if not is_library(module):
                self._public.take_module(module)
            if name in ("getattr", "setattr", "vars", "__dict__", "attrgetter"):
                self._leave("a module that is read by words")
            if name in kept or name in self._stored:
                self._entry(kept, name)
            return
        value = kept.get(name)
        if name in self._stored and (value is None or isinstance(value, (int, float, str))):
            self._entry(kept, name)  # a value that somebody put there
        self._places.add((id(kept), name))
        users = type(value).__flags__ & _PLACES_HEAP and is_users(type(value))
        owner = getattr(value, "__self__", None) if type(value) in BOUND else None
        function = type(value) is types.FunctionType and not harmless(value.__module__)
        held = owner is not None and type(owner) is not types.ModuleType and state_of(owner) is None
        if users or function or held or type(value) is types.ModuleType:
            self._value(value)

    def _again(self, kind: Any, values: list[Any]) -> None:
        """Note what a further instance, or function, of one kind keeps."""
        if kind in self._kinds:
            self._mixed += sum(v is not None for v in flat(values))
            if self._mixed > 2 * HANDFUL:
                self._leave("many values of one kind")
        self._kinds.add(kind)


# --------------------------------------------------------------------------------------------------

_HEAP, _MOST, _LARGEST = 1 << 9, 5000, 100_000
_OF_OPENDP = ("Measurement", "Transformation", "Function", "Domain", "Metric", "Measure")
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_IN_C = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
)
_OF_CACHES = frozenset({*functools.WRAPPER_ASSIGNMENTS, "cache_parameters"})
_OF_LOGGERS = {*vars(logging.Logger("")), "manager", "_cache"}  # noqa: LOG001 - for its names
_CHANGING = (list, dict, set, collections.deque)


class Followed(Places):
    """Collect the places of state, and values that may be secret."""

    def _value(self, value: Any) -> None:
        if self.unknown or id(value) in self.seen or self._public.knows(value):
            return
        self.seen[id(value)] = value
        kind = type(value)
        if len(self.seen) > _MOST:
            self._leave("more values than are looked at")
        elif issubclass(kind, type):
            self._class(value)
        elif issubclass(kind, types.ModuleType):
            self._modules[id(value)] = value
        elif not (
            self._called(value, kind) or self._container(value, kind) or self._source(value, kind)
        ):
            self._instance(value, kind)

    def _called(self, value: Any, kind: type) -> bool:
        parts = _parts_of(value, kind)
        if parts is not None:
            self._each(parts)
        elif kind is types.FunctionType:
            self._function(value)
        elif kind is CACHE:
            self._cache(value)
        elif kind in BOUND:
            self._bound(value)
        elif kind is np.ufunc:
            if getattr(np, value.__name__, None) is not value:
                self._leave("a function of arrays")
        else:
            named = harmless(getattr(value, "__module__", "")) if self._of_numpy(kind) else False
            return named or kind in _IN_C or kind in _LOCKS or issubclass(kind, np.dtype)
        return True

    @staticmethod
    def _of_numpy(kind: type) -> bool:
        return kind is type(np.sum) or kind.__name__ == "cython_function_or_method"

    def _bound(self, value: Any) -> None:
        """Follow a compiled function and its bound object."""
        owner = value.__self__
        module = owner.__name__ if type(owner) is types.ModuleType else value.__module__
        if owner is not None and type(owner) is not types.ModuleType:
            self._value(owner)
        elif not (harmless(module) or value.__name__ == "urandom"):
            self._leave(f"the function {value.__name__}")

    def _cache(self, value: Any) -> None:
        if value.cache_info().currsize:
            self._leave("a cache that is filled")
        self.slots.append(CacheSlot(value))
        kept = own_dict(value) or {}
        self._each(part for name, part in kept.items() if name not in _OF_CACHES)

    def _container(self, value: Any, kind: type) -> bool:
        if kind is np.ndarray and not value.dtype.hasobject:
            self._array(value)
            return True
        if issubclass(kind, (tuple, frozenset)):
            parts = list((tuple if issubclass(kind, tuple) else frozenset).__iter__(value))
        else:
            slot = container_slot(value)
            if slot is None:
                return False
            self.slots.append(slot)
            parts = list(slot.before)
        if len(parts) > _LARGEST:
            self._leave("a long container")
            return True
        if kind is bytearray:
            self._value(parts[0])
        elif issubclass(kind, dict) and value is not own_dict(value):
            self._together(parts[: len(parts) // 2])
            self._together(parts[len(parts) // 2 :])
        else:
            self._together(parts)
        self._each(parts)
        if kind.__flags__ & _HEAP:
            self._instance(value, kind, tuple, frozenset, *_CHANGING, *_OF_DICTS)
        elif issubclass(kind, collections.defaultdict):
            self._value(value.default_factory)
        return True

    def _array(self, value: Any) -> None:
        if value.size > _LARGEST:
            self._leave("a long array")
            return
        while isinstance(value.base, np.ndarray):  # a part: the whole of its memory is kept
            value = value.base
        self.slots.append(array_slot(value))
        parts = value.ravel().tolist()
        self._together(parts)
        self._each(set(parts))

    def _together(self, values: list[Any]) -> None:
        """Record mixed values as possible secrets."""
        entries = flat(values)
        if len({(type(entry), entry) for entry in entries}) <= 1 or self._public.writes(entries):
            return
        self._mixed += len(entries)
        if len(entries) > HANDFUL or self._mixed > 2 * HANDFUL:
            self._leave("values that no constant of the code writes together")

    def _source(self, value: Any, kind: type) -> bool:
        """Follow a generator, whose state is restored for public seeds."""
        found = seeded_state(value, self._public.seeds)
        if found is None:
            return False
        if kind is random.SystemRandom:
            self.slots.append(extra_slot(value))
            return True
        read = state_of(value)
        if read is None:
            self._leave(f"a generator of type {kind.__name__}")
            return True
        self.slots.append(extra_slot(value))
        if found:
            self.slots.append(source_slot(*found))
            self.seeded.append(self.slots[-1])
        else:
            self.loose.append(read[0])
        return True

    def _instance(self, value: Any, kind: type, *more: type) -> None:
        top = str(kind.__module__).split(".")[0]
        if top == "opendp":
            self._of_opendp(value, kind)
        elif kind is logging.Logger:
            if not (own_dict(value) or {}).keys() <= _OF_LOGGERS:
                self._leave("a logger with attributes of its own")
        elif top == "dataclasses" and kind.__name__[:1] == "_":
            return
        elif not is_plain(kind, *more):
            self._leave(f"a value of type {kind.__name__}")
        else:
            self.slots += namespace_slot(value)
            kept = own_dict(value)
            members = [m.__get__(value) for m in members_of(kind) if _is_filled(m, value)]
            self._again(kind, [*(kept or {}).values(), *members])
            self._whole(kept)
            self._each(members)
            self._class(kind)

    def _whole(self, kept: dict[str, Any] | None) -> None:
        """Take an instance's attributes, which do not stand together as entries do."""
        if kept is not None and id(kept) not in self.seen:
            self.seen[id(kept)] = kept
            slot = container_slot(kept)
            if slot is not None:
                self.slots.append(slot)
            self._each(kept.values())

    def _of_opendp(self, value: Any, kind: type) -> None:
        if not any(base.__name__ in _OF_OPENDP for base in mro_of(kind)):
            if not str(kind.__module__).startswith("opendp.typing"):
                self._leave(f"a value of type {kind.__name__}")
            return
        self._each(functions_of(value))
        kept = own_dict(value) or {}
        for name in [name for name in kept if not name.startswith("__opendp")]:
            self._entry(kept, name)

    def _class(self, kind: type) -> None:
        """Follow the state of a user's class."""
        for base in (*mro_of(kind), type(kind)):
            if not (base.__flags__ & _HEAP and is_users(base)):
                if not (harmless(base.__module__) or base in (object, type)):
                    self._leave(f"the class {base.__name__}")
                continue
            if (id(base), "") in self._places:
                continue
            self._places.add((id(base), ""))
            self.seen[id(base)] = base
            self.slots.append(class_slot(base))
            for name, part in list(vars_of(base).items()):
                if name not in KEPT_BY_CLASSES:
                    self._value(part)


_OF_DICTS = (collections.OrderedDict, collections.Counter, collections.defaultdict)


def _parts_of(value: Any, kind: type) -> tuple[Any, ...] | None:
    """Return the parts of a wrapper of a call, or None."""
    if kind is types.MethodType:
        return value.__func__, value.__self__
    if kind is functools.partial:
        return value.func, *value.args, value.keywords, own_dict(value)
    if kind in (staticmethod, classmethod):
        return (value.__func__,)
    if kind is property:
        return value.fget, value.fset, value.fdel
    return (value.func,) if kind is functools.cached_property else None


def _is_filled(member: Any, value: Any) -> bool:
    try:
        member.__get__(value)
    except AttributeError:
        return False
    return True
