"""Collect the state of objects, functions and classes by name.

Everything that a holder of the object can read. What cannot be read the same way in every run is named
instead: frames of code, memory that nobody wrote to, properties, state in C.
"""

from __future__ import annotations

import functools
import sys
import types
import zlib
from collections.abc import Iterator
from typing import Any

from opendp_sim.audit.outputs.exceptions import without_addresses
from opendp_sim.audit.state.reachable import is_users

_HEAP, _FIXED = 1 << 9, 1 << 8
"""In the flags of a class: it was made at run time; it cannot be changed, so it was written in C."""
_INNER = frozenset(
    {"__dict__", "__weakref__", "__orig_class__", "_abc_impl", "__notes__", "__opendp_dict__"}
)
_NAMED_TUPLE = frozenset({"_fields", "_field_defaults", "_make"})
_LIBRARY = frozenset(
    {"_mgr", "_item_cache", "_attrs", "_flags", "_name", "_is_copy", "_hidden_attrs", "_cacher"}
    | {"_basedict", "_fill_value", "_hardmask", "_mask", "_optinfo", "_sharedmask", "_isfield"}
    | {"_baseclass", "_data", "_cache", "_id", "_no_setting_name", "_engine", "_df", "_s", "_ldf"}
)
"""What frames and masked arrays keep of their own; it is read as a frame or an array."""
_DOCUMENTED = ("_fields", "__dataclass_fields__")
_STANDARD = sys.stdlib_module_names - {"__main__"}
_OF_FUNCTIONS, _MOST_NAMES = frozenset({"function", "defaults", "constants", "code"}), 4
_FRAMES = ("pandas", "polars", "numpy")
_PROPERTIES = (property, functools.cached_property)


def attributes_of(value: Any) -> dict[str, Any]:
    """Return an instance's attributes and slots, private ones included."""
    kept = getattr(value, "__dict__", None)
    out = dict(kept) if isinstance(kept, dict) else {}
    for base in type(value).__mro__:
        if not base.__flags__ & _HEAP:
            continue
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType) and name not in _INNER:
                try:
                    out.setdefault(name, member.__get__(value))
                except AttributeError:  # not filled
                    continue
    library = any(map(_is_frame, type(value).__mro__))
    own = _INNER | _LIBRARY if library else _INNER
    return {str(name): part for name, part in out.items() if name not in own}


def own_text(value: Any) -> str:
    """Return an object's own class text, or nothing."""
    written: Any = type(value).__repr__
    if written is object.__repr__ or hasattr(value, "__dataclass_fields__"):
        return ""
    text = repr(value)
    return "" if "object at 0x" in text else without_addresses(text)


def kept_words(kept: dict[str, str], event: str | None) -> str:
    """Return a note that the object's holder can read a finding.

    For findings in the state of an output.

    Args:
        kept: names of attributes and cells that were read, with what keeps them.
        event: the plain event that shows the finding, where there is one.
    """
    told = {name: owner for name, owner in kept.items() if name not in _OF_FUNCTIONS}
    if event is not None:
        told = {name: owner for name, owner in told.items() if repr(name) in event}
    if not told:
        return ""
    names = ", ".join(f"`{name}`" for name in list(told)[:_MOST_NAMES])
    owner = next(iter(told.values()))
    return (
        f"; the output keeps {names} ({owner}), which whoever is handed it can read: what only "
        "answers questions is a queryable (`dp.new_queryable`)"
    )


def _is_frame(kind: type) -> bool:
    return str(kind.__module__).split(".")[0] in _FRAMES


def is_local(kind: type) -> bool:
    """Return whether a class was defined inside a user's function."""
    if not (kind.__flags__ & _HEAP and is_users(kind)):
        return False
    found: Any = sys.modules.get(str(kind.__module__))
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not kind


