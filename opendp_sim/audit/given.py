"""What the user gave an audit beside the object: pairs to try first, scores of an output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.encoding import Encoded
from opendp_sim.audit.neighbours import Pair, PairSpace

__all__ = ["WithPairs", "first_tried", "scored"]


def first_tried(given: tuple[Pair, ...], space: PairSpace) -> PairSpace:
    """Let the user's pairs be the first corners of any space."""
    return space if not given else WithPairs(given, space)


class WithPairs:
    """A space whose corners begin with given pairs."""

    def __init__(self, given: tuple[Pair, ...], space: PairSpace) -> None:
        self._given, self._space = given, space

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:
        """Return a random pair of the space."""
        return self._space.draw(rng, distance)

    def corners(self, rng: np.random.Generator) -> Any:
        """Yield the given pairs, then the structured ones."""
        yield from self._given
        yield from self._space.corners(rng)

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Return a similar pair; a given pair as it is."""
        return pair if pair.genome is None else self._space.mutate(pair, rng)

    def simpler(self, pair: Pair) -> Any:
        """Return smaller pairs; none of a given pair."""
        return () if pair.genome is None else self._space.simpler(pair)


def scored(events: Mapping[str, Callable[[Any], float]] | None) -> dict[str, Any]:
    """Turn scores of an output into scores of encoded outputs: they see the cells as released."""
    if not events:
        return {}

    def lift(score: Callable[[Any], float]) -> Callable[[Encoded], Any]:
        return lambda e: np.array([float(score(_own(row))) for row in e.cells])

    return {name: lift(score) for name, score in events.items()}


def _own(row: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what an output has itself: it was padded to the widest of those drawn beside it."""
    there = np.flatnonzero(~np.isnan(row))
    return row[: there[-1] + 1] if there.size else row[:0]
