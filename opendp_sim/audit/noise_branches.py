"""Whether a function decides something by its noise: a branch may hide between values that are tried.

The noise is forced to numbers that are numbers in every way and tell when they are compared, hashed,
divided with a rest, rounded, written as a text or taken for a truth value. What C
reads of them at once, as numpy and ``math`` do, is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opendp_sim.audit.encoding import Raised
from opendp_sim.audit.tape import Draw, Tape, TapeEndError

__all__ = ["decides_by_noise"]

_KEEPS = (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "pos", "abs"),
    *("pow", "rpow", "round", "trunc", "floor", "ceil", "invert"),
)
_DECIDES = (
    *("lt", "le", "gt", "ge", "eq", "ne", "bool", "hash", "mod", "rmod", "floordiv", "rfloordiv"),
    *("divmod", "rdivmod", "and", "rand", "or", "ror", "xor", "rxor", "rshift", "lshift", "index"),
    *("str", "repr", "format"),
)
_ASKED = (
    "is_integer",
    "hex",
    "as_integer_ratio",
    "bit_length",
    "bit_count",
    "to_bytes",
    "conjugate",
)


def decides_by_noise(
    tape: Tape, function: Callable[[Any], Any], sides: tuple[tuple[Any, tuple[Draw, ...]], ...]
) -> bool:
    """Say whether a run on either side, along its draws, asks more of its noise than arithmetic."""
    told: list[str] = []
    kinds: dict[type, type] = {}
    kinds |= {kind: _telling(kind, kinds, told) for kind in (int, float)}
    # A float of the program's adds an int of any class by itself. So whole noise is a float once, too.
    for of in (kinds, {int: kinds[float], float: kinds[float]}):
        for data, draws in sides:
            try:
                out, _ = tape.run(
                    function, data, "force", [_wrapped(draw.value, of) for draw in draws]
                )
            except TapeEndError:
                return True
            if isinstance(out, Raised):
                return True
    return bool(told)


def _wrapped(value: Any, kinds: dict[type, type]) -> Any:
    if type(value) is list:
        return [_wrapped(part, kinds) for part in value]
    kind = kinds.get(type(value))
    return value if kind is None else kind(value)


def _telling(kind: type, kinds: dict[type, type], told: list[str]) -> type:
    """Return numbers of a kind whose sums and products tell as they do, and that tell of all else."""

    def keeps(name: str) -> Any:
        def call(self: Any, *others: Any) -> Any:
            out = getattr(kind, name)(self, *others)
            if out is NotImplemented and others and isinstance(others[0], float):
                out = getattr(float, name)(float(self), others[0])
            return kinds[type(out)](out) if type(out) in kinds else out

        return call

    def decides(name: str) -> Any:
        def call(self: Any, *others: Any) -> Any:
            told.append(name)
            return getattr(kind, name)(self, *others)

        return call

    kept = {n: keeps(n) for n in (f"__{short}__" for short in _KEEPS) if hasattr(kind, n)}
    names = (*(f"__{short}__" for short in _DECIDES), *_ASKED)
    return type(kind.__name__, (kind,), kept | {n: decides(n) for n in names if hasattr(kind, n)})
