"""Leads that a plan states of a ranking: as often as it says, by exact laws and by draws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opendp_sim.domains.counts import USERS, OpenCounts
from opendp_sim.domains.sketch import IntVector
from opendp_sim.dsl.types.error_terms import of_release
from opendp_sim.measurements.selection._impl.ranked import leads_of_noise
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK
from opendp_sim.measurements.selection.limited_domain import LimitedDomain
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.measurements.selection.top_k import TopK


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


def test_the_order_over_an_open_catalogue_is_stated_too():
    claim = LimitedDomain(k=2, k_max=9, scale=5.0, delta=1e-6, ranked=True)
    told = claim.bind(OpenCounts(False), USERS).expected
    assert told["order_for_95_percent"] == pytest.approx(5.0 * math.log(19))
