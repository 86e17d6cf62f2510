"""Every selection mechanism against its claim, exactly, on all small histograms and all neighbours."""

from __future__ import annotations

from functools import cache

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.domains.counts import USERS, OpenCounts, votes_space
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.gap_utility import GapUtility
from opendp_sim.measurements.selection._impl.gaussian_tail import threshold_for
from opendp_sim.measurements.selection._impl.peeling import peeled
from opendp_sim.measurements.selection.choose_k import ChooseK, draw_k
from opendp_sim.measurements.selection.gated_peel import GatedPeel, draw_tested, gate_for
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK, draw_noisy_top
from opendp_sim.measurements.selection.limited_domain import LimitedDomain, draw_limited
from opendp_sim.measurements.selection.noisy_max_gaussian import NoisyMaxGaussian, draw_noisy_rank
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.stable_set import StableSet, draw_set
from opendp_sim.measurements.selection.stable_top_k import StableTopK, draw_stable
from opendp_sim.measurements.selection.top_stable import TopStable, draw_top_stable
from tests._enumeration import (
    Tree,
    approximate_renyi,
    histograms,
    hockey_stick,
    matrix,
    neighbours,
    renyi,
    softmax,
)
from tests._tiers import several

dp.enable_features("contrib")

ITEMS, MOST = 4, 4
ALPHAS = (1.01, 1.5, 2.0, 4.0, 16.0, 64.0)
EPSILONS = np.linspace(0.0, 4.0, 17)
TABLE = histograms(ITEMS, MOST)
SMALL = histograms(ITEMS, 2)
PAIRS = {users: neighbours(TABLE, users) for users in (1, 2)}


def dense(mechanism):
    domain = IntVector(ITEMS)
    return votes_space("test", domain, USERS), mechanism.bind(domain, USERS)


def sparse(universe=None):
    domain = OpenCounts(text=False, universe=universe)
    return domain, votes_space("test", domain, USERS)


def stored(h):
    """A histogram over a universe as it is stored: the items that occur."""
    return {"item": np.flatnonzero(h), "votes": h[h > 0]}


def fits_curve(found, privacy_map, users, epsilons=EPSILONS):
    for epsilon in epsilons:
        claimed = float(privacy_map(users)(float(epsilon)))
        real = hockey_stick(found, PAIRS[users], epsilon)
        if real > claimed * (1 + 1e-9) + 1e-13:
            return False
    return True


def fits_zcdp(found, rho, users):
    return all(renyi(found, PAIRS[users], a) <= rho * a * (1 + 1e-9) + 1e-12 for a in ALPHAS)


def fits_approximate(found, loss, users):
    rho, delta = loss
    return all(
        approximate_renyi(found, PAIRS[users], delta, a) <= rho * a * (1 + 1e-6) + 1e-9
        for a in ALPHAS
    )


@pytest.mark.parametrize("target", [None, 2])
def test_choose_k(target):
    choose = ChooseK(k_max=3, scale=1.5, k=target, slope=0.7)
    votes, claim = dense(choose)
    utility = GapUtility(3, None, target, 0.7)
    found = matrix(lambda coins, h: draw_k(coins, votes, h, utility, 1.5), TABLE)
    for users in (1, 2):
        assert fits_zcdp(found, claim.privacy_map(users), users)
        assert not fits_zcdp(found, claim.privacy_map(users) / 2, users)


@pytest.mark.few(2)
@pytest.mark.parametrize("accounting", ["zcdp", "curve"])
@pytest.mark.parametrize("scale", [0.6, 1.5])
def test_stable_set(scale, accounting):
    mechanism = StableSet(k=2, scale=scale, delta=0.05, accounting=accounting)
    votes, claim = dense(mechanism)
    threshold = int(claim.expected["threshold"])
    found = matrix(lambda coins, h: draw_set(coins, votes, h, 2, scale, threshold), TABLE)
    for users in (1, 2):
        if accounting == "curve":
            assert fits_curve(found, claim.privacy_map, users)
        else:
            assert fits_approximate(found, claim.privacy_map(users), users)


@cache
def peeled_law(k, scale):
    """The law of peeling on every histogram, whatever is claimed of it."""
    votes, _ = dense(Peel(k=k, scale=scale))
    return matrix(lambda coins, h: peeled(coins, votes, h, k, scale), TABLE)


