"""Prices: closed forms beside a delta, and programs whose excess draws seldom show."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.claims.curves import gaussian_delta
from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.instrument.compare_tapes import Decoded
from opendp_sim.audit.trace.closed_form import Shift, closed_form
from opendp_sim.audit.trace.one_draw import level_step
from opendp_sim.audit.trace.pipeline import STEPS
from tests._tiers import tiered
from tests.audit.growing import audit_until, refuted
from tests.audit.opaque import PAIRS
from tests.audit.opaque.kit import APPROX, ZCDP

BY_NAME = {pair.name: pair for pair in PAIRS}
BRIEF = replace(
    Effort.of("quick"), seconds=0.5, trace_seconds=1.0, scan_seconds=0.3, stability_seconds=0.1
)
LONG = replace(
    BRIEF,
    seconds=15.0,
    trace_seconds=20.0,
    scan_seconds=10.0,
    scan_pairs=200,
    total=30.0,
    witness_seconds=0.0,
)


def _float_shift(family: str, moved: list[float]) -> Shift:
    n = len(moved)
    decoded = Decoded(tuple(range(n)), (1.0,) * n, n, ((0.0,) * n, (0.0,) * n))
    law = NoiseLaw(family, np.full(n, 2.0))
    return Shift(law, np.zeros(n), np.array(moved), False, decoded)


def test_float_noise_has_a_closed_form_beside_a_delta() -> None:
    two = _float_shift("gaussian", [1.0, 1.0])
    delta = gaussian_delta(math.sqrt(0.5), 0.5)
    assert closed_form(two, APPROX, (0.5, 0.999 * delta)) is not None
    assert closed_form(two, APPROX, (0.5, 1.001 * delta)) is None
    one = _float_shift("laplace", [1.0])
    delta = -math.expm1((0.3 - 0.5) / 2)
    assert closed_form(one, APPROX, (0.3, 0.999 * delta)) is not None
    assert closed_form(one, APPROX, (0.3, 1.001 * delta)) is None
    assert (
        closed_form(two, dp.approximate(ZCDP), (0.01, 1e-6)) is None
    )  # its first part is no epsilon


@pytest.mark.long
@pytest.mark.parametrize("name", ["jury_of_four", "first_two_visits"])
def test_what_strangers_wrote_and_was_missed_is_refuted(name: str) -> None:
    pair = BY_NAME[name]
    report = refuted(pair.make(True), pair.d_in, LONG)
    assert report.verdict == "refuted"


@pytest.mark.long
def test_noise_around_a_private_mean_is_priced() -> None:
    """The closed form is calculated; no event that draws meet in this budget shows the excess."""
    pair = BY_NAME["normal_around_the_sum"]
    report = audit_until(lambda found: found.priced is not None, pair.make(True), pair.d_in, LONG)
    assert report.priced is not None
    assert report.verdict in ("priced", "refuted")


@pytest.mark.long
def test_an_event_that_no_bet_reaches_is_priced() -> None:
    """At epsilon 10 draws never meet what e^10 forbids; its two probabilities are tails of the law."""
    pair = BY_NAME["classical_formula"]
    report = audit_until(
        lambda report: report.verdict == "priced", pair.make(True), pair.d_in, LONG
    )
    assert level_step in STEPS
    assert report.priced is not None
    assert "follows its one draw" in report.priced.detail
    assert "if a run is a function of its dataset and its tape" in report.priced.confidence


@pytest.mark.parametrize(
    "name", tiered(["classical_formula", "normal_around_the_sum"], "normal_around_the_sum".__eq__)
)
def test_what_is_exactly_within_its_claim_is_not(name: str) -> None:
    pair = BY_NAME[name]
    assert audit(pair.make(False), pair.d_in, BRIEF).verdict == "not refuted"
