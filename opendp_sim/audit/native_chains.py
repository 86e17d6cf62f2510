"""Chains of OpenDP's that a program calls in its runs: their parts are called one by one.

A chain is one object, and nothing outside tells its noise from what is around it. Taken apart, its noise
goes on the tape with the argument that it hides (``taken_apart.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opendp_sim.audit.taken_apart import taken_apart

__all__ = ["Chains"]

_MOST = 256


class Chains:
    """The chains that runs have met, as functions of Python."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[int, tuple[Any, Callable[[Any], Any] | None]] = {}
        """By identity of the object, which is kept, so that no other can get it."""

    def of(self, made: Any) -> Callable[[Any], Any] | None:
        """Return what releases as a chain does; nothing for what is none, or holds what is not known."""
        found = self._known.get(id(made))
        if found is not None:
            return found[1]
        parts = taken_apart(made, called=True)
        run = None if parts is None else parts[0]
        if len(self._known) < _MOST:
            self._known[id(made)] = made, run
        return run