@pytest.mark.few(2)
@pytest.mark.parametrize("accounting", ["zcdp", "curve"])
@pytest.mark.parametrize("k", [1, 3])
def test_peel_winners_and_losers(k, accounting):
    _, claim = dense(Peel(k=k, scale=1.2, accounting=accounting))
    found = peeled_law(k, 1.2)
    for users in (1, 2):
        if accounting == "curve":
            assert fits_curve(found, claim.privacy_map, users)
        else:
            assert fits_zcdp(found, claim.privacy_map(users), users)


def test_peel_over_a_universe():
    domain, votes = sparse(ITEMS)
    claim = Peel(k=2, scale=1.2).bind(domain, USERS)
    found = matrix(lambda coins, h: peeled(coins, votes, stored(h), 2, 1.2), TABLE)
    assert np.abs(found - peeled_law(2, 1.2)).max() < 1e-12
    for users in (1, 2):
        assert fits_zcdp(found, claim.privacy_map(users), users)


def test_gated_peel():
    mechanism = GatedPeel(k=2, scale=2.0, delta=0.05, share=0.5)
    votes, claim = dense(mechanism)
    threshold, noise = int(claim.expected["threshold"]), 2 * 2.0 * np.sqrt(1 / 2)
    found = matrix(lambda coins, h: draw_tested(coins, votes, h, 2, 2.0, noise, threshold), TABLE)
    for users in (1, 2):
        assert fits_approximate(found, claim.privacy_map(users), users)


def gated(k, scale, share, delta, distance=1, space=None):
    """The curve of a test and then peeling, and the draw of the code that runs, by its coins."""
    space = space or IntVector(ITEMS)
    mechanism = GatedPeel(
        k=k, scale=scale, delta=delta, share=share, distance=distance, accounting="curve"
    )
    votes, claim = votes_space("test", space, USERS), mechanism.bind(space, USERS)
    rounds = int(claim.expected["rounds"])
    noise = 2 * scale * np.sqrt((1 - share) / (share * rounds))
    gate, threshold = gate_for("test", rounds, scale, noise, delta, distance)
    assert threshold == claim.expected["threshold"]

    def draw(coins, h, bar=threshold, right=gate.right, left=noise):
        return draw_tested(coins, votes, h, k, scale, left, bar, right)

    return claim.privacy_map, draw, gate, threshold


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("k", "scale", "share", "delta", "distance"),
    [
        (2, 2.0, 0.5, 0.05, 1),
        pytest.param(2, 1.0, 0.2, 0.02, 1, marks=pytest.mark.long),
        pytest.param(2, 0.5, 0.9, 0.1, 1, marks=pytest.mark.long),
        (1, 0.6, 0.95, 0.1, 1),
        pytest.param(3, 0.7, 0.5, 0.1, 2, marks=pytest.mark.long),
    ],
)
def test_a_gate_and_then_peeling(k, scale, share, delta, distance):
    curve, draw, _, threshold = gated(k, scale, share, delta, distance)
    found = matrix(draw, TABLE)
    for users in range(1, min(threshold, 3)):
        assert fits_curve(found, curve, users)


MANY = 10_000
WIDE = histograms(2, 14)
WIDE = np.pad(WIDE[WIDE.min(axis=1) <= 1], ((0, 0), (0, MANY - 2)))
"""Two items of many with up to fourteen votes: gaps on both sides of a threshold, and peeling that seldom
names one of the two, so that the test alone decides."""


class Merged(Tree):
    """One draw of peeling: two items by name, the others as one."""

    def top(self, scores, rounds, scale, *, lowest=False):
        p = softmax(scores, scale)
        return self._choose([([0], p[0]), ([1], p[1]), ([2], p[2:].sum())])


