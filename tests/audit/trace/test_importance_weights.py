"""Weighed runs: what they estimate, what they may refute, and what they see where noise is hidden."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit.claims.curves import pure_curve
from opendp_sim.audit.findings import Budget
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.instrument.native_laws import Law
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.seeds.constants import Mined
from opendp_sim.audit.seeds.from_code import guided
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.subject import read_subject
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.importance_weights import Weighed, weighed_bets, weighed_step
from opendp_sim.audit.trace.layer import LAYER
from tests._tiers import tiered
from tests.audit.growing import refuted, until
from tests.audit.opaque import PAIRS
from tests.audit.opaque.kit import PURE, SYMMETRIC, gauss, lap, opaque, whole

BY_NAME = {pair.name: pair for pair in PAIRS}
LINF = dp.linf_distance(T=int)
LONG = replace(
    Budget.of("quick"),
    seconds=20.0,
    trace_seconds=20.0,
    scan_seconds=20.0,
    scan_pairs=200,
    total=60.0,
)


@contextmanager
def _on_tape(function: Callable[[Any], Any], mode: str = "bulk") -> Iterator[Any]:
    """Yield the function with its noise drawn ahead, and what weighs it."""
    obj = opaque(whole(size=2), LINF, PURE, function, float)
    tape = Tape(obj, np.random.default_rng(0))
    with tapped(tape, functions_of(obj)):
        run = tape.live(function, mode)
        for _ in range(3):  # native noise is compared to its law when it is met again
            run([0, 0])
        yield run, tape.common


def _tail(scale: float, least: int) -> float:
    """Return the probability that whole Laplace noise is at least a number."""
    t = math.exp(-1 / scale)
    return t**least / (1 + t) if least >= 1 else 1 - t ** (1 - least) / (1 + t)


def _both_above(answers: list[int], bar: int, scale: float) -> float:
    """Return the probability that two answers are above one noisy bar."""
    t = math.exp(-1 / scale)
    noise = {z: t ** abs(z) * (1 - t) / (1 + t) for z in range(-80, 81)}
    return math.fsum(
        p * math.prod(_tail(scale, bar + z - a) for a in answers) for z, p in noise.items()
    )


def test_noisy_values_in_common_have_the_law_of_either_side() -> None:
    noise = lap(2.0)

    def marks(answers: list[int]) -> list[bool]:
        bar = noise(3)
        return [noise(a) >= bar for a in answers]

    pair = Pair([3, 2], [2, 3], 1)
    with _on_tape(marks) as (run, common):
        seen = Weighed().more(run, pair, 4000, common)
    outputs, weights = seen.arrays()
    both = seen.names["[True, True]"]
    hits = weights * (outputs == both)
    for columns, data in (((0, 2), pair.left), ((1, 3), pair.right)):
        each = hits[:, columns].mean(axis=1)
        error = float(each.std()) / math.sqrt(len(each))
        assert abs(float(each.mean()) - _both_above(data, 3, 2.0)) < 5 * error
    assert weights.min() >= 0
    assert weights.max() <= 2
    assert np.allclose(weights[:, 0] + weights[:, 1], 2)


def test_an_output_that_the_values_decide_differs_by_its_weights_alone() -> None:
    noise = gauss(3.0)

    def larger(answers: list[int]) -> bool:
        return noise(answers[0]) > noise(answers[1])

    with _on_tape(larger) as (run, common):
        seen = Weighed().more(run, Pair([0, 1], [1, 0], 1), 200, common)
    outputs, weights = seen.arrays()
    assert (outputs[:, 0] == outputs[:, 1]).all()
    assert (outputs[:, 2] == outputs[:, 3]).all()
    assert len(set(weights[:, 0].tolist())) > 10


@pytest.mark.parametrize(("family", "scale"), [("laplace", 2.5), ("gaussian", 1.5)])
def test_the_ratio_is_that_of_the_masses(family: str, scale: float) -> None:
    law = Law(family, scale, whole=True, vector=True, carrier="i32")
    values = range(-6, 7)
    at = {a: dict(zip(values, law.masses(range(-6 - a, 7 - a)), strict=True)) for a in (0, 2)}
    for value in values:
        told = law.log_ratio([value, 1], [2, 0], [0, 0])
        assert told == pytest.approx(math.log(at[2][value] / at[0][value]))


def test_other_draws_are_drawn_for_each_side_where_their_laws_differ() -> None:
    """Coins before the noise, as many as there are records: the k-th of one side is none of the other's."""
    noise = lap(1.0)

    def sampled(answers: list[int]) -> int:
        kept = sum(random.random() < 0.5 for _ in range(answers[0]))  # noqa: S311 - a stranger's coin
        return int(noise(kept) >= 1)

    with _on_tape(sampled) as (run, common):
        seen = Weighed().more(run, Pair([1, 0], [2, 0], 1), 4000, common)
    outputs, weights = seen.arrays()
    hits = weights * (outputs == seen.names["1"])
    for columns, size in (((0, 2), 1), ((1, 3), 2)):
        true = sum(math.comb(size, k) / 2**size * _tail(1.0, 1 - k) for k in range(size + 1))
        each = hits[:, columns].mean(axis=1)
        assert abs(float(each.mean()) - true) < 5 * float(each.std()) / math.sqrt(len(each))


