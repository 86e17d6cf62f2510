"""Stand-ins for sources of randomness: they draw as the real ones do, and are on the tape."""

from __future__ import annotations

import copy
import random  # noqa: TID251 - copies of its generators
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.audit.ahead import Ahead, bits_ahead
from opendp_sim.audit.library_draws import of_scipy, own_draw
from opendp_sim.audit.picks import lent, shown
from opendp_sim.audit.recorded_draws import recorded, unknown
from opendp_sim.audit.tape import Tape

__all__ = [
    "Fresh",
    "Proxy",
    "bits_maker",
    "maker",
    "noticed",
    "scipys_own",
    "seeds_maker",
    "served",
]

_PYTHON = random.Random
"""The class itself, whatever stands at its place."""
_DEFAULT, _GENERATOR = np.random.default_rng, np.random.Generator  # noqa: TID251 - compared only
_KINDS = (_PYTHON, _GENERATOR, np.random.RandomState)
_STATE = ("bit_generator", "_bit_generator")
"""What a state can be read from and written to: such a generator is never drawn from ahead."""
_PUT_BACK = ("getstate", "setstate", "get_state", "set_state", "__setstate__", "__getstate__")
"""What reads and writes a state: no draws, and what is drawn after them may have been drawn before."""
_NO_SEED: tuple[tuple[Any, ...], ...] = ((), (None,))
_AHEAD = ("scout", "bulk")
"""Ways of running in which draws may have been made ahead."""


class _Methods(type):
    """Lets the class of a stand-in be asked for the methods of what it stands for."""

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
        """The class of what it stands for: ``isinstance`` says of both the same."""
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name in _STATE:
            self._tape.resets = True
        if name in _PUT_BACK:
            return noticed(self._tape, real)
        if name == "spawn":  # the generators that it makes draw by themselves
            return self._source().spawn
        if name.startswith("_") or not callable(real):
            return real
        out = served(self._tape, self._module, name, real, self._seeded)
        self.__dict__[name] = out  # the next run finds it without asking
        return out

    def _source(self) -> Any:
        """Return what it stands for, of which something is made that no tape sees."""
        self._tape.unseen = self._tape.resets = True
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


class Fresh(Proxy):
    """A generator of its own that no seed was given to: it draws from one that all such have in common.

    Where it is copied it gets one of its own first, for its copy draws what it draws.
    """

    def __init__(self, shared: Proxy, real: Callable[[], Any]) -> None:
        own = self.__dict__
        own.update(shared.__dict__)  # with the draws that were asked for before
        own["_shared"], own["_real"] = shared, real

    def __getattr__(self, name: str) -> Any:
        shared = self.__dict__.get("_shared")
        return super().__getattr__(name) if shared is None else getattr(shared, name)

    def _source(self) -> Any:
        own = self.__dict__
        if "_shared" in own:
            tape, module, inner = self._tape, self._module, self._real()
            own.clear()
            super().__init__(tape, inner, module)
        return super()._source()

    @property
    def common(self) -> Proxy:
        """What it draws from."""
        shared: Proxy = self.__dict__.get("_shared", self)
        return shared


def _restored(state: Any) -> Any:
    """Return a copy of a generator of Python's."""
    out = _PYTHON()
    out.setstate(state)
    return out


@dataclass
class _Believed:
    """Whether a draw is its library's own: asked at the first one, and nothing that a program keeps."""

    own: bool | None


def served(
    tape: Tape,
    module: str,
    name: str,
    real: Callable[..., Any],
    seeded: str = "",
    *,
    own: bool | None = None,
) -> Callable[..., Any]:
    """Return a function that draws as ``real`` does, and is on the tape.

    What its name says is believed of the library's ``own`` function only: of another one no more is known
    than that it draws.
    """
    ahead = bits_ahead(real) if (module, name) == ("secrets", "randbits") else Ahead(name, real)
    able = ahead.able and not seeded and module in ("rng", "np.random", "secrets")
    believed = _Believed(own)

    def call(*args: Any, **options: Any) -> Any:
        if believed.own is None:
            believed.own = own_draw(module, name, real)
        if not believed.own:
            return unknown(tape, module, name, real, args, options, seeded)
        tape.resets = tape.resets or name == "seed"
        if tape.common.on and tape.mode in _AHEAD and not tape.resets and not seeded:
            return lent(tape, ahead if able else None, f"{module}.{name}", real, args, options)
        if able and tape.mode in _AHEAD and not tape.resets:
            return ahead.draw(args, options)
        if tape.mode in ("real", *_AHEAD) or tape.inside or tape.foreign_thread:
            return real(*args, **options)
        return recorded(tape, module, name, real, args, options, seeded)

    return call


def scipys_own(law: Any, rvs: Any, options: dict[str, Any]) -> bool:
    """Say whether a distribution's draw is scipy's, from a source of numpy's."""
    source = options.get("random_state")
    source = getattr(law, "_random_state", None) if source is None else source
    return of_scipy(law, rvs, vars(source)["_inner"] if type(source) is Proxy else source)


def maker(tape: Tape, real: Any, label: str) -> Callable[..., Any]:
    """Return a maker of generators whose draws are on the tape, with the seed they were given."""
    one: list[Any] = []

    def kept() -> Any:
        if not one:
            one.append(Proxy(tape, real(), label))
        return Fresh(one[0], real)

    def make(*args: Any, **options: Any) -> Any:
        if (
            tape.mode in _AHEAD
            and args in _NO_SEED
            and not options
            and label == "rng"
            and not tape.resets
        ):
            return kept()  # draws of one generator are as independent as those of many
        only = [*args, *options.values()]
        if real is _DEFAULT and only and isinstance(only[0], Proxy):  # a generator is no seed
            if isinstance(only[0], _GENERATOR):
                return only[0]
            args, options = (only[0]._source(),), {}  # noqa: SLF001 - of the older kind
        made = real(*args, **options)
        if tape.inside or tape.mode in ("real", "scout", "bulk") or tape.foreign_thread:
            return made
        given = [*args, *options.values()]
        seed = tape.seeds.get(id(given[0]), (None, None))[1] if given else ""
        if seed is None:
            seed = shown(given[0]) if given[0] is not None and not _fresh_bits(given[0]) else ""
        return Proxy(tape, made, label, seed)

    return make


def noticed(tape: Tape, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function; once it is called, nothing is drawn ahead any more."""

    def call(*args: Any, **options: Any) -> Any:
        tape.resets = True
        return real(*args, **options)

    return call


def bits_maker(tape: Tape, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a maker of numpy's sources of bits, which are told to the tape with their seeds."""

    def make(*args: Any, **options: Any) -> Any:
        made = real(*args, **options)
        if not (tape.inside or tape.mode in ("real", "scout", "bulk") or tape.foreign_thread):
            given = [*args, *options.values()]
            seed = shown(given[0]) if given and given[0] is not None else ""
            tape.seeds[id(made)] = made, seed
        return made

    return make


def seeds_maker(real: Any, bits: Callable[[int], int]) -> Callable[..., Any]:
    """Return a maker of numpy's seeds; those that take their own entropy take it from ``bits``."""

    def make(entropy: Any = None, **options: Any) -> Any:
        return real(bits(128) if entropy is None else entropy, **options)

    return make


def _fresh_bits(value: Any) -> bool:
    """Say whether it is a source of bits or a generator: its text would be a place in memory."""
    return isinstance(value, (np.random.BitGenerator, np.random.Generator, np.random.RandomState))