@pytest.mark.parametrize(
    ("scale", "share", "delta", "distance"),
    several([(0.8, 0.5, 0.02, 1), (0.8, 0.7, 0.02, 1), (1.2, 0.5, 0.1, 1), (1.0, 0.6, 0.05, 2)], 3),
)
def test_a_gate_over_gaps_beyond_its_threshold(scale, share, delta, distance):
    curve, draw, _, threshold = gated(1, scale, share, delta, distance, IntVector(MANY))
    found = matrix(draw, WIDE, Merged)
    assert threshold <= 15
    for users in range(1, min(threshold, 3)):
        pairs = neighbours(WIDE[:, :2], users)
        for epsilon in EPSILONS:
            real = hockey_stick(found, pairs, epsilon)
            assert real <= curve(users)(float(epsilon)) * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize(
    "fault", ["sides exchanged", "steep", "narrow", "gaussian threshold", "one low"]
)
def test_broken_gates_are_refuted(fault):
    """One side of the noise for the other, a fraction of a width, the wrong law's threshold, one vote."""
    curve, draw, gate, threshold = gated(1, 0.8, 0.5, 0.02, 1, IntVector(MANY))

    def wrong(coins, h):
        if fault == "sides exchanged":
            places = np.argsort(-h, kind="stable")
            gap = int(h[places[0]] - h[places[1]])
            if not coins.gate_reaches(gate.right, gate.left, 1 - threshold + gap):
                return [int(places[0])]
            return [int(i) for i in coins.top(h, 1, 0.8)]
        if fault == "steep":
            return draw(coins, h, right=gate.right / 4)
        if fault == "narrow":
            return draw(coins, h, left=gate.left / 2)
        if fault == "gaussian threshold":
            return draw(coins, h, bar=threshold_for(gate.right, 0.002, 1))
        return draw(coins, h, bar=threshold - 1)

    found, pairs = matrix(wrong, WIDE, Merged), neighbours(WIDE[:, :2], 1)
    ratios = [hockey_stick(found, pairs, e) / curve(1)(float(e)) for e in np.linspace(0, 4, 33)]
    assert max(ratios) > 1.5


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("options", "known"),
    [
        ({}, False),
        ({"accounting": "curve"}, True),
        ({"k": 1, "slope": 0.4}, False),
        ({"k": 1, "utility": "gap"}, True),
        ({"k": 1, "fill": "peel"}, True),  # refused on an unknown catalogue
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in (
                ({}, True),
                ({"accounting": "curve"}, False),
                ({"k": 1, "slope": 0.4}, True),
                ({"k": 1, "utility": "gap"}, False),
                ({"k": 1, "accounting": "curve"}, True),
                ({"k": 1, "accounting": "curve"}, False),
            )
        ),
    ],
)
def test_stable_top_k(options, known):
    mechanism = StableTopK(k_max=3, scale=0.9, delta=0.05, **options)
    plan = mechanism.plan()
    if known:
        votes, claim = dense(mechanism)
        found = matrix(lambda coins, h: draw_stable(coins, votes, h, plan), TABLE)
    else:
        domain, votes = sparse()
        claim = mechanism.bind(domain, USERS)
        found = matrix(lambda coins, h: draw_stable(coins, votes, stored(h), plan), TABLE)
    for users in (1, 2):
        if options.get("accounting") == "curve":
            assert fits_curve(found, claim.privacy_map, users)
        else:
            assert fits_approximate(found, claim.privacy_map(users), users)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("accounting", "known"),
    [
        ("zcdp", False),
        ("curve", True),
        pytest.param("zcdp", True, marks=pytest.mark.long),
        pytest.param("curve", False, marks=pytest.mark.long),
    ],
)
def test_limited_domain(accounting, known):
    mechanism = LimitedDomain(k=2, k_max=3, scale=1.0, delta=0.1, accounting=accounting)
    domain, votes = (IntVector(ITEMS), dense(mechanism)[0]) if known else sparse()
    claim = mechanism.bind(domain, USERS)
    height = int(claim.expected["height"])
    found = matrix(
        lambda coins, h: draw_limited(coins, votes, h if known else stored(h), 2, 3, 1.0, height),
        TABLE,
    )
    for users in (1, 2):
        if accounting == "curve":
            assert fits_curve(found, claim.privacy_map, users)
        else:
            assert fits_approximate(found, claim.privacy_map(users), users)


def test_noisy_max_gaussian():
    mechanism = NoisyMaxGaussian(k_max=3, scale=1.5)
    votes, claim = dense(mechanism)
    utility = GapUtility(3, None, None, 1.0)
    found = matrix(lambda coins, h: draw_noisy_rank(coins, votes, h, utility, 1.5), SMALL)
    pairs = {users: neighbours(SMALL, users) for users in (1, 2)}
    for users in (1, 2):
        curve = claim.privacy_map(users)
        assert all(renyi(found, pairs[users], a) <= curve(a) * (1 + 1e-9) for a in ALPHAS)


