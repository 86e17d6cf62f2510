"""The baseline: exact coins, a total order, the accountant, a promise that is kept."""

from __future__ import annotations

import math
import sys

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st

from opendp_sim.accounting.session.session import Session
from opendp_sim.core.errors import AuditError, BudgetError
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl import subsampled_votes
from opendp_sim.measurements.knn._impl.subsampled_votes import (
    RATE_STEPS,
    dyadic_rate,
    epsilon_of,
    scale_for,
)
from opendp_sim.measurements.knn._impl.vote_noise import Stock
from opendp_sim.measurements.knn.private_knn import PrivateKnn, SampledVotes, coins, nearest_places
from tests._tiers import some

dp.enable_features("contrib")
accounting = pytest.importorskip("dp_accounting")
GRID = GridRows(width=2, labels=("left", "up"), unit=0.01, lower=(-100,), upper=(100,))
LEFT, UP = [-100.0, 0.0], [0.0, 100.0]
DATA = Rows(np.repeat([LEFT, UP], 500, axis=0), np.repeat([0, 1], 500))
PLAIN = {"epsilon": 1.0, "delta": 1e-6, "queries": 40, "centre": False}


def gaussian_epsilon(scale, rate, queries, delta):
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    event = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(scale / math.sqrt(2)))
    return accountant.compose(event, queries).get_epsilon(delta)


@pytest.mark.parametrize(("scale", "rate", "queries"), [(20.0, 0.2, 100), (3.0, 0.05, 60)])
def test_the_loss_is_that_of_the_subsampled_gaussian(scale, rate, queries):
    """At scales of a few units the discrete law's loss is the continuous one's, up to rounding."""
    ours = epsilon_of(scale, rate, queries, 1e-5)
    theirs = gaussian_epsilon(scale, rate, queries, 1e-5)
    assert theirs * 0.999 < ours < theirs + 0.015


def test_one_query_without_sampling_against_the_exact_sum():
    """At rate 1, delta(epsilon) is a sum over the difference of two cells, done here by brute force."""
    scale, epsilon = 1.5, 1.2
    cells = np.arange(-25, 26)
    law = np.exp(-(cells**2) / (2 * scale**2))
    law /= law.sum()
    p = law[:, None] * law[None, :]
    q = np.exp(-((cells - 1) ** 2) / (2 * scale**2))[:, None] * np.exp(
        -((cells + 1) ** 2) / (2 * scale**2)
    )
    q /= q.sum()
    delta = np.maximum(q - np.exp(epsilon) * p, 0).sum()
    assert epsilon_of(scale, 1.0, 1, float(delta)) == pytest.approx(epsilon, abs=0.001)


def exact_pairs(scale, rate, queries):
    """The laws of a transcript's loss, by brute force: losses with and without a record, masses."""
    reach = math.ceil(14 * scale * math.sqrt(2)) + 3
    cells = np.arange(-reach, reach + 1)
    law = np.exp(-(np.arange(-2 * reach, 2 * reach + 1) ** 2) / (2 * scale**2))
    law /= law.sum()
    plain = np.convolve(law, law)  # of X - Y
    middle = len(plain) // 2
    plain = plain[middle + cells]
    mixed = (1 - rate) * plain + rate * plain * np.exp((cells - 1) / scale**2)
    p, q = np.ones(1), np.ones(1)
    for _ in range(queries):
        p, q = np.outer(p, plain).ravel(), np.outer(q, mixed).ravel()
    return p, q


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("scale", "rate", "queries"),
    [
        (0.4, 0.001, 2),
        (0.7, 0.3, 2),
        (0.8, 1.0, 2),
        (2.0, 1.0, 2),
        (3.0, 0.2, 2),
        (5.0, 1e-6, 2),
        (0.5, 0.1, 3),
        (1.0, 0.01, 3),
        (40.0, 0.5, 1),
        (40.0, 1e-7, 1),
        (0.3, 1e-9, 1),
    ],
)
@pytest.mark.parametrize("delta", some([1e-3, 1e-7, 1e-11], 2))
def test_the_grid_of_losses_never_makes_a_loss_smaller(scale, rate, queries, delta):
    """At the epsilon that is claimed, delta summed over all transcripts is no more than delta."""
    p, q = exact_pairs(scale, rate, queries)
    claimed = epsilon_of(scale, rate, queries, delta)

    def spent(epsilon):
        return max(
            np.maximum(q - np.exp(epsilon) * p, 0).sum(),
            np.maximum(p - np.exp(epsilon) * q, 0).sum(),
        )

    assert spent(claimed) <= delta
    if claimed > 0:
        assert spent(claimed - 0.003 - 0.01 * claimed) > delta


