"""The work of runs is counted before datasets grow: a quadratic function took minutes at thousands of records."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.size_limit import Ends, PacedPairs, longest, paced
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.work import charge, work_seconds
from tests.audit.growing import until
from tests.audit.opaque.kit import PURE, SYMMETRIC, opaque, whole
from tests.audit.test_sound_programs import BRIEF


class Work:
    """Runs whose work is a power of their size."""

    def __init__(self, power: float, each: float) -> None:
        self.power, self.each, self.largest = power, each, 0

    def run(self, data: list[int]) -> None:
        charge(self.each * len(data) ** self.power)
        self.largest = max(self.largest, len(data))


@pytest.mark.parametrize(("base", "most"), [(math.e, 8), (1.5, 16), (5.0, 4)])
def test_an_exponential_is_not_run_further_than_it_was_counted(base: float, most: int) -> None:
    """Permutations of 16 records, or noise that is drawn until it is in a range far away, never end."""
    largest, begin = [0], work_seconds()

    def run(data: list[int]) -> None:
        charge(2e-5 * base ** len(data))
        largest[0] = max(largest[0], len(data))

    assert longest(run, [1, 2, 3], 0.1) == most
    assert largest[0] == most
    assert work_seconds() - begin < 0.5


class Values:
    """Pairs of which few have large records."""

    def draw(self, rng: np.random.Generator, _: Any = None) -> Pair:
        return Pair([0] * int(rng.integers(1, 9)), [0], 1)

    def corners(self, _: np.random.Generator) -> Any:
        return iter([Pair([0, 10], [10], 1), Pair("no list", [], 1)])


def test_large_records_are_counted_by_themselves() -> None:
    """Noise that is drawn again until it is in a range takes long where the sum is far outside."""
    begin = work_seconds()

    def run(data: list[int]) -> None:
        charge(4e-5 * math.exp(max(0.0, sum(map(len, map(str, data))) - len(data))))

    assert paced(Values(), run, np.random.default_rng(0), 0.2).most == 8
    assert work_seconds() - begin < 0.5


_LAPLACE = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)


def _until_it_fits(rows: list[int]) -> int:
    while True:
        out = _LAPLACE(sum(min(max(r, 0), 10) for r in rows))
        if 0 <= out <= 100:
            return out


@pytest.mark.long
def test_an_audit_of_a_loop_that_draws_until_its_noise_fits_ends() -> None:
    """Its first run on 128 large records would end after e^1000 draws."""
    obj = opaque(whole(0, 10), SYMMETRIC, PURE, _until_it_fits, lambda d: 20.0 * d)
    brief = replace(BRIEF, seconds=0.1, trace_seconds=0.5)
    assert audit(obj, 1, budget=brief).verdict == "not refuted"


@pytest.mark.long
def test_a_loop_that_draws_until_its_noise_fits_is_not_run_far_from_there() -> None:
    local = opaque(
        whole(),
        SYMMETRIC,
        PURE,
        lambda rows: [_LAPLACE(min(r, 1)) for r in rows],
        lambda _: math.inf,
    )
    tape, rows = Tape(None, np.random.default_rng(0)), [1, 2, 3]
    with tapped(tape, [_until_it_fits, *functions_of(local)]):
        assert longest(_until_it_fits, rows, 0.5, Ends(tape, _until_it_fits)) < 100
        most = until(lambda n: n > 1000, lambda: longest(local, rows, 0.5, Ends(tape, local)))
        assert most > 1000


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


def test_pairs_that_would_take_too_long_are_left_out() -> None:
    rng = np.random.default_rng(0)
    space = paced(Sizes(), Work(2, 1e-6).run, rng, 0.01)
    assert isinstance(space, PacedPairs)
    assert 80 < space.most < 120
    pair = space.draw(rng)
    for one in (pair, space.mutate(pair, rng), *space.corners(rng), *space.simpler(pair)):
        assert len(one.right) <= space.most
