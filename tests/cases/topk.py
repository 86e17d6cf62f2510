"""Private selection: one row a mechanism, over counts that differ by whole users."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from opendp_sim.measurements.choose_k import ChooseK
from opendp_sim.measurements.peel import Peel
from opendp_sim.measurements.stable_set import StableSet
from opendp_sim.measurements.stable_top_k import StableTopK
from opendp_sim.measurements.test_peel import TestPeel
from opendp_sim.spaces.counts import USERS
from opendp_sim.spaces.sketch import IntVector
from opendp_sim.testing import Case

ITEMS = 6


@st.composite
def count_pairs(draw: st.DrawFn):
    """Two histograms that a few added and removed users explain."""
    cells = st.lists(st.integers(0, 1), min_size=ITEMS, max_size=ITEMS)
    left = np.array(draw(st.lists(st.integers(3, 40), min_size=ITEMS, max_size=ITEMS)), np.int64)
    right, users = left.copy(), draw(st.integers(0, 3))
    for _ in range(users):
        right += draw(st.sampled_from((-1, 1))) * np.array(draw(cells))
    return left, right, users


def _row(mechanism) -> Case:
    return Case(mechanism, IntVector(ITEMS), USERS, count_pairs())


CASES = {
    mechanism.key: _row(mechanism)
    for mechanism in (
        ChooseK(k_max=4, scale=2.0),
        StableSet(k=2, scale=3.0, delta=1e-3),
        Peel(k=2, scale=3.0),
        TestPeel(k=2, scale=3.0, delta=1e-3),
        StableTopK(k_max=4, k=2, scale=3.0, delta=1e-3),
    )
}
