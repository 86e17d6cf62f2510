"""Stand-ins for sources of randomness: they draw as the real ones do, and are on the tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.audit.laws import Law
from opendp_sim.audit.tape import Tape

__all__ = ["Proxy", "like", "maker", "served"]

_LOCATED = ("laplace", "normal", "gumbel", "logistic", "gauss", "normalvariate")
_IN_PLACE = "shuffle"
"""Changes its argument: the order that it draws is on the tape."""
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

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name.startswith("_") or not callable(real):
            return real
        return served(self._tape, self._module, name, real, self._seeded)


def served(
    tape: Tape, module: str, name: str, real: Callable[..., Any], seeded: str = ""
) -> Callable[..., Any]:
    """Return a function that draws as ``real`` does, and is on the tape."""

    def call(*args: Any, **options: Any) -> Any:
        if tape.mode in ("real", "scout", "bulk") or tape.inside:
            return real(*args, **options)
        if name == _IN_PLACE and args and not options and len(args) == 1:
            return _shuffled(tape, f"{module}.{name}", real, args[0], seeded)
        if name == "choices" or (name == "choice" and "p" in options):
            return _categorical(tape, f"{module}.{name}", real, args, options, seeded)
        zero = _located(args, options) if name in _LOCATED else None
        shown, told = _shown(args), _shown(tuple(sorted(options.items())))
        if zero is not None:  # the location is the number that is hidden, not a parameter
            shown = _shown(args[1:])
            told = _shown(
                tuple(sorted((k, v) for k, v in options.items() if k not in ("loc", "mu")))
            )
        what = f"{module}.{name}{shown}{told}"
        uniform = _options(name, args, options)
        return tape.other(
            what,
            lambda: real(*args, **options),
            zero=zero,
            seeded=seeded,
            options=uniform,
            argument=None if uniform is None else np.full(len(uniform), -np.log(len(uniform))),
            free=None if zero is None or seeded else _free(module, name, args, options),
        )

    return call


def _shuffled(tape: Tape, what: str, real: Callable[..., Any], rows: Any, seeded: str) -> None:
    """Put rows into the order that is on the tape; one of another length is cut or filled up."""

    def order() -> list[int]:
        drawn = list(range(len(rows)))
        real(drawn)
        return drawn

    drawn = tape.other(what, order, seeded=seeded)
    places = [i for i in drawn if i < len(rows)] + list(range(len(drawn), len(rows)))
    rows[:] = rows[places] if isinstance(rows, np.ndarray) else [rows[i] for i in places]


def _free(module: str, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Law | None:
    """Return the law of a scalar Laplace or normal draw of numpy or ``random``."""
    family = _FAMILIES.get(name)
    sized = options.get("size", args[2] if len(args) > 2 else None)
    scale = options.get("scale", options.get("sigma", args[1] if len(args) > 1 else 1.0))
    plain = isinstance(scale, (int, float, np.number)) and sized is None and module != "scipy"
    return (
        Law(family, float(scale), whole=False, vector=False)
        if family and plain and scale > 0
        else None
    )


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


def _shown(values: Any) -> str:
    """Parameters as text; long ones in parts."""
    text = repr(values)
    return text if len(text) <= 300 else f"{text[:300]} {hash(text)}"


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

    def make(*args: Any, **options: Any) -> Any:
        made = real(*args, **options)
        if tape.inside or tape.mode in ("real", "scout", "bulk"):
            return made
        given = [*args, *options.values()]
        seed = _shown(given[0]) if given and given[0] is not None else ""
        return Proxy(tape, made, label, seed)

    return make


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