def test_gaussian_top_k():
    table = histograms(2, 3)
    mechanism = GaussianTopK(k=1, scale=1.3)
    votes = votes_space("test", IntVector(2), USERS)
    claim = mechanism.bind(IntVector(2), USERS)
    found = matrix(lambda coins, h: draw_noisy_top(coins, votes, h, 1, 1.3), table)
    for users in (1, 2):
        rho = claim.privacy_map(users)
        pairs = neighbours(table, users)
        assert all(renyi(found, pairs, a) <= rho * a * (1 + 1e-6) for a in ALPHAS)


@pytest.mark.parametrize("known", [pytest.param(True, marks=pytest.mark.long), False])
def test_top_stable(known):
    mechanism = TopStable(k=1, k_max=2, epsilon=1.5, delta=0.1)
    items = 3
    domain = IntVector(items) if known else OpenCounts(text=False)
    votes, claim = votes_space("test", domain, USERS), mechanism.bind(domain, USERS)
    table = histograms(items, 3)
    found = matrix(
        lambda coins, h: draw_top_stable(
            coins, votes, h if known else stored(h), 1, 2, mechanism.scales, mechanism.threshold()
        ),
        table,
    )
    for users in (1, 2):
        epsilon, delta = claim.privacy_map(users)
        pairs = neighbours(table, users)
        assert hockey_stick(found, pairs, epsilon) <= delta * (1 + 1e-9)


# --- the same checks refute what was published or is easily got wrong ---------------------------------


def test_the_published_threshold_is_refuted_for_two_users():
    """Threshold ``1 + s sqrt(2 ln(1/delta))`` claimed for replacing a user (two users differ)."""
    scale, delta = 0.8, 0.1
    votes, _ = dense(StableSet(k=2, scale=scale, delta=delta))
    threshold = int(np.ceil(1 + scale * np.sqrt(2 * np.log(1 / delta))))
    found = matrix(lambda coins, h: draw_set(coins, votes, h, 2, scale, threshold), TABLE)
    assert fits_approximate(found, (1 / (2 * scale**2), delta), 1)
    assert not fits_approximate(found, (4 / (2 * scale**2), delta), 2)
    fixed = StableSet(k=2, scale=scale, delta=delta, distance=2)
    mended = int(dense(fixed)[1].expected["threshold"])
    found = matrix(lambda coins, h: draw_set(coins, votes, h, 2, scale, mended), TABLE)
    assert fits_approximate(found, (4 / (2 * scale**2), delta), 2)


def test_an_off_by_one_gap_is_refuted():
    """The gap below rank k + 1 is tested, and the top k released."""
    votes, claim = dense(StableSet(k=2, scale=0.8, delta=0.05))
    threshold = int(claim.expected["threshold"])

    def wrong(coins, h):
        ranking = votes.rank(h, 4)
        later = int(ranking.counts[2] - ranking.counts[3])
        return sorted(ranking.places[:2]) if coins.reaches(0.8, threshold - later) else None

    found = matrix(wrong, TABLE)
    assert not fits_approximate(found, claim.privacy_map(1), 1)


def test_gated_peeling_among_items_that_occur_is_refuted():
    claim = dense(Peel(k=1, scale=2.0))[1]

    def wrong(coins, h):
        items = np.flatnonzero(h)
        return [int(items[i]) for i in coins.top(h[items], 1, 2.0)] if len(items) else None

    assert not fits_zcdp(matrix(wrong, TABLE), claim.privacy_map(1), 1)


def test_naming_only_voted_items_of_a_universe_is_refuted():
    domain, _ = sparse(ITEMS)
    claim = Peel(k=1, scale=2.0).bind(domain, USERS)

    def wrong(coins, h):
        drawn = coins.top_open(h[h > 0], ITEMS, 1, 2.0)
        return [int(np.flatnonzero(h)[place]) if seen else -1 for seen, place in drawn]

    assert not fits_zcdp(matrix(wrong, TABLE), claim.privacy_map(1), 1)


def test_the_curves_are_not_wasteful():
    """At the scale that a curve asks for, two thirds of the noise break it."""
    for mechanism, draw in (
        (
            Peel(k=2, scale=1.2, accounting="curve"),
            lambda votes: lambda coins, h: peeled(coins, votes, h, 2, 0.8),
        ),
        (
            StableSet(k=2, scale=1.5, delta=0.05, accounting="curve"),
            lambda votes: lambda coins, h: draw_set(coins, votes, h, 2, 1.0, 4),
        ),
    ):
        votes, claim = dense(mechanism)
        assert not fits_curve(matrix(draw(votes), TABLE), claim.privacy_map, 1)
