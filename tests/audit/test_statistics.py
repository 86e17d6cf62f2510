"""The pieces on which every verdict rests: curves, wealth, limits, encodings, distances."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import NoiseLaw, Subject
from opendp_sim.audit.checks.distribution import distribution_layer, hockey_stick
from opendp_sim.audit.claims.curves import approx_curve, claimed_curve, gaussian_delta, renyi_curve
from opendp_sim.audit.claims.output_distance import exceeds, measure_distance
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import GivenPairs
from opendp_sim.audit.layers import SHARES
from opendp_sim.audit.outputs.encoding import Raised, encode
from opendp_sim.audit.statistics.betting import Bet, Wealth, best_bet, both_ways, settle_bets
from opendp_sim.audit.statistics.clopper_pearson import (
    certified_delta,
    draws_needed,
    lower_limit,
    smallest_excess,
    upper_limit,
)
from opendp_sim.audit.statistics.sampling import draw, spots_of
from opendp_sim.audit.work import charge, work_seconds
from tests.audit.twins.stand_ins import LINE, PURE, SYMMETRIC, laplace


def test_curve_of_pure_dp_is_attained_by_randomised_response():
    p, q = math.e / (1 + math.e), 1 / (1 + math.e)
    grid = np.array([0.0, 0.3, 0.7, 1.0])
    attained = [hockey_stick({0: p, 1: q}, {0: q, 1: p}, float(e)) for e in grid]
    assert np.allclose(approx_curve(1.0, 0.0).delta(grid), attained)


@pytest.mark.parametrize("mu", [0.2, 1.0, 2.0])
def test_zcdp_curve_is_above_the_gaussian_and_below_the_usual_conversion(mu: float):
    rho = mu * mu / 2
    grid = np.linspace(0.25, 4, 12)
    curve = renyi_curve(lambda a: a * rho, 0.0, "").delta(grid)
    assert (curve >= [gaussian_delta(mu, float(e)) for e in grid]).all()
    alphas = np.linspace(1.01, 200, 4000)[:, None]
    logs = (alphas - 1) * (alphas * rho - grid) + alphas * np.log1p(-1 / alphas)
    usual = np.exp(np.minimum(logs - np.log(alphas - 1), 0.0))
    assert (curve <= np.minimum(usual.min(axis=0), 1) + 2e-3).all()


def test_claims_of_every_measure_are_read():
    count = dp.t.make_count(LINE, SYMMETRIC)
    pure = count >> dp.m.then_laplace(1.0)
    gauss = count >> dp.m.then_gaussian(1.0)
    profile = dp.c.make_zCDP_to_approxDP(gauss)
    fixed = dp.c.make_fix_delta(profile, 1e-2)
    for made in (pure, gauss, profile, fixed, dp.c.make_approximate(gauss)):
        curve = claimed_curve(made.output_measure, made.map(1))
        assert (np.diff(curve.deltas) <= 1e-12).all()
        assert (
            curve.deltas >= [gaussian_delta(1.0, float(e)) for e in curve.grid]
        ).all() or made is pure


def test_wealth_is_fair_at_the_boundary_of_the_claim():
    """Exactly: the expected factor of one round is 1 when P[A] = e^eps P[B] + delta."""
    for epsilon, delta, q in ((1.0, 0.0, 0.2), (0.5, 0.1, 0.3)):
        p = math.exp(epsilon) * q + delta
        bet = Bet(
            "x", lambda e: e.cells[:, 0], 0.5, epsilon, delta, (0.7, 0.1), 3.0, (p, q), (9, 9)
        )
        factor = np.zeros(2)
        for a, pa in ((1.0, p), (0.0, 1 - p)):
            for b, pb in ((1.0, q), (0.0, 1 - q)):
                factor += pa * pb * np.exp(settle_bets(bet, encode([a]), encode([b]))[:, 0])
        assert factor == pytest.approx(1.0)
        assert np.isfinite(settle_bets(bet, encode([0.0]), encode([1.0]))).all()


@pytest.mark.parametrize("excess", [0.7, 1.0, 1.3])
def test_betting_both_ways_is_a_supermartingale_exactly_within_the_claim(excess: float):
    """Exactly, over all outcomes: E[F] = 1 at the boundary, below it inside, above it outside."""
    epsilon, delta, q, r = 1.0, 0.02, 0.15, 0.2
    p, s = (excess * (math.exp(epsilon) * x + delta) for x in (q, r))
    left_law = {(1, 0): p, (0, 1): r, (0, 0): 1 - p - r}  # S and T are disjoint, T on the other end
    right_law = {(1, 0): q, (0, 1): s, (0, 0): 1 - q - s}
    values = {(1, 0): 1.0, (0, 1): -1.0, (0, 0): 0.0}
    high = Bet(
        "s", lambda e: e.cells[:, 0], 0.5, epsilon, delta, (0.4, 0.1, 0.0), 9.0, (p, q), (9, 9)
    )
    low = Bet(
        "t", lambda e: -e.cells[:, 0], 0.5, epsilon, delta, (0.5, 0.1, 0.3), 9.0, (s, r), (9, 9)
    )
    mean = np.zeros(3)
    for a, pa in left_law.items():
        for b, pb in right_law.items():
            change = settle_bets(
                replace(high, against=low), encode([values[a]]), encode([values[b]])
            )
            assert np.isfinite(change).all()
            mean += pa * pb * np.exp(change[:, 0])
    if excess == 1.0:
        assert mean == pytest.approx(1.0, abs=1e-12)
    elif excess < 1:
        assert (mean < 1).all()
    else:
        assert (mean > 1).all()


def test_stakes_of_two_bets_never_risk_the_whole_wealth():
    """However strong both look, the worst outcome leaves two percent, and both events are bet on."""
    rng = np.random.default_rng(5)
    left, right = encode(list(laplace((4000,), 0.6) + 1)), encode(list(laplace((4000,), 0.6)))
    for _ in range(20):
        epsilon = float(rng.choice([0.0, 0.5, 1.0]))
        curve = approx_curve(epsilon, float(rng.choice([0.0, 0.01])))
        score = {"first cell": lambda e: e.cells[:, 0]}
        back = {"minus": lambda e: -e.cells[:, 0]}
        one = best_bet(score, left, right, curve, slice(None))
        two = best_bet(back, right, left, curve, slice(None))
        joined = both_ways(one, two, left, right)
        total = np.array(joined.stakes) + np.array(joined.against.stakes)
        assert (np.array(joined.against.stakes) > 0).any()
        assert (total <= 0.98 + 1e-12).all()
        assert np.isfinite(settle_bets(joined, encode([-9.0]), encode([9.0]))).all()


def test_wealth_stops_at_the_goal():
    wealth = Wealth()
    assert wealth.add(np.array([[1.0, 2.0, 5.0, -50.0]]), 6.9)
    assert wealth.rounds == 3
    assert wealth.peak >= 6.9


def test_players_who_share_neither_gain_nor_lose():
    """Sharing leaves the wealth of all together as it was, so it stays a supermartingale."""
    wealth = Wealth()
    wealth.add(np.array([[0.5], [-3.0], [0.1]]), 6.9)
    together = (math.exp(0.5) + math.exp(-3.0) + math.exp(0.1)) / 3
    assert wealth.log == pytest.approx(math.log(together))
    assert min(wealth.purses) > math.log(0.03 / 3 * together)


def test_the_player_who_never_bets_keeps_what_the_others_lose():
    """However wrong a small sample was, a quarter is left, and all players have some of it again."""
    wealth = Wealth()
    wealth.add(np.array([[-30.0], [-30.0], [-30.0], [0.0]]), 6.9)
    assert wealth.log == pytest.approx(math.log(0.25))
    assert min(wealth.purses) >= math.log(0.25 / 2 / 4) - 1e-9
    sure = {"x": lambda e: e.cells[:, 0]}
    bet = best_bet(
        sure, encode([1.0] * 400), encode([0.0] * 400), approx_curve(1.0, 0.0), slice(None)
    )
    assert all(stake > 0 for stake in bet.stakes[:-1])
    assert bet.stakes[-1] == 0


def _wide(cells: int, moved: tuple[int, ...], scale: float) -> Subject:
    """One person moves a few of many cells by one; the claim is what noise of scale 1 a move gives."""

    def core(x: Any) -> np.ndarray:
        counts = np.zeros(cells)
        counts[list(moved)] = len(x)
        return counts

    return Subject(
        run=lambda x: core(x) + laplace((cells,), scale),
        input_domain=LINE,
        input_metric=SYMMETRIC,
        sample=lambda x, n: list(core(x) + laplace((n, cells), scale)),
        privacy_map=lambda d: float(len(moved) * d),
        measure=PURE,
        core=core,
        noise=NoiseLaw("discrete_laplace", 1.0),
    )


def test_of_a_wide_release_the_cells_that_move_are_looked_at():
    wide = _wide(3000, (7, 2901), 1.0)
    spots = spots_of(wide, Pair([], [1], 1))
    assert {7, 2901} <= set(spots.tolist())
    release = np.arange(3000.0)
    (kept,) = draw(replace(wide, sample=lambda x, n: [release]), [], 1, spots)
    assert np.array_equal(kept, [*spots, release.sum()])
    assert spots_of(_wide(300, (7,), 1.0), Pair([], [1], 1)) is None


@pytest.mark.audit
def test_half_the_noise_on_one_cell_of_thousands_is_seen_by_the_whole_curve():
    """False-alarm rate of the layer 1e-6; the claimed noise would be sound."""
    pairs = GivenPairs((Pair([], [1], 1),))
    half = _wide(3000, (2901,), 0.5)
    found = distribution_layer(half, pairs, 1, Effort.of("quick"), np.random.default_rng(0), 1e-6)
    assert found.status == "refuted"


def test_clopper_pearson_limits_are_exact_tails():
    from scipy.stats import binom

    low, high = lower_limit(30, 100, 0.01), upper_limit(30, 100, 0.01)
    assert binom.sf(29, 100, low) == pytest.approx(0.01)
    assert binom.cdf(30, 100, high) == pytest.approx(0.01)
    assert certified_delta((100, 0), (100, 100), 1.0, 1e-3) > 0.5
    assert certified_delta((30, 30), (100, 100), 0.0, 1e-3) < 0


@pytest.mark.audit
def test_betting_and_clopper_pearson_agree_on_a_broken_count():
    """Half of the noise: both refute. False-alarm rate of the layer 1e-6."""

    def many(x, count):
        return list(len(x) + laplace((count,), 0.5))

    subject = Subject(
        run=lambda x: many(x, 1)[0],
        sample=many,
        input_domain=LINE,
        input_metric=SYMMETRIC,
        privacy_map=lambda d: 1.0 * d,
        measure=PURE,
    )
    pairs = GivenPairs((Pair([], [1], 1),))
    result = distribution_layer(
        subject, pairs, 1, Effort.of("quick"), np.random.default_rng(0), 1e-6
    )
    assert result.status == "refuted"
    assert result.evidence.extra["clopper_pearson_agrees"]
    assert 1.0 < result.evidence.extra["certified_epsilon_at_delta"] <= 2.0


def test_an_encoding_depends_on_its_own_output_alone():
    outputs = [
        {},
        {"a": 1},
        {"a": 1, "b": 2},
        [],
        [1.0, 2.0],
        ((1, 2), (3,)),
        None,
        True,
        3.5,
        np.arange(3.0),
        np.arange(5),
        [math.nan, 0.0],
        "abc",
        (True, False),
        {1, 2},
        [3.0, 3.0, 1.0],
        [[1, 2], [3]],
        Raised("ValueError: x"),
    ]
    whole = encode(outputs)
    for spot, output in enumerate(outputs):
        one = encode([output, output])
        width = one.cells.shape[1]
        assert one.symbols[0] == whole.symbols[spot]
        assert np.array_equal(one.cells[0], whole.cells[spot, :width], equal_nan=True)
        assert np.isnan(whole.cells[spot, width:]).all()
        assert np.array_equal(one.summary[0], whole.summary[spot])


def test_distances_are_exact():
    assert measure_distance("SymmetricDistance", [1, 1, math.nan], [1, math.nan, 2]) == 2
    assert measure_distance("InsertDeleteDistance", [1, 2, 3], [2, 3, 1]) == 2
    assert measure_distance("HammingDistance", [1, 2, 3], [2, 3, 1]) == 3
    assert measure_distance("ChangeOneDistance", [1, 2], [2, 3]) == 1
    assert measure_distance("L2Distance", [3, 0], [0, 4]) == 25
    assert measure_distance("L1Distance", np.array([2**62, 0]), np.array([2**62 - 1, 0])) == 1
    assert measure_distance("AbsoluteDistance", 0.1 + 0.2, 0.3) == Fraction(0.1 + 0.2) - Fraction(
        0.3
    )
    assert exceeds("L2Distance", 25, 4.999999)
    assert not exceeds("L2Distance", 25, 5.0)
    assert measure_distance("AbsoluteDistance", math.nan, 1.0) == math.inf
    assert measure_distance("L01InfDistance", {"a": 2}, {"b": 1}) == (2, 3, 2)


def test_power_statement_is_computed():
    assert smallest_excess(1.0, 0, 1e-3) == math.inf
    few, many = (smallest_excess(1.0, n, 1e-3) for n in (1_000, 50_000))
    assert 1 < many < few
    assert draws_needed(1.0, many, 1e-3) == pytest.approx(50_000, rel=1e-3)


def test_the_layers_share_one_risk() -> None:
    assert sum(map(Fraction, map(str, SHARES.values()))) == 1


@pytest.mark.audit
@pytest.mark.parametrize("cost", [1e-5, 3e-3])
def test_the_second_tester_keeps_to_its_part_of_the_work(cost):
    """Work of releases alone: a slow mechanism gets no more runs than half of what was done before."""
    budget = Effort.of("quick")

    def many(x, count):
        charge(cost * count)
        return list(len(x) + laplace((count,), 0.3))

    subject = Subject(
        run=lambda x: many(x, 1)[0],
        sample=many,
        input_domain=LINE,
        input_metric=SYMMETRIC,
        privacy_map=lambda d: 1.0 * d,
        measure=PURE,
    )
    begin = work_seconds()
    charge(1.0)
    own = cost * (work_seconds() - begin)  # the clock of the suite may go faster
    pairs, begin = GivenPairs((Pair([], [1], 1),)), work_seconds()
    found = distribution_layer(subject, pairs, 1, budget, np.random.default_rng(0), 1e-6)
    assert found.status == "refuted"
    after = work_seconds() - begin - found.seconds
    assert after <= max(0.05 * budget.seconds, found.seconds / 2, 400 * own) * 1.01
    assert (after > 7999 * own) == (cost < 1e-4)  # what is quick has all the runs that it wants
