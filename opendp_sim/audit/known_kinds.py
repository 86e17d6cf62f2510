"""Kinds of values and calls that draw nothing: what is not listed is taken for a source of randomness."""

from __future__ import annotations

import builtins
import collections
import datetime as dt
import decimal
import fractions
import functools
import operator
import re
import sys
import types
from typing import Any

import numpy as np

__all__ = ["LEAVES", "asks_the_time", "forbidden", "known_call", "known_type", "plain_array"]

LEAVES = frozenset(
    {
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        range,
        slice,
        type(None),
        type(...),
        type(NotImplemented),
    }
    | {fractions.Fraction, decimal.Decimal, re.Pattern, operator.itemgetter, object}
    | {dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone}
    | {types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType}
    | {types.CodeType, types.GenericAlias, type(vars(collections.namedtuple("_Any", "x"))["x"])}  # noqa: PYI024
)
"""Exact types of values that never change, and whose methods are functions of their arguments."""
_OPERATORS = frozenset(
    {n for kind in (int, float, str, list, dict, set, slice) for n in dir(kind)}
    | {f"__{n}__" for n in ("next", "call", "enter", "exit", "post_init", "slots", "matmul", "get")}
    | {f"__{n}__" for n in ("name", "qualname", "module", "annotations", "match_args", "missing")}
    | {f"__{n}__" for n in ("cause", "context", "traceback", "notes", "all", "array", "version")}
) - {"__dir__", "__getattribute__", "__getstate__", "__reduce__", "__reduce_ex__"}
"""Names between double underscores that lead to nothing but operators and texts."""
_FORBIDDEN = frozenset(
    {"ag_frame", "cr_frame", "f_back", "f_builtins", "f_globals", "f_locals", "gi_frame"}
    | {"getcontext", "setcontext", "localcontext", "prec", "traps", "seterr", "seterrcall"}
    | {"geterr", "geterrcall", "setbufsize", "set_printoptions", "get_printoptions", "samples"}
    | {"get_type_hints", "ForwardRef", "evaluate_forward_ref", "datetime64", "file_digest"}
    | {
        "tb_frame",
        "now",
        "today",
        "utcnow",
        "random_state",
        "spawn",
        "bit_generator",
        "_bit_generator",
    }
    | {"__dict__", "__self__", "__getattr__", "ag_frame", "f_builtins", "f_locals"}
    | {"get_type_hints", "ForwardRef", "_evaluate", "_eval_type", "Formatter", "get_field"}
    | {"_inner", "fromfile", "load", "loadtxt", "genfromtxt", "fromregex", "memmap", "open_memmap"}
)
"""Names after which a program may reach a clock, a file, a raw generator, a setting of the process, or
what cannot be followed: of a module's mapping (`__dict__`) no name says what is taken out."""
_TYPES = frozenset(
    {
        bool,
        bytearray,
        bytes,
        classmethod,
        complex,
        dict,
        enumerate,
        filter,
        float,
        frozenset,
        int,
        list,
    }
    | {
        map,
        property,
        range,
        reversed,
        set,
        slice,
        staticmethod,
        str,
        super,
        tuple,
        type,
        zip,
        np.dtype,
    }
    | {
        functools.partial,
        operator.itemgetter,
        np.ndarray,
        np.vectorize,
        np.errstate,
        np.finfo,
        np.iinfo,
    }
)
_BUILTINS = frozenset(
    getattr(builtins, name)
    for name in (
        *("abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod", "format", "hasattr"),
        *("hex", "isinstance", "issubclass", "iter", "len", "max", "min", "next", "oct", "ord"),
        *("pow", "print", "repr", "round", "sorted", "sum", "__build_class__"),
    )
)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, np.ufunc, type(np.sum))
_PURE = frozenset(
    {
        "math",
        "cmath",
        "itertools",
        "heapq",
        "_heapq",
        "bisect",
        "_bisect",
        "statistics",
        "_statistics",
    }
    | {"collections", "_collections", "fractions", "decimal", "_decimal", "numbers", "re", "_sre"}
    | {
        "string",
        "_string",
        "copy",
        "struct",
        "_struct",
        "array",
        "json",
        "_json",
        "typing",
        "types",
    }
    | {"enum", "dataclasses", "textwrap", "unicodedata", "hashlib", "_hashlib", "_blake2", "_md5"}
    | {"_sha1", "_sha2", "_sha3", "_sha256", "_sha512", "hmac", "zlib", "binascii", "base64", "abc"}
    | {"_abc", "contextlib", "datetime", "_datetime", "difflib", "operator", "_operator"}
    | {"functools", "_functools", "reprlib"}
)
"""Modules of the standard library whose functions return what their arguments say."""
_NOT_PURE = frozenset(
    {"attrgetter", "methodcaller", "lru_cache", "cache", "cached_property", "count"}
    | {"ForwardRef", "Formatter", "singledispatch", "singledispatchmethod"}
)
"""Of those: what reaches an attribute that no code names, and what keeps what it was asked."""
_NUMPY = ("numpy", "scipy.special")
_NUMPY_NOT = (
    *("numpy.random", "numpy.ctypeslib", "numpy.testing", "numpy.f2py", "numpy.distutils"),
    *("numpy.lib.npyio", "numpy.lib._npyio_impl", "numpy.lib.format", "numpy.lib._format_impl"),
    *("numpy.lib._datasource", "numpy.core", "numpy._core.memmap", "numpy.memmap", "numpy.rec"),
)
_NUMPY_NAMES = _FORBIDDEN | {"DataSource", "info", "show_config", "show_runtime", "ndarray", "test"}
_LAWS = (
    "scipy.stats._continuous_distns",
    "scipy.stats._discrete_distns",
    "scipy.stats._distn_infrastructure",
)
_OPENDP = (
    "opendp.domains",
    "opendp.measures",
    "opendp.metrics",
    "opendp.combinators",
    "opendp.mod",
)
_OPENDP_TOO = ("opendp.measurements", "opendp.transformations", "opendp.typing", "opendp.accuracy")


