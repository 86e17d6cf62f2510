"""Chains that a program calls are taken apart in its runs, and release what they release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from opendp_sim.audit import audit
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Draw, Mode, Tape
from opendp_sim.core.randomness import public_generator
from tests._tiers import tiered
from tests.audit.growing import refuted
from tests.audit.test_sound_programs import BRIEF

dp.enable_features("contrib", "honest-but-curious")
ROWS = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
SUMMED = ROWS >> dp.t.then_clamp((0, 10)) >> dp.t.then_sum()
SHORT = replace(BRIEF, trace_seconds=9.0, seconds=5.0, scan_seconds=0.5, total=12.0)
DATA = [3, 20, -4]


def _run(
    function: Callable[[Any], Any], data: Any = DATA, mode: Mode = "zero"
) -> tuple[Any, list[Draw]]:
    tape = Tape(None, public_generator(0, "test"))
    with tapped(tape, [function]):  # type: ignore[list-item]
        return tape.run(function, data, mode)


def _calls(chain: dp.Measurement) -> Callable[[Any], Any]:
    def release(rows: list[int]) -> Any:
        return chain(rows)

    return release


def test_conversions_of_a_claim_leave_the_noise_as_it_is() -> None:
    gauss = dp.c.make_zCDP_to_approxDP(SUMMED >> dp.m.then_gaussian(2.0))
    out, (draw,) = _run(_calls(dp.c.make_fix_delta(gauss, 1e-6)))
    assert out == draw.argument == 13


def test_what_draws_by_itself_stays_one_draw() -> None:
    """Which records a resize keeps is chosen by chance that no tape has: the chain is called whole."""
    sized = ROWS >> dp.t.then_resize(2, 0) >> dp.t.then_clamp((0, 10)) >> dp.t.then_sum()
    chain = sized >> dp.m.then_laplace(5.0)
    _, (draw,) = _run(_calls(chain))
    assert draw.law is None
    assert Tape(None, np.random.default_rng(0))._parts(chain) is None


def test_a_users_function_in_a_chain_draws_on_the_tape() -> None:
    coin = np.random.default_rng()
    noisy = dp.t.make_user_transformation(
        *ROWS, *ROWS, lambda rows: [r for r in rows if coin.random() < 2], lambda d: d
    )
    chain = noisy >> dp.t.then_clamp((0, 10)) >> dp.t.then_sum() >> dp.m.then_laplace(5.0)
    tape = Tape(None, public_generator(0, "test"))

    def release(rows: list[int]) -> Any:
        _ = coin
        return chain(rows)

    with tapped(tape, [release, noisy.function and release]):  # type: ignore[list-item]
        _, draws = tape.run(release, DATA, "record")
    assert draws[-1].argument == 13


@pytest.mark.long
@pytest.mark.parametrize("tail", tiered(["", "clamped"], "clamped".__eq__))
def test_releases_in_bulk_have_the_law_of_the_chain(tail: str) -> None:
    chain = SUMMED >> dp.m.then_laplace(1.0)
    chain = chain >> (lambda v: min(v, 14)) if tail else chain
    release = _calls(chain)
    tape = Tape(None, public_generator(0, "test"))
    with tapped(tape, [release]):  # type: ignore[list-item]
        run = tape.live(release, "bulk")
        mine = [run(DATA) for _ in range(4000)]
    own = [chain(DATA) for _ in range(4000)]
    top = 14 if tail else 60
    assert max(*mine, *own) <= top
    for value in range(11, 15):  # six standard errors of a share
        gap = abs(mine.count(value) - own.count(value)) / 4000
        assert gap < 6 * (2 * 0.25 / 4000) ** 0.5


def _kinds_met(chain: dp.Measurement, data: Any = DATA) -> tuple[str, str]:
    """Return the kind of exception, or of argument, that a program meets: on a tape, and without one."""

    def release(rows: list[int]) -> str:
        try:
            out = chain(rows)
            return str(out[0] if isinstance(out, list) else out)
        except Exception as error:  # noqa: BLE001 - a program that looks at what it meets
            return type(error).__name__

    return str(_run(release, data, "record")[0]), release(data)


def test_what_a_users_part_raises_is_what_a_program_meets_without_a_tape() -> None:
    part = (
        dp.t.make_user_transformation(*ROWS, *ROWS, lambda rows: {}["key"], lambda d: d)
        >> dp.t.then_count()
    )
    mine, own = _kinds_met(part >> dp.m.then_laplace(1.0))
    assert mine == own == "OpenDPException"
    mine, own = _kinds_met(SUMMED >> dp.m.then_laplace(1.0) >> (lambda v: 1 // 0))
    assert mine == own == "OpenDPException"


@pytest.mark.parametrize("data", [DATA, tuple(DATA), np.array(DATA, dtype=np.int32), range(3)])
def test_a_users_measurement_in_a_composition_gets_what_opendp_hands_it(data: Any) -> None:
    kind = dp.m.make_user_measurement(
        *ROWS, dp.max_divergence(), lambda rows: type(rows).__name__, lambda d: 0.0
    )
    mine, own = _kinds_met(dp.c.make_composition([kind, SUMMED >> dp.m.then_laplace(1.0)]), data)
    assert mine == own == "list"


@pytest.mark.long
@pytest.mark.parametrize("scale", [9.5, 10.0])
def test_a_sensitivity_that_is_a_little_too_small_is_calculated(scale: float) -> None:
    """Of one record, up to 10, hidden by Laplace noise in a chain that is made anew for each release."""

    def release(rows: list[int]) -> Any:
        return (SUMMED >> dp.m.then_laplace(scale))(rows)

    made = dp.m.make_user_measurement(*ROWS, dp.max_divergence(), release, float)
    if scale < 10:
        found = refuted(made, 1, SHORT)
        assert found.verdict == "refuted"
        assert found.evidence is not None
        assert "the loss is 1.053 times the claim" in found.evidence.detail
    else:
        assert audit(made, 1, SHORT).verdict == "not refuted"
