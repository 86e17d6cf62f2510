"""Sound programs that would fool a verdict by calculation: what stands between them and an accusation."""

from __future__ import annotations

import functools
import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.instrument.compare_tapes import clean_tapes
from opendp_sim.audit.instrument.patch_rng import Holders, tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.statistics.sampling import both_sides
from tests.audit.opaque.kit import PURE, SYMMETRIC, lap, opaque, up, whole

BRIEF = replace(
    Effort.of("quick"),
    seconds=0.3,
    trace_seconds=0.8,
    scan_seconds=0.2,
    stability_seconds=0.1,
    total=0.5,
)
PLACE = dp.atom_domain(T=int), dp.absolute_distance(T=int)
PAIR = Pair([1], [], 1)


def chain(before: Callable[[int], int], scale: float) -> dp.Measurement:
    return dp.t.make_user_transformation(*PLACE, *PLACE, before, lambda d: d) >> dp.m.then_laplace(
        scale
    )


def traced(function: Any) -> tuple[Tape, int]:
    """Return the tape of a program, and how many of its tapes were clean."""
    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [function]):
        return tape, clean_tapes(tape, function, PAIR)


def test_records_that_an_inner_chain_rounds_away_are_not_priced() -> None:
    noise = chain(lambda x: x // 4, 8.0)
    made = opaque(whole(0, 4), SYMMETRIC, PURE, lambda r: noise(sum(r)), lambda d: up(d / 8))
    assert audit(made, 1, BRIEF).verdict == "not refuted"


def test_a_hidden_coin_before_the_noise_is_found_by_its_argument() -> None:
    """The output is the noisy value, which is forced: only the argument shows that a record was left out."""
    coins, noise = itertools.cycle([True] * 4 + [False]), lap(1.0)
    assert traced(lambda rows: noise(len(rows) * next(coins)))[1] == 0
    assert traced(lambda rows: noise(len(rows)))[1] > 10


def test_draws_of_other_threads_are_on_no_tape() -> None:
    def threaded(rows: list[int]) -> int:
        out: list[int] = []
        thread = threading.Thread(target=lambda: out.append(random.getrandbits(3)))
        thread.start()
        thread.join()
        return out[0] + len(rows)

    tape, clean = traced(threaded)
    assert clean == 0
    assert tape.unseen


class _Slots:
    __slots__ = ("bits",)

    def __init__(self) -> None:
        self.bits = np.random.PCG64()


@pytest.mark.parametrize(
    ("kept", "draw"),
    [
        ([np.random.default_rng()], lambda held: held[0].random()),
        ({"a": {"b": random.Random()}}, lambda held: held["a"]["b"].random()),  # noqa: S311
        ((1, np.random.RandomState()), lambda held: held[1].random()),
        (functools.partial(np.random.default_rng().laplace, 0.0), lambda held: held(1.0)),
        ([random.Random().gauss], lambda held: held[0](0.0, 1.0)),  # noqa: S311
    ],
)
def test_generators_are_found_where_they_are_kept(kept: Any, draw: Callable[[Any], Any]) -> None:
    def program(_rows: list[int]) -> Any:
        return draw(kept)

    before = repr(kept)
    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [program]):
        assert len(tape.run(program, [], "record")[1]) == 1
        assert not tape.unseen
    assert repr(kept) == before
    assert len(tape.run(program, [], "record")[1]) == 0


def test_a_source_that_cannot_be_replaced_is_told() -> None:
    held = _Slots()
    assert traced(lambda rows: held.bits.random_raw() % 2 + len(rows))[0].unseen
    holders = Holders(lambda _: None, lambda value: isinstance(value, random.Random))
    coins = frozenset([random.Random()])  # noqa: S311
    holders.replace([lambda _: coins])
    assert holders.unseen


def test_what_a_function_counts_is_divided_between_the_sides() -> None:
    calls = itertools.count()
    left, right = both_sides(lambda data: [(next(calls), data)], Pair("a", "b", 1), 4000)
    assert {side for _, side in left} == {"a"}
    first = sum(a < b for (a, _), (b, _) in zip(left, right, strict=True))
    assert 1800 < first < 2200
    assert all(abs(a - b) == 1 for (a, _), (b, _) in zip(left, right, strict=True))


def test_a_program_that_stops_after_some_calls_tells_nothing() -> None:
    calls, noise = itertools.count(), lap(1.0)

    def stopping(rows: list[int]) -> int:
        if next(calls) > 500:
            raise RuntimeError
        return noise(len(rows))

    made = opaque(whole(0, 3), SYMMETRIC, PURE, stopping, lambda d: up(noise.map(d)))
    assert audit(made, 1, BRIEF).verdict == "not refuted"
