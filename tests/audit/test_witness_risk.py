"""The risk that stands beside a printed bound is the risk of all that was tried before it was printed."""

from __future__ import annotations

import math

import numpy as np
import opendp.prelude as dp
import pytest
from scipy.stats import binom

from opendp_sim.audit.claims.curves import approx_curve
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.report.counterexample import level_of
from opendp_sim.audit.statistics.clopper_pearson import lower_limit, upper_limit
from tests.audit.growing import shown

dp.enable_features("contrib")


@pytest.mark.parametrize("steps", [1, 2])
def test_the_printed_risk_is_that_of_all_events_that_may_be_certified(steps: int) -> None:
    """Randomized response exactly at its claim: its bounds were at 1e-3 for each event alone."""
    runs, reports, rng = 80, 100_000, np.random.default_rng(1)
    low = np.array([lower_limit(k, runs, level_of(steps) / 2) for k in range(runs + 1)])
    high = np.array([upper_limit(k, runs, level_of(steps) / 2) for k in range(runs + 1)])
    p = math.e / (1 + math.e)
    first, second = (rng.binomial(runs, q, (reports, 6 * steps)) for q in (p, 1 - p))
    wrong = int((low[first] > math.e * high[second]).any(axis=1).sum())
    assert wrong <= binom.isf(1e-6, reports, 1e-3)


def test_what_a_report_certifies_and_prints_is_at_one_level() -> None:
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
    witness = shown(
        lambda rows: noise(4 * len(rows)), Pair([], [1], 1), approx_curve(1.0, 0.0), 0.5
    )
    assert witness is not None
    low = lower_limit(witness.hits[0], witness.runs, level_of(1) / 2)
    high = upper_limit(witness.hits[1], witness.runs, level_of(1) / 2)
    assert witness.epsilon == pytest.approx(max(0.0, math.log(low / high)) if low else 0.0)
    assert "risk 1e-3 a run" in witness.script
