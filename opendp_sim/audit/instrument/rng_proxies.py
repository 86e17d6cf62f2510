"""Replace sources of randomness by recording proxies of real laws."""

from __future__ import annotations

import copy
import random  # noqa: TID251 - copies of its generators
from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.audit.instrument.library_draws import DrawCall, recorded, shown
from opendp_sim.audit.instrument.tape import Tape

_LIVE = ("real", "bulk")
_PYTHON = random.Random
"""The class itself, whatever stands at its place."""
_DEFAULT, _GENERATOR = np.random.default_rng, np.random.Generator  # noqa: TID251 - compared only
_KINDS = (_PYTHON, _GENERATOR, np.random.RandomState)
_PUT_BACK = ("getstate", "setstate", "get_state", "set_state", "__setstate__", "__getstate__")
"""What reads and writes a state: no draws."""


class _Methods(type):
    """Look up methods of the replaced class on the stand-in's."""

    def __getattr__(cls, name: str) -> Any:
        if name[:2] == "__" or not any(hasattr(kind, name) for kind in _KINDS):
            raise AttributeError(name)
        return lambda self, *args, **options: getattr(self, name)(*args, **options)


class Proxy(metaclass=_Methods):
    """A generator whose draws are on the tape.

    A copy of it goes on with the same stream of numbers, which is no draw of its own: it is a true
    generator, and what it draws is on no tape.
    """

    def __init__(self, tape: Tape, inner: Any, module: str, seeded: str = "") -> None:
        self._tape, self._inner, self._module, self._seeded = tape, inner, module, seeded

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Return the replaced generator's class, for ``isinstance``."""
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name == "spawn":  # the generators that it makes draw by themselves
            return self._source().spawn
        if name.startswith("_") or name in _PUT_BACK or not callable(real):
            return real
        out = served(self._tape, self._module, name, real, self._seeded)
        self.__dict__[name] = out  # the next run finds it without asking
        return out

    def _source(self) -> Any:
        """Return the real generator, whose further draws are untraced."""
        self._tape.unseen = True
        return self._inner

    def __copy__(self) -> Any:
        return copy.copy(self._source())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self._source(), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        source = self._source()
        if isinstance(source, _PYTHON):  # its class would be looked up where the stand-in is
            return _restored, (source.getstate(),)
        return source.__reduce_ex__(protocol)


def _restored(state: Any) -> Any:
    """Return a copy of a generator of Python's."""
    out = _PYTHON()
    out.setstate(state)
    return out


def served(
    tape: Tape, module: str, name: str, real: Callable[..., Any], seeded: str = ""
) -> Callable[..., Any]:
    """Return a function with the draws of ``real``, recorded."""

    def call(*args: Any, **options: Any) -> Any:
        if tape.mode in _LIVE or tape.inside or tape.foreign_thread:
            return real(*args, **options)
        return recorded(DrawCall(tape, f"{module}.{name}", real, args, options, seeded))

    return call


def maker(tape: Tape, real: Any, label: str) -> Callable[..., Any]:
    """Return a constructor of recorded generators, with their seeds."""

    def make(*args: Any, **options: Any) -> Any:
        only = [*args, *options.values()]
        if real is _DEFAULT and only and isinstance(only[0], Proxy):  # a generator is no seed
            if isinstance(only[0], _GENERATOR):
                return only[0]
            args, options = (only[0]._source(),), {}  # noqa: SLF001 - of the older kind
        made = real(*args, **options)
        if tape.mode in _LIVE or tape.inside or tape.foreign_thread:
            return made
        given = [*args, *options.values()]
        seed = tape.seeds.get(id(given[0]), (None, None))[1] if given else ""
        if seed is None:
            seed = shown(given[0]) if given[0] is not None and not _fresh_bits(given[0]) else ""
        return Proxy(tape, made, label, seed)

    return make


def bits_maker(tape: Tape, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a constructor of numpy's bit sources, with recorded seeds."""

    def make(*args: Any, **options: Any) -> Any:
        made = real(*args, **options)
        if not (tape.inside or tape.mode in _LIVE or tape.foreign_thread):
            given = [*args, *options.values()]
            seed = shown(given[0]) if given and given[0] is not None else ""
            tape.seeds[id(made)] = made, seed
        return made

    return make


def seeds_maker(real: Any, bits: Callable[[int], int]) -> Callable[..., Any]:
    """Return a constructor of numpy's seeds, with entropy from ``bits``."""

    def make(entropy: Any = None, **options: Any) -> Any:
        return real(bits(128) if entropy is None else entropy, **options)

    return make


def _fresh_bits(value: Any) -> bool:
    """Return whether a value is a bit source or a generator."""
    return isinstance(value, (np.random.BitGenerator, np.random.Generator, np.random.RandomState))
