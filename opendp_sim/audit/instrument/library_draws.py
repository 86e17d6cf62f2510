"""Record draws of generators of Python and numpy, with their laws.

Of a choice, a sample or a permutation the places are the draw, which have one law on either side; the
records that stand there are the data. What a name says of a law is believed: a price may rest on it, and
no refutation does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from opendp_sim.audit.instrument.native_laws import Law
from opendp_sim.audit.instrument.tape import Tape

_LOCATED = ("laplace", "normal", "gumbel", "logistic", "gauss", "normalvariate")
_LAWS: dict[str, tuple[str, int, bool]] = {
    "laplace": ("laplace", 1, True),
    "normal": ("gaussian", 1, True),
    "gauss": ("gaussian", 1, True),
    "normalvariate": ("gaussian", 1, True),
    "gumbel": ("laplace", 1, False),
    "logistic": ("laplace", 1, False),
    "exponential": ("laplace", 0, False),
    "standard_exponential": ("laplace", 9, False),
    "standard_normal": ("gaussian", 9, False),
}
"""Families, places of the scale, and whether it is the law itself. Others only order pairs: the cost of
moving an output the likelier way, of a one-sided law or of one half of a difference of two."""
_NUMBERS, _SCALARS = (int, float, np.number), (bool, int, float, np.generic)
_OF_PYTHON = ("random.", "secrets.")
_PICKS = ("choice", "sample", "permutation")
_BITS, _VALUES, _LONGEST = 6, 64, 300
"""Bits and values of a uniform draw whose values are followed, and letters of a parameter."""


@dataclass(frozen=True)
class DrawCall:
    """Describe a call of a function that draws."""

    tape: Tape
    what: str
    """Module and name."""
    real: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]
    seeded: str = ""

    @property
    def name(self) -> str:
        """Return the function's bare name."""
        return self.what.rpartition(".")[2]

    def put(self, parameters: str, real: Callable[[], Any] | None = None, **told: Any) -> Any:
        """Put the draw on the tape, and return its value."""
        real = real or (lambda: self.real(*self.args, **self.options))
        return self.tape.other(f"{self.what}{parameters}", real, seeded=self.seeded, **told)


def recorded(call: DrawCall) -> Any:
    """Record a draw with its places, items or law."""
    name, args, options = call.name, call.args, call.options
    if name in _PICKS and args and "p" not in options and _has_places(call):
        return _picked(call)
    if name == "shuffle" and len(args) == 1 and not options:
        return _shuffled(call)
    if name == "choices" or (name == "choice" and "p" in options):
        return _categorical(call)
    zero = _located(args, options) if name in _LOCATED else None
    named = sorted(options.items())
    if zero is not None:  # the location is the number that is hidden, not a parameter
        args, named = args[1:], [(k, v) for k, v in named if k not in ("loc", "mu")]
    law, exact = (None, False) if call.seeded else drawn_law(name, call.args, options)
    free = law if exact and zero is not None else None
    uniform = _values(name, call.args) if not options else None
    hidden = None if uniform is None else np.full(len(uniform), -np.log(len(uniform)))
    return call.put(
        shown(args) + shown(tuple(named)),
        zero=zero,
        options=uniform,
        argument=hidden if free is None else zero,
        free=free,
        hint=law,
    )


def drawn_law(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Law | None, bool]:
    """Return the law that prices a draw, and whether exactly."""
    family, spot, exact = _LAWS.get(name, ("laplace", 0, False))
    scale = options.get("scale", options.get("sigma", args[spot] if len(args) > spot else 1.0))
    if name in ("geometric", "expovariate"):
        rate = options.get("p", options.get("lambd", args[0] if args else 1.0))
        whole = name == "geometric"
        if not isinstance(rate, _NUMBERS) or not 0 < rate < (1 if whole else math.inf):
            return None, False
        scale = -1 / math.log1p(-float(rate)) if whole else 1 / rate
    elif name not in _LAWS:
        return None, False
    if not (isinstance(scale, _NUMBERS) and 0 < scale < math.inf):
        return None, False
    return Law(family, float(scale), whole=False, vector=False), exact


