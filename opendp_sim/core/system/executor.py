"""Sum a dataset with one or several workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Workers(Protocol):
    """Share the work on one dataset among workers with own states."""

    def gather(self, make: Callable[[], S], add: Callable[[S, Any], None]) -> list[S]:
        """Add a freshly opened dataset's blocks to states, and return these.

        Which blocks a state of ``make`` gets by ``add``, and in what order, is anybody's guess.
        """

    def each(self, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """Return what the function makes of each item, in their order."""

    @property
    def size(self) -> int:
        """How many they are."""


class Alone:
    """Work in the caller's thread alone.

    Args:
        blocks: opens the dataset afresh.
    """

    size = 1

    def __init__(self, blocks: Callable[[], Iterable[Any]]) -> None:
        self._blocks = blocks

    def gather(self, make: Callable[[], S], add: Callable[[S, Any], None]) -> list[S]:
        """Add all blocks to one state."""
        state = make()
        for block in self._blocks():
            add(state, block)
        return [state]

    def each(self, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """Go through the items."""
        return [function(item) for item in items]
