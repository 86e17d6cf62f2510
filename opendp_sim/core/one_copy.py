"""A vector of OpenDP's, handed to a callback of ours as an array by one copy, not as a list.

OpenDP makes a list of a vector before it calls Python: most of what a bulk release cost behind an
OpenDP object. Only the form of the argument is ours: whose memory it is, when it is freed, what is
returned and what becomes of an exception are OpenDP's own code. ``bridge`` hands in OpenDP's names; where
they are not what this module knows, the list is taken as before.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["entry_for_arrays", "reads_arrays"]

_CELLS = "Vec<i64>"
"""The one type that is handed over as an array."""
_ASKED = ["c_arg", "userdata"]
"""The arguments of OpenDP's entry for callbacks, as this module knows it."""


class _Next(threading.local):
    """Whether what this thread reads next is the argument of a callback of ours."""

    ours = False


_next = _Next()


def reads_arrays(read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return OpenDP's reader of slices, which gives our callbacks an array; others get what they got.

    An argument is read once, before the callback runs: what the callback reads itself is as ever.
    """

    def either(raw: Any, type_name: Any) -> Any:
        ours, _next.ours = _next.ours, False
        if not ours or str(type_name) != _CELLS:
            return read(raw, type_name)
        cells = np.empty(raw.contents.len, dtype=np.int64)
        if cells.size:  # the pointer of an empty vector points nowhere
            ctypes.memmove(cells.ctypes.data, raw.contents.ptr, cells.nbytes)
        return cells

    return either


def entry_for_arrays(entry: Any, kind: Any) -> Any:
    """Return what OpenDP calls in place of its own entry; None where that is not what we know.

    Args:
        entry: OpenDP's function that reads the argument, calls back and packs the answer.
        kind: the type of the C function that it is made into.
    """
    if not inspect.isfunction(entry) or list(inspect.signature(entry).parameters) != _ASKED:
        return None

    def ask(c_arg: Any, userdata: Any) -> Any:
        _next.ours = True
        try:
            return entry(c_arg, userdata)
        finally:
            _next.ours = False

    return None if kind is None else kind(ask)
