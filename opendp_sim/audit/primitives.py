"""Put every source of noise that a function can reach on a tape, for the length of a ``with`` block.

Module attributes are replaced, and copies of them in the globals and closures of the functions
(``from random import random`` is a copy). numpy's generators are C objects: instances that the functions
hold are replaced by proxies, and so are those they make. The block is not thread-safe; it takes a lock.
"""

from __future__ import annotations

import contextlib
import os
import random  # noqa: TID251 - to be put on the tape
import secrets
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import opendp.mod as native  # noqa: TID251 - the call that is put on the tape

from opendp_sim.audit.mining import names_of
from opendp_sim.audit.proxies import Proxy, like, maker, served
from opendp_sim.audit.tape import Tape

__all__ = ["tapped"]

_NUMPY, _PYTHON = (np.random.Generator, np.random.RandomState), random.Random
_LOCK = threading.RLock()
_RANDOM = (
    "random",
    "getrandbits",
    "uniform",
    "gauss",
    "normalvariate",
    "expovariate",
    "randint",
    "randrange",
    "choice",
    "choices",
    "betavariate",
    "triangular",
    "shuffle",
    "sample",
    "randbytes",
    "binomialvariate",
    "gammavariate",
    "lognormvariate",
    "vonmisesvariate",
    "paretovariate",
    "weibullvariate",
    "seed",
)
_LEGACY = (
    "laplace",
    "normal",
    "gumbel",
    "exponential",
    "geometric",
    "random",
    "rand",
    "randn",
    "randint",
    "choice",
    "uniform",
    "binomial",
    "poisson",
    "permutation",
    "shuffle",
    "standard_normal",
    "random_sample",
    "logistic",
    "gamma",
    "standard_exponential",
    "multivariate_normal",
    "seed",
)
_SECRETS = ("randbits", "randbelow", "choice", "token_bytes", "token_hex")


@contextmanager
def tapped(tape: Tape, functions: list[types.FunctionType]) -> Iterator[None]:
    """Serve every draw of the functions from the tape until the block ends."""
    with _LOCK:
        undo: list[tuple[Any, str, Any]] = []
        held: list[tuple[Any, str | None, Any]] = []
        try:
            copies = _modules(tape, undo)
            for function in functions:
                with contextlib.suppress(Exception):
                    _instances(tape, function, copies, held)
            yield
        finally:
            for place, name, value in reversed(undo):
                setattr(place, name, value)
            for place, key, value in reversed(held):
                if key is None:
                    place.cell_contents = value
                elif isinstance(place, dict):
                    place[key] = value
                else:
                    setattr(place, key, value)


def _modules(tape: Tape, undo: list[tuple[Any, str, Any]]) -> dict[int, Any]:
    """Replace module attributes; return the replacement of each original, by identity."""
    copies: dict[int, Any] = {}

    def put(place: Any, name: str, value: Any) -> None:
        undo.append((place, name, getattr(place, name)))
        copies[id(getattr(place, name))] = value
        setattr(place, name, value)

    call, invoke = native.Measurement.__call__, native.Measurement.invoke
    put(native.Measurement, "__call__", lambda self, arg: tape.native(call, self, arg))
    put(native.Measurement, "invoke", lambda self, arg: tape.native(invoke, self, arg))
    for module, names, label in (
        (random, _RANDOM, "random"),
        (np.random, _LEGACY, "np.random"),
        (secrets, _SECRETS, "secrets"),
        (os, ("urandom",), "os"),
    ):
        for name in names:
            if hasattr(module, name):
                put(module, name, served(tape, label, name, getattr(module, name)))
    for module, name, label in (
        (np.random, "default_rng", "rng"),
        (np.random, "RandomState", "rng"),
        (random, "Random", "random"),
        (random, "SystemRandom", "random"),
    ):
        real = getattr(module, name)
        make = maker(tape, real, label)
        put(module, name, like(real, make) if isinstance(real, type) else make)
    scipy = sys.modules.get("scipy.stats._distn_infrastructure")
    if scipy is not None:
        rvs = scipy.rv_generic.rvs

        def drawn(self: Any, *args: Any, **options: Any) -> Any:
            label = f"scipy.stats.{getattr(self, 'name', '')}"
            return served(tape, label, "rvs", lambda *a, **k: rvs(self, *a, **k))(*args, **options)

        undo.append((scipy.rv_generic, "rvs", rvs))
        scipy.rv_generic.rvs = drawn
    return copies


def _instances(  # noqa: C901 - one place a branch
    tape: Tape,
    function: types.FunctionType,
    copies: dict[int, Any],
    held: list[tuple[Any, str | None, Any]],
) -> None:
    """Replace generators and copied module functions that a function holds."""

    def instead(value: Any) -> Any:
        if isinstance(value, _NUMPY):
            return Proxy(tape, value, "rng")
        if isinstance(value, _PYTHON):
            return Proxy(tape, value, "random")
        if callable(value) and id(value) in copies:  # the originals live on in ``undo``
            return copies[id(value)]
        owner = getattr(value, "__self__", None)
        if isinstance(value, types.BuiltinMethodType) and isinstance(owner, _NUMPY):
            return getattr(Proxy(tape, owner, "rng"), value.__name__)
        return None

    scope = function.__globals__
    for name in names_of(function.__code__):
        if name in scope and (new := instead(scope[name])) is not None:
            held.append((scope, name, scope[name]))
            scope[name] = new
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        new = instead(value)
        if new is not None:
            held.append((cell, None, value))
            cell.cell_contents = new
        elif hasattr(value, "__dict__") and not isinstance(
            value, (type, types.ModuleType, types.FunctionType)
        ):
            _attributes(value, instead, held)
    owner = getattr(function, "__self__", None)
    if owner is not None and hasattr(owner, "__dict__"):
        _attributes(owner, instead, held)


def _attributes(
    owner: Any, instead: Callable[[Any], Any], held: list[tuple[Any, str | None, Any]]
) -> None:
    for name, value in list(vars(owner).items()):
        new = instead(value)
        if new is not None:
            held.append((owner, name, value))
            setattr(owner, name, new)
