"""Noise that a function draws itself is priced by its law: a hint, and never a law that a proof rests on."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import decode, look
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape

RNG, P = np.random.default_rng(), -math.expm1(-0.25)


def many(x: int) -> list[int]:
    noise = RNG.geometric(P, 3) - RNG.geometric(P, 3)
    return list((np.array([x, x, 0]) + noise).tolist())


@pytest.mark.parametrize(
    ("function", "loss"),
    [
        (lambda x: x + RNG.geometric(P) - RNG.geometric(P), 0.25),
        (lambda x: x + int(RNG.geometric(p=P, size=None)) - RNG.geometric(p=P), 0.25),
        (many, 0.5),
        (lambda x: x + RNG.gumbel(0, 8.0), 0.125),
        (lambda x: x + RNG.gumbel(0.0, 8.0, 2)[0], 0.125),
        (lambda x: x + RNG.logistic(scale=8.0), 0.125),
        (lambda x: x + RNG.exponential(4.0) - RNG.exponential(4.0), 0.25),
        (lambda x: x + 4.0 * RNG.standard_exponential(), 0.25),
        (lambda x: x + random.expovariate(0.25) - random.expovariate(0.25), 0.25),
    ],
)
def test_moving_an_output_costs_what_its_noise_says(function, loss: float) -> None:
    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [function]):
        view = look(tape, function, Pair(5, 6, 1), ("epsilon", 1.0, 0.0))
        assert all(draw.law is None for draw in view.draws)
    assert view.loss == pytest.approx(loss)


def test_normal_noise_costs_a_square() -> None:
    def function(x: float) -> float:
        return x + 4.0 * RNG.standard_normal()

    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [function]):
        view = look(tape, function, Pair(5.0, 6.0, 1), ("rho", 1.0, 0.0))
    assert view.loss == pytest.approx(1 / 32)


def test_a_one_sided_law_is_never_decoded() -> None:
    """A closed form is of the law of the draw itself: a half of a difference is none."""

    def function(x: int) -> int:
        return x + RNG.geometric(P) - RNG.geometric(P)

    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [function]):
        assert decode(tape, function, Pair(5, 6, 1)) is None
