"""List libraries without program state, and find indirect reads."""

from __future__ import annotations

import abc
import contextlib
import dis
import enum
import functools
import sys
import types
import typing
from typing import NamedTuple

from opendp_sim.audit.state.slots import mro_of
from opendp_sim.audit.state.snapshot import is_users

_HEAP = 1 << 9
_BASES = frozenset(
    {
        *(object, abc.ABC, typing.Generic, typing.Protocol, enum.Enum, types.SimpleNamespace),
        *(contextlib.ContextDecorator, contextlib.AbstractContextManager),
    }
)

_HARMLESS = frozenset(
    {"abc", "array", "base64", "binascii", "bisect", "builtins", "calendar", "cmath"}
    | {"collections", "contextlib", "copy", "dataclasses", "datetime", "decimal", "enum"}
    | {"fractions", "functools", "hashlib", "heapq", "hmac", "itertools", "json"}
    | {"logging", "math", "numbers", "numpy", "opendp", "operator", "random", "re"}
    | {"scipy", "secrets", "statistics", "string", "struct", "textwrap", "time", "typing"}
    | {"typing_extensions", "types", "unicodedata", "uuid", "warnings", "zlib"}
    | {"zoneinfo", "__future__"}
)
"""Their functions keep nothing, but caches and generators that go on; scipy's and numpy's, too."""
_STANDARD = sys.stdlib_module_names - {"__main__"}
_IN_C = frozenset(
    {"thread", "blake2", "md5", "sha1", "sha2", "sha3", "sha256", "sha512", "hashlib"} | {"random"}
)
_BEYOND = frozenset(
    {"eval", "exec", "__import__", "import_module", "globals", "_getframe"}
    | {"currentframe", "f_globals", "f_locals", "f_back", "open", "input", "environ"}
    | {"load", "loadtxt", "fromfile", "memmap", "genfromtxt", "environb", "getenv"}
    | {"get_objects", "get_referrers", "get_referents", "__globals__", "__closure__"}
    | {"cell_contents", "__code__", "__self__", "__builtins__"}
)
"""Ways to values that stand behind no name, and to what is no value of this process."""
_OF_SOURCES = frozenset(
    {"jumped", "advance", "getstate", "setstate", "get_state", "set_state", "spawn"}
    | {"seed_seq", "bit_generator", "_bit_generator", "__getstate__", "__setstate__"}
    | {"__reduce__"}
)
"""Ways to use a generator's state as a key, without moving it."""


def harmless(module: object) -> bool:
    """Say whether a module, by its name, keeps nothing of a program's."""
    top = str(module).split(".", maxsplit=1)[0]
    private = top[:1] == "_" and top in _STANDARD and top.lstrip("_") in _HARMLESS | _IN_C
    return top in _HARMLESS or private


def is_plain(kind: type, *more: type) -> bool:
    """Return whether a user's class has no state in C."""
    users = (base.__flags__ & _HEAP and is_users(base) for base in mro_of(kind))
    return all(
        own or base in _BASES or base in more for own, base in zip(users, mro_of(kind), strict=True)
    )


def is_library(module: types.ModuleType) -> bool:
    """Say whether a module is of the standard library, or was installed."""
    file = str(getattr(module, "__file__", None) or "")
    return module.__name__.split(".")[0] in _STANDARD or "-packages" in file


class Reads(NamedTuple):
    """What code does that its names do not say."""

    beyond: str
    stored: tuple[str, ...]
    """Globals, and attributes of whatever it is, that it sets."""
    imported: tuple[tuple[int, str], ...]
    """Modules that are imported while it runs: how many packages up, and the name."""


@functools.lru_cache(maxsize=2000)
def reads_of(code: types.CodeType) -> Reads:
    """Return the indirect reads of code, nested code included."""
    stored, imported, last = dict[str, None](), dict[tuple[int, str], None](), list[object]()
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR"):
            stored[str(step.argval)] = None
        if step.opname == "IMPORT_NAME":
            level = last[-2] if len(last) > 1 and isinstance(last[-2], int) else 1
            imported[level, str(step.argval)] = None
        last = [*last[-1:], step.argval]
    beyond = next((name for name in code.co_names if name in _BEYOND | _OF_SOURCES), "")
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            of_inner = reads_of(inner)
            beyond = beyond or of_inner.beyond
            stored.update(dict.fromkeys(of_inner.stored))
            imported.update(dict.fromkeys(of_inner.imported))
    return Reads(beyond, tuple(stored), tuple(imported))