@pytest.mark.parametrize(
    ("epsilon", "delta", "queries", "rate"),
    [
        pytest.param(50.0, 1e-9, 1000, 1e-3, marks=pytest.mark.long),
        pytest.param(20.0, 1e-9, 1000, 1e-3, marks=pytest.mark.deep),
        (2.0, 1e-5, 5000, 0.2),
        pytest.param(1.0, 1e-6, 10**6, 1e-3, marks=pytest.mark.deep),
        pytest.param(1.0, 1e-6, 10**6, 0.2, marks=pytest.mark.long),
        (0.1, 1e-9, 10**5, 0.01),
        (1.0, 1e-12, 1, 1.0),
    ],
)
def test_any_scale_is_found_by_few_losses(epsilon, delta, queries, rate, monkeypatch):
    """Each loss takes up to a second, and the search once took a minute and more."""
    losses: list[float] = []

    def counted(*given):
        losses.append(epsilon_of(*given))
        return losses[-1]

    monkeypatch.setattr(subsampled_votes, "epsilon_of", counted)
    scale = scale_for(epsilon, delta, queries, rate)
    assert len(losses) <= 20
    found = epsilon_of(scale, rate, queries, delta)
    assert 0.99 * epsilon <= found <= epsilon


def test_a_solved_scale_fits_and_is_near_the_least():
    scale = scale_for(1.0, 1e-5, 50, 0.1)
    assert epsilon_of(scale, 0.1, 50, 1e-5) <= 1.0
    assert epsilon_of(scale * 0.98, 0.1, 50, 1e-5) > 1.0
    with pytest.raises(BudgetError, match="OS401"):
        scale_for(1e-6, 1e-9, 10, 1.0)


@pytest.mark.few(1)
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("epsilon", "delta", "rate"), [(1.0, 1e-5, 1e-6), (50.0, 1e-5, 1.0), (50.0, 1e-5, 0.5)]
)
def test_where_hardly_any_noise_is_needed_there_is_a_least_scale(epsilon, delta, rate):
    scale = scale_for(epsilon, delta, 1, rate)
    assert scale == 0.3
    assert epsilon_of(scale, rate, 1, delta) <= epsilon
    cells = np.arange(-12, 13)
    law, moved = (np.exp(-((cells - s) ** 2) / (2 * scale**2)) for s in (0, 1))
    law, moved = law / law.sum(), moved / moved.sum()
    p = law[:, None] * law[None, :]
    q = (1 - rate) * p + rate * moved[:, None] * moved[::-1][None, :]
    found = epsilon_of(scale, rate, 1, delta)
    for one, other in ((q, p), (p, q)):
        assert np.maximum(one - np.exp(found) * other, 0).sum() <= delta * (1 + 1e-9)


