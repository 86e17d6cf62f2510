"""Noise in common: the second run of a round takes what the first one drew, law by law.

What is bet on is a difference of two events. With noise of their own the sides differ by luck as much
as by data; with noise in common what luck does to one it does to the other. ``layer.md`` (section 1)
says why each side keeps its law.

Or the noisy values are in common: the second run gets the very numbers that the first one got, and what
their probability is on either side is kept as a ratio. ``importance_weights.py`` says what that is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opendp_sim.audit.generators.copies import copied
from opendp_sim.audit.instrument.native_laws import Law


class Common:
    """The draws of a round's first run, in their order, each with all that its law depends on."""

    def __init__(self) -> None:
        """Begin without rounds."""
        self.on = False
        self.weighing = False
        """Whether noisy values are in common, not noise."""
        self.log_ratio = 0.0
        """Of the round: the second side's probability of the noisy values over the first's."""
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

    @contextmanager
    def weighed(self) -> Iterator[None]:
        """Have noisy values in common until the block ends, and keep their ratio."""
        self.weighing = True
        try:
            with self.common():
                yield
        finally:
            self.weighing = False

    def begin(self) -> None:
        """Begin a round: the next run is its first."""
        self._taken.clear()
        self.log_ratio = 0.0
        self._spot, self._second = 0, False

    def again(self) -> None:
        """Say that the next run is the round's second."""
        self._spot, self._second = 0, True

    def draw(self, law: Any, make: Callable[[], Any]) -> Any:
        """Return a draw. The k-th of the second run is the k-th of the first where both have one law."""
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
        """Return a whole number as ``draw`` does; the key is all that its law depends on."""
        spot = self._spot
        self._spot = spot + 1
        if self._second:
            if spot < len(self._taken) and self._taken[spot][0] == key:
                return int(self._taken[spot][1])
            return make()
        value = make()
        self._taken.append((key, value))
        return value

    def noisy_number(self, key: Any, law: Law, cell: int, make: Callable[[], int]) -> int:
        """Return one noisy value as ``noisy`` does."""
        spot = self._spot
        self._spot = spot + 1
        if self._second and spot < len(self._taken) and self._taken[spot][0] == key:
            value, first = self._taken[spot][1]
            if first != cell:
                self.log_ratio += law.log_ratio((value,), (cell,), (first,))
            return int(value)
        value = cell + make()
        if not self._second:
            self._taken.append((key, (value, cell)))
        return value

    def noisy(self, law: Law, cells: list[int], make: Callable[[], list[int]]) -> list[int]:
        """Return whole noisy values of a law at these arguments.

        The k-th of the second run are the k-th of the first where both have one law, whatever their
        arguments are; how much likelier the second's make them is multiplied in.
        """
        key, spot = ("noisy", law.family, law.scale, len(cells)), self._spot
        self._spot = spot + 1
        if self._second and spot < len(self._taken) and self._taken[spot][0] == key:
            values, first = self._taken[spot][1]
            self.log_ratio += law.log_ratio(values, cells, first)
            return list(values)
        values = [c + z for c, z in zip(cells, make(), strict=True)]
        if not self._second:
            self._taken.append((key, (values, cells)))
            return list(values)
        return values
