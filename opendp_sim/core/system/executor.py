"""Who works through a dataset: this thread alone, or several side by side (``sources.threads``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class Crew(Protocol):
    """Some who share the work on one dataset, each with a state of their own."""

    def gather(self, make: Callable[[], S], add: Callable[[S, Any], None]) -> list[S]:
        """Open the dataset afresh, add each block to somebody's state, and return all states.

        Args:
            make: makes a state.
            add: adds a block to one; which blocks a state gets, and in what order, is anybody's guess.
        """

    def each(self, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """Return what the function makes of each item, in their order."""

    @property
    def size(self) -> int:
        """How many they are."""


class Alone:
    """One thread: the caller's.

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
