"""Parse syntax trees safely from several threads.

CPython before 3.11.8 keeps the depth of all trees that are being made in one number of the process
(python/cpython#106905): where a destructor lets another thread go on meanwhile, making one may end with
``SystemError``, whatever the text says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_TRIES = 20
"""Attempts in a row that another thread would have to disturb; it disturbs one in thousands, at worst."""


def tried_again(function: Callable[[], T]) -> T:
    """Call a repeatable function that parses, again until it succeeds.

    Raises:
        SystemError: the interpreter's own, in each of many attempts.
    """
    for _ in range(_TRIES):
        try:
            return function()
        except SystemError:
            continue
    return function()
