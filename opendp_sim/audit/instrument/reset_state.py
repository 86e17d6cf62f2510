"""Restore the state that functions keep before each call.

Cells, defaults, attributes, and the globals that the code names are followed through lists, mappings,
sets, arrays and instances of the user's classes; shallow copies are put back. Generators of a public seed
are put back, others go on. Other state may be noise that was drawn before the first call, which no copy
shows: so what first calls show with it is priced, and refutes nothing.
"""

from __future__ import annotations

import ast
import collections
import functools
import inspect
import pickle
import random  # noqa: TID251 - states are compared, nothing is drawn
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from opendp_sim.audit.outputs.encoding import outcome
from opendp_sim.audit.state.reachable import functions_of, is_users, names_of
from opendp_sim.audit.work import work_seconds
from opendp_sim.core import dp
from opendp_sim.core.system.syntax_trees import tried_again

Slot = tuple[Callable[[], Any], Callable[[Any], None]]
"""How a place is read, and how it is put back."""

# --------------------------------------------------------------------------------------------------
# Generators whose state has a public seed: whoever knows the code knows their noise.

_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_SMALL, _LARGEST = 100, 1 << 128
"""Seeds that are tried whatever the code names, and the end of those that it names."""
_LONGEST = 200_000
"""Letters of a module that are read."""


def public_state(value: Any, seeds: Iterable[int]) -> Slot | None:
    """Return how to read and restore a generator of a public seed.

    None for another one.
    """
    if type(value) is random.Random:
        known = any(_same_words(value, random.Random(seed)) for seed in seeds)  # noqa: S311
        return _pickled(value.getstate, value.setstate) if known else None
    if type(value) is np.random.RandomState:
        tried = (np.random.RandomState(seed) for seed in seeds if seed < 1 << 32)
        known = any(_same_stream(value._bit_generator, made._bit_generator) for made in tried)  # noqa: SLF001
        return _pickled(value.get_state, value.set_state) if known else None
    source = getattr(value, "bit_generator", value)
    if type(source).__module__.split(".")[0] != "numpy" or not hasattr(source, "state"):
        return None
    if not any(_same_stream(source, type(source)(seed)) for seed in seeds):
        return None
    return _pickled(lambda: source.state, lambda state: setattr(source, "state", state))


def _pickled(read: Callable[[], Any], write: Callable[[Any], None]) -> Slot:
    return lambda: pickle.dumps(read()), lambda state: write(pickle.loads(state))  # noqa: S301


def _same_words(value: random.Random, made: random.Random) -> bool:
    """Return whether a generator has made at most 624 words."""
    now = value.getstate()[1][:-1]
    if now == made.getstate()[1][:-1]:
        return True
    made.getrandbits(32)
    return bool(now == made.getstate()[1][:-1])


def _same_stream(value: Any, made: Any) -> bool:
    """Return whether two sources of bits have one seed.

    Few draws between them are allowed.
    """
    now, fresh = value.state["state"], made.state["state"]
    if "inc" in now:
        return bool(now["inc"] == fresh["inc"])
    part = "key" if "key" in now else "state"
    if np.array_equal(now[part], fresh[part]):
        return True
    made.random_raw()
    return np.array_equal(now[part], made.state["state"][part])


def seeds_of(functions: Iterable[types.FunctionType]) -> list[int]:
    """Return small numbers, and those in the modules of functions."""
    found = set(range(_SMALL))
    for name in {str(function.__globals__.get("__name__")) for function in functions}:
        with suppress(OSError, TypeError, SyntaxError, ValueError):
            found |= _numbers(inspect.getsource(sys.modules[name]) if name in sys.modules else "")
    return sorted(found)


@functools.lru_cache(16)  # of a module's many objects each is audited by itself
def _numbers(text: str) -> set[int]:
    tree = tried_again(lambda: ast.parse(text if len(text) < _LONGEST else ""))
    named = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in named if type(value) is int and 0 <= value < _LARGEST}


# --------------------------------------------------------------------------------------------------

