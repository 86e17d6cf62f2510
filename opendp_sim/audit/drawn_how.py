"""What the arguments of a draw say of it: its values, its location."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["LOCATED", "located", "values_drawn"]

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
    """Return the location of a draw, as many times as it is drawn; ``None`` where it has none."""
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
