"""What containers, arrays, generators and caches hold: how it is read, and put back."""

from __future__ import annotations

import collections
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.audit.kept_slots import Slot, Values, own_dict, pairs

__all__ = ["CacheSlot", "array_slot", "container_slot", "extra_slot", "source_slot"]


class CacheSlot(Slot):
    """A cache, empty when this is made; that it is filled is no change that would be looked at."""

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
    """Return the entries of a container that can be changed; nothing for what is none."""
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
    """Return what stands on a generator beside its state: nothing, when this is made.

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
