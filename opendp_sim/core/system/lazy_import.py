"""Import modules at their first use, for a quick start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def door(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``, which imports a name at its first use.

    ``places``: of each module of the package the names that it offers, with spaces between.
    """
    where = {name: module for module, names in places.items() for name in names.split()}

    def found(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"{package} has no {name!r}; it offers {', '.join(sorted(where))}")
        value = getattr(import_module(f"{package}.{where[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return found


class _OnUse:
    """Stands for a module until something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, word: str) -> Any:
        return getattr(import_module(self._name), word)


filelock = _OnUse("filelock")  # with asyncio behind it: only who opens a ledger or runs needs it
optimize = _OnUse("scipy.optimize")
signal = _OnUse("scipy.signal")
sparse = _OnUse("scipy.sparse")
spatial = _OnUse("scipy.spatial")
special = _OnUse("scipy.special")
