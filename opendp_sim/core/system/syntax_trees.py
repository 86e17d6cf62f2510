"""Syntax trees, which several threads of a process may have Python make at once.

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
    """Return what a function returns that makes a syntax tree; it can be called as often as it takes.

    Raises:
        SystemError: the interpreter's own, in each of many attempts.
    """
    for _ in range(_TRIES):
        try:
            return function()
        except SystemError:
            continue
    return function()
