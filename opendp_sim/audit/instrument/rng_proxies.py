"""Replace sources of randomness by recording proxies of real laws."""

from __future__ import annotations

import copy
import math
import random  # noqa: TID251 - copies of its generators
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.audit.instrument.library_code import own_draw
from opendp_sim.audit.instrument.native_laws import Law
from opendp_sim.audit.instrument.permutations import IN_PLACE, PICKS, lent, picked, shown, shuffled
from opendp_sim.audit.instrument.tape import Tape

# --------------------------------------------------------------------------------------------------
# What the arguments of a draw say of it: its values, its location.

LOCATED = ("laplace", "normal", "gumbel", "logistic", "gauss", "normalvariate")


def values_drawn(
    name: str, args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Any, ...] | None:
    """Return the values of a small uniform draw; ``None`` for others."""
    if options or len(args) != 1:
        return None
    first = args[0]
    if name in {"getrandbits", "randbits"}:
        return tuple(range(2**first)) if isinstance(first, int) and 0 < first <= 6 else None
    if name == "randbelow":
        return tuple(range(first)) if isinstance(first, int) and 0 < first <= 64 else None
    return None


def located(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the location of a draw, repeated by size, or None."""
    where = args[0] if args else options.get("loc", options.get("mu", 0.0))
    size = options.get("size", args[2] if len(args) > 2 else None)
    try:
        return (
            float(where)
            if size is None and np.ndim(where) == 0
            else np.zeros(size or np.shape(where)) + where
        )
    except (TypeError, ValueError):
        return None


# --------------------------------------------------------------------------------------------------
# Laws of the noise that a function draws itself, read off the call: numpy and ``random``.
#
# ``free_law`` is exact, and a calculation may rest on it. ``hint_law`` says only what moving the
# output by
# so much costs along the likelier direction: a one-sided law, or one half of a difference of two.
# It orders
# pairs, and no verdict rests on it.

_FAMILIES = {
    "laplace": "laplace",
    "normal": "gaussian",
    "gauss": "gaussian",
    "normalvariate": "gaussian",
}
_BY_SCALE = {
    "gumbel": (1, "scale"),
    "logistic": (1, "scale"),
    "exponential": (0, "scale"),
    "standard_exponential": (9, "scale"),
}
"""Draws whose tails fall by e per scale, and where their scale stands."""
_NUMBERS = (int, float, np.number)


def free_law(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Law | None:
    """Return the law of Laplace or normal draws of scale, or None."""
    family = _FAMILIES.get(name)
    scale = options.get("scale", options.get("sigma", args[1] if len(args) > 1 else 1.0))
    return None if family is None else _law(family, scale)


def hint_law(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Law | None:
    """Return the law that orders pairs under a draw, or None."""
    if name == "geometric":
        return _geometric(options.get("p", args[0] if args else None))
    if name == "standard_normal":
        return _law("gaussian", 1.0)
    if name == "expovariate":
        rate = options.get("lambd", args[0] if args else 1.0)
        return _law("laplace", 1 / rate) if isinstance(rate, _NUMBERS) and rate > 0 else None
    if name in _BY_SCALE:
        spot, word = _BY_SCALE[name]
        return _law("laplace", options.get(word, args[spot] if len(args) > spot else 1.0))
    return free_law(name, args, options)


def _geometric(p: Any) -> Law | None:
    """Return the law of one-sided geometric noise.

    A difference of two moves up through the first and down through the second, at the same cost.
    """
    if not isinstance(p, _NUMBERS) or not 0 < p < 1:
        return None
    return _law("laplace", -1 / math.log1p(-float(p)))


def _law(family: str, scale: Any) -> Law | None:
    plain = isinstance(scale, _NUMBERS) and 0 < scale < math.inf
    return Law(family, float(scale), whole=False, vector=False) if plain else None


# --------------------------------------------------------------------------------------------------
# How a draw is put on the tape: with its places, its location, its items or its law, or none of them.

_LIVE = ("real", "scout", "bulk")


def unknown(
    tape: Tape,
    module: str,
    name: str,
    real: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
    seeded: str,
) -> Any:
    """Record the value and arguments of a draw of unknown law."""
    tape.resets = tape.resets or name == "seed"
    if tape.mode in _LIVE or tape.inside or tape.foreign_thread:
        return real(*args, **options)
    if name == IN_PLACE:  # what it does to its argument is on no tape
        tape.unseen = True
        return real(*args, **options)
    parameters = shown(args) + shown(tuple(sorted(options.items())))
    what = f"{module}.{name}{parameters}"
    return tape.other(what, lambda: real(*args, **options), seeded=seeded)


def recorded(
    tape: Tape,
    module: str,
    name: str,
    real: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
    seeded: str,
) -> Any:
    """Record a draw of a library, with its known law."""
    if name in PICKS and args and "p" not in options:
        taken = picked(tape, f"{module}.{name}", real, args, options, seeded)
        if taken is not None:
            return taken[0]
    if name == IN_PLACE and args and not options and len(args) == 1:
        return shuffled(tape, f"{module}.{name}", real, args[0], seeded)
    if name == "choices" or (name == "choice" and "p" in options):
        return _categorical(tape, f"{module}.{name}", real, args, options, seeded)
    return _other(tape, module, name, real, args, options, seeded)


def _other(
    tape: Tape,
    module: str,
    name: str,
    real: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
    seeded: str,
) -> Any:
    """Record a draw with its location, options or law only."""
    zero = located(args, options) if name in LOCATED else None
    named = sorted(options.items())
    if zero is None:
        parameters = shown(args) + shown(tuple(named))
    else:  # the location is the number that is hidden, not a parameter
        rest = tuple((k, v) for k, v in named if k not in ("loc", "mu"))
        parameters = shown(args[1:]) + shown(rest)
    uniform = values_drawn(name, args, options)
    free = None if zero is None or seeded else free_law(name, args, options)
    hidden = None if uniform is None else np.full(len(uniform), -np.log(len(uniform)))
    return tape.other(
        f"{module}.{name}{parameters}",
        lambda: real(*args, **options),
        zero=zero,
        seeded=seeded,
        options=uniform,
        argument=hidden if free is None else zero,
        free=free,
        hint=None if seeded else hint_law(name, args, options),
    )


def _categorical(
    tape: Tape, what: str, real: Any, args: tuple[Any, ...], options: dict[str, Any], seeded: str
) -> Any:
    """Record a categorical draw with its secret log-probabilities."""
    items = args[0] if args else options.get("a", ())
    items = tuple(range(items)) if isinstance(items, (int, np.integer)) else tuple(items)
    weights = options.get(
        "p", options.get("weights", args[1] if len(args) > 1 and what.endswith("choices") else None)
    )
    count = options.get("k", options.get("size", 1))
    weights = np.ones(len(items)) if weights is None else np.asarray(list(weights), dtype=float)
    if "cum_weights" in options:
        weights = np.diff(np.asarray(list(options["cum_weights"]), dtype=float), prepend=0.0)
    single = count in (1, None) and len(weights) == len(items) and float(weights.sum()) > 0
    if not single:
        return tape.other(f"{what} of {len(items)}, {count}", lambda: real(*args, **options))
    logs = np.log(np.maximum(weights / weights.sum(), 1e-300))
    listed = what.endswith("choices")
    values = tuple([item] if listed else item for item in items)
    zero = values[int(np.argmax(logs))]
    return tape.other(
        f"{what} of {len(items)}",
        lambda: real(*args, **options),
        zero=zero,
        argument=logs,
        options=values,
        seeded=seeded,
    )


# --------------------------------------------------------------------------------------------------

_PYTHON = random.Random
"""The class itself, whatever stands at its place."""
_DEFAULT, _GENERATOR = np.random.default_rng, np.random.Generator  # noqa: TID251 - compared only
_KINDS = (_PYTHON, _GENERATOR, np.random.RandomState)
_STATE = ("bit_generator", "_bit_generator")
"""What a state can be read from and written to: such a generator's draws are not shared."""
_PUT_BACK = ("getstate", "setstate", "get_state", "set_state", "__setstate__", "__getstate__")
"""What reads and writes a state: no draws, and what is drawn after them has no law given the past."""
_AHEAD = ("scout", "bulk")
"""Ways of running in which the runs of a round may share draws."""


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
        """Return the real generator, whose further draws are untraced."""
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


def _restored(state: Any) -> Any:
    """Return a copy of a generator of Python's."""
    out = _PYTHON()
    out.setstate(state)
    return out


@dataclass
class _Believed:
    """Cache whether a draw is its library's own, outside program state."""

    own: bool | None = None


def served(
    tape: Tape, module: str, name: str, real: Callable[..., Any], seeded: str = ""
) -> Callable[..., Any]:
    """Return a function with the draws of ``real``, recorded.

    What its name says is believed of the library's own function only: of another one no more is known
    than that it draws.
    """
    believed = _Believed()

    def call(*args: Any, **options: Any) -> Any:
        if believed.own is None:
            believed.own = own_draw(module, name, real)
        if not believed.own:
            return unknown(tape, module, name, real, args, options, seeded)
        tape.resets = tape.resets or name == "seed"
        if tape.common.on and tape.mode in _AHEAD and not tape.resets and not seeded:
            return lent(tape, f"{module}.{name}", real, args, options)
        if tape.mode in _LIVE or tape.inside or tape.foreign_thread:
            return real(*args, **options)
        return recorded(tape, module, name, real, args, options, seeded)

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
        live = tape.mode in _LIVE and not tape.common.on
        if live or tape.inside or tape.mode == "real" or tape.foreign_thread:
            return made
        given = [*args, *options.values()]
        seed = tape.seeds.get(id(given[0]), (None, None))[1] if given else ""
        if seed is None:
            seed = shown(given[0]) if given[0] is not None and not _fresh_bits(given[0]) else ""
        return Proxy(tape, made, label, seed)

    return make


def noticed(tape: Tape, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose calls end drawing in advance."""

    def call(*args: Any, **options: Any) -> Any:
        tape.resets = True
        return real(*args, **options)

    return call


def bits_maker(tape: Tape, real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a constructor of numpy's bit sources, with recorded seeds."""

    def make(*args: Any, **options: Any) -> Any:
        made = real(*args, **options)
        if not (tape.inside or tape.mode in ("real", "scout", "bulk") or tape.foreign_thread):
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
