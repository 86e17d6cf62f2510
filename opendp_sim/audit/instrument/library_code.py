"""Check whether a function that draws is the library's own.

A name proves nothing: a program may replace the function. A law is a law of one piece of code.
Python's and numpy's functions have the laws that their names say; one that a program sets in
their place, that a class of its own overrides, or that is given another source of bits has whatever
law it has, and none is known.
"""

from __future__ import annotations

import random  # noqa: TID251 - its classes are compared to
import secrets
import types
from collections.abc import Callable
from typing import Any

import numpy as np

RANDOM = (
    *("random", "getrandbits", "uniform", "gauss", "normalvariate", "expovariate"),
    *("randint", "randrange", "choice", "choices", "betavariate", "triangular", "shuffle"),
    *("sample", "randbytes", "binomialvariate", "gammavariate", "lognormvariate"),
    *("vonmisesvariate", "paretovariate", "weibullvariate", "seed"),
)
LEGACY = (
    *("laplace", "normal", "gumbel", "exponential", "geometric", "random", "rand", "randn"),
    *("randint", "choice", "uniform", "binomial", "poisson", "permutation", "shuffle"),
    *("standard_normal", "random_sample", "logistic", "gamma", "standard_exponential"),
    *("multivariate_normal", "seed"),
)
"""Functions of the modules ``random`` and ``numpy.random`` that draw."""

_PYTHON = random.Random, random.SystemRandom
_NUMPY = np.random.Generator, np.random.RandomState
_BITS = tuple(
    getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
)
_SYSTEMS = ("os", "posix", "ssl", "_ssl")
_NORMALS_KEPT = {"gauss_next"}
"""The one attribute that a generator of Python's has."""


def own_draw(module: str, name: str, real: Callable[..., Any]) -> bool:
    """Return whether the named library's own code makes a draw."""
    owner = getattr(real, "__self__", None)
    name = "getrandbits" if (module, name) == ("secrets", "randbits") else name
    if type(owner) in _PYTHON:
        return _of_python(owner, name, real)
    if type(owner) in _NUMPY:
        return _of_numpy(owner, name, real)
    if module == "secrets":
        below = getattr(secrets, "_sysrand", None)
        return of_module(real, secrets) and type(below) in _PYTHON and _plain(below)
    return module in _SYSTEMS and isinstance(real, types.BuiltinFunctionType)


def of_module(function: Any, module: types.ModuleType) -> bool:
    """Return whether a Python function is defined in a module's file."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return isinstance(code, types.CodeType) and code.co_filename == module.__file__


def _of_python(owner: Any, name: str, real: Any) -> bool:
    """Return whether a Python generator's class is unmodified."""
    held = next((vars(kind)[name] for kind in type(owner).__mro__ if name in vars(kind)), None)
    function = getattr(real, "__func__", real)
    if function is real:  # of C
        same = isinstance(real, types.BuiltinMethodType) and real.__name__ == name
        return same and isinstance(held, types.MethodDescriptorType) and _plain(owner)
    same = function is held and getattr(function, "__name__", "") == name
    return same and _plain(owner)


def _plain(owner: Any) -> bool:
    """Return whether nothing is replaced on a Python generator."""
    code = [v for kind in type(owner).__mro__[:-1] for k, v in vars(kind).items() if _counts(k, v)]
    beneath = [v for k, v in vars(random).items() if k.startswith("_")]
    return set(vars(owner)) <= _NORMALS_KEPT and all(
        of_module(v, random) if isinstance(v, types.FunctionType) else not _python(v)
        for v in (*code, *beneath)
    )


def _counts(name: str, value: Any) -> bool:
    return callable(value) and not name.startswith("__")


def _python(value: Any) -> bool:
    """Return whether a value wraps a call of Python code."""
    known = (type, types.BuiltinFunctionType, types.MethodDescriptorType, *_PYTHON)
    return callable(value) and not isinstance(value, known)


def _of_numpy(owner: Any, name: str, real: Any) -> bool:
    """Return whether a method is numpy's own compiled method."""
    held = vars(type(owner)).get(name)
    function = getattr(real, "__func__", None)
    if function is None:
        same = isinstance(real, types.BuiltinMethodType) and real.__name__ == name
    else:
        same = function is held and not isinstance(function, types.FunctionType)
    bits = getattr(owner, "bit_generator", None) or getattr(owner, "_bit_generator", None)
    return same and held is not None and type(bits) in _BITS