def _values(name: str, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the values of a small uniform draw; ``None`` for others."""
    first = args[0] if len(args) == 1 and isinstance(args[0], int) else 0
    if name in {"getrandbits", "randbits"} and 0 < first <= _BITS:
        return tuple(range(2**first))
    return tuple(range(first)) if name == "randbelow" and 0 < first <= _VALUES else None


def _located(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the location of a draw, repeated by size, or None."""
    where = args[0] if args else options.get("loc", options.get("mu", 0.0))
    size = options.get("size", args[2] if len(args) > 2 else None)
    try:
        if size is None and np.ndim(where) == 0:
            return float(where)
        return np.zeros(size or np.shape(where)) + where
    except (TypeError, ValueError):
        return None


def _categorical(call: DrawCall) -> Any:
    """Record a categorical draw with its secret log-probabilities."""
    args, options, listed = call.args, call.options, call.name == "choices"
    items = args[0] if args else options.get("a", ())
    items = tuple(range(items)) if isinstance(items, (int, np.integer)) else tuple(items)
    given = args[1] if len(args) > 1 and listed else None
    given = options.get("p", options.get("weights", given))
    weights = np.ones(len(items)) if given is None else np.asarray(list(given), dtype=float)
    if "cum_weights" in options:
        weights = np.diff(np.asarray(list(options["cum_weights"]), dtype=float), prepend=0.0)
    count = options.get("k", options.get("size", 1))
    if count not in (1, None) or len(weights) != len(items) or not float(weights.sum()) > 0:
        return call.put(f" of {len(items)}, {count}")
    logs = np.log(np.maximum(weights / weights.sum(), 1e-300))
    values = tuple([item] if listed else item for item in items)
    zero = values[int(np.argmax(logs))]
    return call.put(f" of {len(items)}", zero=zero, argument=logs, options=values)


# --- places of records ----------------------------------------------------------------


def _has_places(call: DrawCall) -> bool:
    """Return whether records with places are drawn from."""
    rows, flat = call.args[0], not call.what.startswith(_OF_PYTHON)
    if isinstance(rows, np.ndarray):  # which Python's `sample` refuses
        return flat and rows.ndim == 1 and rows.size > 0
    known = isinstance(rows, (list, tuple, str)) and len(rows) > 0
    return known and (not flat or all(isinstance(r, (*_SCALARS, str)) for r in rows))


def _picked(call: DrawCall) -> Any:
    """Return the rows at recorded places."""
    rows, *rest = call.args
    numpys = not call.what.startswith(_OF_PYTHON)
    source: Any = len(rows) if numpys else range(len(rows))
    told = f" of {len(rows)}{shown(tuple(rest))}{shown(tuple(sorted(call.options.items())))}"
    spots = call.put(told, lambda: call.real(source, *rest, **call.options))
    if numpys:
        return np.asarray(rows)[np.asarray(spots) % len(rows)]
    taken = [rows[int(k) % len(rows)] for k in np.atleast_1d(spots)]
    return taken if isinstance(spots, list) else taken[0]


def _shuffled(call: DrawCall) -> None:
    """Permute rows in place by the recorded order, cut or extended."""
    rows = call.args[0]

    def order() -> list[int]:
        places = list(range(len(rows)))
        call.real(places)
        return places

    drawn = call.put("", order)
    places = [i for i in drawn if i < len(rows)] + list(range(len(drawn), len(rows)))
    if len(places) > 1:
        ordered = [np.copy(rows[i]) if isinstance(rows, np.ndarray) else rows[i] for i in places]
        for place, row in enumerate(ordered):  # a sequence of another kind may take no slices
            rows[place] = row


def shown(values: Any) -> str:
    """Return parameters as text, long ones in parts."""
    text = repr(values)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} {hash(text)}"
