"""Items above a noisy threshold: exact laws of the code that runs, attained bounds, OpenDP's own map."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import opendp.prelude as dp
import pytest
from typer.testing import CliRunner

import opendp_sim as sim_face
import opendp_sim.prelude as sim
from opendp_sim.cli import app
from opendp_sim.core.errors import BudgetError, ParameterError, SpaceError
from opendp_sim.domains.counts import USERS, OpenCounts, votes_space
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.domains.records import Column, Records
from opendp_sim.measurements.selection.noise_threshold import (
    Apart,
    NoiseThreshold,
    draw_passing,
    law_of,
    passes,
    profile,
)
from opendp_sim.measurements.selection.top_k import TopK
from tests._enumeration import approximate_renyi, histograms, hockey_stick, matrix

dp.enable_features("contrib")

SPECS = Path(__file__).parents[3] / "specs"
OPEN = OpenCounts(text=False)
ONE, TWO = replace(USERS, touched=1), replace(USERS, touched=2)
TABLE = histograms(3, 3)
ALPHAS, EPSILONS = (2.0, 64.0), (0.0, 0.5, 1.5, 4.0)


def stored(h):
    return {"item": np.flatnonzero(h), "votes": h[h > 0]}


def near(users, items):
    """Pairs at most so many users apart, each of so many items: largest rise and fall, and all moves."""
    moves = TABLE[:, None, :] - TABLE[None, :, :]
    up, down = np.maximum(moves, 0), np.maximum(-moves, 0)
    most = np.maximum(up.max(axis=2), -(-up.sum(axis=2) // items))
    most = most + np.maximum(down.max(axis=2), -(-down.sum(axis=2) // items))
    return np.nonzero((most <= users) & (most > 0))


def law(mechanism, domain, metric):
    """Output distributions of all small histograms, by the function that the mechanism runs."""
    votes, claim = votes_space("test", domain, metric), mechanism.bind(domain, metric)
    bar = int(claim.expected["threshold"])

    def draw(coins, h):
        data = stored(h) if domain is OPEN else h
        k, noise, scale = mechanism.k, mechanism.noise, mechanism.scale
        return draw_passing(coins, votes, data, k, noise, scale, bar, ranked=mechanism.ranked)

    return claim, matrix(draw, TABLE)


@pytest.mark.parametrize("items", [1, 3])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_no_event_on_any_neighbours_exceeds_the_map_or_the_curve(noise, items):
    """And delta is attained: at an epsilon beyond the noise's own loss nothing else is left."""
    stated = {"noise": noise, "scale": 0.9 * items**0.5, "delta": 0.08, "distance": 2}
    metric = replace(USERS, touched=items)
    claim, found = law(NoiseThreshold(**stated), OPEN, metric)
    curve, _ = law(NoiseThreshold(accounting="curve", **stated), OPEN, metric)
    for users in (1, 2):
        pairs, (rho, delta) = near(users, items), claim.privacy_map(users)
        for a in ALPHAS:
            assert approximate_renyi(found, pairs, delta, a) <= rho * a * (1 + 1e-6) + 1e-9
        for epsilon in EPSILONS:
            real = hockey_stick(found, pairs, epsilon)
            assert real <= curve.privacy_map(users)(float(epsilon)) * (1 + 1e-9) + 1e-13
        alone = hockey_stick(found, pairs, 60.0)
        assert alone <= delta * (1 + 1e-9)
        if items * users <= 3:  # there are no more items
            assert alone == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_ranks_and_noisy_counts_are_paid_for(noise):
    """Two items above zero at most: the tree of a third one's counts has a million paths."""
    keep = (TABLE[:, 0] == 0) & (TABLE.max(axis=1) < 3)
    scale = 0.8 if noise == "gaussian" else 0.5
    mechanism = NoiseThreshold(k=1, scale=scale, delta=0.05, noise=noise, ranked=True)
    votes, claim = votes_space("test", OPEN, TWO), mechanism.bind(OPEN, TWO)
    bar, table = int(claim.expected["threshold"]), TABLE[keep]
    found = matrix(
        lambda c, h: draw_passing(c, votes, stored(h), 1, noise, scale, bar, ranked=True), table
    )
    numbers = np.flatnonzero(keep)
    place = {int(n): i for i, n in enumerate(numbers)}
    left, right = near(1, 2)
    inside = np.isin(left, numbers) & np.isin(right, numbers)
    pairs = [np.array([place[int(n)] for n in side[inside]]) for side in (left, right)]
    rho, delta = claim.privacy_map(1)
    for a in ALPHAS:
        assert approximate_renyi(found, pairs, delta + 1e-6, a) <= rho * a * (1 + 1e-6) + 1e-9


