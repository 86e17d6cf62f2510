"""Private selection: one row a mechanism, over counts that differ by whole users."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from opendp_sim.domains.counts import USERS
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection.choose_k import ChooseK
from opendp_sim.measurements.selection.gated_peel import GatedPeel
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK
from opendp_sim.measurements.selection.limited_domain import LimitedDomain
from opendp_sim.measurements.selection.noise_threshold import NoiseThreshold
from opendp_sim.measurements.selection.noisy_max_gaussian import NoisyMaxGaussian
from opendp_sim.measurements.selection.pate_labels import PateLabels
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.stable_set import StableSet
from opendp_sim.measurements.selection.stable_top_k import StableTopK
from opendp_sim.measurements.selection.top_k import TopK
from opendp_sim.measurements.selection.top_stable import TopStable
from opendp_sim.testing import Case
from opendp_sim.testing.strategies import real_pairs

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
        GatedPeel(k=2, scale=3.0, delta=1e-3),
        StableTopK(k_max=4, k=2, scale=3.0, delta=1e-3),
        GaussianTopK(k=2, scale=3.0),
        LimitedDomain(k=2, k_max=4, scale=3.0, delta=1e-3),
        TopStable(k=2, k_max=4, epsilon=0.5, delta=1e-3),
        NoiseThreshold(k=2, scale=3.0, delta=1e-3),
        NoisyMaxGaussian(k_max=4, scale=3.0),
        TopK(k=2, scale=3.0, delta=1e-3),
    )
}
TEACHERS = RealRows(width=12)
CASES["pate_labels"] = Case(
    PateLabels(labels=4, rule={"stable": {"k_max": 3}}, scale=3.0, delta=1e-3),
    TEACHERS,
    Symmetric(),
    real_pairs(TEACHERS),
)
