"""PATE labels, noisy max and the rule against their claims, exactly, on all small inputs.

Two queries of two labels are histograms of four cells; a teacher adds at most one to each, so the
neighbours are those of `test_topk_exact`.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import opendp.prelude as dp
import pytest
from scipy.special import ndtr

from opendp_sim.core.claims import SketchBlock
from opendp_sim.domains.counts import USERS, KnownCounts, votes_space
from opendp_sim.domains.metrics import Symmetric, VectorNorm
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.gap_utility import GapUtility
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK, draw_noisy_top
from opendp_sim.measurements.selection.noisy_max_gaussian import NoisyMaxGaussian, draw_noisy_rank
from opendp_sim.measurements.selection.pate_labels import (
    PateLabels,
    answer_quorum,
    answer_stable,
    shared_votes,
)
from opendp_sim.measurements.selection.stable_top_k import StablePlan
from opendp_sim.measurements.selection.top_k import TopK
from opendp_sim.measurements.selection.top_stable import TopStable, draw_top_stable
from tests._enumeration import (
    Tree,
    distribution,
    gaussian_tail,
    histograms,
    hockey_stick,
    matrix,
    neighbours,
    renyi,
)
from tests.measurements.selection.test_topk_exact import (
    ALPHAS,
    EPSILONS,
    PAIRS,
    TABLE,
    fits_approximate,
    fits_zcdp,
)

dp.enable_features("contrib")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("distance", "labels", "k_max"),
    [
        (1, 4, 3),
        (2, 2, 1),
        pytest.param(1, 2, 1, marks=pytest.mark.long),
        pytest.param(2, 4, 3, marks=pytest.mark.long),
    ],
)
def test_stable_labels(labels, k_max, distance):
    queries = 4 // labels
    pate = PateLabels(
        labels=labels, rule={"stable": {"k_max": k_max}}, scale=1.5, delta=0.1, distance=distance
    )
    claim = pate.bind(RealRows(width=4), Symmetric())
    votes = votes_space("test", IntVector(labels), USERS)
    plan = StablePlan(GapUtility(k_max, None, None, 0.0), 1.5, int(claim.expected["threshold"]))
    found = matrix(lambda coins, h: answer_stable(coins, votes, h, plan), TABLE)
    for users in (1, 2):
        assert fits_approximate(found, claim.privacy_map(users), users)
    rho, delta = claim.privacy_map(distance)
    assert delta <= 0.1
    low = StablePlan(plan.utility, 1.5, plan.threshold - 2)
    wrong = matrix(lambda coins, h: answer_stable(coins, votes, h, low), TABLE)
    assert not fits_approximate(wrong, (rho, delta), distance)
    if queries == 2:
        assert not fits_approximate(found, (rho / 8, 0.0), distance)


class Quorum(Tree):
    """Noise of which only the comparison with the quorum is told: two outcomes a cell."""

    def __init__(self, script, bar):
        super().__init__(script)
        self.bar = bar

    def noisy(self, scores, scale):
        return np.array([self.bar - (not self.reaches(scale, self.bar - int(v))) for v in scores])


def answers(table, quorum, labels, scale, tau):
    """The exact law of the answers on one table of teachers."""

    def run(script):
        coins = Quorum(script, quorum * 1024)
        steps = shared_votes(Rows(table), labels, tau)
        return coins, repr(answer_quorum(coins, steps, labels, quorum, scale))

    out, todo = {}, [()]
    while todo:
        coins, answer = run(todo.pop())
        out[answer] = out.get(answer, 0.0) + coins.weight
        todo += coins.open
    return out


@pytest.mark.parametrize("tau", [None, 1, 2])
def test_quorum_labels(tau, monkeypatch):
    """All tables of at most two teachers over three labels, one or two teachers apart."""
    monkeypatch.setattr("tests._enumeration.gaussian_tail", _fine_tail)
    rows = [np.array(row, dtype=float) for row in itertools.product((0, 1), repeat=3)]
    sets = [c for n in (0, 1, 2) for c in itertools.combinations_with_replacement(range(8), n)]
    claim = PateLabels(
        labels=3, rule={"gaussian": {"quorum": 1, "tau": tau}}, scale=1.1, delta=0.1
    ).bind(RealRows(width=3), Symmetric())
    laws = [
        answers(np.array([rows[i] for i in chosen]).reshape(-1, 3), 1, 3, 1.1, tau)
        for chosen in sets
    ]
    outputs = sorted({answer for law in laws for answer in law})
    found = np.array([[law.get(answer, 0.0) for answer in outputs] for law in laws])
    assert np.abs(found.sum(axis=1) - 1).max() < 1e-9
    for users in (1, 2):
        apart = [
            (a, b)
            for a, b in itertools.permutations(range(len(sets)), 2)
            if _apart(sets[a], sets[b]) <= users
        ]
        pairs = tuple(np.array(side) for side in zip(*apart, strict=True))
        rho = claim.privacy_map(users)
        assert all(renyi(found, pairs, a) <= rho * a * (1 + 1e-6) + 1e-9 for a in ALPHAS)
        assert not all(renyi(found, pairs, a) <= rho * a / 4 for a in ALPHAS)


def _fine_tail(scale, least):
    """The tail at 1,024 steps a vote: the normal one, half a step in, to within 1e-6 (s is 1,126)."""
    return float(ndtr(-(least - 0.5) / scale)) if scale > 100 else gaussian_tail(scale, least)


def _apart(left, right):
    return sum(abs(left.count(i) - right.count(i)) for i in range(8))


@pytest.fixture(scope="module")
def noisy_ranks():
    """The law of the drawn rank on every histogram: one, whatever is claimed of it."""
    votes, utility = votes_space("test", IntVector(4), USERS), GapUtility(3, None, None, 1.0)
    return matrix(lambda coins, h: draw_noisy_rank(coins, votes, h, utility, 1.5), TABLE)


@pytest.mark.few(1)
@pytest.mark.parametrize("accounting", ["renyi", "zcdp", "curve"])
def test_noisy_max_over_all_histograms(accounting, noisy_ranks):
    mechanism = NoisyMaxGaussian(k_max=3, scale=1.5, accounting=accounting)
    claim, found = mechanism.bind(IntVector(4), USERS), noisy_ranks
    for users in (1, 2):
        stated = claim.privacy_map(users)
        if accounting == "zcdp":
            assert fits_zcdp(found, stated, users)
        elif accounting == "renyi":
            assert all(renyi(found, PAIRS[users], a) <= stated(a) * (1 + 1e-9) for a in ALPHAS)
        else:
            assert all(hockey_stick(found, PAIRS[users], e) <= stated(e) for e in EPSILONS)
            assert stated(8.0 * users) < 0.05  # it is no empty claim


@pytest.mark.parametrize(
    "votes_each",
    [2, pytest.param(3, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.deep)],
)
def test_a_gaussian_histogram_of_three_items(votes_each):
    table = histograms(3, votes_each)
    votes, claim = (
        votes_space("test", IntVector(3), USERS),
        GaussianTopK(k=1, scale=0.7).bind(IntVector(3), USERS),
    )
    found = matrix(lambda coins, h: draw_noisy_top(coins, votes, h, 1, 0.7), table)
    for users in (1, 2):
        rho, pairs = claim.privacy_map(users), neighbours(table, users)
        assert all(renyi(found, pairs, a) <= rho * a * (1 + 1e-6) for a in ALPHAS)


@pytest.mark.deep
def test_top_stable_over_all_histograms():
    mechanism = TopStable(k=1, k_max=3, epsilon=1.5, delta=0.1)
    votes, claim = votes_space("test", IntVector(4), USERS), mechanism.bind(IntVector(4), USERS)
    found = matrix(
        lambda coins, h: draw_top_stable(
            coins, votes, h, 1, 3, mechanism.scales, mechanism.threshold()
        ),
        TABLE,
    )
    for users in (1, 2):
        epsilon, delta = claim.privacy_map(users)
        assert hockey_stick(found, PAIRS[users], epsilon) <= delta * (1 + 1e-9)


def test_the_rule_hands_on_map_and_draw_of_what_it_picks():
    """So what is enumerated for the mechanisms holds for the rule."""
    few = KnownCounts(
        "c",
        (SketchBlock("c", (9,), l1=1, l2_squared=1, linf=1),),
        monotone=True,
        items=tuple("abcdefghi"),
    )
    for domain, metric, params in (
        (IntVector(9), USERS, {"k": 3}),
        (IntVector(9), USERS, {"k_max": 4}),
        (few, VectorNorm("l2"), {"k": 4}),
    ):
        rule = TopK(scale=2.0, delta=1e-3, **params)
        claim = rule.bind(domain, metric)
        chosen, _ = rule.chosen(
            votes_space("t", domain, metric, ("linf", "l2"))
            if metric == USERS
            else _bounded(domain, metric)
        )
        own = chosen.bind(domain, metric)
        assert claim.measure == own.measure
        assert claim.privacy_map(1) == own.privacy_map(1)
        assert claim.reason.startswith(chosen.key)


def _bounded(domain, metric):
    return replace(votes_space("t", domain, metric, ("linf", "l2")), per_user=1)


def test_the_trees_of_a_quorum_are_laws():
    assert distribution(lambda coins: coins.reaches(1.0, 1)) == pytest.approx(
        {"True": gaussian_tail(1.0, 1), "False": 1 - gaussian_tail(1.0, 1)}
    )
