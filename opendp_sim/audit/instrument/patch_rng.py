"""Record every source of noise of a function on a tape.

Inside a ``with`` block. Module attributes are replaced, and copies of them in the globals and closures
of the functions (``from random import random`` is a copy). numpy's generators are C objects: instances
that the functions hold are replaced by proxies, and so are those they make. The block is not
thread-safe; it takes a lock.

A process that another thread forks meanwhile gets the lock and the replacements with the rest of the
memory, and no thread that would undo them: it would wait for ever, and draw its noise from the tape. So
the first thing that a fork does is to put everything back.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random  # noqa: TID251 - to be put on the tape
import secrets
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import opendp.mod as native  # noqa: TID251 - the call that is put on the tape

from opendp_sim.audit.instrument.memoize import READ, places
from opendp_sim.audit.instrument.rng_proxies import Proxy, bits_maker, maker, seeds_maker, served
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.state.reachable import names_of

# --------------------------------------------------------------------------------------------------
# Where functions hold generators: closures, defaults, globals, attributes, and what stands in those.
#
# What can be replaced is replaced for the time of an audit; a generator that is seen and cannot be is a
# source that no tape sees, and is told as such.

_DEPTH, _MOST, _LONGEST = 5, 5000, 1000
_LEAVES = (type, types.ModuleType, types.FunctionType, np.ndarray, str, bytes, int, float)


@dataclass
class Holders:
    """Replace values that functions hold by those of ``instead``."""

    instead: Callable[[Any], Any]
    draws: Callable[[Any], bool]
    """Whether a value draws, so that it may not stay where it is."""
    unseen: bool = False
    """Whether one that draws stayed."""
    _undo: list[Callable[[], None]] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def replace(self, functions: Iterable[types.FunctionType]) -> None:
        """Replace the values of functions, at every writable depth."""
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
        """Replace an entry of a dictionary or a list, or descend."""
        value = place[key]
        new = self._new(value)
        if new is None:
            self._inside(value, depth)
            return
        self._undo.append(lambda: place.__setitem__(key, value))
        place[key] = new

    def _new(self, value: Any) -> Any:
        """Return the replacement of a value."""
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


# --------------------------------------------------------------------------------------------------

_RANDOM = (
    *("random", "getrandbits", "uniform", "gauss", "normalvariate", "expovariate"),
    *("randint", "randrange", "choice", "choices", "betavariate", "triangular", "shuffle"),
    *("sample", "randbytes", "binomialvariate", "gammavariate", "lognormvariate"),
    *("vonmisesvariate", "paretovariate", "weibullvariate", "seed"),
)
_LEGACY = (
    *("laplace", "normal", "gumbel", "exponential", "geometric", "random", "rand", "randn"),
    *("randint", "choice", "uniform", "binomial", "poisson", "permutation", "shuffle"),
    *("standard_normal", "random_sample", "logistic", "gamma", "standard_exponential"),
    *("multivariate_normal", "seed"),
)
"""Functions of the modules ``random`` and ``numpy.random`` that draw."""
_NUMPY, _PYTHON = (np.random.Generator, np.random.RandomState), random.Random


class _Tapped:
    """Hold the lock, and undo the replacements of its thread."""

    def __init__(self) -> None:
        self.lock, self.undo, self.thread = threading.RLock(), list[Callable[[], None]](), 0

    def put_back(self) -> None:
        """Undo the replacements in a fork of another thread."""
        if self.thread != threading.get_ident():
            for undo in reversed(self.undo):
                undo()
            self.__init__()  # type: ignore[misc]


_TAPPED = _Tapped()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_TAPPED.put_back)
_BITS = "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"
_BELOW, _BYTES = ("posix", "ssl", "_ssl"), ("urandom", "getrandom", "RAND_bytes")
"""Modules beneath ``os`` and beside it that have bytes by chance, where they are imported."""
_SECRETS = ("randbits", "randbelow", "choice", "token_bytes", "token_hex")


@contextmanager
def tapped(tape: Tape, functions: list[types.FunctionType]) -> Iterator[None]:
    """Serve every draw of the functions from the tape."""
    with _TAPPED.lock:
        undo: list[tuple[Any, str, Any]] = []
        _TAPPED.thread = threading.get_ident()
        _TAPPED.undo.append(partial(_undone, undo))
        copies = _modules(tape, undo)
        holders = Holders(partial(_instead, tape, copies), _draws)
        _TAPPED.undo.append(holders.restore)
        try:
            with contextlib.suppress(Exception):
                holders.replace(functions)
            tape.unseen = tape.unseen or holders.unseen
            yield
        finally:
            holders.restore()
            _undone(undo)
            del _TAPPED.undo[-2:]
            _TAPPED.thread = _TAPPED.thread if _TAPPED.undo else 0


def _undone(undo: list[tuple[Any, str, Any]]) -> None:
    """Put module attributes back, the last one first."""
    for place, name, value in reversed(undo):
        setattr(place, name, value)


def _frames(tape: Tape, put: Callable[[Any, str, Any], None]) -> None:
    """Serve the cells of released frames, where Polars is there."""
    if (frames := sys.modules.get("opendp.extras.polars")) is not None:
        collect = frames.OnceFrame.collect
        put(frames.OnceFrame, "collect", lambda self: tape.collected(collect, self))


def _modules(tape: Tape, undo: list[tuple[Any, str, Any]]) -> dict[int, Any]:
    """Replace module attributes; return the replacement of each original, by identity."""
    copies: dict[int, Any] = {}

    def put(place: Any, name: str, value: Any) -> None:
        undo.append((place, name, getattr(place, name)))
        copies[id(getattr(place, name))] = value
        setattr(place, name, value)

    call, invoke = native.Measurement.__call__, native.Measurement.invoke
    tape.laws.named = all(_of_module(one, native) for one in (call, invoke))
    put(native.Measurement, "__call__", lambda self, arg: tape.native(call, self, arg))
    put(native.Measurement, "invoke", lambda self, arg: tape.native(invoke, self, arg))
    for module, names, label in (
        (random, _RANDOM, "random"),
        (np.random, _LEGACY, "np.random"),
        (secrets, _SECRETS, "secrets"),
        (os, ("urandom", "getrandom"), "os"),
        *((sys.modules[name], _BYTES, name) for name in _BELOW if name in sys.modules),
    ):
        for name in names:
            if hasattr(module, name):
                put(module, name, served(tape, label, name, getattr(module, name)))
    _made_once(tape, put)
    _frames(tape, put)
    put(random, "_inst", Proxy(tape, random._inst, "random"))  # noqa: SLF001
    for module, name, label in (
        (np.random, "default_rng", "rng"),
        (np.random, "RandomState", "rng"),
        (random, "Random", "random"),
        (random, "SystemRandom", "random"),
        (secrets, "SystemRandom", "random"),
        (np.random, "Generator", "rng"),
    ):
        real = getattr(module, name)
        make = maker(tape, real, label)
        put(module, name, _like(tape, real, make) if isinstance(real, type) else make)
    seeds = _like(
        tape, np.random.SeedSequence, seeds_maker(np.random.SeedSequence, secrets.randbits)
    )
    put(np.random, "SeedSequence", seeds)
    for name in _BITS:
        real = getattr(np.random, name)
        put(np.random, name, _like(tape, real, bits_maker(tape, real)))
    put(np.random.mtrand, "_rand", Proxy(tape, np.random.mtrand._rand, "np.random"))  # noqa: SLF001
    _scipy(tape, undo)
    return copies


def _of_module(function: Any, module: types.ModuleType) -> bool:
    """Return whether a Python function is defined in a module's file."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return isinstance(code, types.CodeType) and code.co_filename == module.__file__


