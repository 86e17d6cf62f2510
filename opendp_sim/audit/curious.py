"""A question whose keys the queryable itself asks for, and values that keys of such names may have."""

from __future__ import annotations

import itertools
from typing import Any

__all__ = ["VALUES", "Asked", "Curious", "kind_of_key"]

VALUES: dict[str, tuple[Any, ...]] = {
    "l": (0, 1, 2),
    "h": (10, 9, 8),
    "c": (0.12, 0.5, 3.0, 1.0, -0.5),
    "n": (1, 0, 2, 3),
    "t": ("a", "b", "c", ""),
}
"""A lower end, an upper end, a cost, another number, and a text; the first is the usual one. Costs
are parts of the claim: eight of the first leave little of it, and the fourth is all of it. The last one
is below zero, which nobody means: it may give back what was spent."""
_MOST = 200
"""How often a mapping is asked before it raises."""
_NAMES = {
    "l": ("lo", "min", "start", "from", "begin", "left", "a"),
    "h": ("hi", "max", "end", "to", "stop", "upper", "right", "up", "b"),
    "c": ("eps", "rho", "cost", "price", "budget", "loss", "spend", "delta", "alpha"),
}
"""How the keys of a mapping begin that hold a number of that kind; the others are tried as numbers."""


class Asked(dict[Any, Any]):
    """A mapping that is also read by attributes."""

    def __getattr__(self, name: str) -> Any:
        if name[:2] == "__":
            raise AttributeError(name)
        return self[name]


class Curious(Asked):
    """A mapping that notes which keys it is asked for; each has a number until another value is set.

    It raises ``LookupError`` when it was asked too often: a loop that goes on as long as some key is
    there would never end.
    """

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_asked", itertools.count(1))

    def __missing__(self, key: Any) -> Any:
        self[key] = VALUES[kind_of_key(key)][0]
        return self[key]

    def _one(self, key: Any) -> Any:
        if next(object.__getattribute__(self, "_asked")) > _MOST:
            raise LookupError
        return dict.get(self, key) if dict.__contains__(self, key) else self.__missing__(key)

    def __getitem__(self, key: Any) -> Any:
        return self._one(key)

    def get(self, key: Any, _: Any = None) -> Any:
        """Return a value, also where there was none."""
        return self._one(key)

    def pop(self, key: Any, _: Any = None) -> Any:
        """Return a value, and keep it."""
        return self._one(key)

    def __contains__(self, key: Any) -> bool:
        self._one(key)
        return True


def kind_of_key(key: Any) -> str:
    """Return what kind of value a key of that name holds: an end, a cost, or a number."""
    name = str(key).lower()
    for kind, starts in _NAMES.items():
        if any(name == start or (len(start) > 1 and name.startswith(start)) for start in starts):
            return kind
    return "n"
