"""Cache the objects of OpenDP's constructors during traced runs.

A program that makes its noise anew for each release spends nearly all of its time on that, and what an
audit learns of an object (its law, draws made ahead) is lost with it. Domains, metrics, measures,
transformations and noise of OpenDP's keep nothing between calls, so that a second object of one
construction can be the first one. Plain arguments count by type and text, and objects of OpenDP's by
identity. What raises is called again, and an object to which somebody gave an attribute is not given to
another run.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import numpy as np
from opendp import combinators, domains, measurements, measures, metrics, transformations

from opendp_sim.audit.generators.copies import copied
from opendp_sim.audit.generators.frames import frame_facts, is_frame, rule
from opendp_sim.core import dp
from opendp_sim.core.bridge import RESTATED

_MOST, _NOTED = 512, 3
"""Objects that are kept, as scales that depend on the data are of no end; and what OpenDP notes on one:
function, module, arguments."""
_PLAIN = (bool, int, float, str, bytes, type(None), type, np.float64, np.int64)
_NOISE = (
    *("make_laplace", "make_gaussian", "make_geometric", "make_noise", "make_canonical_noise"),
    *("make_randomized_response", "make_randomized_response_bool", "make_noisy_max"),
    *("make_laplace_threshold", "make_gaussian_threshold", "make_noise_threshold"),
    *("make_report_noisy_max_gumbel", "make_noisy_top_k"),
)
READ = ("output_domain", "output_metric", "input_domain", "input_metric")
"""What chaining reads of a transformation."""
_CHAINS = ("make_chain_mt", "make_chain_tt", "make_chain_pm", "make_composition", *RESTATED)
_DOMAINS = ("atom_domain", "vector_domain", "option_domain", "map_domain", "bitvector_domain")
_SPACES = ("_distance", "_divergence")
_OBJECTS = (dp.Domain, dp.Metric, dp.Measure, dp.Transformation, dp.Measurement, dp.Function)
"""Kinds of OpenDP's objects that are the same for a constructor as long as they are the same object."""


class Constructors:
    """What constructors made in an audit, by their calls.

    Two equal calls of one run give two objects, as they do without an audit: the first call of a run
    gives what the first equal call of an earlier run gave, the second what the second gave.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._made: dict[Any, tuple[Any, dict[str, Any], int]] = {}
        """By call and by its number in the run: the object, what OpenDP notes on it, and how much."""
        self._keys: dict[int, int] = {}
        """Numbers by identity of what was made or met, which is kept."""
        self._held: list[Any] = []
        self._losses: dict[Any, Any] = {}
        """What noise costs, by object and distance."""
        self._calls: dict[Any, int] = {}
        """How often each call was made in the run."""

    def begin(self) -> None:
        """Begin a run."""
        self._calls.clear()

    def kept(self, real: Callable[..., Any], on: Callable[[], bool]) -> Callable[..., Any]:
        """Return a constructor that caches equal calls while ``on`` is true."""
        if not _is_librarys(real):
            return real

        @wraps(real)
        def make(*args: Any, **options: Any) -> Any:
            key = self._key((*args, *sorted(options.items()))) if on() else None
            if key is None:
                return real(*args, **options)
            return self._one((id(real), key), partial(real, *args, **options))

        return make

    def read(self, name: str, real: property, on: Callable[[], bool]) -> property:
        """Return a property that caches its object."""
        get = real.fget
        assert get is not None  # noqa: S101 - OpenDP's can be read

        def read(self_: Any) -> Any:
            key = self._key(self_) if on() else None
            return get(self_) if key is None else self._one((name, key), partial(get, self_))

        return property(read)

    def mapped(
        self, real: Callable[[Any, Any], Any], on: Callable[[], bool]
    ) -> Callable[[Any, Any], Any]:
        """Return the method ``map``, cached for OpenDP's own noise."""

        @wraps(real)
        def loss(self_: Any, d_in: Any) -> Any:
            told = vars(self_).get("__opendp_dict__")
            noise = isinstance(told, dict) and told.get("__function__") in _NOISE
            plain = noise and type(d_in) in (int, float) and on()
            key = self._key([self_, d_in]) if plain else None
            if key is None:
                return real(self_, d_in)
            if key not in self._losses:
                self._losses[key] = real(self_, d_in)
            return self._losses[key]

        return loss

    def _one(self, call: Any, make: Callable[[], Any]) -> Any:
        """Return the cached object of a call, if it is unmodified."""
        number = self._calls[call] = self._calls.get(call, 0) + 1
        found = self._made.get((call, number))
        if found is not None and _untouched(*found):
            return found[0]
        made = make()
        told = vars(made).get("__opendp_dict__", {}) if hasattr(made, "__dict__") else None
        if isinstance(told, dict) and len(self._made) < _MOST and found is None:
            self._made[call, number] = made, told, len(vars(made))
            self._keys.setdefault(id(made), self._next())
        return made

    def _next(self) -> int:
        return len(self._held) + len(self._made)

    def _key(self, value: Any) -> Any:
        """Return the cache key of a call, or None."""
        if type(value) in (tuple, list):
            parts = [self._key(part) for part in value]
            return None if None in parts else (type(value), *parts)
        if type(value) in _PLAIN:
            return (value, "") if isinstance(value, type) else (type(value), repr(value))
        if id(value) not in self._keys and isinstance(value, _OBJECTS) and len(self._held) < _MOST:
            self._held.append(value)
            self._keys[id(value)] = self._next()
        number = self._keys.get(id(value))
        return None if number is None else (number,)


