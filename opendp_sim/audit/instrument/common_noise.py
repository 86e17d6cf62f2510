"""Share noise between the two runs of a round.

Draw by draw, where both have the same law. What is bet on is a difference of two events. With noise of
their own the sides differ by luck as much as by data; with noise in common what luck does to one it
does to the other. ``layer.md`` (section 1) says why each side keeps its law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opendp_sim.audit.generators.copies import copied


class Common:
    """Hold the draws of a round's first run, in order, with laws."""

    def __init__(self) -> None:
        """Begin without rounds."""
        self.on = False
        self._taken: list[tuple[Any, Any]] = []
        self._spot = 0
        self._second = False

    @contextmanager
    def common(self) -> Iterator[None]:
        """Have noise in common until the block ends."""
        self.on = True
        try:
            yield
        finally:
            self.on = False
            self._taken.clear()

    def begin(self) -> None:
        """Begin a round with its first run."""
        self._taken.clear()
        self._spot, self._second = 0, False

    def again(self) -> None:
        """Say that the next run is the round's second."""
        self._spot, self._second = 0, True

    def draw(self, law: Any, make: Callable[[], Any]) -> Any:
        """Return a draw, shared by both runs' k-th draws of equal laws."""
        try:
            hash(law)
        except TypeError:  # parameters that have no place here
            return make()
        spot = self._spot
        self._spot = spot + 1
        if not self._second:
            value = make()
            self._taken.append((law, copied(value)))
            return value
        if spot < len(self._taken) and self._taken[spot][0] == law:
            return copied(self._taken[spot][1])
        return make()

    def number(self, key: Any, make: Callable[[], int]) -> int:
        """Return a shared whole number of the law that the key determines."""
        spot = self._spot
        self._spot = spot + 1
        if self._second:
            if spot < len(self._taken) and self._taken[spot][0] == key:
                return int(self._taken[spot][1])
            return make()
        value = make()
        self._taken.append((key, value))
        return value
