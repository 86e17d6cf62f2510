"""Draw public matrices at their first use.

Sizes follow from parameters alone. Small ones are drawn while a mechanism is bound, so that what only
the drawn numbers can tell is refused there. Large ones wait until a run asks for them, before anything
is charged: to check or plan a spec takes no longer for them.

Why not all of them wait: the errors that ``plan`` promises, the largest entry of a projection (which an
exact sum has to hold) and a width at which every record falls into one cell follow from the drawn numbers
and from nothing else, and a spec that they refuse should be refused by ``check``. The bound is for one
stage: to check a spec of many stages takes time in proportion to their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

AT_ONCE = 2**19
"""Numbers that are drawn at bind: a few hundredths of a second."""

Matrix = NDArray[np.generic]


class Drawn(Sequence[Matrix]):
    """Hold matrices of known size, drawn at their first use.

    Args:
        nbytes: the bytes of all of them, from sizes.
        draw: makes them; the mechanism keeps what it drew.
    """

    def __init__(self, nbytes: int, draw: Callable[[], Sequence[Matrix]]) -> None:
        self.nbytes = nbytes
        self._draw = draw

    @overload
    def __getitem__(self, index: int) -> Matrix: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Matrix]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._draw()[index]

    def __len__(self) -> int:
        return len(self._draw())

    def __iter__(self) -> Iterator[Matrix]:
        return iter(self._draw())
