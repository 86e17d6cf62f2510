"""Draw many values of numpy's and scipy's laws at once.

A call costs more than a value. An array of draws has the law of as many single ones, for they come
from the same source by the same code. Only calls with plain numbers as parameters and without a size
are served from arrays, and only of sources that no seed was given to.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

_PARAMETERS = {
    "geometric": 1,
    "poisson": 1,
    "exponential": 1,
    "binomial": 2,
    "integers": 2,
    "randint": 2,
    "uniform": 2,
    "laplace": 2,
    "normal": 2,
    "gumbel": 2,
    "logistic": 2,
    "random": 0,
    "random_sample": 0,
    "standard_normal": 0,
    "standard_exponential": 0,
}
"""Draws, and how many parameters stand before their size."""
_PLAIN = (int, float, np.integer, np.floating)
_SINGLE, _GROWTH, _MOST, _POOLS = 2, 4, 4096, 256
"""Draws made one by one, by how much the arrays grow, their largest size, and kinds that are kept."""
_WORD = 64


class Ahead:
    """Draws of one function of one source, kept by their parameters."""

    __slots__ = ("_make", "_most", "_pools", "_sizes")

    def __init__(self, name: str, make: Callable[..., Any], most: int | None = None) -> None:
        """Store the drawing function with its ``most`` positional parameters."""
        self._make = make
        self._most = _PARAMETERS.get(name, -1) if most is None else most
        self._pools: dict[Any, list[Any]] = {}
        self._sizes: dict[Any, int] = {}

    @property
    def able(self) -> bool:
        """Say whether anything can be drawn ahead."""
        return self._most >= 0

    def draw(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return one draw, as the source itself would give it."""
        key = (args, *options.items()) if options else args
        try:
            pool = self._pools.get(key)
        except TypeError:  # an array of parameters has no place among the keys
            return self._make(*args, **options)
        if pool:
            return pool.pop()
        return self._filled(key, args, options)

    def _filled(self, key: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        one = self._make(*args, **options)
        plain = len(args) <= self._most and "size" not in options and np.ndim(one) == 0
        known = key in self._sizes or len(self._sizes) < _POOLS
        if not (plain and known and all(isinstance(a, _PLAIN) for a in (*args, *options.values()))):
            return one
        before = self._sizes.get(key, 0)
        self._sizes[key] = before + 1
        if before >= _SINGLE:
            many = self._make(
                *args, **options, size=min(_MOST, 4 * _GROWTH ** (before - _SINGLE + 1))
            )
            self._pools[key] = list(many) if isinstance(one, np.generic) else many.tolist()
        return one


def bits_ahead(make: Callable[..., Any]) -> Ahead:
    """Return whole numbers of random bits from the operating system."""

    def drawn(bits: int, size: int | None = None) -> Any:
        if size is None or not 0 < bits < _WORD:
            return (
                make(bits) if size is None else np.array([make(bits) for _ in range(size)], object)
            )
        words = np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
        return words >> np.uint64(_WORD - bits)

    return Ahead("randbits", drawn, 1)
