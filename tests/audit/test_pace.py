"""Runs are timed before datasets grow: a quadratic function took minutes at thousands of records."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from opendp_sim.audit import pace
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.pace import PacedPairs, longest, paced


class Clock:
    """CPU seconds that runs take by their size."""

    def __init__(self, power: float, each: float) -> None:
        self.power, self.each, self.now, self.largest = power, each, 0.0, 0

    def run(self, data: list[int]) -> None:
        self.now += self.each * len(data) ** self.power
        self.largest = max(self.largest, len(data))


@pytest.mark.parametrize(
    ("power", "each", "most"), [(1, 1e-6, 65536), (2, 1e-6, 316), (3, 1e-6, 46)]
)
def test_the_growth_is_fitted(
    power: float, each: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(power, each)
    monkeypatch.setattr(time, "process_time", lambda: clock.now)
    assert longest(clock.run, [1, 2, 3], 0.1) == pytest.approx(most, abs=1)
    assert clock.now < 0.5


def test_what_is_slow_from_the_first_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0, 0.5)
    monkeypatch.setattr(time, "process_time", lambda: clock.now)
    assert longest(clock.run, [1], 0.1) >= 65536


class Sizes:
    """Pairs of growing sizes."""

    def draw(self, rng: np.random.Generator, _: Any = None) -> Pair:
        size = int(rng.integers(0, 1000))
        return Pair([1] * size, [1] * (size + 1), 1)

    def corners(self, rng: np.random.Generator) -> Any:
        return (self.draw(rng) for _ in range(50))

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        del pair
        return self.draw(rng)

    def simpler(self, pair: Pair) -> Any:
        yield pair


def test_pairs_that_would_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, rng = Clock(2, 1e-6), np.random.default_rng(0)
    monkeypatch.setattr(pace.time, "process_time", lambda: clock.now)
    space = paced(Sizes(), clock.run, rng, 0.01)
    assert isinstance(space, PacedPairs)
    assert 90 < space.most < 110
    pair = space.draw(rng)
    for one in (pair, space.mutate(pair, rng), *space.corners(rng), *space.simpler(pair)):
        assert len(one.right) <= space.most
