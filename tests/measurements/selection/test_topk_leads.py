"""Leads that a plan states of a ranking: as often as it says, by exact laws and by draws."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.domains.counts import USERS, OpenCounts
from opendp_sim.domains.sketch import IntVector
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.types.error_terms import of_release
from opendp_sim.measurements.selection._impl.ranked import leads_of_draws, leads_of_noise
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK
from opendp_sim.measurements.selection.limited_domain import LimitedDomain
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.top_k import TopK


def chance_of(counts: list[float], scale: float, k: int, wanted) -> float:
    """Return the chance of an event over all orders of k draws without replacement, exactly."""
    total = 0.0
    for order in itertools.permutations(range(len(counts)), k):
        chance, left = 1.0, set(range(len(counts)))
        for one in order:
            best = max(counts[i] for i in left)
            weights = {i: math.exp((counts[i] - best) / scale) for i in left}
            chance *= weights[one] / sum(weights.values())
            left.remove(one)
        total += chance if wanted(order) else 0.0
    return total


@pytest.mark.parametrize("k", [1, 2, 4])
def test_leads_of_draws_are_as_often_as_is_said(k):
    told = leads_of_draws(3.0, k, 6, ranked=True)
    lead, order = told["lead_for_95_percent"], told["order_for_95_percent"]
    worst = [1000.0] * (k - 1) + [lead] + [0.0] * (6 - k)
    listed = chance_of(worst, 3.0, k, lambda drawn: k - 1 in drawn)
    assert 0.95 <= listed < 0.96  # the bound is nearly attained where all others tie
    first = chance_of([order, 0.0, 1.0, 7.0], 3.0, 4, lambda d: d.index(0) < d.index(1))
    assert first == pytest.approx(0.95)


def test_losers_that_are_drawn_lose_as_seldom():
    lead = leads_of_draws(2.0, 4, 6, ranked=False)["lead_for_95_percent"]
    counts = [lead + 9.0, lead, lead, lead, 0.0, 0.0]
    assert chance_of([-c for c in counts], 2.0, 2, lambda lost: 1 in lost) <= 0.05


@pytest.mark.parametrize("scale", [0.4, 0.7, 1.0, 2.5, 8.0, 40.0])
@pytest.mark.parametrize("others", [1, 5, 10_000])
def test_leads_of_noise_hold_for_the_discrete_law(scale, others):
    """The law of the difference of two discrete Gaussians, summed: no sampling."""
    reach = math.ceil(14 * scale) + 2
    at = np.arange(-reach, reach + 1)
    law = np.exp(-(at**2) / (2 * scale**2))
    law /= law.sum()
    apart, places = np.convolve(law, law), np.arange(-2 * reach, 2 * reach + 1)
    told = leads_of_noise(scale, 3, 3 + others, ranked=True)
    for name, most in (("lead_for_95_percent", 0.05 / others), ("order_for_95_percent", 0.05)):
        lead = math.ceil(told[name])
        assert apart[places >= lead].sum() <= most


def test_a_plan_states_leads_where_no_counts_are_released():
    def stated(record):
        return of_release(record.bind(IntVector(12), USERS).expected, record)

    peel = stated(TopK(k=3, scale=5.0, delta=1e-6, ranked=True))
    assert peel is not None
    assert "noisy vote counts" not in peel.whole
    assert peel.line == "items 26 votes above no. 4 are listed in 95% of runs"
    assert 25 < 5.0 * math.log(179) < 26
    assert f"{5.0 * math.log(19):.3g} votes more comes first in 95%" in peel.whole
    assert "no counts are released" in peel.whole
    noisy = stated(GaussianTopK(k=3, scale=5.0, ranked=True))
    assert noisy is not None
    assert "95% of counts within ±11 votes" in noisy.whole
    silent = stated(Peel(k=3, scale=5.0))
    assert silent is not None
    assert "comes first" not in silent.whole


def test_an_output_holds_what_its_release_states():
    spec = Path(__file__).parents[3] / "specs" / "bright-pixels.yaml"
    plan = plan_file(spec)
    (output,) = plan.outputs.values()
    facts = plan.releases[output.stage.name].plain()["expected"]
    assert output.expected
    assert all(facts[name] == value for name, value in output.expected.items())
    assert plan.plain()["outputs"][output.decl.name]["expected"] == output.expected


def test_the_order_over_an_open_catalogue_is_stated_too():
    claim = LimitedDomain(k=2, k_max=9, scale=5.0, delta=1e-6, ranked=True)
    told = claim.bind(OpenCounts(False), USERS).expected
    assert told["order_for_95_percent"] == pytest.approx(5.0 * math.log(19))


@pytest.mark.parametrize("runs", [400, pytest.param(4000, marks=pytest.mark.long)])
@pytest.mark.parametrize("mechanism", [Peel(k=2, scale=4.0), GaussianTopK(k=2, scale=4.0)])
def test_draws_keep_what_is_said(mechanism, runs):
    """Real releases, items at the stated lead: fewer than 1 in 1e6 sound ones fail."""
    claim = mechanism.bind(IntVector(8), USERS)
    lead = math.ceil(claim.expected["lead_for_95_percent"])
    counts = np.array([900, 100 + lead, *[100] * 6])
    kept = sum(1 in claim.function(counts) for _ in range(runs))
    assert kept >= 0.95 * runs - 5 * math.sqrt(runs * 0.05 * 0.95)