def _is_librarys(real: Any) -> bool:
    """Say whether a constructor is OpenDP's own, and nobody's in its place."""
    own = getattr(real, "__globals__", {}).get("__name__", "")
    return isinstance(real, types.FunctionType) and str(own).startswith("opendp.")


def _untouched(made: Any, told: dict[str, Any], attributes: int) -> bool:
    """Return whether an object is unmodified since its construction."""
    mine = vars(made)
    same = len(mine) == attributes and mine.get("__opendp_dict__", told) is told
    return same and len(told) in (0, _NOTED) and not weakref.getweakrefcount(made)


def places() -> Iterator[tuple[Any, str]]:
    """Yield where constructors of what keeps nothing stand, by module and name."""
    copies = [found for found in (dp, sys.modules.get("opendp.prelude")) if found is not None]
    for name in _NOISE:
        yield measurements, name
    yield from ((combinators, name) for name in _CHAINS if hasattr(combinators, name))
    for name in dir(transformations):
        if name.startswith("make_") and name != "make_user_transformation":
            yield transformations, name
    for module, wanted in ((domains, _DOMAINS), (metrics, _SPACES), (measures, _SPACES)):
        for name in dir(module):
            if name.endswith(wanted) and not name.startswith(("_", "user_", "new_")):
                yield module, name
                yield from ((other, name) for other in copies if hasattr(other, name))


# --------------------------------------------------------------------------------------------------
# A `dp.Context` on a frame searches the scale of its noise anew for each release, in about 0.4 seconds.
# The search reads no data: it is a function of plan, domain, distances and measure.


@contextmanager
def scales_kept() -> Iterator[None]:
    """Search the scales of a query on frames once in the block."""
    frames, context = (sys.modules.get(f"opendp.{n}") for n in ("extras.polars", "context"))
    places: list[tuple[Any, str, Callable[..., Any]]] = [
        (getattr(frames, "LazyFrameQuery", None), "resolve", _of_query),
        (context, "_normalize_compositor", _of_parts),
    ]
    undo = []
    for place, name, key in places if frames is not None else ():
        real = getattr(place, name, None)
        if place is not None and isinstance(real, types.FunctionType):
            undo.append((place, name, real))
            setattr(place, name, _kept_by(key, real))
    try:
        yield
    finally:
        for place, name, real in undo:
            setattr(place, name, real)


def _kept_by(key: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    @wraps(real)
    def searched(*args: Any, **options: Any) -> Any:
        try:
            found = key(*args, **options)
        except Exception:  # noqa: BLE001 - what cannot be described is searched again
            found = None
        if found is None:
            return real(*args, **options)
        if found not in known:
            known[found] = real(*args, **options)
        return copied(known[found])  # a context takes its parts off the list

    return searched


def _of_query(query: Any) -> Any:
    """Return all inputs of the scale of a query."""
    plan, asked = (object.__getattribute__(query, name) for name in ("polars_plan", "_query"))
    distances = _distance(asked._d_in), _distance(asked._d_out)  # noqa: SLF001
    domain, metric = asked._chain  # noqa: SLF001 - of a chain that is no frame's there is none
    return plan.serialize(), frame_facts(domain), str(metric), str(asked._output_measure), distances  # noqa: SLF001


def _of_parts(domain: Any, unit: Any, loss: Any, *parts: Any, **named: Any) -> Any:
    """Return all inputs of the losses of a composition's parts."""
    if not is_frame(domain):
        return None
    (metric, d_in), (measure, d_out) = unit, loss
    split = repr((parts, sorted(named.items())))
    return frame_facts(domain), str(metric), str(measure), _distance(d_in), _distance(d_out), split


def _distance(value: Any) -> Any:
    """Return a distance as a text, of bounds their columns and numbers."""
    return repr([rule(bound) for bound in value] if isinstance(value, list) else value)
