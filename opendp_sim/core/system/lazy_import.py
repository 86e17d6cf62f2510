"""Import modules at their first use, for a quick start."""

from __future__ import annotations

from importlib import import_module
from typing import Any


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
