"""Every value that a function can meet, found without a run: a closed world, or what speaks against it.

A value in a run is a constant, a part of the dataset, a draw of the tape, what the function names or
holds, or what a call or an attribute of such values returns. Where all of these are of known kinds that
draw nothing, whoever calls them (C may call back unseen), a run is a function of dataset and tape. One
kind that is not known speaks against it (``layer.md``).
"""

from __future__ import annotations

import builtins
import collections
import datetime as dt
import decimal
import dis
import fractions
import functools
import operator
import re
import sys
import types
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np

from opendp_sim.audit.instrument.deterministic_ops import (
    around_noise,
    draws_nothing,
    has_maps,
    made_by,
)
from opendp_sim.audit.state.snapshot import Held, cached, cells_of, held_now, is_users, own_of

# --------------------------------------------------------------------------------------------------
# Kinds of values and calls that draw nothing: what is not listed is taken for a source of randomness.

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


# --------------------------------------------------------------------------------------------------

_MOST, _LONGEST = 20_000, 200_000
_CACHE = type(functools.lru_cache(abs))
_HEAP = 1 << 9
"""Set in the flags of a class that a ``class`` statement has made (``Py_TPFLAGS_HEAPTYPE``)."""
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_MAPPINGS = (
    *(dict, collections.Counter, collections.OrderedDict, collections.defaultdict),
    types.MappingProxyType,
)
_STAND_INS = tuple(
    f"opendp_sim.audit.{name}"
    for name in ("instrument.rng_proxies", "instrument.patch_rng", "instrument.memoize")
)
"""Modules whose functions put draws on the tape, or make objects of OpenDP's once."""
_NATIVE = "opendp.mod"
_AROUND = (
    *(
        "make_user_measurement",
        "make_chain_mt",
        "make_chain_pm",
        "make_fix_delta",
        "make_approximate",
    ),
    *("make_pureDP_to_zCDP", "make_zCDP_to_approxDP", "make_pureDP_to_approxDP"),
)
"""Constructors of OpenDP's that add no noise to the measurement that they are given."""
_SHOWS = "new_function"
"""The constructor of a user's function that shows a release."""
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF")
_WRITES = ("STORE_GLOBAL", "DELETE_GLOBAL")
_INNER = ("__weakref__", "__dict__", "_abc_impl")
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)


