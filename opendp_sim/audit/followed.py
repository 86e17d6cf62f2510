"""All that functions keep, followed from name to value: where it stands, and whether it is public.

What is not followed may hold a secret beside what is put back, so it makes the whole unknown.
"""

from __future__ import annotations

import collections
import functools
import logging
import random  # noqa: TID251 - generators are told apart, nothing is drawn
import threading
import types
from typing import Any

import numpy as np

from opendp_sim.audit.kept_contents import (
    CacheSlot,
    array_slot,
    container_slot,
    extra_slot,
    source_slot,
)
from opendp_sim.audit.kept_slots import (
    CACHE,
    KEPT_BY_CLASSES,
    class_slot,
    members_of,
    mro_of,
    namespace_slot,
    own_dict,
    vars_of,
)
from opendp_sim.audit.kept_state import is_users
from opendp_sim.audit.libraries import harmless, is_plain
from opendp_sim.audit.places import BOUND, HANDFUL, Places
from opendp_sim.audit.public_sources import seeded_state, state_of
from opendp_sim.audit.public_values import flat
from opendp_sim.audit.reachable import functions_of

__all__ = ["Followed"]

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
    """Where everything stands that functions keep, and what of it may be secret."""

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
        """Take a function that is written in C, and what it is bound to."""
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
        """Note values that stand together: a key, or a pool of noise, may be written in few of them."""
        entries = flat(values)
        if len({(type(entry), entry) for entry in entries}) <= 1 or self._public.writes(entries):
            return
        self._mixed += len(entries)
        if len(entries) > HANDFUL or self._mixed > 2 * HANDFUL:
            self._leave("values that no constant of the code writes together")

    def _source(self, value: Any, kind: type) -> bool:
        """Take a generator: its state is put back where its seed is public, and else goes on."""
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
        """Take what a class of the user's keeps for all of its instances."""
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
    """Return what a value is made of that calls something else; nothing for other values."""
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
