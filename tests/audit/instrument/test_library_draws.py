"""What a call of a library's generator tells of its draw: places, items, laws and what orders pairs."""

# ruff: noqa: S311 - the draws that an audit meets
from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import opendp.mod as native
import opendp.prelude as dp
import pytest

from opendp_sim.audit.instrument.library_draws import shown
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import Draw, Tape

dp.enable_features("contrib")


def drawn(function: Callable[[], Any], mode: Any = "record") -> list[Draw]:
    """Return what a function draws, as the tape has it."""
    tape = Tape(None, RNG)

    def run(_: Any) -> Any:
        return function()

    with tapped(tape, [function, run]):
        out, draws = tape.run(run, 0, mode)
    assert np.isfinite(np.asarray(out, dtype=float)).all()
    return draws


def known(draw: Draw) -> bool:
    return not (draw.law is draw.free is draw.hint is draw.options is draw.argument is None)


RNG = np.random.default_rng()


def test_a_measurement_that_is_called_by_code_of_the_programs_own_has_no_law(monkeypatch) -> None:
    noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), 1.0)
    assert [draw.law is not None for draw in drawn(lambda: noise(0))] == [True]
    real = native.Measurement.__call__
    monkeypatch.setattr(native.Measurement, "__call__", lambda self, arg: 2 * real(self, arg))
    assert [draw.law for draw in drawn(lambda: noise(0))] == [None]


PYTHON, SYSTEM, LEGACY = random.Random(), random.SystemRandom(), np.random.RandomState()


@pytest.mark.parametrize(
    "function",
    [
        lambda: RNG.laplace(0.0, 1.0),
        lambda: np.random.default_rng().normal(0.0, 1.0),
        lambda: np.random.Generator(np.random.Philox()).laplace(0.0, 1.0),
        lambda: LEGACY.laplace(0.0, 1.0),
        lambda: np.random.laplace(0.0, 1.0),
        lambda: np.random.normal(0.0, 1.0),
        lambda: random.gauss(0.0, 1.0),
        lambda: random.normalvariate(0.0, 1.0),
        lambda: PYTHON.gauss(0.0, 1.0),
        lambda: SYSTEM.gauss(0.0, 1.0),
        lambda: random.Random().gauss(0.0, 1.0),
    ],
)
def test_the_libraries_own_functions_have_their_laws(function) -> None:
    assert [draw.free is not None for draw in drawn(function)] == [True]


@pytest.mark.parametrize("function", [lambda: random.expovariate(1.0), lambda: RNG.geometric(0.5)])
def test_the_libraries_own_functions_have_their_hints(function) -> None:
    assert [draw.hint is not None for draw in drawn(function)] == [True]


@pytest.mark.parametrize(
    "function",
    [
        lambda: secrets.randbelow(4),
        lambda: secrets.randbits(2),
        lambda: random.getrandbits(2),
        lambda: SYSTEM.getrandbits(2),
        lambda: random.choices([1, 2], weights=[1, 2])[0],
        lambda: RNG.choice([1, 2], p=[0.5, 0.5]),
    ],
)
def test_the_libraries_own_functions_have_their_items(function) -> None:
    assert [draw.options is not None for draw in drawn(function)] == [True]


def test_a_generator_that_is_set_back_draws_as_it_is_asked() -> None:
    rng = np.random.default_rng()

    def seeded(_: Any) -> int:
        np.random.seed(3)
        return int(np.random.geometric(0.1))

    def looked_at(_: Any) -> int:
        rng.bit_generator.state = np.random.PCG64(4).state
        return int(rng.geometric(0.1))

    for function in (seeded, looked_at):
        tape = Tape(None, np.random.default_rng(0))
        with tapped(tape, [function]):
            run = tape.live(function, "bulk")
            assert len({run([]) for _ in range(40)}) == 1


@pytest.mark.parametrize(
    "pick",
    [
        lambda rows: np.random.default_rng().choice(np.array(rows), size=2).tolist(),
        lambda rows: np.random.choice(rows, 2, replace=False).tolist(),
        lambda rows: np.random.permutation(np.array(rows)).tolist(),
        lambda rows: random.sample(rows, 2),
        lambda rows: [random.choice(rows)],
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
    for rows in (4, np.zeros((2, 2)), [[1], [2]]):
        (draw,) = drawn(lambda rows=rows: RNG.choice(rows))
        assert draw.what == f"rng.choice{(rows,)!r}()"
    assert len(shown("x" * 5000)) < 400
    assert shown("x" * 5000) != shown("x" * 4999 + "y")
