"""Stand-ins for sources of randomness: they draw as the real ones do, and are on the tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.audit.ahead import Ahead, bits_ahead
from opendp_sim.audit.laws import Law
from opendp_sim.audit.picks import IN_PLACE, PICKS, lent, picked, shown, shuffled
from opendp_sim.audit.tape import Tape

__all__ = ["Proxy", "like", "maker", "noticed", "seeds_maker", "served"]

_LOCATED = ("laplace", "normal", "gumbel", "logistic", "gauss", "normalvariate")
_STATE = ("bit_generator", "_bit_generator")
"""What a state can be read from and written to: such a generator is never drawn from ahead."""
_NO_SEED: tuple[tuple[Any, ...], ...] = ((), (None,))
_AHEAD = ("scout", "bulk")
"""Ways of running in which draws may have been made ahead."""
_FAMILIES = {
    "laplace": "laplace",
    "normal": "gaussian",
    "gauss": "gaussian",
    "normalvariate": "gaussian",
}


class Proxy:
    """A generator whose draws are on the tape."""

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
        if name.startswith("_") or not callable(real):
            return real
        out = served(self._tape, self._module, name, real, self._seeded)
        self.__dict__[name] = out  # the next run finds it without asking
        return out


def served(
    tape: Tape, module: str, name: str, real: Callable[..., Any], seeded: str = ""
) -> Callable[..., Any]:
    """Return a function that draws as ``real`` does, and is on the tape."""
    ahead = bits_ahead(real) if (module, name) == ("secrets", "randbits") else Ahead(name, real)
    able = ahead.able and not seeded and module in ("rng", "np.random", "secrets")

    def call(*args: Any, **options: Any) -> Any:
        tape.resets = tape.resets or name == "seed"
        if tape.common.on and tape.mode in _AHEAD and not tape.resets and not seeded:
            return lent(tape, ahead if able else None, f"{module}.{name}", real, args, options)
        if able and tape.mode in _AHEAD and not tape.resets:
            return ahead.draw(args, options)
        if tape.mode in ("real", "scout", "bulk") or tape.inside or tape.foreign_thread:
            return real(*args, **options)
        if name in PICKS and args and "p" not in options:
            taken = picked(tape, f"{module}.{name}", real, args, options, seeded)
            if taken is not None:
                return taken[0]
        if name == IN_PLACE and args and not options and len(args) == 1:
            return shuffled(tape, f"{module}.{name}", real, args[0], seeded)
        if name == "choices" or (name == "choice" and "p" in options):
            return _categorical(tape, f"{module}.{name}", real, args, options, seeded)
        return _other(tape, module, name, real, args, options, seeded)

    return call


def _other(
    tape: Tape,
    module: str,
    name: str,
    real: Callable[..., Any],
    args: tuple[Any, ...],
    options: dict[str, Any],
    seeded: str,
) -> Any:
    """Put a draw on the tape of which no more is known than its location, its options or its law."""
    zero = _located(args, options) if name in _LOCATED else None
    named = sorted(options.items())
    if zero is None:
        parameters = shown(args) + shown(tuple(named))
    else:  # the location is the number that is hidden, not a parameter
        rest = tuple((k, v) for k, v in named if k not in ("loc", "mu"))
        parameters = shown(args[1:]) + shown(rest)
    uniform = _options(name, args, options)
    free = None if zero is None or seeded else _free(module, name, args, options)
    hidden = None if uniform is None else np.full(len(uniform), -np.log(len(uniform)))
    return tape.other(
        f"{module}.{name}{parameters}",
        lambda: real(*args, **options),
        zero=zero,
        seeded=seeded,
        options=uniform,
        argument=hidden if free is None else zero,
        free=free,
    )


def _free(module: str, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Law | None:
    """Return the law of Laplace or normal draws of numpy or ``random`` that have one scale."""
    family = _FAMILIES.get(name)
    scale = options.get("scale", options.get("sigma", args[1] if len(args) > 1 else 1.0))
    plain = isinstance(scale, (int, float, np.number)) and module != "scipy"
    known = family is not None and plain and scale > 0
    return Law(family, float(scale), whole=False, vector=False) if family and known else None


def _options(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the values of a small uniform draw; ``None`` for others."""
    if options or len(args) != 1:
        return None
    first = args[0]
    if name in {"getrandbits", "randbits"}:
        return tuple(range(2**first)) if isinstance(first, int) and 0 < first <= 6 else None
    if name == "randbelow":
        return tuple(range(first)) if isinstance(first, int) and 0 < first <= 64 else None
    return None


def _located(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
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


def _categorical(
    tape: Tape, what: str, real: Any, args: tuple[Any, ...], options: dict[str, Any], seeded: str
) -> Any:
    """A draw of an item with weights: its log-probabilities are what is hidden."""
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


def maker(tape: Tape, real: Any, label: str) -> Callable[..., Any]:
    """Return a maker of generators whose draws are on the tape, with the seed they were given."""
    one: list[Any] = []

    def kept() -> Any:
        if not one:
            one.append(Proxy(tape, real(), label))
        return one[0]

    def make(*args: Any, **options: Any) -> Any:
        if (
            tape.mode in _AHEAD
            and args in _NO_SEED
            and not options
            and label == "rng"
            and not tape.resets
        ):
            return kept()  # draws of one generator are as independent as those of many
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


def like(real: type, make: Callable[..., Any]) -> type:
    """Return a class that makes proxies, and of which real instances are instances."""

    class Meta(type):
        def __call__(cls, *args: Any, **options: Any) -> Any:
            return make(*args, **options)

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real)

    return Meta(real.__name__, (), {})