def _made_once(tape: Tape, put: Callable[[Any, str, Any], None]) -> None:
    """Let constructors of OpenDP's give one object for one call."""
    for module, name in places():
        put(module, name, tape.constructors.kept(getattr(module, name), tape.serving))
    for name in READ:
        real = getattr(native.Transformation, name)
        put(native.Transformation, name, tape.constructors.read(name, real, tape.serving))
    if _of_module(native.Measurement.map, native):
        put(
            native.Measurement,
            "map",
            tape.constructors.mapped(native.Measurement.map, tape.serving),
        )


def _like(tape: Tape, real: type, make: Callable[..., Any]) -> type:
    """Return a class that makes proxies and recognises real instances.

    Its methods take a stand-in or a true instance; a class that is made of it is one of the true class.
    """

    class Meta(type):
        def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
            if not bases:
                return super().__new__(cls, name, bases, space)
            tape.unseen = True  # its instances draw by themselves
            true = tuple(real if type(base) is cls else base for base in bases)
            return type(name, true, space)

        def __init__(cls, *_: Any) -> None:
            pass

        def __call__(cls, *args: Any, **options: Any) -> Any:
            return make(*args, **options)

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real)

        def __getattr__(cls, name: str) -> Any:
            true = getattr(real, name)
            return true if name.startswith("_") or not callable(true) else _unbound(name, true)

    return Meta(real.__name__, (), {})


def _unbound(name: str, true: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as an unbound function."""

    def call(*args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], Proxy):
            return getattr(args[0], name)(*args[1:], **options)
        return true(*args, **options)

    return call


def _scipy(tape: Tape, undo: list[tuple[Any, str, Any]]) -> None:
    """Record the draws of scipy's distributions, without a law."""
    scipy = sys.modules.get("scipy.stats._distn_infrastructure")
    if scipy is None:
        return
    rvs = scipy.rv_generic.rvs

    def drawn(self: Any, *args: Any, **options: Any) -> Any:
        label = f"scipy.stats.{getattr(self, 'name', '')}"
        return served(tape, label, "rvs", partial(rvs, self))(*args, **options)

    undo.append((scipy.rv_generic, "rvs", rvs))
    scipy.rv_generic.rvs = drawn


def _instead(tape: Tape, copies: dict[int, Any], value: Any) -> Any:
    """Return the replacement of a generator, its method or a function."""
    if isinstance(value, Proxy) or (isinstance(value, type) and id(value) not in copies):
        return None
    if isinstance(value, _NUMPY):
        return Proxy(tape, value, "rng")
    if isinstance(value, _PYTHON):
        return Proxy(tape, value, "random")
    if callable(value) and id(value) in copies:  # the originals live on in ``undo``
        return copies[id(value)]
    owner, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
    for kind, label in ((_NUMPY, "rng"), (_PYTHON, "random")):
        if isinstance(owner, kind) and not isinstance(owner, Proxy) and hasattr(owner, name):
            return getattr(Proxy(tape, owner, label), name)
    return None


def _draws(value: Any) -> bool:
    """Say whether a value draws by itself, and is no stand-in."""
    kinds = (*_NUMPY, _PYTHON, np.random.BitGenerator)
    return isinstance(value, kinds) and not isinstance(value, Proxy)