_NOISE = lap(1.0)


def _one(answers: list[int]) -> int:
    return min(max(_NOISE(answers[0]), 0), 1)


@pytest.mark.long
def test_bets_on_a_claim_that_is_attained_lose() -> None:
    """The event "at least 1" of noise of scale 1 has a loss of exactly 1: one in 20 is won at most."""
    pair, won = Pair([1, 0], [0, 0], 1), 0
    with _on_tape(_one) as (run, common):
        for _ in range(20):
            won += weighed_bets(run, pair, pure_curve(1.0), 0.1, 0.05, common, first=40) is not None
    assert won <= 5


def test_bets_on_a_claim_below_what_is_attained_win() -> None:
    pair = Pair([1, 0], [0, 0], 1)
    with _on_tape(_one) as (run, common):
        assert weighed_bets(run, pair, pure_curve(1.0), 0.1, 1e-6, common, first=40) is None
        assert weighed_bets(run, pair, pure_curve(0.8), 3.0, 1e-3, common) is not None


def _tracer(function: Callable[[Any], Any], claim: float) -> Tracer:
    obj = opaque(whole(size=2), LINF, PURE, function, lambda d: claim * d)
    space = space_of(obj.input_domain, obj.input_metric, 1)
    subject = read_subject(obj, 1, core=None, noise=None, drive=None)
    rng, functions = np.random.default_rng(0), functions_of(obj)
    budget = replace(LONG, scan_pairs=100, trace_seconds=8.0)
    return Tracer(subject, space, 1, budget, rng, 1e-3, (), functions, Mined())


def _stepped(tracer: Tracer) -> Any:
    with tracer.hooked():
        tracer.prepare()
        tracer.look_around()
        return weighed_step(tracer)


def test_a_vote_with_half_of_its_noise_is_weighed_and_one_that_costs_no_more_is_left() -> None:
    noise = lap(1.0)

    def vote(answers: list[int]) -> bool:
        return noise(answers[0]) > noise(answers[1])

    found = until(bool, lambda: _stepped(_tracer(vote, 1.0)))
    assert found.extra["how"] == "drawn and weighed"
    assert "weighed by OpenDP's laws" in found.confidence
    assert _stepped(_tracer(vote, 2.0)) is None  # no tape costs more than the claim


def test_noise_that_the_function_adds_by_itself_is_not_weighed() -> None:
    rng = np.random.default_rng()

    def vote(answers: list[int]) -> bool:
        return bool(rng.laplace(answers[0]) > rng.laplace(answers[1]))

    assert _stepped(_tracer(vote, 1.0)) is None


def test_steps_that_ask_for_more_seconds_get_half_of_the_layer_s_together() -> None:
    tracer = _tracer(lambda answers: answers, 1.0)
    for _ in range(4):
        tracer.extend(2.5)
    assert tracer.extra == 4.0


@pytest.mark.parametrize(
    "name",
    tiered(
        ["svt_three_hits", "svt_reuses_answer", "svt_threshold_noise_again", "svt_never_stops"],
        set[str]().__contains__,
    ),
)
def test_a_sparse_vector_that_spends_too_much_is_seen(name: str) -> None:
    pair = BY_NAME[name]
    report = refuted(pair.make(True), pair.d_in, LONG)
    assert report.verdict == "refuted"
    assert report.layer in {LAYER, "L3 distribution"}  # L3 goes on with the pairs that LT has found


def test_a_part_that_the_code_names_is_a_quantile_s_border() -> None:
    domain = whole(0, 100)
    found = Mined({0.9, 20.0})
    space = guided(space_of(domain, SYMMETRIC, 1), domain, found)

    def decile(rows: list[int]) -> int:
        return sorted(rows)[int(0.9 * len(rows))] if len(rows) >= 20 else 0

    moved = [
        pair
        for pair in space.corners(np.random.default_rng(0))
        if min(len(pair.left), len(pair.right)) >= 20
        and {decile(pair.left), decile(pair.right)} == {0, 100}
    ]
    assert moved
    assert all(abs(len(pair.left) - len(pair.right)) == 1 for pair in moved)
