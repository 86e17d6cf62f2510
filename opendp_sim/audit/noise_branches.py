"""Whether a function decides something by its noise: a branch may hide between values that are tried.

The noise is forced to numbers that are numbers in every way and tell when they are compared, hashed,
divided with a rest or taken for a truth value. What C reads of them at once, as numpy does, is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opendp_sim.audit.tape import Draw, Tape, TapeEndError

__all__ = ["decides_by_noise"]

_KEEPS = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "pos", "abs")
_DECIDES = (
    *("lt", "le", "gt", "ge", "eq", "ne", "bool", "hash", "mod", "rmod", "floordiv", "rfloordiv"),
    *("divmod", "rdivmod", "and", "rand", "or", "ror", "xor", "rxor", "rshift", "lshift", "index"),
)


def decides_by_noise(
    tape: Tape, function: Callable[[Any], Any], sides: tuple[tuple[Any, tuple[Draw, ...]], ...]
) -> bool:
    """Say whether a run on either side, along its draws, asks more of its noise than arithmetic."""
    told: list[str] = []
    kinds: dict[type, type] = {kind: _telling(kind, told) for kind in (int, float)}
    for data, draws in sides:
        try:
            tape.run(function, data, "force", [_wrapped(draw.value, kinds) for draw in draws])
        except TapeEndError:
            return True
    return bool(told)


def _wrapped(value: Any, kinds: dict[type, type]) -> Any:
    if type(value) is list:
        return [_wrapped(part, kinds) for part in value]
    kind = kinds.get(type(value))
    return value if kind is None else kind(value)


def _telling(kind: type, told: list[str]) -> type:
    """Return numbers of a kind whose sums and products tell as they do, and that tell of all else."""
    body: dict[str, Any] = {}

    def keeps(name: str) -> Any:
        def call(self: Any, *others: Any) -> Any:
            out = getattr(kind, name)(self, *others)
            if out is NotImplemented and others and isinstance(others[0], float):
                out = getattr(float, name)(float(self), others[0])
            made = kinds.get(type(out))
            return out if made is None else made(out)

        return call

    def decides(name: str) -> Any:
        def call(self: Any, *others: Any) -> Any:
            told.append(name)
            return getattr(kind, name)(self, *others)

        return call

    for short in _KEEPS:
        body[f"__{short}__"] = keeps(f"__{short}__")
    for short in _DECIDES:
        if hasattr(kind, f"__{short}__"):
            body[f"__{short}__"] = decides(f"__{short}__")
    made = type(kind.__name__, (kind,), body)
    kinds: dict[type, type] = {kind: made}
    if kind is int:
        kinds[float] = _telling(float, told)
    return made
