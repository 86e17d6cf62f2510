"""What the user gave an audit beside the object: pairs to try first, scores of an output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.encoding import Encoded
from opendp_sim.audit.guided import guided
from opendp_sim.audit.mining import Mined
from opendp_sim.audit.neighbours import Pair, PairSpace
from opendp_sim.audit.spaces import space_of
from opendp_sim.audit.subject import Subject

__all__ = ["WithPairs", "first_tried", "scored", "searched_space"]


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


def searched_space(
    subject: Subject,
    d_in: Any,
    given: tuple[Pair, ...],
    generator: Callable[[np.random.Generator], Any] | None,
    found: Mined | None,
) -> PairSpace:
    """Return the space of pairs, with what the code says where any was read."""
    space = space_of(
        subject.input_domain,
        subject.input_metric,
        d_in,
        pairs=tuple((p.left, p.right) for p in given),
        generator=generator,
    )
    if found is None or generator is not None:
        return space
    out: PairSpace = guided(space, subject.input_domain, found)
    return out


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
