"""Restore a measurement's state before each call.

Only where nothing of the state can be secret. A claim is about every call, the first one, too. A
function that learns a bound from the dataset of its first call, or whose generator has a seed that its
code names, answers a first call only once: later calls say nothing of it. Where all that the functions
keep is public (constants of their code, nothing yet, generators with a public seed), whoever knows the
code knows it: it may be put back (``layer.md``).
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from opendp_sim.audit.outputs.encoding import outcome
from opendp_sim.audit.state.graph import Followed
from opendp_sim.audit.state.library_calls import is_plain
from opendp_sim.audit.state.public_values import seeded_state
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.state.slots import CACHE, members_of, own_dict
from opendp_sim.audit.state.snapshot import cached, is_users
from opendp_sim.audit.work import work_seconds

# --------------------------------------------------------------------------------------------------
# What a call leaves behind, written out whole: the same of two calls only where all of it is.

_MOST = 20_000
_HEAP = 1 << 9
_SCALARS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_SEQUENCES = (list, tuple, collections.deque)
_FIXED = (types.ModuleType, type, types.BuiltinFunctionType, types.MethodWrapperType, np.ufunc)


class Unreadable(Exception):  # noqa: N818 - it never leaves the audit
    """A value of which not all can be read."""


def left_behind(values: Iterable[Any], known: Container[int]) -> list[Any]:
    """Return all values reachable from state, in order.

    Generators by name only.

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


# --------------------------------------------------------------------------------------------------

_RUNS, _FEWEST, _SECONDS = 200, 120, 0.6
"""First calls on one dataset that have to leave the same behind, and CPU seconds that they get."""


class Kept:
    """Hold the state of functions at the time of construction."""

    def __init__(self, functions: Iterable[types.FunctionType]) -> None:
        found = Followed(functions)
        self.unknown = found.unknown
        """What may be secret, or cannot be put back: then no first calls are looked at."""
        self._slots, self._seeded, self._loose = found.slots, found.seeded, found.loose
        self._known = found.seen

    def changed(self) -> bool:
        """Say whether calls have changed anything."""
        try:
            return any(slot.changed() for slot in self._slots)
        except Exception as error:  # noqa: BLE001 - whatever a user's class does when it is read
            self._stop(error)
            return False

    def restore(self) -> None:
        """Restore the state, or leave the present one."""
        self._put([slot.before for slot in self._slots])

    def _stop(self, error: Exception) -> None:
        self.unknown = self.unknown or f"it cannot be put back ({type(error).__name__})"

    def _put(self, values: list[tuple[Any, ...]]) -> None:
        done: list[tuple[Any, tuple[Any, ...]]] = []
        try:
            for slot, value in zip(self._slots, values, strict=True):
                done.append((slot, slot.read()))
                slot.put(value)
        except Exception as error:  # noqa: BLE001
            self._stop(error)
            for slot, value in done:
                _tried(slot, value)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Restore the present state at the end of the context."""
        try:
            now = [slot.read() for slot in self._slots]
        except Exception as error:  # noqa: BLE001
            self._stop(error)
            yield
            return
        try:
            yield
        finally:
            self._put(now)

    def fresh(self, run: Callable[[Any], Any], data: Any) -> bool:
        """Return whether the restored state has no noise.

        Judged by first calls on one dataset. Noise that was drawn before comes again: releases are
        then all alike, or what a call leaves behind is drawn anew by each. A generator whose seed is
        public may give the same noise each time.
        """
        with self.lent():
            try:
                return not self.unknown and self._steady(run, data) and not self.unknown
            except Exception as error:  # noqa: BLE001 - something that cannot be read
                self._stop(error)
                return False

    def _steady(self, run: Callable[[Any], Any], data: Any) -> bool:
        heard, first, seeded, runs = set[str](), None, False, 0
        end = work_seconds() + _SECONDS
        while runs < _RUNS and (runs < _FEWEST or work_seconds() < end):
            self.restore()
            if self.unknown or self.changed():
                return False
            before = [read() for read in self._loose]
            heard.add(repr(outcome(run, data)))
            if any(read() == was for read, was in zip(self._loose, before, strict=True)):
                return False
            after = [slot.read() for slot in self._slots]
            moved = enumerate(zip(self._slots, after, strict=True))
            told = left_behind([(n, v) for n, (s, v) in moved if s.differs(v)], self._known)
            if first is None and self._lost(after):
                return False
            first = told if first is None else first
            if told != first:
                return False
            seeded = seeded or any(slot.changed() for slot in self._seeded)
            runs += 1
            if runs < _FEWEST and work_seconds() > end:
                return False
        return seeded or len(heard) > 1

    def _lost(self, after: list[tuple[Any, ...]]) -> bool:
        """Return whether a state's value was consumed."""
        for slot, now in zip(self._slots, after, strict=True):
            places = slot.items(now)
            for place, value in slot.items(slot.before).items():
                told = places.get(place)
                if value is not None and (told is None or _is_number(told) != _is_number(value)):
                    return True
        return False

    def first(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a run before which everything is put back."""

        @functools.wraps(run)
        def anew(data: Any) -> Any:
            self.restore()
            return run(data)

        return anew


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex))


def _tried(slot: Any, values: tuple[Any, ...]) -> None:
    with suppress(Exception):  # it stays as it is
        slot.put(values)


class FirstCall:
    """Release as an object in its initial state, under its ``map``."""

    def __init__(self, obj: Any) -> None:
        self._obj, self.map = obj, obj.map
        self._kept = Kept(functions_of(obj))

    def __call__(self, data: Any) -> Any:
        """Put back what the object keeps, and release."""
        self._kept.restore()
        return self._obj(data)


def first_call(obj: Any) -> FirstCall:
    """Return a measurement whose every release is a first call.

    State that calls change is restored before. Make it of an object that has not been called yet. What
    runs change is put back whatever it is: noise that an object has drawn before comes again.
    """
    return FirstCall(obj)
