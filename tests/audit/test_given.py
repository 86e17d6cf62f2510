"""What a user gives an audit: pairs before all others, scores of outputs as they were released."""

from __future__ import annotations

import itertools

import numpy as np
import opendp.prelude as dp

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.options import WithPairs, first_tried

SPACE = space_of(dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance(), 1)


def test_given_pairs_come_first_and_are_left_as_they_are() -> None:
    rng, given = np.random.default_rng(0), (Pair([1, 2], [1], 1), Pair([7], [], 1))
    space = first_tried(given, SPACE)
    assert isinstance(space, WithPairs)
    assert tuple(itertools.islice(space.corners(rng), 2)) == given
    assert space.mutate(given[0], rng) is given[0]
    assert not list(space.simpler(given[0]))
    drawn = space.draw(rng)
    assert drawn.genome is not None
    assert list(space.simpler(drawn)) == list(SPACE.simpler(drawn))