def test_a_threshold_one_vote_lower_is_seen():
    """Broken on purpose: what OpenDP's `more than` would ask for, released at the threshold itself."""
    mechanism = NoiseThreshold(scale=0.9, delta=0.08)
    votes, claim = votes_space("test", OPEN, ONE), mechanism.bind(OPEN, ONE)
    bar = int(claim.expected["threshold"]) - 1
    found = matrix(
        lambda c, h: draw_passing(c, votes, stored(h), None, "gaussian", 0.9, bar), TABLE
    )
    assert hockey_stick(found, near(1, 1), 60.0) > 1.5 * claim.privacy_map(1)[1]


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_worst_split_of_votes_is_at_an_end(noise):
    """Every multiset of at most four votes on items of one side, by brute force over partitions."""
    rng = np.random.default_rng(5)
    for _ in range(40):
        scale, users, items = float(rng.uniform(0.3, 9)), int(rng.integers(1, 6)), 1
        found, apart = law_of(noise, scale), Apart(users, items * int(rng.integers(1, 3)))
        bar = users + int(rng.integers(1, 30))

        def chance(parts, found=found, bar=bar):
            return -math.expm1(sum(math.log1p(-found.tail(bar - v)) for v in parts))

        worst = max(chance(p) for p in partitions(apart.total, users))
        bound = passes(found, bar, apart, apart.total)
        assert worst * (1 - 1e-12) <= bound <= worst * (1 + 1e-9) + 1e-299


def partitions(total, most):
    """All ways to write ``total`` as a sum of whole numbers up to ``most``, most first."""
    if total == 0:
        yield ()
    for first in range(min(total, most), 0, -1):
        for rest in partitions(total - first, first):
            yield (first, *rest)


def test_blocks_of_splits_lose_nothing_to_every_single_split():
    """The curve over blocks is above that over all splits, and equal where a user has one item."""
    for noise in ("gaussian", "laplace"):
        for users, items in ((1, 1), (2, 1), (1, 40)):
            apart = Apart(users, items)
            found, bar = law_of(noise, 4.0 * items**0.5), users + 25
            for epsilon in (0.1, 0.7, 1.5):
                every = []
                for u in range(apart.total + 1):
                    own = passes(found, bar, apart, u)
                    every.append(own + (1 - own) * found.delta(apart, apart.total - u, epsilon))
                blocks = profile(found, bar, apart, epsilon)
                assert max(every) <= blocks <= max(every) * (1.05 if items > 1 else 1 + 1e-9)


@pytest.mark.parametrize("items", [1, 3])
def test_opendps_own_map_says_the_same_of_the_threshold_before(items):
    """Its delta leaves out counts equal to the threshold (audit/upstream/laplace_threshold.md)."""
    counts = dp.map_domain(dp.atom_domain(T="i64"), dp.atom_domain(T="i64"))
    for scale in (0.8, 3.0):
        own = NoiseThreshold(scale=scale, delta=1e-4, noise="laplace").bind(
            OPEN, replace(USERS, touched=items)
        )
        bar = int(own.expected["threshold"])
        native = dp.m.make_laplace_threshold(
            counts, dp.l01inf_distance(dp.absolute_distance(T="i64")), scale, threshold=bar - 1
        )
        epsilon, delta = native.map((items, items, 1))
        rho, ours = own.privacy_map(1)
        assert rho == pytest.approx(epsilon**2 / 2, rel=1e-12)
        assert ours == pytest.approx(delta, rel=1e-9)