def forbidden(name: str) -> bool:
    """Say whether an attribute of this name may lead out of the kinds that are known."""
    special = name.startswith("__") and name.endswith("__")
    return name in _FORBIDDEN or (special and name not in _OPERATORS)


def _under(name: str, roots: tuple[str, ...]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


def _module(value: Any) -> str:
    """Return where a function was defined; a wrapper of the user's bears the name of what it wraps."""
    if isinstance(value, types.FunctionType):
        return str(value.__globals__.get("__name__", ""))
    name = getattr(value, "__module__", None)
    if not isinstance(name, str):
        owner = getattr(value, "__self__", None)
        name = owner.__name__ if isinstance(owner, types.ModuleType) else ""
    return name


def known_call(value: Any) -> bool:
    """Say whether a function of a library, in C or in Python, returns what its arguments say."""
    if type(value) not in _FUNCTIONS:
        return False
    module, name = _module(value), str(getattr(value, "__name__", ""))
    if isinstance(value, np.ufunc):
        special = sys.modules.get("scipy.special")
        return any(getattr(place, name, None) is value for place in (np, special))
    if module == "builtins":
        return value in _BUILTINS
    if _under(module, (*_OPENDP, *_OPENDP_TOO)):
        return True
    if _under(module, _NUMPY):
        return not _under(module, _NUMPY_NOT) and name not in _NUMPY_NAMES
    return module.split(".", maxsplit=1)[0] in _PURE and name not in _NOT_PURE | _FORBIDDEN


def known_type(value: type) -> bool:
    """Say whether calling a class of a library makes a value of its arguments alone."""
    module = str(getattr(value, "__module__", ""))
    if value in _TYPES or (issubclass(value, BaseException) and module == "builtins"):
        return True
    if issubclass(value, np.generic):
        return module == "numpy" and not issubclass(value, (np.datetime64, np.timedelta64))
    if _under(module, (*_OPENDP, *_LAWS)):
        return "Queryable" not in value.__name__
    return module.split(".", maxsplit=1)[0] in _PURE and value.__name__ not in _NOT_PURE


def asks_the_time(text: Any) -> bool:
    """Say whether numpy may read a clock where it is given such a text: ``np.array("now", "M8[s]")``."""
    if not isinstance(text, str):
        return False
    return "M8" in text or "datetime64" in text or text.strip().lower() in ("now", "today")


def plain_array(value: Any) -> bool:
    """Say whether it is an array or a number of numpy's that holds nothing but plain values."""
    return type(value) is np.ndarray and value.dtype.kind in "biufcSU"
