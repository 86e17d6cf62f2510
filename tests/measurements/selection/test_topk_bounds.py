"""A bound on one user's items is a fact about pairs: it reaches a map through a distance only."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import opendp.prelude as dp
import pytest

import opendp_sim.prelude as sim
from opendp_sim.core.bridge import build
from opendp_sim.core.claims import SketchBlock
from opendp_sim.core.errors import SpaceError
from opendp_sim.domains.counts import USERS, KnownCounts, OpenCounts
from opendp_sim.domains.metrics import IdDistance, Symmetric, VectorNorm
from opendp_sim.domains.records import Column, Records
from opendp_sim.domains.rows import RealRows
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK
from opendp_sim.measurements.selection.limited_domain import LimitedDomain
from opendp_sim.measurements.selection.pate_labels import PateLabels
from opendp_sim.measurements.selection.top_k import TopK
from tests.cases.topk import CASES

dp.enable_features("contrib")

ITEMS = tuple(range(8))
RECORDS = Records((Column("who", "int64", role="privacy_id"), Column("word", "int64")))
ONE_ITEM = KnownCounts(
    "vote_counts",
    (SketchBlock("counts", (8,), l1=1, l2_squared=1, linf=1),),
    monotone=True,
    items=ITEMS,
)


def counts(norm, **bound):
    return sim.make_vote_counts(
        RECORDS, IdDistance("who"), item="word", items=ITEMS, norm=norm, **bound
    )


def of_vectors(release):
    """The same release for bare vectors, where a user may touch every item."""
    return release.bind(IntVector(8), USERS)


@pytest.mark.parametrize(
    "release",
    [
        GaussianTopK(k=2, scale=2.0),
        TopK(k=4, scale=2.0, delta=1e-3),
        LimitedDomain(k=2, k_max=4, scale=1.0, delta=1e-3),
    ],
    ids=lambda release: release.key,
)
def test_unbounded_counts_never_get_the_bounded_map(release):
    make = getattr(sim, f"make_{release.key}")
    params = {name: getattr(release, name) for name in type(release).model_fields}
    measurement = make(ONE_ITEM, USERS, **params)
    chained = counts("linf") >> measurement
    assert chained.map(1) == of_vectors(release).privacy_map(1)


def test_a_bounded_distance_chains_with_nothing_that_lacks_the_bound():
    bounded = replace(USERS, touched=1)
    release = sim.make_gaussian_top_k(ONE_ITEM, bounded, k=2, scale=2.0)
    assert release.map(1) == pytest.approx(1 / 8)
    with pytest.raises(dp.OpenDPException, match="Mismatch"):
        counts("linf") >> release


@pytest.mark.parametrize("most", [1, 3, None])
def test_the_l2_face_carries_the_bound(most):
    chained = counts("l2", max_items=most) >> sim.then_gaussian_top_k(k=2, scale=2.0)
    for users in (1, 2, 5):
        assert chained.map(users) == pytest.approx((most or 8) * users**2 / 8, rel=1e-9, abs=1e-14)
        assert chained.map(users) >= (most or 8) * users**2 / 8
    votes = {"who": np.repeat(np.arange(9000), 2), "word": np.tile([3, 5], 9000)}
    if most is None:
        assert chained(votes) == [3, 5]


def test_the_rule_uses_the_bound_at_l2_distance_only():
    release = sim.make_top_k(ONE_ITEM, VectorNorm("l2"), k=4, scale=2.0, delta=1e-3)
    bounded = counts("l2", max_items=1) >> release
    assert bounded.map(1) == (
        GaussianTopK(k=4, scale=2.0).bind(ONE_ITEM, VectorNorm("l2")).privacy_map(1.0)
    )
    at_l2 = TopK(k=4, scale=2.0, delta=1e-3).bind(ONE_ITEM, VectorNorm("l2"))
    assert at_l2.reason.startswith("gaussian_top_k")
    at_linf = TopK(k=4, scale=2.0, delta=1e-3).bind(ONE_ITEM, USERS)
    assert at_linf.reason.startswith("peel")
    with pytest.raises(SpaceError, match="OS202"):
        TopK(k=1, scale=2.0, delta=1e-3).bind(IntVector(8), VectorNorm("l2"))


def test_items_that_occur_carry_the_bound_in_their_distance():
    limited = LimitedDomain(k=2, k_max=4, scale=1.0, delta=1e-3)
    bounded = sim.make_vote_counts(RECORDS, IdDistance("who"), item="word", max_items=1)
    free = sim.make_vote_counts(RECORDS, IdDistance("who"), item="word")
    chain = bounded >> sim.then_limited_domain(k=2, k_max=4, scale=1.0, delta=1e-3)
    touched = limited.bind(OpenCounts(text=False), replace(USERS, touched=1))
    assert chain.map(1) == touched.privacy_map(1)
    assert touched.expected["height"] < limited.bind(OpenCounts(False), USERS).expected["height"]
    release = sim.make_limited_domain(
        OpenCounts(text=False), replace(USERS, touched=1), k=2, k_max=4, scale=1.0, delta=1e-3
    )
    with pytest.raises(dp.OpenDPException, match="Mismatch"):
        free >> release


def test_one_user_of_every_item_breaks_the_bounded_map():
    """KL between the noisy counts at scale s is (cells moved) / (2 s^2): 8 times what c = 1 says."""
    bounded = GaussianTopK(k=2, scale=2.0).bind(ONE_ITEM, replace(USERS, touched=1))
    unbounded = GaussianTopK(k=2, scale=2.0).bind(ONE_ITEM, USERS)
    assert bounded.privacy_map(1) < 8 / (2 * 2.0**2) <= unbounded.privacy_map(1)


def test_a_persons_record_replaces_a_teacher_and_costs_two():
    """With d = 1 the threshold is one vote too low: one teacher's new row moves a gap by two."""
    rows = RealRows(width=4)
    one, two = (
        PateLabels(
            labels=4, rule={"stable": {"k_max": 2}}, scale=4.0, delta=1e-6, distance=users
        ).bind(rows, Symmetric())
        for users in (1, 2)
    )
    before, after = np.zeros((5, 4)), np.zeros((5, 4))
    before[:, 0] = after[:, 0] = 1
    after[4] = [0, 1, 0, 0]
    gaps = [table.sum(axis=0)[0] - table.sum(axis=0)[1] for table in (before, after)]
    assert gaps[0] - gaps[1] == 2
    assert two.privacy_map(2)[0] == pytest.approx(4 * two.privacy_map(1)[0])
    assert two.privacy_map(2)[1] <= 1e-6 < one.privacy_map(2)[1]


@pytest.mark.parametrize("case", [c for c in CASES.values() if hasattr(c.mechanism, "accounting")])
def test_a_curve_below_epsilon_zero_is_no_smaller_than_any_law_has(case):
    """P(E) - e**epsilon Q(E) is 1 - e**epsilon for the event that always happens; OpenDP asks for any epsilon."""
    mechanism = case.mechanism.model_copy(update={"accounting": "curve"})
    claim = mechanism.bind(case.domain, case.metric)
    told = build(claim, mechanism.key, case.domain, case.metric).map(1)
    for epsilon in (-40.0, -1.0, -1e-9):
        assert -math.expm1(epsilon) <= told.delta(epsilon) <= 1.0
        mirror = 1 - math.exp(epsilon) * (1 - told.delta(-epsilon))
        assert told.delta(epsilon) == pytest.approx(mirror, rel=1e-9, abs=1e-14)
