"""Laws of the noise that a function draws itself, read off the call: numpy, ``random`` and scipy.

``free_law`` is exact, and a calculation may rest on it. ``hint_law`` says only what moving the output by
so much costs along the likelier direction: a one-sided law, or one half of a difference of two. It orders
pairs, and no verdict rests on it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opendp_sim.audit.laws import Law

__all__ = ["free_law", "hint_law"]

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
_SCIPY = {
    "laplace": "laplace",
    "expon": "laplace",
    "gumbel_r": "laplace",
    "gumbel_l": "laplace",
    "logistic": "laplace",
    "norm": "gaussian",
}
"""Laws of scipy with a location and a scale."""
_NUMBERS = (int, float, np.number)


def free_law(module: str, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Law | None:
    """Return the law of Laplace or normal draws of numpy or ``random`` that have one scale."""
    family = _FAMILIES.get(name)
    scale = options.get("scale", options.get("sigma", args[1] if len(args) > 1 else 1.0))
    return None if family is None or module == "scipy" else _law(family, scale)


def hint_law(module: str, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Law | None:
    """Return what a move of the output costs through this draw; ``None`` where nothing is known."""
    if module.startswith("scipy.stats."):
        return _of_scipy(module.rpartition(".")[2], args, options)
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
    return free_law(module, name, args, options)


def _of_scipy(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Law | None:
    if name == "geom":
        return _geometric(options.get("p", args[0] if args else None))
    if name == "dlaplace":
        rate = options.get("a", args[0] if args else None)
        return _law("laplace", 1 / rate) if isinstance(rate, _NUMBERS) and rate > 0 else None
    if name not in _SCIPY:
        return None
    return _law(_SCIPY[name], options.get("scale", args[1] if len(args) > 1 else 1.0))


def _geometric(p: Any) -> Law | None:
    """Return the law of one-sided geometric noise: one step more costs ``-log(1 - p)``.

    A difference of two moves up through the first and down through the second, at the same cost.
    """
    if not isinstance(p, _NUMBERS) or not 0 < p < 1:
        return None
    return _law("laplace", -1 / math.log1p(-float(p)))


def _law(family: str, scale: Any) -> Law | None:
    plain = isinstance(scale, _NUMBERS) and 0 < scale < math.inf
    return Law(family, float(scale), whole=False, vector=False) if plain else None
