"""Register mechanisms with OpenDP's Context as ``sim_<key>``.

OpenDP's registry is global to the process and refuses a name that is taken, so nothing is registered
by importing, names carry a prefix, and registering again does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from opendp_sim.core.bridge import query_of_frames
from opendp_sim.core.constructors import SEARCHED, constructors, missing_parameter, nearest
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import REGISTRY, Mechanism

PREFIX = "sim_"
_done: dict[str, type] = {}


def register() -> tuple[str, ...]:
    """Register every mechanism with ``dp.Context``; return the names, ``sim_<key>``.

    Idempotent: mechanisms that are there already are left alone, later ones (a plugin's) are added.

    Example:
        >>> import opendp_sim.prelude as sim
        >>> "sim_race_sketch" in sim.register()
        True
    """
    from opendp.context import register as hand_over  # noqa: PLC0415 - imports OpenDP's extras
    from opendp.extras.polars import LazyFrameQuery  # noqa: PLC0415 - a stand-in without Polars

    for key, cls in REGISTRY.items():
        if cls.room != "queries" and key not in _done:
            make, _ = constructors(cls)
            hand_over(_searched(cls, make), name=f"{PREFIX}{key}")
            setattr(LazyFrameQuery, f"{PREFIX}{key}", _on_frames(f"{PREFIX}{key}"))
            _done[key] = cls
    return tuple(f"{PREFIX}{key}" for key in _done)


def _on_frames(name: str) -> Callable[..., Any]:
    """Return the method that adds a step to a query of frames.

    What Polars' own methods did before it (``select``, ``filter``, ``truncate_per_group``) is OpenDP's
    ``make_stable_lazyframe``, with its map.
    """

    def method(query: Any, *values: Any, **params: Any) -> Any:
        return getattr(query_of_frames(query), name)(*values, **params)

    method.__name__ = method.__qualname__ = name
    return method


def _searched(cls: type[Mechanism], make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a constructor that OpenDP's search can evaluate anywhere.

    OpenDP tries values without a name, 0 first, of which `at_the_end` states the loss where it is a
    scale, rho or epsilon. Any other value from 0 on that is out of the declared range is the nearest one
    inside: its loss is stated as it is.
    """

    @wraps(make)
    def trying(space: Any, metric: Any, *values: Any, **params: Any) -> Any:
        left = missing_parameter(cls, params)
        if len(values) == len(left) == 1 and type(values[0]) in (int, float) and values[0] >= 0:
            if left[0] not in SEARCHED:
                _check_begins(
                    cls, left[0], values[0], lambda **least: make(space, metric, **params, **least)
                )
            if left[0] not in SEARCHED or values[0] > 0:
                values = (nearest(cls, left[0], values[0]),)
        return make(space, metric, *values, **params)

    return trying


def _check_begins(cls: type[Mechanism], name: str, value: float, make: Callable[..., Any]) -> None:
    """Refuse a search of a delta, or from a refused value (OS101).

    OpenDP compares the first number of a loss alone, which no delta changes. The other search would
    bisect up to the end of the refusals. Refused at every value, it ends after twenty.
    """
    got = "a search, which OpenDP leads by the first number of a loss"
    if cls.room != "measurements" or cls.model_fields[name].annotation is not float:
        try:
            make(**{name: nearest(cls, name, type(value)(0))})
        except ParameterError as error:
            if error.where != f"{cls.key}.{name}":
                raise
            got = f"a search from its least value on, where {error.expected} is expected"
        else:
            return
    raise ParameterError(
        "OS101", f"{cls.key}.{name}", expected=f"{name} by name: no search solves it in `Context`",
        got=got, hint="give it a value; in a spec it is solved from the budget.",
    )  # fmt: skip