def test_what_is_refused():
    stated = {"scale": 2.0, "delta": 1e-6}
    with pytest.raises(SpaceError, match=r"OS202.*bound on the items.*max_items"):
        NoiseThreshold(**stated).bind(OPEN, USERS)
    claim = NoiseThreshold(**stated).bind(OPEN, ONE)
    far = int(claim.expected["threshold"])
    with pytest.raises(BudgetError, match="OS404"):
        claim.privacy_map(far)
    assert claim.privacy_map(far - 1)[1] == pytest.approx(0.5, abs=0.2)
    assert claim.privacy_map(0) == (0.0, 0.0)
    with pytest.raises(ParameterError, match=r"OS101.*scale"):
        NoiseThreshold(scale=2.0**60, delta=1e-6)


def test_the_bound_on_items_comes_from_the_counting():
    records = Records((Column("who", "int64", role="privacy_id"), Column("word", "int64")))
    of = {"item": "word", "max_items": 2}
    bounded = sim.make_vote_counts(records, IdDistance("who"), **of)
    release = bounded >> sim.then_noise_threshold(k=2, scale=2.0, delta=1e-6)
    own = NoiseThreshold(k=2, scale=2.0, delta=1e-6).bind(OPEN, TWO)
    assert [release.map(d) for d in (1, 2, 3)] == [own.privacy_map(d) for d in (1, 2, 3)]
    votes = {"who": np.repeat(np.arange(900), 2), "word": np.tile([3, 5], 900)}
    assert release(votes) == [3, 5]
    free = sim.make_vote_counts(records, IdDistance("who"), item="word")
    with pytest.raises((SpaceError, dp.OpenDPException), match=r"OS202|Mismatch"):
        free >> sim.then_noise_threshold(k=2, scale=2.0, delta=1e-6)


def test_the_rule_takes_it_where_it_needs_fewer_votes_and_less_noise():
    stated = {"scale": 2.0, "delta": 1e-6}

    def rule(k, metric, **more):
        claim = TopK(k=k, **stated, **more).bind(OPEN, metric)
        return claim.reason.split(":")[0], claim

    few = replace(USERS, touched=4)
    assert rule(10, few)[0] == rule(10, few, accounting="curve")[0] == "noise_threshold"
    assert rule(3, few)[0] == "noise_threshold"
    assert rule(2, few)[0] == "limited_domain"  # 4 is above 1.5 x 2
    assert rule(10, USERS)[0] == rule(10, few, k_max=50)[0] == "limited_domain"
    assert rule(1, ONE)[0] == "noise_threshold"
    assert rule(1, TWO)[0] == "limited_domain"
    name, claim = rule(1, ONE, accounting="curve")
    assert name == "noise_threshold"
    assert "Laplace" in claim.reason
    assert "votes passes, whatever k is" in claim.reason
    own = NoiseThreshold(k=1, noise="laplace", accounting="curve", **stated).bind(OPEN, ONE)
    assert claim.privacy_map(1)(0.3) == own.privacy_map(1)(0.3)
    assert rule(1, TWO, accounting="curve")[0] == "limited_domain"
    assert rule(2, replace(USERS, touched=3))[0] == "noise_threshold"
    assert TopK(k=1, **stated).bind(OpenCounts(False, 50), ONE).reason.startswith("peel")


def test_a_spec_that_counts_a_person_for_few_items_gets_it_by_default(tmp_path):
    """And the plan says from how many votes on an item is listed."""
    text = (SPECS / "bright-pixels.yaml").read_text("utf-8").replace("data/", f"{SPECS}/data/")
    few = sim_face.plan(text.replace("{item: pixel}", "{item: pixel, max_items: 1}"))
    assert "an item with 16 votes or more is listed in 95% of runs" in str(few)
    assert few.releases["top"].bound.claim.reason.startswith("noise_threshold: ")
    saved = tmp_path / "bright-pixels.yaml"
    saved.write_text(text, "utf-8")
    shown = CliRunner().invoke(app, ["plan", str(saved), "-v"]).output
    assert "listed in 95% of runs, unless" in " ".join(shown.split())