def class_parts(kind: type) -> dict[str, Any]:
    """Return the values and closures of local classes."""
    out: dict[str, Any] = {}
    for base in kind.__mro__:
        if is_local(base):
            if base.__doc__ and not any(hasattr(base, name) for name in _DOCUMENTED):
                out.setdefault("__doc__", base.__doc__)
            for name, part in vars(base).items():
                found = _class_part(name, part)
                if found is not None:
                    out.setdefault(name, found)
    return out


def _class_part(name: str, part: Any) -> Any:
    if isinstance(part, property):
        held = [_cells_and_defaults(f) for f in (part.fget, part.fset, part.fdel) if f is not None]
        return [one for one in held if one] or None
    if isinstance(part, (staticmethod, classmethod)):
        part = part.__func__
    if isinstance(part, types.FunctionType):
        return _cells_and_defaults(part) or None
    if (name.startswith("__") and name.endswith("__")) or name in _INNER | _NAMED_TUPLE:
        return None
    return None if hasattr(type(part), "__get__") else part


def _cells_and_defaults(function: Any) -> dict[str, Any]:
    """Return the state of a method."""
    if not isinstance(function, types.FunctionType):
        return {}
    home = str(function.__globals__.get("__name__")).split(".")[0]
    if function.__code__.co_filename[:1] == "<" or home in _STANDARD:
        return {}
    held = {k: v for k, v in _cells(function) if k != "__class__"}
    return held | {f"default {i}": v for i, v in enumerate(_defaults(function))}


def _cells(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled
            continue


def _defaults(function: types.FunctionType) -> list[Any]:
    return [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def function_parts(function: types.FunctionType) -> dict[str, Any]:
    """Return the variables, defaults, attributes, constants and globals of a function."""
    out: dict[str, Any] = {"function": function.__name__, **dict(_cells(function))}
    if defaults := _defaults(function):
        out["defaults"] = defaults
    if marks := {name: part for name, part in vars(function).items() if name not in _INNER}:
        out["attributes"] = marks
    code, scope = function.__code__, function.__globals__
    if constants := list(_constants(code)):
        out["constants"] = constants
    home = sys.modules.get(str(scope.get("__name__")))
    if home is None or vars(home) is not scope:
        out["globals"] = {n: scope[n] for n in code.co_names if n in scope and n != "__builtins__"}
    if home is None or code.co_filename[:1] == "<":
        told = repr((code.co_names, code.co_varnames, function.__qualname__, function.__doc__))
        out["code"] = zlib.crc32(code.co_code + told.encode("utf-8", "surrogatepass"))
    return out


def _constants(code: types.CodeType) -> Iterator[Any]:
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _constants(part)
        elif part is not None:
            yield part


def properties_of(kind: type) -> list[str]:
    """Return a user's class's properties in words, uncomputed."""
    bases = [base for base in kind.__mro__ if is_users(base) and not _is_frame(base)]
    found = any(isinstance(part, _PROPERTIES) for base in bases for part in vars(base).values())
    return (
        [f"{kind.__module__}.{kind.__name__} (its properties were not computed)"] if found else []
    )


def state_in_c(kind: type) -> bool:
    """Return whether a class has an unreadable base in C."""
    return not all(map(_in_python, kind.__mro__))


_NATIVE = frozenset(sys.builtin_module_names)
_READ = (
    *(object, list, tuple, dict, set, frozenset, str, bytes, bytearray, int, float, complex),
    *(BaseException, types.SimpleNamespace),
)


def _in_python(kind: type) -> bool:
    """Return whether a class is written in Python, or fully readable."""
    if kind in _READ or (issubclass(kind, BaseException) and kind.__module__ == "builtins"):
        return True
    file = str(getattr(sys.modules.get(str(kind.__module__)), "__file__", None) or "")
    made = file.endswith((".py", ".pyc")) if file else kind.__module__ not in _NATIVE
    return bool(kind.__flags__ & _HEAP) and not kind.__flags__ & _FIXED and made
