"""What a run says that it would have seen is seen: simulated with an event known beforehand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.checks import distribution
from opendp_sim.audit.checks.distribution import _bound_text
from opendp_sim.audit.claims.curves import approx_curve
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.outputs.encoding import encode
from opendp_sim.audit.statistics.betting import Wealth, best_bet, settle_bets
from opendp_sim.audit.statistics.clopper_pearson import smallest_excess

BETA = 7e-4


def _shows(
    claim: tuple[float, float], chances: tuple[float, float], rounds: int, rng: np.random.Generator
) -> bool:
    """Bet on one event of these probabilities, in growing batches."""
    curve, wealth = approx_curve(*claim), Wealth()
    score = {"event": lambda outputs: outputs.cells[:, 0]}

    def draw(count: int) -> list[np.ndarray]:
        return [(rng.random((count, 1)) < chance).astype(float) for chance in chances]

    past, batch = draw(200), 60
    while wealth.rounds < rounds:
        bet = best_bet(score, *(encode(list(side)) for side in past), curve, slice(None))
        fresh = draw(min(batch, rounds - wealth.rounds))
        assert bet is not None
        if wealth.add(settle_bets(bet, *(encode(list(side)) for side in fresh)), -math.log(BETA)):
            return True
        past = [np.concatenate(sides) for sides in zip(past, fresh, strict=True)]
        batch = int(batch * (1.5 if batch < 300 else 1.25))
    return False


@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds"),
    [
        (0.1, 0.0, 1500),
        (1.0, 0.1, 1500),
        pytest.param(1.0, 0.0, 3000, marks=pytest.mark.long),
        pytest.param(3.0, 0.0, 4000, marks=pytest.mark.long),
    ],
)
def test_what_would_have_shown_shows(epsilon: float, delta: float, rounds: int) -> None:
    """At .95 each, 24 of 40 or fewer come by chance with probability below 1e-9."""
    rng = np.random.default_rng(int(10 * epsilon) + rounds)
    true = smallest_excess(epsilon, rounds, BETA, delta)
    chances = 0.5, 0.5 * math.exp(-true)
    assert sum(_shows((epsilon, delta), chances, rounds, rng) for _ in range(40)) > 24


def test_no_power_is_said_where_there_is_none() -> None:
    for rounds in (0, 46, 300, 586, 3000):
        least = smallest_excess(2.0, rounds, BETA)
        told = _bound_text(2.0, 0.0, rounds, BETA, least)
        assert "inf" not in told
        assert f"{rounds} " in told
        assert ("too few draws to see anything" in told) == (rounds < 200)


def test_a_layer_without_a_draw_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(race: distribution.Race, _samples: object) -> None:
        race.budget = replace(race.budget, seconds=0.0)

    monkeypatch.setattr(distribution, "_bet", slow)
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    counted = space >> dp.t.then_count() >> dp.m.then_laplace(2.0)
    budget = replace(Effort.of("quick"), seconds=2.0, total=4.0)
    report = audit(counted, 1, budget)
    (layer,) = (layer for layer in report.layers if layer.layer == "L3 distribution")
    assert layer.status == "skipped"
    assert layer.reason.startswith("too few draws to see anything: 0 a side")
    assert report.checks == "L0 ran; L1, L2, L3, L4 did not"
    assert "Infinity" not in report.to_json()
    assert '"inf"' not in report.to_json()


def test_too_few_draws_stand_in_the_first_line() -> None:
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    counted = space >> dp.t.then_count() >> dp.m.then_laplace(0.5)
    budget = replace(Effort.of("quick"), seconds=0.6, total=1.0, bet_pairs=40)
    first = str(audit(counted, 1, budget)).splitlines()[0]
    assert "too few draws to see anything: 40 a side" in first