class World:
    """What a function can meet; ``strange`` names the first kind that is not known."""

    def __init__(self) -> None:
        self.strange = ""
        self.names: set[str] = set()
        """Attributes that some code asks for."""
        self._seen: dict[int, Any] = {}
        self._todo: list[Any] = []
        self._modules: list[types.ModuleType] = []
        self._asked: set[tuple[int, str]] = set()

    def take(self, values: Iterable[Any]) -> bool:
        """Follow values to all that they lead to; say whether all of it is known."""
        self._todo += values
        more = True
        while more:
            while self._todo and not self.strange:
                self._one(self._todo.pop())
            more = not self.strange and self._of_modules()
        return not self.strange

    def state(self) -> list[Any]:
        """Return what a run could have changed: equal before and after where it did not."""
        named = [vars(m).get(name) for m in self._modules for name in sorted(self.names)]
        return [Held(named), *(p for value in self._seen.values() for p in held_now(value))]

    def _one(self, value: Any) -> None:
        if type(value) in LEAVES or id(value) in self._seen:
            return
        if isinstance(value, _Unknown):
            self.strange = "a module or a measurement that is not known"
        self._seen[id(value)] = value
        if len(self._seen) > _MOST:
            self.strange = "too many values"
        elif isinstance(value, types.ModuleType):
            self._modules.append(value)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
        elif not (self._container(value) or self._called(value) or self._made(value)):
            self.strange = f"a value of type {type(value).__name__}"

    def _of_modules(self) -> bool:
        """Follow what some code's attributes may be of a module; say whether there was more."""
        for module in list(self._modules):
            for name in list(self.names):
                if (id(module), name) not in self._asked:
                    self._asked.add((id(module), name))
                    self._todo += [vars(module)[name]] if name in vars(module) else []
        return bool(self._todo)

    # --- kinds of values ---------------------------------------------------------------

    def _container(self, value: Any) -> bool:
        kind = type(value)
        if kind in _SEQUENCES or kind in _MAPPINGS:
            parts = [value] if kind in _SEQUENCES else [value.keys(), value.values()]
            for part in parts:
                if len(part) > _LONGEST:
                    return False
                self._todo += [v for v in part if type(v) not in LEAVES]
            self._todo.append(getattr(value, "default_factory", None))
            return True
        if kind in (bytearray, array) or plain_array(value):
            return True
        return isinstance(value, np.generic) and known_type(kind)

    def _called(self, value: Any) -> bool:
        """Take what is called: methods, functions in C, partial calls, descriptors."""
        if isinstance(value, types.MethodType):
            self._todo += [value.__func__, value.__self__]
        elif isinstance(value, _BOUND) and not isinstance(
            value.__self__, (types.ModuleType, type(None))
        ):
            self.names.add(value.__name__)
            self._forbidden(value.__name__)
            self._todo.append(value.__self__)
        elif isinstance(value, (types.MethodDescriptorType, types.ClassMethodDescriptorType)):
            self._forbidden(value.__name__)
            self._todo.append(value.__objclass__)
        elif type(value) is _CACHE:
            self._todo += [value.__wrapped__, *cached(value)]
        elif type(value) is functools.partial:
            self._todo += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, property):
            self._todo += [value.fget, value.fset, value.fdel]
        elif isinstance(value, (staticmethod, classmethod)):
            self._todo.append(value.__func__)
        else:
            return known_call(value)
        return True

    def _made(self, value: Any) -> bool:
        """Take an instance: of OpenDP's classes, of a law of scipy, or of a class of the user's."""
        kind = type(value)
        module = str(getattr(kind, "__module__", ""))
        if module in _STAND_INS:
            return True  # a stand-in: its draws are on the tape
        if module.startswith("scipy.stats._"):
            return known_type(kind) and hasattr(value, "rvs")
        if module == _NATIVE and known_type(kind):
            return self._native(value)
        if kind is types.SimpleNamespace:
            self._todo += vars(value).values()
            return True
        if not kind.__flags__ & _HEAP:
            return False
        if known_type(kind):
            return module in ("typing", "types", "dataclasses", "enum")
        self._todo += [kind, *own_of(value)]
        for inner in (dict, list, tuple, set, frozenset):
            if isinstance(value, inner):
                self._todo.append(inner(value))
        return True

    def _native(self, value: Any) -> bool:
        """Take an object of OpenDP's: a measurement's call is on the tape, other functions are not."""
        kind = type(value).__name__
        if kind == "Measurement":
            self._todo += around_noise(value)
            return "function" not in self.names
        if kind == "Odometer" or (kind == "Transformation" and not draws_nothing(value)):
            return False
        if made_by(value)[0] == _SHOWS:
            return False  # a mapping that it is given becomes a map of OpenDP's
        made = getattr(value, "__opendp_dict__", None)
        if isinstance(made, dict):
            self._todo += made.get("__kwargs__", {}).values()
        return isinstance(made, dict)

    def _class(self, kind: type) -> None:
        if known_type(kind) or str(kind.__module__) in _STAND_INS or kind is object:
            return
        if not kind.__flags__ & _HEAP or not is_users(kind):
            self.strange = f"the class {kind.__name__}"
            return
        self._todo += [type(kind), *kind.__mro__[1:]]
        self._todo += [v for k, v in vars(kind).items() if k not in _INNER]

    def _function(self, function: types.FunctionType) -> None:
        module = str(function.__globals__.get("__name__"))
        if module in _STAND_INS or known_call(function):
            return
        self._todo += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._todo += [*function.__dict__.values(), *cells_of(function)]
        self._code(function.__code__, function)

    def _code(self, code: types.CodeType, function: types.FunctionType) -> None:
        reads, attributes, imports, writes = _named(code)
        if writes & {"", *function.__code__.co_freevars}:
            self.strange = "a name that is written to from call to call"
        for name in attributes:
            self.names.add(name)
            self._forbidden(name)
        scope = function.__globals__
        for name in reads:
            self._todo += [scope[name]] if name in scope else [vars(builtins).get(name)]
        for name in imports:
            parts = name.split(".")
            for count in range(1, len(parts) + 1):
                self._todo.append(sys.modules.get(".".join(parts[:count]), _Unknown()))
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                self._code(inner, function)
            elif asks_the_time(inner):
                self.strange = f"the text {inner[:9]}"

    def _forbidden(self, name: str) -> None:
        if forbidden(name):
            self.strange = f"the attribute {name}"
        elif name == "function" and any(
            type(v).__name__ == "Measurement" for v in self._seen.values()
        ):
            self.strange = "the function of a measurement"


def roots_of(made: Any) -> list[Any]:
    """Return the functions that a measurement calls; what cannot be followed where it is not known."""
    name, parts = made_by(made)
    if name not in _AROUND or has_maps(made):
        return [_Unknown()]
    out: list[Any] = []
    for part in parts.values():
        shows = made_by(part)[0] == _SHOWS and not has_maps(part)
        inner = [made_by(part)[1]["function"]] if shows else [part]
        out += roots_of(part) if type(part).__name__ == "Measurement" else inner
    return out


class _Unknown:
    """What a run would import, or noise that is not on the tape: of no known kind."""


@functools.lru_cache(maxsize=2000)
def _named(
    code: types.CodeType,
) -> tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[str]]:
    """Return the globals that code reads, its attributes, its imports, and what it writes to outside."""
    reads, attributes, imports, writes = set[str](), set[str](), set[str](), set[str]()
    for step in dis.get_instructions(code):
        name = step.argval
        if step.opname in ("STORE_DEREF", "DELETE_DEREF"):
            writes.add(name)
        elif step.opname in _WRITES:
            writes.add("")
        elif step.opname == "IMPORT_NAME":
            imports.add(name)
        elif step.opname in _READS:
            reads.add(name)
        elif isinstance(name, str) and step.opcode in dis.hasname:
            attributes.add(name)
    return frozenset(reads), frozenset(attributes), frozenset(imports), frozenset(writes)
