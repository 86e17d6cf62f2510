"""How a draw is put on the tape: with its places, its location, its items or its law, or none of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from opendp_sim.audit.drawn_how import LOCATED, located, values_drawn
from opendp_sim.audit.free_laws import free_law, hint_law
from opendp_sim.audit.picks import IN_PLACE, PICKS, picked, shown, shuffled
from opendp_sim.audit.tape import Tape

__all__ = ["recorded", "unknown"]

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
    """Put a draw on the tape that is only named as one of a library: its value, and what it was given."""
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
    """Put a draw of a library on the tape, as much of it as its name and its arguments tell."""
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
    """Put a draw on the tape of which no more is known than its location, its options or its law."""
    zero = located(args, options) if name in LOCATED else None
    named = sorted(options.items())
    if zero is None:
        parameters = shown(args) + shown(tuple(named))
    else:  # the location is the number that is hidden, not a parameter
        rest = tuple((k, v) for k, v in named if k not in ("loc", "mu"))
        parameters = shown(args[1:]) + shown(rest)
    uniform = values_drawn(name, args, options)
    free = None if zero is None or seeded else free_law(module, name, args, options)
    hidden = None if uniform is None else np.full(len(uniform), -np.log(len(uniform)))
    return tape.other(
        f"{module}.{name}{parameters}",
        lambda: real(*args, **options),
        zero=zero,
        seeded=seeded,
        options=uniform,
        argument=hidden if free is None else zero,
        free=free,
        hint=None if seeded else hint_law(module, name, args, options),
    )


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
