"""Where a stable set beats peeling and where peeling overtakes it: a histogram with one step.

Both at one rho of zCDP for a release. Chances of the test follow from its exact tail; peeling is drawn,
and its bounds are at least seven standard deviations off.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from opendp_sim.domains.counts import USERS
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.gaussian_tail import tail_of
from opendp_sim.measurements.selection.gated_peel import GatedPeel
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.stable_set import StableSet

RHO, DELTA, ITEMS = 0.016, 1e-6, 2000


def step(k, drop):
    """k items around 1,000 votes, ``drop`` votes of nothing, a slow tail."""
    top = 1000 + (np.arange(k)[::-1] * 7) % 50
    tail = np.maximum(1000 - drop - np.arange(ITEMS - k) // 4, 0)
    return np.concatenate([top, tail]).astype(np.int64)


def stable(k):
    return StableSet(k=k, scale=1 / math.sqrt(2 * RHO), delta=DELTA)


def passes(claim, scale, counts, k):
    gap = int(counts[:k].min() - counts[k:].max())
    return float(tail_of(scale)(int(claim.expected["threshold"]) - gap))


def recall(mechanism, counts, k, runs=3):
    claim = mechanism.bind(IntVector(ITEMS), USERS)
    assert (
        claim.privacy_map(1)[0] if isinstance(claim.privacy_map(1), tuple) else claim.privacy_map(1)
    ) <= RHO * (1 + 1e-9)
    found = [claim.function(counts) or [] for _ in range(runs)]
    return float(np.mean([sum(place < k for place in places) / k for places in found]))


def peel(k):
    return Peel(k=k, scale=math.sqrt(k / (8 * RHO)))


@pytest.mark.parametrize(("k", "most"), [(200, 0.99), (500, 0.97)])
def test_a_high_step_and_a_large_k_are_for_the_stable_set(k, most):
    counts = step(k, 100)
    mechanism = stable(k)
    assert passes(mechanism.bind(IntVector(ITEMS), USERS), mechanism.scale, counts, k) > 1 - 1e-9
    assert recall(mechanism, counts, k) == 1.0
    assert 0.8 < recall(peel(k), counts, k) < most


@pytest.mark.parametrize("k", [10, 200])
def test_gated_peeling_overtakes_it_where_the_step_is_low(k):
    counts = step(k, 5)
    mechanism = stable(k)
    assert passes(mechanism.bind(IntVector(ITEMS), USERS), mechanism.scale, counts, k) < 1e-4
    assert recall(peel(k), counts, k, runs=5) > 0.35


@pytest.mark.few(2)
@pytest.mark.parametrize(("k", "drop"), [(10, 100), (500, 140), (10, 5), (200, 5)])
def test_a_test_before_peeling_takes_the_better_of_both(k, drop):
    """Within .05 of the better one, drawn three times; the benches hold the mean to .02."""
    counts = step(k, drop)
    share = 0.1
    tested = GatedPeel(k=k, scale=math.sqrt(k / (8 * RHO * (1 - share))), delta=DELTA, share=share)
    best = max(recall(m, counts, k, runs=10) for m in (stable(k), peel(k)))
    room = 0.05 + 5 * math.sqrt(0.25 / (10 * k))
    assert recall(tested, counts, k, runs=10) >= best - room