_MOST, _RUNS, _FEWEST, _SECONDS = 5000, 40, 8, 0.3
"""Values that are followed, and first calls that show whether they differ, in nominal seconds."""
_BOXES = (list, dict, set, collections.deque, bytearray)
_CACHE = type(functools.lru_cache(abs))
_HEAP = 1 << 9
_FREE = object()
"""Stands for a name or a cell without a value."""


class Kept:
    """Hold the state of functions at the time of construction."""

    def __init__(self, functions: Iterable[types.FunctionType]) -> None:
        self.unknown = ""
        """Why it cannot be put back; then no first calls are looked at."""
        self._slots: list[Slot] = []
        self._generators: list[Slot] = []
        self._caches: list[Callable[[], None]] = []
        self._seen: dict[int, Any] = {}
        functions = list(functions)
        self._seeds = seeds_of(functions)
        try:
            self._each(functions)
            self._before = self._now()
        except Exception as error:  # noqa: BLE001 - whatever a user's class does when it is read
            self.unknown = type(error).__name__

    def _now(self) -> list[Any]:
        return [read() for read, _ in (*self._slots, *self._generators)]

    def _follow(self, value: Any) -> None:
        if id(value) in self._seen or len(self._seen) > _MOST:
            return
        self._seen[id(value)] = value
        if isinstance(value, _GENERATORS):
            found = public_state(value, self._seeds)
            self._generators += [] if found is None else [found]
        elif isinstance(value, (types.FunctionType, types.MethodType, partial, _CACHE)):
            self._callable(value)
        elif isinstance(value, np.ndarray):
            if value.flags.writeable and not value.dtype.hasobject:
                self._slots.append((value.tobytes, partial(_refill, value)))
        elif isinstance(value, (tuple, frozenset)):
            self._each(value)
        elif isinstance(value, _BOXES):
            self._slots.append((partial(_held, value), partial(_fill, value)))
            self._each(list(value.values()) if isinstance(value, dict) else list(value))
        elif isinstance(value, type):
            self._class(value)
        elif is_users(type(value)) or type(value) is types.SimpleNamespace:
            self._instance(value)

    def _callable(self, value: Any) -> None:
        if isinstance(value, types.MethodType):
            self._each((value.__func__, value.__self__))
        elif isinstance(value, partial):
            self._each((value.func, value.args, value.keywords))
        elif isinstance(value, types.FunctionType):
            self._function(value)
        else:
            if not value.cache_info().currsize:
                self._caches.append(value.cache_clear)
            self._follow(value.__wrapped__)

    def _each(self, values: Iterable[Any]) -> None:
        for value in values:
            self._follow(value)

    def _function(self, value: types.FunctionType) -> None:
        for cell in value.__closure__ or ():
            self._place(partial(_content, cell), partial(_refill_cell, cell))
        self._each((value.__defaults__, value.__kwdefaults__, value.__dict__))
        self._follow(getattr(value, "__wrapped__", None))
        if not is_users(value):
            return
        scope = value.__globals__
        for name in names_of(value.__code__):
            if name in scope and not isinstance(scope[name], types.ModuleType):
                self._place(partial(scope.get, name, _FREE), partial(_set, scope, name))

    def _class(self, kind: type) -> None:
        if not (kind.__flags__ & _HEAP and is_users(kind)):
            return
        for name, value in list(vars(kind).items()):
            if not (name.startswith("__") or callable(value) or hasattr(value, "__get__")):
                self._place(partial(getattr, kind, name, _FREE), partial(_put, kind, name))

    def _instance(self, value: Any) -> None:
        self._each((getattr(value, "__dict__", None), type(value)))
        for member in (part for base in type(value).__mro__ for part in vars(base).values()):
            if isinstance(member, types.MemberDescriptorType):
                name = member.__name__
                self._place(partial(getattr, value, name, _FREE), partial(_put, value, name))

    def _place(self, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self._slots.append((read, write))
        self._follow(read())

    @property
    def public(self) -> bool:
        """Whether calls changed nothing but generators of a public seed."""
        others = zip(self._slots, self._before, strict=False)
        return not any(_differ(read(), before) for (read, _), before in others)

    def changed(self) -> bool:
        """Say whether calls have changed anything."""
        try:
            return not self.unknown and any(map(_differ, self._now(), self._before))
        except Exception as error:  # noqa: BLE001 - whatever a user's class does when it is compared
            self.unknown = type(error).__name__
            return False

    def restore(self) -> None:
        """Put everything back."""
        for clear in self._caches:
            clear()
        self._put(self._before)

    def _put(self, values: list[Any]) -> None:
        try:
            places = (*self._slots, *self._generators)
            for (read, write), value in zip(places, values, strict=True):
                if _differ(read(), value):
                    write(value)
        except Exception as error:  # noqa: BLE001
            self.unknown = type(error).__name__

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Restore the present state at the end of the context."""
        now = self._now()
        try:
            yield
        finally:
            self._put(now)

    def fresh(self, run: Callable[[Any], Any], data: Any) -> bool:
        """Return whether first calls differ, or have a public seed."""
        stated, end = set[str](), work_seconds() + _SECONDS
        with self.lent():
            for number in range(_RUNS):
                self.restore()
                stated.add(repr(outcome(run, data)))
                if self.unknown or (number >= _FEWEST and work_seconds() > end):
                    break
        seeded = self._generators and self.public
        return bool(seeded or len(stated) > 1) and not self.unknown

    def first(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a run before which everything is put back."""

        @functools.wraps(run)
        def anew(data: Any) -> Any:
            self.restore()
            return run(data)

        return anew


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _FREE


def _refill_cell(cell: types.CellType, value: Any) -> None:
    if value is _FREE:
        del cell.cell_contents
    else:
        cell.cell_contents = value


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _FREE:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def _set(scope: dict[str, Any], name: str, value: Any) -> None:
    if value is _FREE:
        scope.pop(name, None)
    else:
        scope[name] = value


def _refill(array: Any, content: bytes) -> None:
    array[...] = np.frombuffer(content, array.dtype).reshape(array.shape)


def _is_made(value: Any) -> bool:
    """Return whether a value is an object of OpenDP or a function."""
    return isinstance(value, (dp.Measurement, dp.Transformation, types.FunctionType))


def _held(box: Any) -> Any:
    """Return a shallow copy of a container."""
    if isinstance(box, dict):
        return {key: value for key, value in dict.items(box) if not _is_made(value)}
    return (
        set(box) if isinstance(box, set) else bytes(box) if isinstance(box, bytearray) else [*box]
    )


def _fill(box: Any, content: Any) -> None:
    if isinstance(box, dict):
        content = {k: v for k, v in dict.items(box) if _is_made(v)} | content
    if isinstance(box, bytearray):
        box[:] = content
        return
    box.clear()
    (box.update if isinstance(box, (dict, set)) else box.extend)(content)


def _differ(one: Any, two: Any) -> bool:
    """Return whether two states differ, by identity or as plain values."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() != two.keys() or any(_differ_plainly(v, two[k]) for k, v in one.items())
    if isinstance(one, list) and isinstance(two, list):
        return len(one) != len(two) or any(map(_differ_plainly, one, two))
    return _differ_plainly(one, two)


def _differ_plainly(one: Any, two: Any) -> bool:
    plain = isinstance(one, (bool, int, float, complex, str, bytes, set, type(None)))
    return one is not two and not (plain and type(one) is type(two) and one == two)


class FirstCall:
    """Release as an object in its initial state.

    ``map`` is the object's.
    """

    def __init__(self, obj: Any) -> None:
        self._obj, self.map = obj, obj.map
        self._kept = Kept(functions_of(obj))

    def __call__(self, data: Any) -> Any:
        """Put back what the object keeps, and release."""
        self._kept.restore()
        return self._obj(data)


def first_call(obj: Any) -> FirstCall:
    """Return a measurement whose every release is a first call.

    State that calls change is restored before.

    Make it of an object that has not been called yet. What runs change is put back whatever it is: noise
    that an object has drawn before comes again.
    """
    return FirstCall(obj)
