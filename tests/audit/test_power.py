"""What a run says that it would have seen is seen: simulated with an event known beforehand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opendp_sim.audit.betting import Wealth, settle
from opendp_sim.audit.counting import draws_needed, smallest_excess
from opendp_sim.audit.curves import approx_curve
from opendp_sim.audit.encoding import encode
from opendp_sim.audit.events import best_bet

BETA = 7e-4


def _shows(claim: tuple[float, float], true: float, rounds: int, rng: np.random.Generator) -> bool:
    """Bet on one event of probability 1/2 against e^-true / 2, in growing batches."""
    curve, wealth = approx_curve(*claim), Wealth()
    chances = 0.5, 0.5 * math.exp(-true)
    score = {"event": lambda outputs: outputs.cells[:, 0]}

    def draw(count: int) -> list[np.ndarray]:
        return [(rng.random((count, 1)) < chance).astype(float) for chance in chances]

    past, batch = draw(200), 60
    while wealth.rounds < rounds:
        bet = best_bet(score, *(encode(list(side)) for side in past), curve, slice(None))
        fresh = draw(min(batch, rounds - wealth.rounds))
        assert bet is not None
        if wealth.add(settle(bet, *(encode(list(side)) for side in fresh)), -math.log(BETA)):
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
    assert sum(_shows((epsilon, delta), true, rounds, rng) for _ in range(40)) > 24


def test_what_the_delta_of_a_claim_allows_is_not_said_to_show() -> None:
    assert draws_needed(1.0, 1.2, BETA, delta=0.1) == math.inf
    assert smallest_excess(1.0, 10_000, BETA, 0.1) > 1.22
    assert smallest_excess(1.0, 10_000, BETA, 0.6) == math.inf
