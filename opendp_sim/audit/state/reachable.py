"""The user's functions that an OpenDP object reaches, and what they hold.

OpenDP hides a Python function behind a ctypes callback; the garbage collector knows what that refers to.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import types
from typing import Any

import numpy as np
import opendp.mod as native  # noqa: TID251 - what an object was made of

_SKIP = (
    *("opendp", "numpy", "scipy", "pandas", "polars", "random", "builtins", "collections"),
    *("functools", "fractions", "math", "typing", "importlib", "_pytest", "pytest"),
    *("contextlib", "dataclasses"),
)
_KNOWN = ("opendp_sim.audit.", "opendp.", "numpy", "scipy")
_MOST_FUNCTIONS = 200
_LEAVES = types.ModuleType, type, str, int, float, np.ndarray
_DEPTH, _MOST_OBJECTS = 9, 20_000
_HEAP = 1 << 9
"""Set in the flags of a class that a ``class`` statement has made (``Py_TPFLAGS_HEAPTYPE``)."""


def is_users(kind: Any) -> bool:
    """Return whether a class or a function is the user's.

    Neither the standard library's, nor this package's, nor OpenDP's.
    """
    module = str(kind.__module__)
    known = module.startswith(_KNOWN)
    return not known and module.split(".", maxsplit=1)[0] not in sys.stdlib_module_names - {
        "__main__"
    }


def functions_of(obj: Any) -> list[types.FunctionType]:
    """Return the user's functions that can be reached from an OpenDP object."""
    seen: set[int] = set()
    out: list[types.FunctionType] = []
    todo: list[tuple[Any, int]] = [(part, 0) for part in _parts(obj)]
    while todo and len(seen) < _MOST_OBJECTS:
        value, depth = todo.pop(0)
        if id(value) in seen or depth > _DEPTH:
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            if _users(value):
                out.append(value)
            todo += [(part, depth + 1) for part in cells_and_defaults(value)]
        elif not (isinstance(value, _LEAVES) or (isinstance(value, dict) and "__name__" in value)):
            out += _methods(value)
            todo += [(part, depth + 1) for part in gc.get_referents(value)]
    bound = {id(f.__code__) for f in out if hasattr(f, "__self__")}
    return _with_helpers([f for f in out if hasattr(f, "__self__") or id(f.__code__) not in bound])


def _parts(obj: Any) -> list[Any]:
    """Return an object and its parts, transitively."""
    out: list[Any] = []
    todo, seen = [obj], set[int]()
    while todo:
        value = todo.pop(0)
        if isinstance(value, (list, tuple)):
            todo += value
        elif (
            isinstance(value, (native.Measurement, native.Transformation)) and id(value) not in seen
        ):
            seen.add(id(value))
            out.append(value)
            told = getattr(value, "__opendp_dict__", None) or {}
            todo += told.get("__kwargs__", {}).values()
    return out or [obj]


def arguments_of(obj: Any) -> list[Any]:
    """Return the arguments of the OpenDP constructors of an object's parts."""
    told = (getattr(part, "__opendp_dict__", None) or {} for part in _parts(obj))
    return [value for made in told for value in made.get("__kwargs__", {}).values()]


def _users(value: Any) -> bool:
    """Say whether a function or a class is the user's."""
    name = getattr(value, "__module__", None)
    return not isinstance(name, str) or name.split(".")[0] not in _SKIP


def _methods(value: Any) -> list[Any]:
    """Return the bound methods of a user's instance, ``__call__`` first."""
    kind = type(value)
    if not (kind.__flags__ & _HEAP and _users(kind)):
        return []
    own = {name: f for base in reversed(kind.__mro__) for name, f in vars(base).items()}
    names = sorted(own, key=lambda name: name != "__call__")
    found = [own[name] for name in names]
    owners = [kind if isinstance(one, classmethod) else value for one in found]
    return [
        types.MethodType(plain_member(one), owner)
        for one, owner in zip(found, owners, strict=True)
        if isinstance(plain_member(one), types.FunctionType) and is_written(kind, plain_member(one))
    ]


def plain_member(member: Any) -> Any:
    """Return the function behind a method descriptor or property."""
    if isinstance(member, property):
        return member.fget
    return member.__func__ if isinstance(member, (classmethod, staticmethod)) else member


def is_written(kind: type, function: types.FunctionType) -> bool:
    """Return whether a method is written by the user."""
    file = function.__code__.co_filename
    record = any(_static(kind, name) is not None for name in ("__dataclass_fields__", "_fields"))
    return _users(function) and not (record and file.endswith(("<string>", "dataclasses.py")))


def _with_helpers(found: list[types.FunctionType]) -> list[types.FunctionType]:
    """Add the user's functions and methods that functions name."""
    out = list(found)
    known = {id(function.__code__) for function in out}
    for function in out:
        for name in names_of(function.__code__):
            for helper in _named(function.__globals__.get(name)):
                if id(helper.__code__) not in known and len(out) < _MOST_FUNCTIONS:
                    known.add(id(helper.__code__))
                    out.append(helper)
    return out


def _static(value: Any, name: str, other: Any = None) -> Any:
    """Return an attribute without calling a user's hook."""
    try:
        return inspect.getattr_static(value, name, other)
    except Exception:  # noqa: BLE001 - classes that are odd in other ways
        return other


def _named(value: Any) -> list[types.FunctionType]:
    value = _static(value, "__wrapped__", value)
    if isinstance(value, type) and _users(value):
        parts = [plain_member(part) for part in list(vars(value).values())]
        return [p for p in parts if isinstance(p, types.FunctionType) and is_written(value, p)]
    return [value] if isinstance(value, types.FunctionType) and _users(value) else []


def cells_and_defaults(function: types.FunctionType) -> list[Any]:
    """Return the values of a function's cells and defaults."""
    out: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            out.append(cell.cell_contents)
        except ValueError:
            continue
    return out


@functools.lru_cache(maxsize=2000)
def names_of(code: types.CodeType) -> tuple[str, ...]:
    """Return the global names and attributes that code uses, nested code included."""
    names = dict.fromkeys(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names.update(dict.fromkeys(names_of(inner)))
    return tuple(names)


def attribute(owner: Any, name: str) -> Any:
    """Return an attribute of an instance or class without running properties."""
    try:
        kept = object.__getattribute__(owner, "__dict__")
    except (AttributeError, TypeError):  # slots; a user's ``__getattr__`` is not asked
        kept = {}
    return kept[name] if name in kept else inspect.getattr_static(type(owner), name, None)