def test_without_the_accountant_a_coded_refusal(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(AuditError, match="OS503"):
        epsilon_of(7.5, 0.25, 3, 1e-4)


RECORD = st.tuples(st.integers(0, 3), st.integers(0, 2))
PAIRS = st.lists(RECORD, max_size=12)
"""Scores and labels, with many ties."""


def found_votes(rows, count):
    scores, labels = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    return np.bincount(labels[nearest_places(scores, labels, count)], minlength=3)


@settings(max_examples=200, deadline=None)
@given(scores=PAIRS, count=st.integers(1, 6), place=st.integers(0, 12), score=RECORD)
def test_one_more_record_displaces_at_most_one(scores, count, place, score):
    place = min(place, len(scores))
    more = [*scores[:place], score, *scores[place:]]
    votes = [found_votes(rows, count) for rows in (scores, more)]
    moved = votes[1] - votes[0]
    assert votes[1].sum() == min(count, len(more))
    assert (moved > 0).sum() <= 1
    assert np.abs(moved).max(initial=0) <= 1
    assert np.abs(moved).sum() <= 2


@given(PAIRS, st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_order_of_records_is_no_part_of_their_votes(rows, count, shuffle):
    mixed = list(rows)
    shuffle.shuffle(mixed)
    assert found_votes(rows, count).tolist() == found_votes(mixed, count).tolist()
    best = sorted(rows, key=lambda row: (-row[0], row[1]))[:count]
    expected = np.bincount([label for _, label in best], minlength=3)
    assert found_votes(rows, count).tolist() == expected.tolist()


def test_coins_are_exact():
    """400,000 coins: 5 deviations of a binomial share, below 1e-6."""
    assert dyadic_rate(0.2) == math.ceil(0.2 * RATE_STEPS)
    assert not coins(1000, 0).any()
    assert coins(1000, RATE_STEPS).all()
    share = coins(400_000, dyadic_rate(0.2)).mean()
    assert abs(share - 0.2) < 5 * math.sqrt(0.2 * 0.8 / 400_000)


def test_no_more_queries_than_were_promised(tmp_path):
    service = SampledVotes(PrivateKnn(**PLAIN), GRID, DATA, 5.0)
    told = service.predict(np.array([LEFT, UP])).labels
    assert set(told) <= {"left", "up"}  # noise decides which
    with pytest.raises(BudgetError, match="OS406"):
        service.predict(np.array([LEFT] * 39))
    service.predict(np.array([LEFT] * 38))
    with pytest.raises(BudgetError, match="OS406"):
        service.predict(np.array([LEFT]))
    stages = bind_steps(GRID, Symmetric(), [PrivateKnn(**PLAIN)])
    for _ in range(2):
        with Session(stages, lambda: [DATA], tmp_path / "s.sqlite") as session:
            session.ask(np.array([LEFT] * 20))
    with Session(stages, lambda: [DATA], tmp_path / "s.sqlite") as session:
        assert session.answered == 40
        with pytest.raises(BudgetError, match="OS406"):
            session.ask(np.array([LEFT]))


def test_a_failure_uses_everything_up(monkeypatch):
    service = SampledVotes(PrivateKnn(**PLAIN), GRID, DATA, 5.0)
    with monkeypatch.context() as patched:
        patched.setattr(Stock, "noisy", lambda *_: 1 / 0)
        with pytest.raises(Exception, match="OS902"):
            service.predict(np.array([LEFT]))
    with pytest.raises(BudgetError, match="OS406"):
        service.predict(np.array([LEFT]))


def test_group_privacy_is_stated():
    claim = PrivateKnn(**PLAIN).bind(GRID, Symmetric())
    assert claim.privacy_map(1) == (1.0, 1e-6)
    epsilon, delta = claim.privacy_map(2)
    assert (epsilon, delta) == pytest.approx((2.0, 1e-6 * (1 + math.e)))
    assert claim.privacy_map(1000)[1] == 1.0
    assert claim.expected["vote_noise"] == PrivateKnn(**PLAIN).scale


def test_noise_is_added_when_nobody_is_there():
    empty = Rows(np.empty((0, 2)), np.empty(0, dtype=int))
    answers = SampledVotes(PrivateKnn(**PLAIN), GRID, empty, 5.0).predict(np.array([LEFT] * 40))
    assert set(answers.labels) == {"left", "up"}  # all equal: 2**-39


def test_measured_noise_is_what_the_plan_says():
    """2,000 noise values: five deviations of a sample deviation, 1e-6."""
    setting = PrivateKnn(**(PLAIN | {"queries": 1000}))
    promised = setting.bind(GRID, Symmetric()).expected["vote_noise"]
    empty = Rows(np.empty((0, 2)), np.empty(0, dtype=int))
    votes = SampledVotes(setting, GRID, empty, setting.scale).predict(np.array([LEFT] * 1000)).votes
    assert abs(votes.std() / promised - 1) < 5 / np.sqrt(2 * votes.size)
