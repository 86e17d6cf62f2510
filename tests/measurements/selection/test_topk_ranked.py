"""Ranks, where the order of draws is paid for: exact laws against claims, and what a spec saves."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import opendp.prelude as dp
import pytest

import opendp_sim as sim
from opendp_sim.core.errors import ParameterError
from opendp_sim.domains.counts import USERS, OpenCounts, votes_space
from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.selection._impl.peeling import peeled, peeled_in_order
from opendp_sim.measurements.selection._impl.ranked import ranked_items
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK, draw_noisy_top
from opendp_sim.measurements.selection.limited_domain import LimitedDomain, draw_limited
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.top_k import TopK
from opendp_sim.plots.items import TopDisplay
from tests._enumeration import (
    approximate_renyi,
    distribution,
    histograms,
    hockey_stick,
    matrix,
    neighbours,
    renyi,
)

dp.enable_features("contrib")

SPECS = Path(__file__).parents[3] / "specs"
ITEMS = 4
TABLE = histograms(ITEMS, 2)
PAIRS = {users: neighbours(TABLE, users) for users in (1, 2)}
ALPHAS = (1.01, 2.0, 16.0)
DENSE = IntVector(ITEMS)
VOTES = votes_space("test", DENSE, USERS)


def fits(found, claim, users, accounting="zcdp"):
    loss = claim.privacy_map(users)
    if accounting == "curve":
        real = [hockey_stick(found, PAIRS[users], e) for e in (0.0, 0.5, 1.0, 2.0)]
        return all(
            r <= float(loss(e)) * (1 + 1e-9) + 1e-13
            for r, e in zip(real, (0.0, 0.5, 1.0, 2.0), strict=True)
        )
    if isinstance(loss, tuple):
        rho, delta = loss
        real = [approximate_renyi(found, PAIRS[users], delta, a) for a in ALPHAS]
    else:
        rho, real = loss, [renyi(found, PAIRS[users], a) for a in ALPHAS]
    return all(r <= rho * a * (1 + 1e-6) + 1e-9 for r, a in zip(real, ALPHAS, strict=True))


@pytest.mark.parametrize("accounting", ["zcdp", "curve"])
@pytest.mark.parametrize("k", [2, 3])
def test_the_order_of_peeling_is_paid_for(k, accounting):
    claim = Peel(k=k, scale=1.2, accounting=accounting, ranked=True).bind(DENSE, USERS)
    found = matrix(lambda coins, h: peeled_in_order(coins, VOTES, h, k, 1.2), TABLE)
    assert all(fits(found, claim, users, accounting) for users in (1, 2))


def test_the_order_of_winners_is_not_paid_for_by_drawing_losers():
    """Broken on purpose: three winners in their order at the price of one loser."""
    cheap = Peel(k=3, scale=1.2).bind(DENSE, USERS)
    found = matrix(lambda coins, h: peeled_in_order(coins, VOTES, h, 3, 1.2), TABLE)
    assert not fits(found, cheap, 1)
    assert cheap.privacy_map(1) < Peel(k=3, scale=1.2, ranked=True).bind(DENSE, USERS).privacy_map(
        1
    )


def test_ranks_are_of_the_set_that_peeling_releases():
    counts = np.array([3, 0, 2, 1])
    sets = distribution(lambda coins: peeled(coins, VOTES, counts, 2, 1.2))
    ranks = distribution(
        lambda coins: sorted(peeled_in_order(coins, VOTES, counts, 2, 1.2)["item"])
    )
    assert sets.keys() == ranks.keys()
    assert max(abs(sets[key] - ranks[key]) for key in sets) < 1e-12


@pytest.mark.parametrize("accounting", ["zcdp", "curve"])
@pytest.mark.parametrize("known", [True, False])
def test_the_order_of_a_limited_domain_is_paid_for(known, accounting):
    mechanism = LimitedDomain(
        k=2, k_max=3, scale=1.0, delta=0.1, accounting=accounting, ranked=True
    )
    domain = DENSE if known else OpenCounts(text=False)
    votes, claim = votes_space("test", domain, USERS), mechanism.bind(domain, USERS)
    height = int(claim.expected["height"])

    def draw(coins, h):
        data = h if known else {"item": np.flatnonzero(h), "votes": h[h > 0]}
        return draw_limited(coins, votes, data, 2, 3, 1.0, height, ranked=True)

    assert all(fits(matrix(draw, TABLE), claim, users, accounting) for users in (1, 2))


def test_noisy_counts_come_with_their_items_and_are_paid_for():
    table = histograms(2, 2)
    votes = votes_space("test", IntVector(2), USERS)
    claim = GaussianTopK(k=1, scale=1.3, ranked=True).bind(IntVector(2), USERS)
    found = matrix(lambda coins, h: draw_noisy_top(coins, votes, h, 1, 1.3, ranked=True), table)
    for users in (1, 2):
        rho, pairs = claim.privacy_map(users), neighbours(table, users)
        for (
            a
        ) in ALPHAS:  # the enumerated law ends at six deviations: 1e-6 is more than it leaves out
            assert approximate_renyi(found, pairs, 1e-6, a) <= rho * a * (1 + 1e-6)


def test_what_real_draws_release():
    counts = np.array([10**6, 5, 4 * 10**6, 2 * 10**6])
    stated = {"scale": 2.0, "delta": 1e-6}
    listed = TopK(k=3, ranked=True, **stated).bind(DENSE, USERS)
    assert listed.reason.startswith("peel: ranks")
    assert listed.function(counts) == {"rank": [1, 2, 3], "item": [2, 3, 0]}
    touched = VectorNorm("linf", steps=True, touched=1)
    few = TopK(k=3, ranked=True, **stated).bind(DENSE, touched)
    assert few.reason.startswith("gaussian_top_k")
    assert few.function(counts)["item"] == [2, 3, 0]
    told = GaussianTopK(k=2, scale=2.0, ranked=True).bind(DENSE, USERS).function(counts)
    assert (told["rank"], told["item"]) == ([1, 2], [2, 3])
    assert np.abs(np.array(told["count"]) - counts[[2, 3]]).max() < 40  # 20 deviations
    unknown = TopK(k=2, ranked=True, **stated).bind(OpenCounts(text=False), USERS)
    data = {"item": np.arange(4), "votes": counts}
    assert unknown.function(data) == {"rank": [1, 2], "item": [2, 3]}


def test_ranks_that_nobody_pays_for_are_refused():
    with pytest.raises(ParameterError, match=r"OS102.*ranked"):
        TopK(k_max=3, scale=1.0, delta=1e-6, ranked=True).bind(DENSE, USERS)
    with pytest.raises(ParameterError, match=r"OS102.*ranked"):
        Peel(k=2, scale=1.0, ranked=True).bind(OpenCounts(text=False, universe=9), USERS)


@pytest.mark.long
def test_a_spec_saves_ranks_beside_items(tmp_path):
    text = (SPECS / "bright-pixels.yaml").read_text("utf-8").replace("data/", f"{SPECS}/data/")
    assert "ranked: true" in text
    for kind in ("json", "csv"):
        done = sim.apply(sim.plan(text.replace("pixels.json", f"pixels.{kind}")), into=tmp_path)
        found = done.results["pixels"]
        path = done.files["pixels"]
        if kind == "json":
            assert json.loads(path.read_text()) == found
            assert TopDisplay.from_output(path).items == [str(item) for item in found["item"]]
            assert TopDisplay.from_output(path).ranked
        else:
            rows = list(csv.reader(path.read_text("utf-8").splitlines()))
            assert rows[0] == ["rank", "item"]
            assert [int(row[0]) for row in rows[1:]] == list(range(1, len(rows)))


def test_a_set_is_drawn_without_ranks(tmp_path):
    def drawn(display):
        (axes,) = display.plot().figure_.axes
        return [text.get_text() for text in axes.get_yticklabels()], axes.get_xlabel()

    names, about = drawn(TopDisplay(["x", "y"]))
    assert names == ["x", "y"]
    assert about == "a set: neither ranks nor counts were released"
    assert drawn(TopDisplay.of(ranked_items(["x", "y"])))[0] == ["1. x", "2. y"]
    assert drawn(TopDisplay.of(ranked_items(["x"], [7])))[1] == "released count"
