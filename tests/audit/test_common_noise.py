"""Noise in common for the two runs of a round, and places instead of records on the tape."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.claims.curves import approx_curve, gaussian_delta
from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import space_of
from opendp_sim.audit.instrument.compare_tapes import Decoded
from opendp_sim.audit.instrument.noise_pool import Common
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.permutations import picked, shown
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.seeds.constants import Mined
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.statistics.score_bets import lean_bets
from opendp_sim.audit.subject import read_subject
from opendp_sim.audit.trace.closed_form import Shift, closed_form
from opendp_sim.audit.trace.context import Tracer
from opendp_sim.audit.trace.pipeline import STEPS
from opendp_sim.audit.trace.tail_events import level_step
from opendp_sim.audit.work import metered
from tests._tiers import tiered
from tests.audit.growing import audit_until, refuted
from tests.audit.opaque import PAIRS
from tests.audit.opaque.kit import APPROX, PURE, SYMMETRIC, ZCDP, opaque, up, whole

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


def _live(function: Callable[[Any], Any], data: Any, count: int) -> tuple[list[Any], Tape]:
    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [function]):  # type: ignore[list-item]
        run = tape.live(function, "bulk")
        return [run(data) for _ in range(count)], tape


def test_a_generator_that_is_set_back_draws_as_it_is_asked() -> None:
    def seeded(_: Any) -> int:
        np.random.seed(3)
        return int(np.random.geometric(0.1))

    drawn, tape = _live(seeded, [], 40)
    assert tape.resets
    assert len(set(drawn)) == 1
    rng = np.random.default_rng()

    def looked_at(_: Any) -> int:
        rng.bit_generator.state = np.random.PCG64(4).state
        return int(rng.geometric(0.1))

    drawn, tape = _live(looked_at, [], 40)
    assert len(set(drawn)) == 1


# --- noise in common --------------------------------------------------------------------------


def _rounds(function: Callable[[Any], Any]) -> Common | None:
    obj = opaque(whole(0, 3), SYMMETRIC, PURE, function, lambda d: up(1.0 * d))
    functions = functions_of(obj)
    space = space_of(obj.input_domain, obj.input_metric, 1)
    rng, subject = np.random.default_rng(0), read_subject(obj, 1, core=None, noise=None, drive=None)
    tracer = Tracer(subject, space, 1, BRIEF, rng, 1e-3, (), functions, Mined())
    with tracer.hooked():
        tracer.prepare()
        return tracer.rounds(Pair([], [1], 1))


def test_rounds_have_noise_in_common_only_where_a_run_leaves_nothing_behind() -> None:
    rng, last = np.random.default_rng(), [0]

    def plain(rows: Any) -> int:
        return len(rows) + int(rng.geometric(0.5))

    def carried(rows: Any) -> int:
        now, before = int(rng.geometric(0.5)), last[0]
        last[0] = now
        return len(rows) + now + before

    def seeded(rows: Any) -> int:
        np.random.seed(1)
        return len(rows) + int(np.random.geometric(0.5))

    assert _rounds(plain) is not None
    assert _rounds(carried) is None
    assert _rounds(seeded) is None


def _shifted(common: Common, seed: int) -> Callable[[Any], list[float]]:
    rng, pool = np.random.default_rng(seed), list[float]()

    def one() -> float:
        if not pool:
            pool.extend(rng.laplace(0, 1 / 1.2, 4096).tolist())
        return pool.pop()

    return lambda x: [x + (common.draw("z", one) if common.on else one())]


def test_noise_in_common_needs_fewer_rounds_and_wins_nothing_at_the_claim() -> None:
    pair, seconds = Pair(0.0, 1.0, 1), 60.0

    def score(rows: Any) -> Any:
        return -rows[:, 0]

    needed = []
    for rounds in (False, True):
        total = 0
        for seed in range(3):
            common = Common()
            run = metered(_shifted(common, seed))
            won = lean_bets(
                run,
                pair,
                score,
                approx_curve(1.0, 0.0),
                seconds,
                1e-3,
                first=400,
                rounds=common if rounds else None,
            )
            assert won is not None
            total += won.wealth.rounds
        needed.append(total)
    assert needed[1] < 0.8 * needed[0]
    common = Common()
    sound = metered(_shifted(common, 9))
    assert lean_bets(sound, pair, score, approx_curve(1.2, 0.0), 0.3, 1e-6, rounds=common) is None


# --- places instead of records -----------------------------------------------------------------


@pytest.mark.parametrize(
    "pick",
    [
        lambda rows: np.random.default_rng().choice(np.array(rows), size=2).tolist(),
        lambda rows: np.random.choice(rows, 2, replace=False).tolist(),
        lambda rows: np.random.permutation(np.array(rows)).tolist(),
        lambda rows: random.sample(rows, 2),
        lambda rows: [random.choice(rows)],  # noqa: S311,
    ],
    ids=["choice", "legacy", "permutation", "sample", "random"],
)
def test_records_that_are_picked_stand_at_places_that_are_on_the_tape(pick: Any) -> None:
    tape = Tape(None, np.random.default_rng(0))
    with tapped(tape, [pick]):
        out, draws = tape.run(pick, [1, 2, 3, 4], "record")
        again, forced = tape.run(pick, [10, 20, 30, 40], "force", [d.value for d in draws])
    assert again == [10 * value for value in out]
    assert [d.told for d in draws] == [d.told for d in forced]


def test_what_has_no_places_is_drawn_as_before_and_long_parameters_are_told_in_parts() -> None:
    tape, rng = Tape(None, np.random.default_rng(0)), np.random.default_rng()
    for rows in ([], 4, np.zeros((2, 2)), [[1], [2]]):
        assert picked(tape, "rng.choice", rng.choice, (rows,), {}, "") is None
    assert len(shown("x" * 5000)) < 400
    assert shown("x" * 5000) != shown("x" * 4999 + "y")


# --- calculated beside a delta -------------------------------------------------------------------


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
