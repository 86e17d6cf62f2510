"""Copy the dataset for every run.

OpenDP passes a new one to a function, which may write to it. What a tape keeps of a run, a program may
write to as well: it keeps copies.
"""

from __future__ import annotations

import copy
import functools
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from opendp_sim.core import dp

_PLAIN = (int, float, str, bool, bytes, type(None))
_FIXED = frozenset((*_PLAIN, np.float64, np.float32, np.int64, np.int32, np.bool_))


def is_released_frame(value: Any) -> bool:
    """Return whether a value is a frame that may be collected once."""
    return hasattr(value, "queryable") and hasattr(value, "collect")


def own(value: Any) -> Any:
    """Return a dataset that shares nothing which can be written to."""
    kind = type(value)
    if kind is list and (not value or type(value[0]) in _PLAIN):
        return list(value)
    return value if kind in _PLAIN else copy.deepcopy(value)


def copied(value: Any) -> Any:
    """Return a deep copy of lists, arrays, tables and sets.

    Other values are the same objects. Other objects stay what they are: what has been drawn are
    numbers, and collections of them.
    """
    kind = type(value)
    if kind in _FIXED:
        return value
    if kind is list:
        return value[:] if _FIXED.issuperset(map(type, value)) else [copied(part) for part in value]
    if isinstance(value, np.ndarray):
        return value.copy()
    if kind is tuple:
        return tuple(map(copied, value))
    if isinstance(value, dict):
        again = copy.copy(value)
        for key, part in value.items():
            if type(part) not in _FIXED:
                again[key] = copied(part)
        return again
    return copy.copy(value) if isinstance(value, (list, set, bytearray, deque, array)) else value


def on_its_own(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function with a dataset of its own at each call."""

    @functools.wraps(function)
    def run(value: Any) -> Any:
        try:
            return function(own(value))
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - one of the user's, which OpenDP quotes
            raise failed(error) from None

    return run


def failed(error: BaseException) -> BaseException:
    """Return OpenDP's exception for one of a user's function."""
    if isinstance(error, KeyboardInterrupt) or type(error).__module__.startswith("opendp_sim"):
        return error
    return dp.OpenDPException("FFI", f"{type(error).__name__}: {error}")
